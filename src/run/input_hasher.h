/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of inputs. Those of big files that nobody writes are remembered by inode, size and times. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "base/strv.h"
#include "state/home.h"

/*
 * Hashing goes on in a child process beside the run: a slow or hanging file system under an input
 * then keeps nobody from the run's limits, and a big input does not delay its start.
 */
struct forge_hasher {
	pid_t pid; /* 0: none */
	int fd;
};
#define FORGE_HASHER_INIT ((struct forge_hasher){ .fd = -1 })

/* Begins with the canonical paths of inputs. A failure shows in what finish() returns. */
void forge_hasher_start(struct forge_hasher *h, const struct forge_home *home,
			const struct forge_strv *inputs);
/*
 * Waits as long as it makes progress within stall_seconds and signal_fd (-1: none) is quiet.
 * Returns a new array
 *   [{path, size, sha256}]
 * where a directory also has "files", and its digest is that of the list of its files
 * ("<digest>  <path>", each ended by NUL, sorted; a link's is of "link:<target>"). What could not
 * be hashed, or changed meanwhile, has "error" in place of a digest.
 */
json_t *forge_hasher_finish(struct forge_hasher *h, const struct forge_strv *inputs,
			    int signal_fd, int stall_seconds);
