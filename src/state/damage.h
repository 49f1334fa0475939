/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks of damaged objects: $FORGE_HOME/damaged/<64 digits>.json. forge verify makes them, a run
 * that stores the same content again repairs the object and removes its mark. Both hold the lock
 * of the directory, so that no mark is made for an object that was repaired meanwhile.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "state/home.h"

/*
 * The directory, locked until it is closed; makes: it is made when there is none, otherwise that
 * is -ENOENT. Returns the descriptor or -errno.
 */
FORGE_MUST_CHECK int forge_damage_lock(int home_fd, bool makes);
/*
 * Digests below are "sha256:...", as forge_objects_is_digest() accepts them. The mark is on disk
 * when this returns. found: the digest of the content, NULL: unknown. 0 or -errno.
 */
FORGE_MUST_CHECK int forge_damage_mark(const struct forge_home *home, int dir,
				       const char *digest, const char *problem,
				       const char *found);
/* 1: there was a mark; 0: there was none. */
FORGE_MUST_CHECK int forge_damage_unmark(int dir, const char *digest);
/* 1, 0, or -errno when it cannot be known. */
FORGE_MUST_CHECK int forge_damage_is_marked(int home_fd, const char *digest);
/*
 * The mark: {sha256, problem, found?, time}. NULL: there is none, or it cannot be read. Of a mark
 * that is torn only the fact is left: an empty object.
 */
json_t *forge_damage_read(int home_fd, const char *digest);
/* "<64 digits>.json" to "sha256:<64 digits>". False: it is no name of a mark. */
#define FORGE_MARK_MAX 80
bool forge_damage_digest_of(const char *name, char ret[FORGE_MARK_MAX]);
