/* SPDX-License-Identifier: Apache-2.0 */
/* Matches by parts; no backtracking beyond one "**" or "*" at a time, so no pattern is slow. */
#include "base/glob.h"

#include <errno.h>
#include <string.h>

int forge_glob_check(const char *pattern, struct forge_error *err)
{
	size_t len = strlen(pattern);

	if (len == 0 || len > 1024)
		return forge_fail(err, EINVAL,
				  "an output pattern has 1 to 1024 characters");
	if (pattern[0] == '/')
		return forge_fail(err, EINVAL,
				  "output '%s' must be relative: it is below the workdir",
				  pattern);
	for (const char *p = pattern; *p;) {
		size_t n = strcspn(p, "/");
		if ((n == 0 && p[0]) || (n == 1 && p[0] == '.') ||
		    (n == 2 && strncmp(p, "..", 2) == 0))
			return forge_fail(err, EINVAL,
					  "output '%s' has an empty, '.' or '..' part",
					  pattern);
		p += n;
		p += *p == '/';
	}
	return 0;
}

/* Matches one name against one part of the pattern, both with their lengths. */
static bool match_name(const char *p, size_t p_len, const char *s, size_t s_len)
{
	size_t i = 0, j = 0, star = p_len, mark = 0;

	while (j < s_len) {
		if (i < p_len && p[i] == '*') {
			star = i++; /* remember the star; first it matches nothing */
			mark = j;
		} else if (i < p_len && (p[i] == '?' || p[i] == s[j])) {
			i++;
			j++;
		} else if (star < p_len) {
			i = star + 1; /* the star matches one character more */
			j = ++mark;
		} else {
			return false;
		}
	}
	while (i < p_len && p[i] == '*')
		i++;
	return i == p_len;
}

static bool is_deep(const char *part, size_t len)
{
	return len == 2 && part[0] == '*' && part[1] == '*';
}

/* The same for whole paths: a part takes the place of a character, "**" that of the star. */
bool forge_glob_match(const char *pattern, const char *path)
{
	const char *p = pattern, *s = path, *deep = NULL, *mark = NULL;

	while (*s) {
		size_t pn = strcspn(p, "/"), sn = strcspn(s, "/");
		if (!*p && p != pattern)
			return true; /* the pattern named a directory above */
		if (is_deep(p, pn)) {
			p += pn + (p[pn] == '/');
			if (!*p)
				return true;
			deep = p;
			mark = s;
		} else if (match_name(p, pn, s, sn)) {
			p += pn + (p[pn] == '/');
			s += sn + (s[sn] == '/');
		} else if (deep) {
			size_t skip = strcspn(mark, "/");
			if (!mark[skip])
				return false;
			mark += skip + 1;
			p = deep;
			s = mark;
		} else {
			return false;
		}
	}
	return !*p || (is_deep(p, strlen(p)));
}

char *forge_glob_fixed_part(const char *pattern)
{
	char *part = strdup(pattern);
	char *wild = part ? strpbrk(part, "*?") : NULL;

	if (wild) {
		*wild = '\0';
		char *slash = strrchr(part, '/');
		if (slash)
			slash[slash == part] = '\0';
	}
	return part;
}
