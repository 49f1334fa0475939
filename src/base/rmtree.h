/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes a directory tree that somebody hostile made: never follows a link, never leaves the
 * mount (subvolumes of btrfs are part of it), needs constant descriptors however deep the tree is, and
 * constant memory where directories can be moved.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct forge_rmtree_stats {
	uint64_t files, dirs, bytes; /* removed; bytes as allocated on disk */
};

/*
 * Removes path, which must be the directory with this identity (dev and ino as from stat).
 * Something else there is left alone: -ESTALE. Nothing there: 0. Nobody may be writing in it.
 */
FORGE_MUST_CHECK int forge_rmtree(const char *path, dev_t dev, ino_t ino,
				  struct forge_rmtree_stats *ret,
				  struct forge_error *err);
/* Gives the tree, 256 levels of it, to uid:gid and takes setuid and setgid bits away; same rules. */
FORGE_MUST_CHECK int forge_chown_tree(const char *path, uid_t uid, gid_t gid, dev_t dev,
				      ino_t ino, struct forge_error *err);
