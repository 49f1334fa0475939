/* SPDX-License-Identifier: Apache-2.0 */
/* What `conda activate` exports, rule by rule. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "runtime/conda.h"

#define JSON_MAX (4u << 20)

/* ---- PATH ---- */

static bool ends_in_condabin(const char *path)
{
	for (const char *p = path; p && *p;) {
		size_t len = strcspn(p, ":");
		if (len >= 8 && strncmp(p + len - 8, "condabin", 8) == 0 &&
		    (len == 8 || p[len - 9] == '/'))
			return true;
		p += len + (p[len] == ':');
	}
	return false;
}

/* Level 0 and --stack: in front. conda's own directory follows, once. */
static char *prepend(const struct forge_conda_spec *spec, const char *path, bool is_first)
{
	bool with_condabin = is_first && spec->root_prefix && !ends_in_condabin(path);

	return forge_asprintf("%s/bin:%s%s%s", spec->prefix,
			      with_condabin ? spec->root_prefix : "",
			      with_condabin ? "/condabin:" : "", path);
}

/* Above level 0: the old one's place, the first time it is there; else in front. */
static char *replace(const char *old, const char *new, const char *path)
{
	forge_auto_free char *wanted = forge_asprintf("%s/bin", old);
	size_t n = wanted ? strlen(wanted) : 0;

	for (const char *p = path; wanted && *p;) {
		size_t len = strcspn(p, ":");
		if (len == n && strncmp(p, wanted, n) == 0)
			return forge_asprintf("%.*s%s/bin%s", (int)(p - path), path, new,
					      p + len);
		p += len + (p[len] == ':');
	}
	return wanted ? forge_asprintf("%s/bin:%s", new, path) : NULL;
}

/* ---- variables of the environment ---- */

static json_t *load_json(const char *path)
{
	forge_auto_free char *text = malloc(JSON_MAX);
	ssize_t n = text ? forge_read_at(AT_FDCWD, path, text, JSON_MAX) : -1;

	return n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
}

static int take_vars(json_t *into, json_t *from, const char *where,
		     struct forge_strv *warnings)
{
	const char *name;
	json_t *value;

	json_object_foreach(from, name, value)
	{
		if (strcmp(name, "PATH") == 0) {
			if (forge_strv_addf(warnings, "%s sets PATH, which is reserved",
					    where) < 0)
				return -ENOMEM;
			continue;
		}
		if (json_object_get(into, name) &&
		    forge_strv_addf(warnings, "duplicate env vars detected: %s", name) <
			    0)
			return -ENOMEM;
		if (json_is_string(value))
			json_object_set(into, name, value);
	}
	return 0;
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Paths of a directory's files that end so, sorted. */
static int list_files(const char *prefix, const char *dir, const char *ending,
		      struct forge_strv *ret)
{
	char path[PATH_MAX];
	size_t n = strlen(ending);
	int rc = 0;

	(void)snprintf(path, sizeof(path), "%s/%s", prefix, dir);
	forge_auto_dir DIR *d = opendir(path);
	for (struct dirent *e; d && rc == 0 && (e = readdir(d));) {
		size_t len = strlen(e->d_name);
		if (e->d_name[0] != '.' && len >= n &&
		    strcmp(e->d_name + len - n, ending) == 0)
			rc = forge_strv_addf(ret, "%s/%s", path, e->d_name);
	}
	if (ret->n)
		qsort(ret->v, ret->n, sizeof(*ret->v), compare);
	return rc;
}

/* env_vars.d in order, then conda-meta/state, which wins. A new object. */
static json_t *environment_vars(const char *prefix, struct forge_strv *warnings,
				struct forge_error *err)
{
	forge_auto_strv struct forge_strv files = { 0 };
	char path[PATH_MAX];
	json_t *vars = json_object();
	int rc = list_files(prefix, "etc/conda/env_vars.d", "", &files);

	forge_strv_foreach (file, &files) {
		json_t *j = load_json(file);
		if (rc == 0 && !json_is_object(j))
			rc = forge_fail(err, EINVAL, "%s is no JSON object", file);
		else if (rc == 0)
			rc = take_vars(vars, j, file, warnings);
		json_decref(j);
	}
	(void)snprintf(path, sizeof(path), "%s/conda-meta/state", prefix);
	if (rc == 0 && access(path, F_OK) == 0) {
		json_t *state = load_json(path);
		if (!json_is_object(state))
			rc = forge_fail(err, EINVAL, "%s is no JSON object", path);
		else
			rc = take_vars(vars, json_object_get(state, "env_vars"), path,
				       warnings);
		json_decref(state);
	}
	if (rc == 0)
		return vars;
	json_decref(vars);
	if (rc == -ENOMEM)
		(void)forge_fail(err, ENOMEM, "out of memory");
	return NULL;
}

/* A variable that has another value already is kept aside under this level's name. */
static int export_vars(json_t *vars, unsigned level, struct forge_strv *env,
		       struct forge_strv *warnings)
{
	const char *name;
	json_t *value;
	int rc = 0;

	json_object_foreach(vars, name, value)
	{
		const char *text = json_string_value(value),
			   *old = forge_strv_getenv(env, name);
		if (rc < 0 || strcmp(text, "***unset***") == 0)
			continue;
		if (old && strcmp(old, text) != 0) {
			forge_auto_free char *saved =
				forge_asprintf("__CONDA_SHLVL_%u_%s", level, name);
			forge_auto_free char *copy = strdup(old);
			rc = saved && copy ? forge_strv_setenv(env, saved, copy)
					   : -ENOMEM;
			if (rc == 0)
				rc = forge_strv_addf(warnings, "overwriting variable %s",
						     name);
		}
		if (rc == 0)
			rc = forge_strv_setenv(env, name, text);
	}
	return rc;
}

/* ---- scripts ---- */

static int add_scripts(const char *prefix, const char *dir, bool reverse,
		       struct forge_strv *scripts)
{
	forge_auto_strv struct forge_strv list = { 0 };
	int rc = list_files(prefix, dir, ".sh", &list);

