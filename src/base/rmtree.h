/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes a directory tree that a hostile program made. It never follows a link and never
 * leaves the mount (subvolumes of btrfs are part of it). It needs a constant number of
 * descriptors however deep the tree is, and constant memory where directories can be moved.
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
 * Anything else there is left alone: -ESTALE. Nothing there: 0. No process may be writing in
 * it.
 */
FORGE_MUST_CHECK int forge_rmtree(const char *path, dev_t dev, ino_t ino,
				  struct forge_rmtree_stats *ret,
				  struct forge_error *err);
/*
 * Gives the tree, down to 256 levels, to uid:gid, removes setuid and setgid bits, and takes it out of its quota
 * project into that of the directory around it; same rules.
 */
FORGE_MUST_CHECK int forge_chown_tree(const char *path, uid_t uid, gid_t gid, dev_t dev,
				      ino_t ino, struct forge_error *err);
