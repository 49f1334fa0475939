/* SPDX-License-Identifier: Apache-2.0 */
/* Parses targets, ranges and host names of requests. */
#include "server/target.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

bool forge_target_matches(const struct forge_target *t, const char *pattern,
			  const char **params, size_t max)
{
	size_t n = 0, i = 0;

	if (strcmp(pattern, "/") == 0)
		return t->n_segments == 0;
	for (; *pattern == '/'; i++) {
		size_t len = strcspn(++pattern, "/");
		if (i >= t->n_segments)
			return false;
		const char *have = t->segments[i];
		if (strncmp(pattern, "{}", 2) == 0 && len == 2) {
			if (!*have || n == max)
				return false;
			params[n++] = have;
		} else if (strlen(have) != len || strncmp(have, pattern, len) != 0) {
			return false;
		}
		pattern += len;
	}
	return i == t->n_segments;
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes from *from up to one of the letters in ends, and puts a NUL behind it. */
static int decode(const char **from, const char *ends, bool is_query, char **to)
{
	const char *p = *from;

	for (; *p && !strchr(ends, *p); p++) {
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return -EINVAL;
		if (*p == '+' && is_query) {
			*(*to)++ = ' ';
			continue;
		}
		if (*p != '%') {
			*(*to)++ = *p;
			continue;
		}
		int high = digit(p[1]), low = high < 0 ? -1 : digit(p[2]);
		if (low < 0 || (high == 0 && low == 0))
			return -EINVAL;
		*(*to)++ = (char)(high * 16 + low);
		p += 2;
	}
	*(*to)++ = '\0';
	*from = p;
	return 0;
}

static int parse_path(const char **p, struct forge_target *t, char **to)
{
	while (**p == '/') {
		(*p)++;
		if (t->n_segments == FORGE_SEGMENTS_MAX)
			return -E2BIG;
		t->segments[t->n_segments++] = *to;
		int rc = decode(p, "/?#", false, to);
		if (rc < 0)
			return rc;
	}
	/* "/runs/" is "/runs", and "/" has no segments. */
	if (t->n_segments && !*t->segments[t->n_segments - 1])
		t->n_segments--;
	return 0;
}

static int parse_query(const char **p, struct forge_target *t, char **to)
{
	while (**p == '?' || **p == '&') {
		(*p)++;
		if (t->n_query == FORGE_QUERY_MAX)
			return -E2BIG;
		t->query[t->n_query].name = *to;
		int rc = decode(p, "=&#", true, to);
		if (rc < 0)
			return rc;
		t->query[t->n_query].value = "";
		if (**p == '=') {
			(*p)++;
			t->query[t->n_query].value = *to;
			rc = decode(p, "&#", true, to);
			if (rc < 0)
				return rc;
		}
		t->n_query++;
	}
	return 0;
}

int forge_target_parse(const char *raw, struct forge_target *ret, struct forge_error *err)
{
	char *to = ret->text;

	ret->n_segments = ret->n_query = 0;
	if (*raw != '/')
		return forge_fail(err, EINVAL, "the target of a request begins with /");
	/* Decoding never makes it longer, but for a NUL in place of each separator, and one at the end. */
	if (strlen(raw) + 2 > sizeof(ret->text))
		return forge_fail(err, E2BIG, "the target is longer than %d bytes",
				  FORGE_TARGET_MAX - 2);
	int rc = parse_path(&raw, ret, &to);
	if (rc == 0)
		rc = parse_query(&raw, ret, &to);
	if (rc == 0 && *raw && *raw != '#')
		rc = -EINVAL;
	if (rc == -E2BIG)
		return forge_fail(err, E2BIG, "the target has too many parts");
	return rc < 0 ? forge_fail(err, EINVAL, "the target has a bad escape") : 0;
}

const char *forge_target_get(const struct forge_target *t, const char *name)
{
	for (size_t i = 0; i < t->n_query; i++)
		if (strcmp(t->query[i].name, name) == 0)
			return *t->query[i].value ? t->query[i].value : NULL;
	return NULL;
}

static bool is_number(const char *text)
{
	size_t n = strspn(text, "0123456789");

	return n > 0 && n < 20 && !text[n];
}

int forge_target_number(const struct forge_target *t, const char *name, uint64_t max,
			uint64_t fallback, uint64_t *ret, struct forge_error *err)
{
	const char *text = forge_target_get(t, name);

	if (!text) {
		*ret = fallback;
		return 0;
	}
	if (!is_number(text) || strtoull(text, NULL, 10) > max)
		return forge_fail(err, EINVAL,
				  "%s: '%.32s' is not a whole number up to %llu", name,
				  text, (unsigned long long)max);
	*ret = strtoull(text, NULL, 10);
	return 0;
}

bool forge_target_flag(const struct forge_target *t, const char *name)
{
	for (size_t i = 0; i < t->n_query; i++)
		if (strcmp(t->query[i].name, name) == 0)
			return !*t->query[i].value ||
			       strcmp(t->query[i].value, "1") == 0 ||
			       strcmp(t->query[i].value, "true") == 0 ||
			       strcmp(t->query[i].value, "yes") == 0;
	return false;
}

int forge_range_parse(const char *header, uint64_t size, uint64_t *ret_from,
		      uint64_t *ret_len)
{
	char first[24], last[24];

	if (!header || strncmp(header, "bytes=", 6) != 0)
		return 0;
	header += 6;
	const char *dash = strchr(header, '-');
	if (!dash || strchr(header, ',') || dash - header >= (ptrdiff_t)sizeof(first) ||
	    strlen(dash + 1) >= sizeof(last))
		return 0;
	memcpy(first, header, (size_t)(dash - header));
	first[dash - header] = '\0';
	memcpy(last, dash + 1, strlen(dash + 1) + 1);
	if ((*first && !is_number(first)) || (*last && !is_number(last)) ||
	    (!*first && !*last))
		return 0;
	uint64_t a = strtoull(first, NULL, 10), b = strtoull(last, NULL, 10);
	if (!*first) { /* the last b bytes */
		if (b == 0 || size == 0)
			return -ERANGE;
		*ret_len = b > size ? size : b;
		*ret_from = size - *ret_len;
		return 1;
	}
	if (*last && b < a)
		return 0;
	if (a >= size)
		return -ERANGE;
	*ret_from = a;
	*ret_len = *last && b < size ? b - a + 1 : size - a;
	return 1;
}

/* The name without its port. */
static size_t name_length(const char *host)
{
	if (*host == '[') {
		const char *end = strchr(host, ']');
		return end ? (size_t)(end - host) + 1 : strlen(host);
	}
	return strcspn(host, ":");
}

static bool is_port(const char *text)
{
	return !*text || (*text == ':' && (!text[1] || is_number(text + 1)));
}

bool forge_host_is_ours(const char *header, const char *const *names, size_t n)
{
	static const char *const loopback[] = { "127.0.0.1", "localhost", "[::1]" };
	size_t len = header ? name_length(header) : 0;

	if (len == 0 || !is_port(header + len))
		return false;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(loopback); i++)
		if (strlen(loopback[i]) == len &&
		    strncasecmp(loopback[i], header, len) == 0)
			return true;
	for (size_t i = 0; i < n; i++)
		if (strlen(names[i]) == len && strncasecmp(names[i], header, len) == 0)
			return true;
	return false;
}

bool forge_origin_is_ours(const char *origin, const char *host)
{
	if (!origin)
		return true;
	if (!host)
		return false;
	/* Behind a proxy that adds TLS, the page has another scheme than we see. */
	if (strncmp(origin, "http://", 7) == 0)
		return strcasecmp(origin + 7, host) == 0;
	return strncmp(origin, "https://", 8) == 0 && strcasecmp(origin + 8, host) == 0;
}
