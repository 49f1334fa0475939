/* SPDX-License-Identifier: Apache-2.0 */
/* Computes what `conda activate` exports, rule by rule. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/conda.h"
#include "runtime/conda_parts.h"

/* ---- PATH ---- */

/* As in conda, "mycondabin" counts too. */
static bool has_condabin(const char *path)
{
	for (const char *p = path; p && *p;) {
		size_t len = strcspn(p, ":");
		if (len >= 8 && strncmp(p + len - 8, "condabin", 8) == 0)
			return true;
		p += len + (p[len] == ':');
	}
	return false;
}

/* Level 0 and --stack: the prefix goes in front. conda's own directory follows, once. */
static char *prepend(const struct forge_conda_spec *spec, const char *path, bool is_first)
{
	bool with_condabin = is_first && spec->root_prefix && !has_condabin(path);

	return forge_asprintf("%s/bin:%s%s%s", spec->prefix,
			      with_condabin ? spec->root_prefix : "",
			      with_condabin ? "/condabin:" : "", path);
}

/* Is the entry of len bytes the directory bin of prefix? A slash at its end does not count. */
static bool is_bin_of(const char *entry, size_t len, const char *prefix)
{
	size_t n = strlen(prefix);

	while (len > 1 && entry[len - 1] == '/')
		len--;
	return n && len == n + 4 && strncmp(entry, prefix, n) == 0 &&
	       strncmp(entry + n, "/bin", 4) == 0;
}

/*
 * Above level 0: the new prefix replaces the first entry of the old one, or goes in front if
 * there is none. old is normalised as PATH is, and "" when the active environment is unknown.
 */
static char *replace(const char *old, const char *new, const char *path)
{
	for (const char *p = path; *p;) {
		size_t len = strcspn(p, ":");
		if (is_bin_of(p, len, old))
			return forge_asprintf("%.*s%s/bin%s", (int)(p - path), path, new,
					      p + len);
		p += len + (p[len] == ':');
	}
	return forge_asprintf("%s/bin:%s", new, path);
}

/*
 * Writes Python's normpath() of an entry of len bytes to out, which has room for it. Returns
 * its end.
 */
static char *normalise_entry(const char *entry, size_t len, char *out)
{
	bool is_absolute = len > 0 && entry[0] == '/';
	char *start = out;

	if (is_absolute)
		*out++ = '/';
	/* By POSIX two leading slashes are not one; three are. */
	if (is_absolute && len > 1 && entry[1] == '/' && !(len > 2 && entry[2] == '/'))
		*out++ = '/';
	char *root = out;
	for (size_t at = 0, n; at < len; at += n + 1) {
		const char *part = entry + at;
		n = 0;
		while (at + n < len && part[n] != '/')
			n++;
		if (n == 0 || (n == 1 && *part == '.'))
			continue;
		char *last = out;
		while (last > root && last[-1] != '/')
			last--;
		bool is_up = n == 2 && strncmp(part, "..", 2) == 0;
		bool last_is_up = out - last == 2 && strncmp(last, "..", 2) == 0;
		if (is_up && out > root && !last_is_up) {
			out = last > root ? last - 1 : root;
		} else if (!is_up || !is_absolute) {
			if (out > root)
				*out++ = '/';
			memmove(out, part, n);
			out += n;
		}
	}
	if (out == start)
		*out++ = '.';
	return out;
}

/* Normalises every entry of PATH; an empty one is the current directory. NULL: out of memory. */
static char *normalise(const char *path)
{
	char *ret = malloc(2 * strlen(path) + 3), *out = ret;

	for (const char *p = path; ret;) {
		size_t len = strcspn(p, ":");
		out = normalise_entry(p, len, out);
		if (!p[len])
			break;
		*out++ = ':';
		p += len + 1;
	}
	if (ret)
		*out = '\0';
	return ret;
}

/* Removes the entries of old (NULL: none), and of equal neighbours all but one. */
static char *mamba_clean(const char *path, const char *old)
{
	char *out = malloc(strlen(path) + 1), *end = out;
	const char *last = NULL;
	size_t last_len = 0;

	for (const char *p = path; out;) {
		size_t len = strcspn(p, ":");
		bool is_old = old && is_bin_of(p, len, old);
		bool is_same = last && len == last_len && strncmp(p, last, len) == 0;
		if (!is_old && !is_same) {
			if (last)
				*end++ = ':';
			memcpy(end, p, len);
			end += len;
			last = p;
			last_len = len;
		}
		if (!p[len])
			break;
		p += len + 1;
	}
	if (out)
		*end = '\0';
	return out;
}

