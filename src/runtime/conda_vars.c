/* SPDX-License-Identifier: Apache-2.0 */
/* Variables that a conda environment declares: etc/conda/env_vars.d and conda-meta/state. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/entries.h"
#include "base/fd.h"
#include "base/parse.h"
#include "runtime/conda_parts.h"
#include "runtime/pyjson.h"

/* Conda has no limit; this is more than execve can pass to any environment. */
#define JSON_MAX   (64u << 20)
#define FILES_MAX  1000 /* of one directory of scripts or variables */
#define NAME_SHOWN 80

void forge_conda_warn(struct forge_strv *warnings, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	if (!warnings)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* The text may have names that were chosen by the author of the environment. */
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	(void)!forge_strv_add(warnings, text);
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int forge_conda_list_files(int top, const char *dir, const char *ending,
			   struct forge_strv *ret, struct forge_error *err)
{
	size_t n = strlen(ending);
	int fd = forge_open_beneath(top, dir, O_RDONLY | O_DIRECTORY), rc = 0;

	if (fd == -ENOENT || fd == -ENOTDIR)
		return 0;
	if (fd < 0)
		return forge_fail(err, -fd, "%s: %s", dir, forge_regular_problem(fd));
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	(void)forge_entries_take(&d, fd); /* d keeps the error */
	for (const char *name; rc == 0 && (name = forge_entries_next(&d));) {
		size_t len = strlen(name);
		if (len < n || strcmp(name + len - n, ending) != 0)
			continue;
		if (ret->n == FILES_MAX)
			return forge_fail(err, EFBIG, "%s has more than %d files", dir,
					  FILES_MAX);
		rc = forge_strv_addf(ret, "%s/%s", dir, name);
	}
	if (d.error)
		return forge_fail_errno(err, -d.error, "read %s", dir);
	if (ret->n)
		qsort(ret->v, ret->n, sizeof(*ret->v), compare);
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}

static int load_json(int top, const char *prefix, const char *path, json_t **ret,
		     struct forge_error *err)
{
	forge_auto_free char *text = NULL;
	size_t len;
	int rc = forge_read_regular(top, path, JSON_MAX, &text, &len);

	if (rc == -ENOENT)
		return rc;
	if (rc < 0)
		return forge_fail(err, -rc, "%s/%s: %s", prefix, path,
				  forge_regular_problem(rc));
	rc = forge_pyjson_load(text, len, ret);
	if (rc == 0 && json_is_object(*ret))
		return 0;
	if (rc == 0)
		json_decref(*ret);
	return rc == -ENOMEM
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : forge_fail(err, EINVAL, "%s/%s is no JSON object", prefix, path);
}

const char *forge_conda_refuses(const char *name)
{
	if (strcmp(name, "PATH") == 0)
		return "PATH is reserved";
	if (strncmp(name, "FORGE_", 6) == 0)
		return "FORGE_* is set by forge";
	return forge_parse_env_name(name, strlen(name), NULL) < 0
		       ? "no shell can set that name"
		       : NULL;
}

/* conda passes these to itself by the same names, and fails where an environment sets one. */
static bool is_condas(const char *name)
{
	static const char *const own[] = { "CONDA_PREFIX", "CONDA_SHLVL",
					   "CONDA_DEFAULT_ENV", "CONDA_PROMPT_MODIFIER" };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(own); i++)
		if (strcmp(name, own[i]) == 0)
			return true;
	return false;
}

static int take_var(json_t *into, const char *name, const json_t *value,
		    const char *where, struct forge_strv *warnings)
{
	const char *why =
		is_condas(name) ? "conda sets it itself" : forge_conda_refuses(name);
	forge_auto_free char *text = NULL;

	if (why) {
		forge_conda_warn(warnings, "%s: '%.*s' is left out: %s", where,
				 NAME_SHOWN, name, why);
		return 0;
	}
	int rc = forge_pyjson_str(value, &text);
	if (rc == -EINVAL) {
		forge_conda_warn(warnings,
				 "%s: '%.*s' is left out: its value is no text, number "
				 "or truth",
				 where, NAME_SHOWN, name);
		return 0;
	}
	if (rc < 0)
		return rc;
	if (json_object_get(into, name))
		forge_conda_warn(warnings, "duplicate env vars detected: %.*s",
				 NAME_SHOWN, name);
	json_t *j = json_is_null(value) ? json_null() : json_string(text);
	return json_object_set_new(into, name, j) < 0 ? -ENOMEM : 0;
}

/* from: an object of forge_pyjson_load(), or NULL for none. */
static int take_vars(json_t *into, json_t *from, const char *where,
		     struct forge_strv *warnings)
{
	const char *name;
	json_t *value;
	int rc = 0;

	if (from && !json_is_object(from))
		forge_conda_warn(warnings, "%s: env_vars is no map, and left out", where);
	json_object_foreach(from, name, value) if (rc == 0) rc =
		take_var(into, name + 1, value, where, warnings);
	return rc;
}

static int add_vars(int top, const char *prefix, const char *path, const char *key,
		    json_t *into, struct forge_strv *warnings, struct forge_error *err)
{
	json_t *j = NULL;
	int rc = load_json(top, prefix, path, &j, err);

	if (rc < 0)
		return rc;
	if (take_vars(into, key ? json_object_get(j, key) : j, path, warnings) < 0)
		rc = forge_fail(err, ENOMEM, "out of memory");
	json_decref(j);
	return rc;
}

/* Reads env_vars.d in order, then conda-meta/state, which takes precedence. */
int forge_conda_vars(int top, const char *prefix, json_t *into,
		     struct forge_strv *warnings, struct forge_error *err)
{
	forge_auto_strv struct forge_strv files = { 0 };
	int rc = forge_conda_list_files(top, "etc/conda/env_vars.d", "", &files, err);

	forge_strv_foreach (file, &files)
		if (rc == 0)
			rc = add_vars(top, prefix, file, NULL, into, warnings, err);
	if (rc == -ENOENT)
		return forge_fail(err, ENOENT,
				  "%s/etc/conda/env_vars.d changes or has a link "
				  "to nowhere",
				  prefix);
	if (rc < 0)
		return rc;
	rc = add_vars(top, prefix, "conda-meta/state", "senv_vars", into, warnings, err);
	return rc == -ENOENT ? 0 : rc;
}
