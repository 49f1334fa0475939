/* SPDX-License-Identifier: Apache-2.0 */
/* The first line and the headers of a request, as far as they are text to be parsed. Pure: nothing here looks at the host. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define FORGE_TARGET_MAX   4096
#define FORGE_SEGMENTS_MAX 12
#define FORGE_QUERY_MAX	   24

/* "/api/v1/runs?status=killed", decoded. Everything points into text. */
struct forge_target {
	char text[FORGE_TARGET_MAX];
	const char *segments[FORGE_SEGMENTS_MAX]; /* "api", "v1", "runs"; none of "/" */
	size_t n_segments;
	struct {
		const char *name, *value;
	} query[FORGE_QUERY_MAX];
	size_t n_query;
};

/* -EINVAL: no path, a bad escape, an escaped NUL; -E2BIG: too long, or too many parts. */
FORGE_MUST_CHECK int forge_target_parse(const char *raw, struct forge_target *ret,
					struct forge_error *err);
/*
 * Whether the parts of the path are those of the pattern, "/api/v1/runs/{}/kill": {} is any part that is not empty. params gets
 * what stands for {}, at most max of them.
 */
bool forge_target_matches(const struct forge_target *t, const char *pattern,
			  const char **params, size_t max);
/* The value of a parameter, the first if there are several; NULL: there is none. "" counts as none. */
const char *forge_target_get(const struct forge_target *t, const char *name);
/* A whole number from 0 to max; fallback where there is none. -EINVAL */
FORGE_MUST_CHECK int forge_target_number(const struct forge_target *t, const char *name,
					 uint64_t max, uint64_t fallback, uint64_t *ret,
					 struct forge_error *err);
/* The same of a text that is there. name: for err. -EINVAL */
FORGE_MUST_CHECK int forge_number_parse(const char *name, const char *text, uint64_t max,
					uint64_t *ret, struct forge_error *err);
/*
 * Whether every parameter is one of names, "limit after open?", comes once, and, where the name has a question mark, is 0, 1, true
 * or false. -EINVAL; err lists what is legal.
 */
FORGE_MUST_CHECK int forge_target_check(const struct forge_target *t, const char *names,
					struct forge_error *err);
/* "1" and "true" are true. */
bool forge_target_flag(const struct forge_target *t, const char *name);

/*
 * The header Range for size bytes: 1: *ret_from and *ret_len are the part; 0: there is no header, or one that means
 * all or several parts, which a server may ignore; -ERANGE: no byte of it is there.
 */
FORGE_MUST_CHECK int forge_range_parse(const char *header, uint64_t size,
				       uint64_t *ret_from, uint64_t *ret_len);
/* Whether an Accept-Encoding header asks for gzip; NULL (none was sent): it does not. */
bool forge_takes_gzip(const char *header);
/*
 * Whether a Host header (NULL: none was sent) names this server: a loopback name or address, or one of names, each with any
 * port. Pages of other names must not reach a server on loopback by making their name resolve to it.
 */
bool forge_host_is_ours(const char *header, const char *const *names, size_t n);
/* Whether an Origin header (NULL: none was sent) is that of the page that this host serves. */
bool forge_origin_is_ours(const char *origin, const char *host);