/* The prefix goes in front at every level; entries of the old one are removed. */
static char *mamba_path(const struct forge_conda_spec *spec, const char *old,
			const char *path, bool is_first)
{
	forge_auto_free char *rest = mamba_clean(path, old);
	forge_auto_free char *full = rest ? prepend(spec, rest, is_first) : NULL;

	return full ? mamba_clean(full, NULL) : NULL;
}

/* ---- variables of the environment ---- */

static void upper(char *s)
{
	for (; *s; s++)
		if (*s >= 'a' && *s <= 'z')
			*s = (char)(*s - 'a' + 'A');
}

/*
 * Sets the name in capitals unless conda is configured otherwise. A variable that may not be
 * set under that name is skipped with a warning.
 */
static int set_var(const struct forge_conda_spec *spec, const char *name,
		   const char *value, struct forge_strv *env, struct forge_strv *warnings)
{
	forge_auto_free char *copy = strdup(name);

	if (!copy)
		return -ENOMEM;
	if (!spec->keep_case)
		upper(copy);
	const char *why = forge_conda_refuses(copy);
	if (why)
		forge_conda_warn(warnings, "'%.80s' is left out: %s", name, why);
	return why ? 0 : forge_strv_setenv(env, copy, value);
}

/* A variable that was set before is saved under a name of this level. */
static int save_var(const struct forge_conda_spec *spec, const char *name,
		    const char *new, unsigned level, const struct forge_strv *before,
		    struct forge_strv *env, struct forge_strv *warnings)
{
	const char *old = forge_strv_getenv(before, name);

	if (!old)
		return 0;
	forge_auto_free char *saved = forge_asprintf("__CONDA_SHLVL_%u_%s", level, name);
	if (!saved)
		return -ENOMEM;
	if (!new || strcmp(old, new) != 0)
		forge_conda_warn(warnings, "overwriting variable %.80s", name);
	return set_var(spec, saved, old, env, warnings);
}

static int export_var(const struct forge_conda_spec *spec, const char *name,
		      const char *value, unsigned level, const struct forge_strv *before,
		      struct forge_strv *env, struct forge_strv *warnings)
{
	forge_auto_free char *key = strdup(name);

	if (!key)
		return -ENOMEM;
	/* mamba looks for the name that it will set, conda for the name that it read. */
	if (spec->is_mamba)
		upper(key);
	int rc = save_var(spec, key, value, level, before, env, warnings);
	return rc < 0 ? rc : set_var(spec, key, value ? value : "", env, warnings);
}

/*
 * before: the environment with which conda was started; variables that conda itself sets are
 * not saved. Variables that are null are emptied before any is set.
 */
static int export_vars(const struct forge_conda_spec *spec, json_t *vars, unsigned level,
		       const struct forge_strv *before, struct forge_strv *env,
		       struct forge_strv *warnings)
{
	const char *name;
	json_t *value;
	int rc = 0;

	for (int sets = 0; sets < 2; sets++)
		json_object_foreach(vars, name, value)
		{
			const char *text = json_string_value(value); /* NULL: null */
			if (rc == 0 && !!text == sets &&
			    (!text || strcmp(text, "***unset***") != 0))
				rc = export_var(spec, name, text, level, before, env,
						warnings);
		}
	return rc;
}

/* ---- scripts ---- */

