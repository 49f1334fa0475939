/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of the host's files that tasks read. Each file is read once, as long as its times stay the same. */
#pragma once

#include "base/error.h"
#include "base/sha256.h"
#include "state/home.h"

struct forge_digests;

/* home is borrowed. NULL: out of memory. */
struct forge_digests *forge_digests_new(const struct forge_home *home);
void forge_digests_free(struct forge_digests *d);
/*
 * The canonical path and the digest of a file or directory; both are borrowed until forge_digests_free(), or until the
 * file has changed and is asked for again.
 */
FORGE_MUST_CHECK int forge_digests_get(struct forge_digests *d, const char *path,
				       const char **ret_real, const char **ret_digest,
				       struct forge_error *err);
