/* SPDX-License-Identifier: Apache-2.0 */
/* Small JSON values; see json.h. */
#include "base/json.h"

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

json_t *forge_json_name(const char *s)
{
	static const char hex[] = "0123456789abcdef";
	json_t *j = json_string(s);
	if (j)
		return j;
	forge_auto_free char *copy = malloc(4 * strlen(s) + 1);
	char *to = copy;
	for (; copy && *s; s++) {
		unsigned char c = (unsigned char)*s;
		*to++ = c < 0x80 ? *s : '\\';
		if (c < 0x80)
			continue;
		*to++ = 'x';
		*to++ = hex[c >> 4];
		*to++ = hex[c & 15];
	}
	if (copy)
		*to = '\0';
	return copy ? json_string(copy) : NULL;
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

char *forge_json_line(const json_t *j)
{
	for (size_t digits = 15; digits < 17; digits++) {
		char *text = json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(digits));
		json_t *same = text ? json_loads(text, 0, NULL) : NULL;
		bool is_equal = json_equal(same, j);
		json_decref(same);
		if (is_equal)
			return text;
		free(text);
	}
	return json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(17));
}