/* Adds the scripts of the prefix at real, by paths below prefix. */
static int add_scripts(const char *prefix, const char *real, const char *dir,
		       bool reverse, struct forge_strv *scripts, struct forge_error *err)
{
	forge_auto_strv struct forge_strv list = { 0 };
	forge_auto_close int top = open(real, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int rc = top < 0 ? 0 : forge_conda_list_files(top, dir, ".sh", &list, err);

	for (size_t i = 0; i < list.n && rc == 0; i++)
		if (forge_strv_addf(scripts, "%s/%s", prefix,
				    list.v[reverse ? list.n - 1 - i : i]) < 0)
			rc = forge_fail(err, ENOMEM, "out of memory");
	return rc;
}

/* ---- all of it ---- */

/* "base" for the installation, the name in envs/, else the whole path. */
static const char *default_env(const struct forge_conda_spec *spec, const char *prefix)
{
	const char *name = strrchr(prefix, '/');

	if (spec->root_prefix && strcmp(prefix, spec->root_prefix) == 0)
		return "base";
	if (name && name - prefix >= 5 && strncmp(name - 5, "/envs", 5) == 0)
		return name + 1;
	return prefix;
}

static int set_meta(const struct forge_conda_spec *spec, struct forge_strv *env)
{
	if (!spec->root_prefix || spec->is_mamba)
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
	bool is_again;	  /* the same environment: runs its scripts, no new level */
	bool is_stacked;  /* the old environment stays in PATH */
};

#define LEVELS_MAX 1000u /* most levels that a prompt shows */

/* The environment of a level above 0, by the caller's variables. */
static const char *env_of_level(const struct forge_conda_spec *spec,
				const struct level *l, unsigned i,
				const struct forge_strv *env)
{
	char name[40];

	(void)snprintf(name, sizeof(name), "CONDA_PREFIX_%u", i);
	const char *prefix = i == l->old ? l->old_prefix : forge_strv_getenv(env, name);
	return default_env(spec, prefix ? prefix : "");
}

static void pop(struct forge_strv *stack)
{
	if (stack->n > 0)
		free(stack->v[--stack->n]);
	if (stack->v)
		stack->v[stack->n] = NULL;
}

/* The environments whose directories are in PATH, the last first. NULL: out of memory. */
static char *stacked_env(const struct forge_conda_spec *spec, const struct level *l,
			 const char *label, const struct forge_strv *env)
{
	forge_auto_strv struct forge_strv stack = { 0 };
	unsigned top = l->old < LEVELS_MAX ? l->old : LEVELS_MAX;
	char name[40], *text = NULL;
	size_t size = 0;
	int rc = 0;

	for (unsigned i = 1; i <= top && rc == 0; i++) {
		(void)snprintf(name, sizeof(name), "CONDA_STACKED_%u", i);
		const char *is_stacked = forge_strv_getenv(env, name);
		if (!is_stacked || !is_stacked[strspn(is_stacked, " \t\n")])
			pop(&stack);
		rc = forge_strv_add(&stack, env_of_level(spec, l, i, env));
	}
	if (!l->is_again && !l->is_stacked)
		pop(&stack);
	if (rc == 0 && !l->is_again)
		rc = forge_strv_add(&stack, label);
	FILE *out = rc == 0 ? open_memstream(&text, &size) : NULL;
	for (size_t i = stack.n; out && i > 0; i--)
		fprintf(out, "%s%s", stack.v[i - 1], i > 1 ? "," : "");
	if (out && fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

static char *make_prompt(const struct forge_conda_spec *spec, const struct level *l,
			 const char *label, const struct forge_strv *env,
			 struct forge_strv *warnings)
{
	const char *slash = strrchr(spec->prefix, '/');
	forge_auto_free char *stacked = stacked_env(spec, l, label, env);
	const struct forge_conda_names names = { .default_env = label,
						 .stacked_env = stacked,
						 .prefix = spec->prefix,
						 .name = slash ? slash + 1
							       : spec->prefix };

	return stacked ? forge_conda_prompt(spec->prompt ? spec->prompt : "", &names,
					    warnings)
		       : NULL;
}

/* The same environment is activated again: only the level, the prompt and PATH are set again. */
static int set_again(const struct forge_conda_spec *spec, const struct level *l,
		     struct forge_strv *env, struct forge_strv *warnings)
{
	const char *label = forge_strv_getenv(env, "CONDA_DEFAULT_ENV");
	forge_auto_free char *prompt = make_prompt(
		spec, l, label ? label : default_env(spec, spec->prefix), env, warnings);

	return prompt ? forge_strv_setenv(env, "CONDA_PROMPT_MODIFIER", prompt) : -ENOMEM;
}

static int set_levels(const struct forge_conda_spec *spec, const struct level *l,
		      struct forge_strv *env, struct forge_strv *warnings)
{
	char number[16], name[40];
	const char *label = default_env(spec, spec->prefix);
	forge_auto_free char *prompt = make_prompt(spec, l, label, env, warnings);

	(void)snprintf(number, sizeof(number), "%u", l->old + 1);
	int rc = prompt ? forge_strv_setenv(env, "CONDA_PREFIX", spec->prefix) : -ENOMEM;
	if (rc == 0)
		rc = forge_strv_setenv(env, "CONDA_SHLVL", number);
	if (rc == 0)
		rc = forge_strv_setenv(env, "CONDA_DEFAULT_ENV", label);
	if (rc == 0)
		rc = forge_strv_setenv(env, "CONDA_PROMPT_MODIFIER", prompt);
	if (rc == 0 && l->old > 0) {
		(void)snprintf(name, sizeof(name), "CONDA_PREFIX_%u", l->old);
		rc = forge_strv_setenv(env, name, l->old_prefix);
	}
	if (rc == 0 && l->is_stacked && l->old > 0) {
		(void)snprintf(name, sizeof(name), "CONDA_STACKED_%u", l->old + 1);
		rc = forge_strv_setenv(env, name, "true");
	}
	return rc;
}

static int set_path(const struct forge_conda_spec *spec, const struct level *l,
		    struct forge_strv *env)
{
	const char *old = forge_strv_getenv(env, "PATH");
	forge_auto_free char *path = NULL;
	bool in_front = l->old == 0 || (l->is_stacked && !l->is_again);

	old = old ? old : "/usr/bin";
	forge_auto_free char *normal = normalise(old);
	forge_auto_free char *before =
		*l->old_prefix ? normalise(l->old_prefix) : strdup("");
	if (!normal || !before)
		return -ENOMEM;
	if (spec->is_mamba)
		path = mamba_path(spec, in_front ? NULL : l->old_prefix, old,
				  l->old == 0);
	else if (in_front)
		path = prepend(spec, normal, l->old == 0);
	else
		path = replace(before, spec->prefix, normal);
	return path ? forge_strv_setenv(env, "PATH", path) : -ENOMEM;
}

/* The variables, in conda's order. */
static int set_all(const struct forge_conda_spec *spec, const struct level *l,
		   json_t *vars, struct forge_strv *env, struct forge_strv *warnings)
{
	forge_auto_strv struct forge_strv before = { 0 };
	int rc = forge_strv_copy(&before, env);

	if (rc == 0)
		rc = set_path(spec, l, env);
	if (rc == 0)
		rc = l->is_again ? set_again(spec, l, env, warnings)
				 : set_levels(spec, l, env, warnings);
	if (rc == 0 && !l->is_again)
		rc = export_vars(spec, vars, l->old, &before, env, warnings);
	return rc < 0 ? rc : set_meta(spec, env);
}

int forge_conda_activate(const struct forge_conda_spec *spec, struct forge_strv *env,
			 struct forge_strv *scripts, struct forge_strv *warnings,
			 struct forge_error *err)
{
	const char *shlvl = forge_strv_getenv(env, "CONDA_SHLVL");
	const char *before = forge_strv_getenv(env, "CONDA_PREFIX");
	forge_auto_free char *old_prefix = strdup(before ? before : "");
	const char *real = spec->real_prefix ? spec->real_prefix : spec->prefix;
	forge_auto_close int top = open(real, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct level l = { .old = shlvl ? (unsigned)strtoul(shlvl, NULL, 10) : 0,
			   .old_prefix = old_prefix };
	json_t *vars = json_object();
	int rc = old_prefix && vars ? 0 : forge_fail(err, ENOMEM, "out of memory");

	if (rc == 0 && top >= 0)
		rc = forge_conda_vars(top, spec->prefix, vars, warnings, err);
	l.is_stacked = spec->stack || (l.old > 0 && l.old <= spec->auto_stack);
	l.is_again = old_prefix && l.old > 0 && strcmp(old_prefix, spec->prefix) == 0;
	if (rc == 0 && set_all(spec, &l, vars, env, warnings) < 0)
		rc = forge_fail(err, ENOMEM, "out of memory");
	json_decref(vars);
	if (rc == 0 && l.old > 0 && (!l.is_stacked || l.is_again))
		rc = add_scripts(l.old_prefix, l.old_prefix, "etc/conda/deactivate.d",
				 true, scripts, err);
	if (rc == 0)
		rc = add_scripts(spec->prefix, real, "etc/conda/activate.d", false,
				 scripts, err);
	return rc;
}
