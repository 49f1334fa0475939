/* SPDX-License-Identifier: Apache-2.0 */
/* A growing, NULL-terminated array of owned strings (argv, environment, path lists). */
#pragma once

#include <stddef.h>

#include "base/cleanup.h"
#include "base/error.h"

struct forge_strv {
	char **v; /* NULL-terminated, or NULL while empty */
	size_t n, cap;
};

#define forge_strv_foreach(s, sv)                                                        \
	for (char **s##_p_ = (sv)->v, *s = NULL; s##_p_ && (s = *s##_p_); s##_p_++)

/* All return 0 or -ENOMEM. */
FORGE_MUST_CHECK int forge_strv_add(struct forge_strv *sv, const char *s);
FORGE_MUST_CHECK int forge_strv_addf(struct forge_strv *sv, const char *fmt, ...)
	FORGE_PRINTF(2, 3);
/* Takes ownership of s, also on failure. A NULL s gives -ENOMEM. */
FORGE_MUST_CHECK int forge_strv_take(struct forge_strv *sv, char *s);
FORGE_MUST_CHECK int forge_strv_copy(struct forge_strv *dst,
				     const struct forge_strv *src);
/* "K=V" style: replaces the entry whose name is the same, or adds it. */
FORGE_MUST_CHECK int forge_strv_setenv(struct forge_strv *sv, const char *name,
				       const char *value);
/* Removes the entry of that name, if there is one. */
void forge_strv_unsetenv(struct forge_strv *sv, const char *name);
/* The value of "name=" or NULL. */
const char *forge_strv_getenv(const struct forge_strv *sv, const char *name);
void forge_strv_done(struct forge_strv *sv);
#define forge_auto_strv FORGE_CLEANUP(forge_strv_done) /* initialise to {0} */

/* printf into a new string, NULL when out of memory. */
char *forge_asprintf(const char *fmt, ...) FORGE_PRINTF(1, 2);