	for (size_t i = 0; i < list.n && rc == 0; i++)
		rc = forge_strv_add(scripts, list.v[reverse ? list.n - 1 - i : i]);
	return rc;
}

/* ---- all of it ---- */

/* "base" for the installation, the name in envs/, else the whole path. */
static const char *default_env(const struct forge_conda_spec *spec)
{
	const char *name = strrchr(spec->prefix, '/');

	if (spec->root_prefix && strcmp(spec->prefix, spec->root_prefix) == 0)
		return "base";
	if (name && name - spec->prefix >= 5 && strncmp(name - 5, "/envs", 5) == 0)
		return name + 1;
	return spec->prefix;
}

static int set_meta(const struct forge_conda_spec *spec, struct forge_strv *env)
{
	if (!spec->root_prefix)
		return 0;
	forge_auto_free char *conda = forge_asprintf("%s/bin/conda", spec->root_prefix);
	forge_auto_free char *python = forge_asprintf("%s/bin/python", spec->root_prefix);
	const char *const meta[][2] = {
		{ "CONDA_EXE", conda },
		{ "_CONDA_EXE", conda },
		{ "CONDA_PYTHON_EXE", python },
		{ "_CONDA_ROOT", spec->root_prefix },
		{ "_CE_M", "" },
		{ "_CE_CONDA", "" },
	};
	int rc = conda && python ? 0 : -ENOMEM;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(meta) && rc == 0; i++)
		rc = forge_strv_setenv(env, meta[i][0], meta[i][1]);
	return rc;
}

struct level {
	unsigned old;
	char *old_prefix; /* "" at level 0 */
	bool is_again;	  /* the same environment: its scripts only, no new level */
};

static int set_levels(const struct forge_conda_spec *spec, const struct level *l,
		      struct forge_strv *env)
{
	char number[16], name[40];
	unsigned now = l->is_again ? l->old : l->old + 1;
	const char *label = default_env(spec);
	forge_auto_free char *prompt =
		spec->change_prompt ? forge_asprintf("(%s) ", label) : strdup("");

	(void)snprintf(number, sizeof(number), "%u", now);
	int rc = prompt ? forge_strv_setenv(env, "CONDA_PREFIX", spec->prefix) : -ENOMEM;
	if (rc == 0)
		rc = forge_strv_setenv(env, "CONDA_SHLVL", number);
	if (rc == 0)
		rc = forge_strv_setenv(env, "CONDA_DEFAULT_ENV", label);
	if (rc == 0)
		rc = forge_strv_setenv(env, "CONDA_PROMPT_MODIFIER", prompt);
	if (rc == 0 && l->old > 0 && !l->is_again) {
		(void)snprintf(name, sizeof(name), "CONDA_PREFIX_%u", l->old);
		rc = forge_strv_setenv(env, name, l->old_prefix);
	}
	if (rc == 0 && spec->stack && l->old > 0 && !l->is_again) {
		(void)snprintf(name, sizeof(name), "CONDA_STACKED_%u", now);
		rc = forge_strv_setenv(env, name, "true");
	}
	return rc;
}

static int set_path(const struct forge_conda_spec *spec, const struct level *l,
		    struct forge_strv *env)
{
	const char *old = forge_strv_getenv(env, "PATH");
	forge_auto_free char *path = NULL;

	old = old ? old : "/usr/bin";
	if (l->old == 0 || (spec->stack && !l->is_again))
		path = prepend(spec, old, l->old == 0);
	else
		path = replace(l->old_prefix, spec->prefix, old);
	return path ? forge_strv_setenv(env, "PATH", path) : -ENOMEM;
}

int forge_conda_activate(const struct forge_conda_spec *spec, struct forge_strv *env,
			 struct forge_strv *scripts, struct forge_strv *warnings,
			 struct forge_error *err)
{
	const char *shlvl = forge_strv_getenv(env, "CONDA_SHLVL");
	const char *before = forge_strv_getenv(env, "CONDA_PREFIX");
	forge_auto_free char *old_prefix = strdup(before ? before : "");
	struct level l = { .old = shlvl ? (unsigned)strtoul(shlvl, NULL, 10) : 0,
			   .old_prefix = old_prefix };
	json_t *vars = environment_vars(spec->prefix, warnings, err);

	if (!vars)
		return err && err->code ? -err->code : -EINVAL;
	l.is_again = old_prefix && l.old > 0 && strcmp(old_prefix, spec->prefix) == 0;
	int rc = old_prefix ? set_path(spec, &l, env) : -ENOMEM;
	if (rc == 0)
		rc = set_levels(spec, &l, env);
	if (rc == 0)
		rc = export_vars(vars, l.old, env, warnings);
	if (rc == 0)
		rc = set_meta(spec, env);
	json_decref(vars);
	if (rc == 0 && l.old > 0 && (!spec->stack || l.is_again))
		rc = add_scripts(l.old_prefix, "etc/conda/deactivate.d", true, scripts);
	if (rc == 0)
		rc = add_scripts(spec->prefix, "etc/conda/activate.d", false, scripts);
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}
