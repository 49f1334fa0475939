/* SPDX-License-Identifier: Apache-2.0 */
/* Small JSON values; see json.h. */
#include "base/json.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *forge_json_text(const char *s)
{
	json_t *j = json_string(s);
	if (j)
		return j;
	forge_auto_free char *copy = strdup(s);
	for (char *p = copy; p && *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	return copy ? json_string(copy) : NULL;
}

/* Could s be the encoded form of another name? */
static bool looks_written(const char *s)
{
	while ((s = strchr(s, '\\'))) {
		if (s[1] == '\\' || (s[1] == 'x' && isxdigit((unsigned char)s[2]) &&
				     isxdigit((unsigned char)s[3])))
			return true;
		s++;
	}
	return false;
}

json_t *forge_json_name(const char *s)
{
	static const char hex[] = "0123456789abcdef";
	json_t *j = json_string(s);
	bool is_text = j != NULL;

	if (is_text && !looks_written(s))
		return j;
	json_decref(j);
	forge_auto_free char *copy = malloc(4 * strlen(s) + 1);
	char *to = copy;
	for (; copy && *s; s++) {
		unsigned char c = (unsigned char)*s;
		if (c == '\\')
			*to++ = '\\';
		if (c < 0x80 || is_text) {
			*to++ = *s;
			continue;
		}
		*to++ = '\\';
		*to++ = 'x';
		*to++ = hex[c >> 4];
		*to++ = hex[c & 15];
	}
	if (copy)
		*to = '\0';
	return copy ? json_string(copy) : NULL;
}

static int hex_value(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

char *forge_json_name_decode(const char *s)
{
	if (!looks_written(s))
		return strdup(s);
	forge_auto_free char *copy = malloc(strlen(s) + 1);
	char *to = copy;
	for (; copy && *s; s++) {
		if (*s != '\\') {
			*to++ = *s;
			continue;
		}
		s++;
		if (*s == '\\') {
			*to++ = '\\';
			continue;
		}
		int high = *s == 'x' ? hex_value(s[1]) : -1;
		int low = high >= 8 ? hex_value(s[2]) : -1;
		if (low < 0)
			return NULL;
		*to++ = (char)(high << 4 | low);
		s += 2;
	}
	if (copy)
		*to = '\0';
	return forge_take_ptr(copy);
}

json_t *forge_json_texts(const struct forge_strv *sv)
{
	json_t *a = json_array();

	forge_strv_foreach (s, sv)
		json_array_append_new(a, forge_json_text(s));
	return a;
}

json_t *forge_json_number(uint64_t n)
{
	return n == UINT64_MAX ? json_null() : json_integer((json_int_t)n);
}

json_t *forge_json_seconds(uint64_t usec)
{
	return usec == UINT64_MAX ? json_null() : json_real((double)usec / 1e6);
}

/*
 * Writes the real number of n characters at from with fewer digits if they give the same value.
 * Returns the end.
 */
static char *put_short(char *to, const char *from, size_t n)
{
	char text[40];
	double d = strtod(from, NULL);

	for (int digits = 15; digits < 17; digits++) {
		size_t len = (size_t)snprintf(text, sizeof(text) - 2, "%.*g", digits, d);
		/* A reader must still take it for a real number. */
		if (!strpbrk(text, ".e"))
			len += (size_t)snprintf(text + len, sizeof(text) - len, ".0");
		if (len <= n && strtod(text, NULL) == d) {
			memcpy(to, text, len);
			return to + len;
		}
	}
	memmove(to, from, n);
	return to + n;
}

char *forge_json_line(const json_t *j)
{
	char *text = json_dumps(j, JSON_COMPACT), *to = text;
	bool is_string = false;

	/* Works in place: the output is never longer than the input read so far. */
	for (const char *from = text; from && *from;) {
		size_t n = is_string ? 0 : strspn(from, "+-.0123456789eE");
		if (n > 0 && *from != 'e' && *from != 'E' && strcspn(from, ".eE") < n) {
			to = put_short(to, from, n);
			from += n;
			continue;
		}
		if (is_string && *from == '\\')
			*to++ = *from++; /* and the character it escapes */
		else if (*from == '"')
			is_string = !is_string;
		*to++ = *from++;
	}
	if (to)
		*to = '\0';
	return text;
}

json_t *forge_json_names(const struct forge_strv *names)
{
	json_t *list = json_array();

	forge_strv_foreach (name, names)
		json_array_append_new(list, forge_json_name(name));
	return list;
}

int forge_json_names_decode(const json_t *object, const char *key, struct forge_strv *ret)
{
	size_t i;
	const json_t *item;
	int rc = 0;

	json_array_foreach (json_object_get(object, key), i, item) {
		char *name = json_string_value(item)
				     ? forge_json_name_decode(json_string_value(item))
				     : NULL;
		if (rc == 0)
			rc = name ? forge_strv_take(ret, name) : -EINVAL;
		else
			free(name);
	}
	return rc;
}

const char *forge_json_string(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

const char *forge_json_string_or(const json_t *object, const char *key,
				 const char *fallback)
{
	const char *text = forge_json_string(object, key);

	return text ? text : fallback;
}
