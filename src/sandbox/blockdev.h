/* SPDX-License-Identifier: Apache-2.0 */
/* The disk behind a directory: what the kernel's I/O limits are about. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

struct forge_blockdev {
	unsigned major, minor; /* of the whole disk, never of a partition */
	char name[64];	       /* "vda", for people */
};

/*
 * Finds the disk that path is on, or will be on when it is made. Fails with a sentence that
 * names the file system where there is none to limit: a tmpfs, an overlay, btrfs (whose
 * numbers belong to no device), a network.
 */
FORGE_MUST_CHECK int forge_blockdev_find(const char *path, struct forge_blockdev *ret,
					 struct forge_error *err);
