/* SPDX-License-Identifier: Apache-2.0 */
/* Reads both formats of locks: forge's own lines, and conda's @EXPLICIT with pip in comments. */
#include "runtime/lockfile.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"

#define LOCK_MAX (16u << 20)
#define NO_URL	 "# no URL for: "

/* "https://host/channel/linux-64/numpy-1.26.4-py311h_0.conda#md5" -> its parts. */
static int add_url(struct forge_packages *p, const char *line)
{
	const char *slash = strrchr(line, '/');
	char name[256];

	(void)snprintf(name, sizeof(name), "%.*s",
		       (int)strcspn(slash ? slash + 1 : line, "#"),
		       slash ? slash + 1 : line);
	char *end = strstr(name, ".conda");
	end = end ? end : strstr(name, ".tar.bz2");
	if (end)
		*end = '\0';
	char *build = strrchr(name, '-');
	if (!build)
		return 0;
	*build++ = '\0';
	char *version = strrchr(name, '-');
	if (!version)
		return 0;
	*version++ = '\0';
	return forge_packages_add(p, "conda", name, version, build, "", "");
}

/* Turns \xNN back into the character: forge_packages_add() escapes it again. */
static void unescape(char *s)
{
	char *to = s;
	unsigned code;

	for (; *s; s++)
		if (s[0] == '\\' && s[1] == 'x' && isxdigit((unsigned char)s[2]) &&
		    isxdigit((unsigned char)s[3]) && sscanf(s + 2, "%2x", &code) == 1 &&
		    code) {
			*to++ = (char)code;
			s += 3;
		} else {
			*to++ = *s;
		}
	*to = '\0';
}

static int add_line(struct forge_packages *p, char *line)
{
	char name[256], version[128], hash[96] = "";

	if (sscanf(line, "# pip: %255[^=]==%127s %95s", name, version, hash) >= 2)
		return forge_packages_add(p, "pip", name, version, "", hash, "");
	if (strncmp(line, NO_URL, strlen(NO_URL)) == 0)
		return add_url(p, line + strlen(NO_URL));
	if (*line == '#' || *line == '@' || !*line)
		return 0;
	if (strstr(line, "://"))
		return add_url(p, line);
	char nothing[] = "";
	char *part[5] = { line, nothing, nothing, nothing, nothing };
	for (int i = 1; i < 5; i++) {
		char *tab = strchr(part[i - 1], '\t');
		if (!tab)
			break;
		*tab = '\0';
		part[i] = tab + 1;
	}
	for (int i = 0; i < 5; i++)
		unescape(part[i]);
	return forge_packages_add(p, part[0], part[1], part[2], part[3], part[4], "");
}

/* digest: as in the lock, "" when it has none. */
static int read_lock(const char *path, struct forge_packages *ret,
		     char digest[FORGE_DIGEST_MAX], struct forge_error *err)
{
	forge_auto_free char *text = malloc(LOCK_MAX);
	ssize_t n = text ? forge_read_at(AT_FDCWD, path, text, LOCK_MAX) : -ENOMEM;
	int rc = 0;

	if (n < 0)
		return forge_fail_errno(err, (int)-n, "read lock %s", path);
	for (char *line = text, *end; line && *line && rc == 0; line = end) {
		end = strchr(line, '\n');
		if (end)
			*end++ = '\0';
		if (sscanf(line, "# forge digest: %71s", digest) != 1 &&
		    sscanf(line, "# digest: %71s", digest) != 1)
			rc = add_line(ret, line);
	}
	forge_packages_sort(ret);
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}

static int order(const struct forge_package *a, const struct forge_package *b)
{
	int rc = strcmp(a->source, b->source);

	return rc ? rc : strcmp(a->name, b->name);
}

/* conda's lock has none of our hashes, so an empty hash matches any. */
static bool is_same(const struct forge_package *a, const struct forge_package *b)
{
	return strcmp(a->version, b->version) == 0 && strcmp(a->build, b->build) == 0 &&
	       (!*a->hash || !*b->hash || strcmp(a->hash, b->hash) == 0);
}

static void version_text(const struct forge_package *p, char buf[256])
{
	(void)snprintf(buf, 256, "%s%s%s", *p->version ? p->version : p->hash,
		       *p->build ? " " : "", p->build);
}

static void add_change(json_t *list, const char *change, const struct forge_package *was,
		       const struct forge_package *is)
{
	char before[256] = "", after[256] = "";

	if (was)
		version_text(was, before);
	if (is)
		version_text(is, after);
	json_array_append_new(
		list, json_pack("{s:s, s:o, s:o, s:o, s:o}", "change", change, "source",
				forge_json_text((was ? was : is)->source), "name",
				forge_json_name((was ? was : is)->name), "was",
				forge_json_text(before), "is", forge_json_text(after)));
}

static json_t *compare(const struct forge_packages *was, const struct forge_packages *is)
{
	json_t *list = json_array();
	size_t i = 0, j = 0;

	while (i < was->n || j < is->n) {
		int rc = i == was->n ? 1 : j == is->n ? -1 : order(&was->v[i], &is->v[j]);
		if (rc < 0)
			add_change(list, "removed", &was->v[i++], NULL);
		else if (rc > 0)
			add_change(list, "added", NULL, &is->v[j++]);
		else {
			if (!is_same(&was->v[i], &is->v[j]))
				add_change(list, "changed", &was->v[i], &is->v[j]);
			i++;
			j++;
		}
	}
	return list;
}

int forge_lock_compare(const struct forge_runtime *rt, const char *path, json_t **ret,
		       struct forge_error *err)
{
	struct forge_packages was = { .v = NULL }, is = { .v = NULL };
	char locked[FORGE_DIGEST_MAX] = "", now[FORGE_DIGEST_MAX];
	int rc = read_lock(path, &was, locked, err);

	if (rc == 0)
		rc = forge_runtime_identify(rt, &is, err);
	if (rc == 0) {
		forge_packages_digest(&is, now);
		*ret = compare(&was, &is);
		/*
		 * All versions and builds are the same, but conda's lock has no hash that forge
		 * could compare.
		 */
		if (json_array_size(*ret) == 0 && *locked && strcmp(locked, now) != 0)
			json_array_append_new(
				*ret, json_pack("{s:s, s:s, s:s, s:s, s:s}", "change",
						"changed", "source", "digest", "name",
						"digest", "was", locked, "is", now));
	}
	forge_packages_done(&was);
	forge_packages_done(&is);
	return rc;
}
