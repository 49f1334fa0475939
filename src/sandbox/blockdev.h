/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the disk behind a directory: the kernel's I/O limits apply to disks. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

struct forge_blockdev {
	unsigned major, minor; /* of the whole disk, never of a partition */
	char name[64];	       /* "vda", for messages */
};

/*
 * Finds the disk that holds path, or will hold it once path exists. Where no disk can be
 * limited (a tmpfs, an overlay, btrfs with its anonymous device numbers, a network file system)
 * it fails with a message that names the file system.
 */
FORGE_MUST_CHECK int forge_blockdev_find(const char *path, struct forge_blockdev *ret,
					 struct forge_error *err);
