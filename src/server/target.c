/* SPDX-License-Identifier: Apache-2.0 */
/* Parses targets, ranges and host names of requests. */
#include "server/target.h"

#include <errno.h>
#include <stdio.h>
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

int forge_number_parse(const char *name, const char *text, uint64_t max, uint64_t *ret,
		       struct forge_error *err)
{
	if (!is_number(text) || strtoull(text, NULL, 10) > max)
		return forge_fail(err, EINVAL,
				  "%s: '%.32s' is not a whole number from 0 to %llu",
				  name, text, (unsigned long long)max);
	*ret = strtoull(text, NULL, 10);
	return 0;
}

int forge_target_number(const struct forge_target *t, const char *name, uint64_t max,
			uint64_t fallback, uint64_t *ret, struct forge_error *err)
{
	const char *text = forge_target_get(t, name);

	if (text)
		return forge_number_parse(name, text, max, ret, err);
	*ret = fallback;
	return 0;
}

/* "limit after open?" as a sentence has it: "limit, after, open". */
static const char *list_names(const char *names, char *buf, size_t size)
{
	size_t n = 0;

	buf[0] = '\0';
	while (*names && n < size) {
		size_t len = strcspn(names, " ?");
		n += (size_t)snprintf(buf + n, size - n, "%s%.*s", n ? ", " : "",
				      (int)len, names);
		names += strcspn(names, " ");
		names += *names == ' ';
	}
	return buf;
}

/* Its place in names, NULL: it is none of them. */
static const char *find_name(const char *names, const char *name)
{
	size_t n = strlen(name);

	while (*names) {
		size_t len = strcspn(names, " ?");
		if (len == n && strncmp(names, name, n) == 0)
			return names;
		names += strcspn(names, " ");
		names += *names == ' ';
	}
	return NULL;
}

static bool is_switch(const char *value)
{
	return strcmp(value, "0") == 0 || strcmp(value, "1") == 0 ||
	       strcmp(value, "false") == 0 || strcmp(value, "true") == 0;
}

int forge_target_check(const struct forge_target *t, const char *names,
		       struct forge_error *err)
{
	char list[256];

	for (size_t i = 0; i < t->n_query; i++) {
		const char *name = t->query[i].name, *value = t->query[i].value;
		/* "?" and "&" with nothing between them */
		if (!*name && !*value)
			continue;
		const char *known = find_name(names, name);
		if (!known && !*names)
			return forge_fail(err, EINVAL,
					  "this path has no parameters, and no '%.32s'",
					  name);
		if (!known)
			return forge_fail(err, EINVAL,
					  "this path has no parameter '%.32s' (have: %s)",
					  name, list_names(names, list, sizeof(list)));
		for (size_t k = 0; k < i; k++)
			if (strcmp(t->query[k].name, name) == 0)
				return forge_fail(err, EINVAL, "%s is there twice", name);
		if (known[strlen(name)] == '?' && !is_switch(value))
			return forge_fail(err, EINVAL,
					  "%s: '%.32s' is none of 0, 1, false, true",
					  name, value);
	}
	return 0;
}

bool forge_target_flag(const struct forge_target *t, const char *name)
{
	const char *value = forge_target_get(t, name);

	return value && (strcmp(value, "1") == 0 || strcmp(value, "true") == 0);
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

/* "gzip;q=0" refuses it; any other weight, and none, asks for it. */
static bool has_weight(const char *params)
{
	const char *q = strstr(params, "q=");

	return !q || strpbrk(q + 2, "123456789");
}

bool forge_takes_gzip(const char *header)
{
	bool takes_any = false;

	for (const char *p = header; p && *p;) {
		char one[64];
		size_t len = strcspn(p, ",");
		(void)snprintf(one, sizeof(one), "%.*s", (int)(len < 63 ? len : 63), p);
		const char *word = one + strspn(one, " \t");
		size_t n = strcspn(word, " \t;");
		if ((n == 4 && strncasecmp(word, "gzip", 4) == 0) ||
		    (n == 6 && strncasecmp(word, "x-gzip", 6) == 0))
			return has_weight(word + n);
		if (n == 1 && *word == '*')
			takes_any = has_weight(word + n);
		p += len + (p[len] == ',');
	}
	return takes_any;
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
