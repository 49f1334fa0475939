/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of inputs. Those of big files without writers are cached by inode and times. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "base/sha256.h"
#include "base/strv.h"
#include "state/home.h"

/*
 * A child process hashes while the run goes on. So a slow or hanging file system under an
 * input does not keep the supervisor from enforcing limits, and a big input does not
 * delay the start.
 */
struct forge_hasher {
	pid_t pid; /* 0: none */
	int fd;
};
#define FORGE_HASHER_INIT ((struct forge_hasher){ .fd = -1 })

/* Starts hashing these canonical paths. A failure shows in the result of finish(). */
void forge_hasher_start(struct forge_hasher *h, const struct forge_home *home,
			const struct forge_strv *inputs);
/*
 * Waits as long as the child makes progress within stall_seconds and signal_fd (-1: none)
 * is not readable. Returns a new array
 *   [{path, size, sha256}]
 * where a directory also has "files", and its digest is that of the list of its files
 * ("<digest> <path>", each ended by NUL, sorted; the digest of a link is that of
 * "link:<target>"). An input that could not be hashed, or changed meanwhile, has "error"
 * instead of a digest.
 */
json_t *forge_hasher_finish(struct forge_hasher *h, const struct forge_strv *inputs,
			    int signal_fd, int stall_seconds);

/*
 * The same digest, made here and now. path is canonical. A file system that does not answer is waited for; a signal
 * that ends the process still does. -EBUSY: the file changed meanwhile.
 */
FORGE_MUST_CHECK int forge_input_digest(const struct forge_home *home, const char *path,
					char ret[FORGE_DIGEST_MAX], uint64_t *ret_size,
					struct forge_error *err);
/* The same for an open object, which other processes may link at the same time. 0 or -errno. */
FORGE_MUST_CHECK int forge_object_digest(const struct forge_home *home, int fd,
					 char ret[FORGE_DIGEST_MAX], uint64_t *ret_size);
