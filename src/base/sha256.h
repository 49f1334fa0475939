/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 of bytes and files, by libcrypto. Digests are written "sha256:<64 hex digits>". */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define FORGE_SHA256_BYTES 32
#define FORGE_DIGEST_MAX   72 /* "sha256:", 64 digits, NUL */

struct forge_sha256 {
	uint64_t state[16]; /* private to libcrypto */
};

void forge_sha256_init(struct forge_sha256 *h);
void forge_sha256_add(struct forge_sha256 *h, const void *data, size_t len);
/* Returns buf. */
const char *forge_sha256_done(struct forge_sha256 *h, char buf[FORGE_DIGEST_MAX]);

/*
 * Reads fd from its start to its end; with copy_fd >= 0 also writes there. Returns 0 or -errno;
 * *ret_size is the number of bytes read.
 */
FORGE_MUST_CHECK int forge_sha256_fd(int fd, int copy_fd, char buf[FORGE_DIGEST_MAX],
				     uint64_t *ret_size);
/*
 * The same for files that another user may have made of any size: -ECANCELED as soon as stop_fd
 * (-1: none) is readable. Blocks of zeros become holes in the copy, which must be empty before.
 */
FORGE_MUST_CHECK int forge_sha256_until(int fd, int copy_fd, int stop_fd,
					char buf[FORGE_DIGEST_MAX], uint64_t *ret_size);
