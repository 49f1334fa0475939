/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory in $FORGE_HOME/staging with files that a run gets to see under names of their own: outputs of other
 * runs, as links to the objects. It is locked while its maker lives; gc removes those that nobody needs.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "state/home.h"

struct forge_stage {
	char path[PATH_MAX];
	int fd; /* locked, so that gc does not remove it; -1: none */
	dev_t dev;
	ino_t ino;
};
#define FORGE_STAGE_INIT ((struct forge_stage){ .fd = -1 })

/* Makes an empty one. The name must be new. */
FORGE_MUST_CHECK int forge_stage_make(const struct forge_home *home, const char *name,
				      struct forge_stage *ret, struct forge_error *err);
/*
 * Adds an object under a relative path: a link to it, or a copy where links are not possible. Path and digest may
 * come from a store. -EINVAL: the path leads out, or the digest is none; -EUCLEAN: the object has another content;
 * -EEXIST: there is such a file. trusts_times: the digest of a big object is not computed again if its times are
 * those of the last time.
 */
FORGE_MUST_CHECK int forge_stage_object(const struct forge_stage *s,
					const struct forge_home *home, const char *path,
					const char *digest, bool trusts_times);
/* Adds a symbolic link to an absolute path. */
FORGE_MUST_CHECK int forge_stage_link(const struct forge_stage *s, const char *path,
				      const char *target);
/* Adds a file with this content. */
FORGE_MUST_CHECK int forge_stage_text(const struct forge_stage *s, const char *path,
				      const char *text, size_t len);
/* Makes a directory. */
FORGE_MUST_CHECK int forge_stage_dir(const struct forge_stage *s, const char *path);
/* Removes it. Accepts FORGE_STAGE_INIT. */
void forge_stage_remove(struct forge_stage *s);
