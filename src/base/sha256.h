/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 of bytes and files, by libcrypto. Digests are written "sha256:<64 hex digits>". */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define FORGE_SHA256_BYTES 32
#define FORGE_DIGEST_MAX   72 /* "sha256:", 64 digits, NUL */

struct forge_sha256 {
	uint64_t state[16]; /* libcrypto's, which we do not look into */
};

void forge_sha256_init(struct forge_sha256 *h);
void forge_sha256_add(struct forge_sha256 *h, const void *data, size_t len);
/* Returns buf. */
const char *forge_sha256_done(struct forge_sha256 *h, char buf[FORGE_DIGEST_MAX]);

/*
 * Reads fd from its start to its end; with copy_fd >= 0 also writes there. 0 or -errno;
 * *ret_size is how much there was.
 */
FORGE_MUST_CHECK int forge_sha256_fd(int fd, int copy_fd, char buf[FORGE_DIGEST_MAX],
				     uint64_t *ret_size);
/*
 * The same, for files that somebody else made as large as they like: -ECANCELED as soon as
 * stop_fd (-1: none) is readable. What is all zeros becomes a hole of the copy, which must be
 * empty before.
 */
FORGE_MUST_CHECK int forge_sha256_until(int fd, int copy_fd, int stop_fd,
					char buf[FORGE_DIGEST_MAX], uint64_t *ret_size);
