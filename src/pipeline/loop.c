/* SPDX-License-Identifier: Apache-2.0 */
/* The values of a foreach, and files of the host by patterns. */
#include "pipeline/loop.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/json.h"

static const char *find_param(const char *name, size_t len, void *arg)
{
	const struct forge_param *p = forge_pipeline_find_param(arg, name, len);

	return p && !p->is_list ? p->values.v[0] : NULL;
}

/* The parameter that "$NAME" or "${NAME}" is, if it is a list. */
static const struct forge_param *list_param(const struct forge_pipeline *p,
					    const char *text)
{
	size_t len = strlen(text);
	const struct forge_param *found = NULL;

	if (len > 3 && text[1] == '{' && text[len - 1] == '}')
		found = forge_pipeline_find_param(p, text + 2, len - 3);
	else if (len > 1)
		found = forge_pipeline_find_param(p, text + 1, len - 1);
	return *text == '$' && found && found->is_list ? found : NULL;
}

/* A value becomes part of names of tasks, directories and listings. */
static int check_value(const char *value, struct forge_error *err)
{
	if (!*value || strcmp(value, ".") == 0 || strcmp(value, "..") == 0)
		return forge_fail(err, EINVAL, "'%s' cannot be the name of a task",
				  value);
	if (strlen(value) > 128)
		return forge_fail(err, EINVAL, "'%.32s...' is longer than 128 bytes",
				  value);
	json_t *text = json_string(value);
	json_decref(text);
	if (!text) {
		forge_auto_json json_t *name = forge_json_name(value);
		return forge_fail(err, EINVAL, "the value '%.200s' is not UTF-8",
				  name ? json_string_value(name) : "?");
	}
	for (const char *c = value; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return forge_fail(err, EINVAL, "'%.64s' has control characters",
					  value);
	/* As in a file, but -p takes texts. */
	if (strpbrk(value, "[]"))
		return forge_hint(err,
				  forge_fail(err, EINVAL, "'%.64s' has brackets", value),
				  "A value of foreach has none; with -p, a list is "
				  "NAME=VALUE,VALUE");
	return 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int check_values(const struct forge_strv *values, struct forge_error *err)
{
	forge_auto_free char **sorted = calloc(values->n + 1, sizeof(char *));
	int rc = sorted ? 0 : forge_fail(err, ENOMEM, "out of memory");

	for (size_t i = 0; i < values->n && rc == 0; i++) {
		sorted[i] = values->v[i];
		rc = check_value(values->v[i], err);
	}
	if (rc < 0)
		return rc;
	qsort(sorted, values->n, sizeof(char *), by_text);
	for (size_t i = 1; i < values->n; i++)
		if (strcmp(sorted[i - 1], sorted[i]) == 0)
			return forge_fail(err, EINVAL, "'%.64s' is there twice",
					  sorted[i]);
	return 0;
}

/* "data/X.fq", X being *: what the * stands for in each file that there is. */
static int match_star(const char *dir, const char *pattern, struct forge_strv *ret,
		      struct forge_error *err)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	const char *star = strchr(pattern, '*');
	const char *begin = star, *end = star + strcspn(star, "/");

	if (strchr(star + 1, '*') || strchr(pattern, '?'))
		return forge_fail(err, EINVAL, "'%.100s' must have one * and no ?",
				  pattern);
	while (begin > pattern && begin[-1] != '/')
		begin--;
	size_t before = (size_t)(star - begin), after = (size_t)(end - star - 1);
	forge_auto_free char *parent = forge_asprintf(
		"%s%s%.*s.", *pattern == '/' ? "" : dir, *pattern == '/' ? "" : "/",
		(int)(begin - pattern), pattern);
	if (!parent)
		return forge_fail(err, ENOMEM, "out of memory");
	int rc = forge_entries_follow(&d, parent);
	for (const char *name; rc == 0 && (name = forge_entries_next(&d));) {
		size_t len = strlen(name);
		/* A hidden file is not meant by "*". */
		if (len <= before + after || (before == 0 && *name == '.') ||
		    strncmp(name, begin, before) != 0 ||
		    strncmp(name + len - after, star + 1, after) != 0)
			continue;
		forge_auto_free char *rest = forge_asprintf("%s/%s%s", parent, name, end);
		if (rest && access(rest, F_OK) < 0)
			continue;
		rc = rest ? forge_strv_take(ret,
					    strndup(name + before, len - before - after))
			  : -ENOMEM;
	}
	rc = rc < 0 ? rc : d.error;
	if (rc < 0)
		return forge_fail_errno(err, -rc, "'%.100s'", pattern);
	if (ret->n == 0)
		return forge_fail(err, ENOENT, "no file matches '%.100s'", pattern);
	qsort(ret->v, ret->n, sizeof(char *), by_text);
	return 0;
}

int forge_loop_values(const struct forge_pipeline *p, const struct forge_step_loop *loop,
		      struct forge_strv *ret, struct forge_error *err)
{
	const struct forge_strv *from = &loop->values;
	int rc = 0;

	if (!loop->is_list && list_param(p, from->v[0])) {
		from = &list_param(p, from->v[0])->values;
		rc = forge_strv_copy(ret, from);
		return rc < 0 ? forge_fail(err, ENOMEM, "out of memory")
			      : check_values(ret, err);
	}
	forge_strv_foreach (text, from) {
		char *value = NULL;
		rc = forge_expand(text, find_param, (void *)p, &value, err);
		if (rc == 0 && !loop->is_list && strchr(value, '*')) {
			rc = match_star(p->dir, value, ret, err);
			free(value);
		} else if (rc == 0 && forge_strv_take(ret, value) < 0) {
			rc = forge_fail(err, ENOMEM, "out of memory");
		}
		if (rc < 0)
			return rc;
	}
	return check_values(ret, err);
}

static int stop(const char *path, int error)
{
	(void)path;
	return error == ENOENT || error == ENOTDIR ? 0 : 1;
}

int forge_loop_glob(const char *pattern, struct forge_strv *ret)
{
	forge_auto_free char *escaped = calloc(1, 2 * strlen(pattern) + 1);
	glob_t found = { 0 };
	char *out = escaped;
	int rc = 0;

	if (!escaped)
		return -ENOMEM;
	/* Brackets and backslashes are not special here. */
	for (const char *c = pattern; *c; c++) {
		if (*c == '[' || *c == '\\')
			*out++ = '\\';
		*out++ = *c;
	}
	errno = 0;
	switch (glob(escaped, 0, stop, &found)) {
	case 0:
		for (size_t i = 0; i < found.gl_pathc && rc == 0; i++)
			rc = forge_strv_add(ret, found.gl_pathv[i]);
		break;
	case GLOB_NOMATCH:
		break;
	case GLOB_ABORTED:
		rc = errno ? -errno : -EIO;
		break;
	default:
		rc = -ENOMEM;
	}
	globfree(&found);
	return rc;
}
