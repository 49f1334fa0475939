/* SPDX-License-Identifier: Apache-2.0 */
/* Sources the scripts of an environment once, in a sandbox, and caches their effect. */
#include "run/runtime_activation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "run/carry_out.h"
#include "run/runtime_identity.h"

#define SCRIPT_MAX   (1u << 20)
#define DUMP_MAX     (1 << 20) /* of all variables together */
#define WORKDIR_MARK "\001"    /* stands for the workdir in a cached value */

static void add_text(struct forge_sha256 *h, const char *text)
{
	forge_sha256_add(h, text, strlen(text) + 1);
}

/* Hashes a script, which must be a regular file below the prefix. */
static int hash_script(int top, const char *prefix, const char *path,
		       char digest[FORGE_DIGEST_MAX], struct forge_error *err)
{
	uint64_t size;
	bool is_below = forge_path_is_below(path, prefix);
	forge_auto_close int fd =
		is_below ? forge_open_regular(top, path + strlen(prefix) + 1, SCRIPT_MAX,
					      &size)
			 : -EXDEV;
	int rc = fd < 0 ? fd : forge_sha256_fd(fd, -1, digest, &size);

	return rc < 0 ? forge_fail(err, ENOEXEC, "%s: %s", path,
				   forge_regular_problem(rc))
		      : 0;
}

/* The cache key: the content of the scripts and their environment. */
static int scripts_key(const struct forge_runtime *rt, const struct forge_strv *scripts,
		       const struct forge_strv *env, char ret[FORGE_DIGEST_MAX],
		       struct forge_error *err)
{
	struct forge_sha256 h;
	char digest[FORGE_DIGEST_MAX];
	forge_auto_close int top =
		open(rt->real_prefix, O_PATH | O_DIRECTORY | O_CLOEXEC);

	forge_sha256_init(&h);
	add_text(&h, "activate-3");
	forge_strv_foreach (path, scripts) {
		int rc = hash_script(top, rt->prefix, path, digest, err);
		if (rc < 0)
			return rc;
		add_text(&h, path);
		add_text(&h, digest);
	}
	/* Run ids and the like differ each time; scripts must not depend on them. */
	forge_strv_foreach (pair, env)
		if (strncmp(pair, "FORGE_", 6) != 0 && strncmp(pair, "HOME=", 5) != 0 &&
		    strncmp(pair, "PWD=", 4) != 0)
			add_text(&h, pair);
	forge_sha256_done(&h, ret);
	return 0;
}

/* Every "from" in text becomes "to". NULL: out of memory. */
static char *substitute(const char *text, const char *from, const char *to)
{
	char *out = NULL;
	size_t len = 0, n = strlen(from);
	FILE *f = open_memstream(&out, &len);

	if (!f)
		return NULL;
	for (const char *p = text, *next; n && p; p = next) {
		next = strstr(p, from);
		(void)fwrite(p, 1, next ? (size_t)(next - p) : strlen(p), f);
		if (next) {
			(void)fputs(to, f);
			next += n;
		}
	}
	return fclose(f) == 0 ? out : (free(out), NULL);
}

/* Applies {"NAME": "value" or null} to env, for a run with this workdir. */
static int apply_changes(const json_t *changes, const char *workdir,
			 struct forge_strv *env)
{
	const char *name;
	json_t *value;
	int rc = 0;

	json_object_foreach((json_t *)changes, name, value)
	{
		forge_auto_free char *text =
			json_is_string(value) ? substitute(json_string_value(value),
							   WORKDIR_MARK, workdir)
					      : NULL;
		if (json_is_null(value))
			forge_strv_unsetenv(env, name);
		else if (rc == 0)
			rc = text ? forge_strv_setenv(env, name, text) : -ENOMEM;
	}
	return rc;
}

static bool is_noise(const char *name)
{
	static const char *const noise[] = { "_", "PWD", "OLDPWD", "SHLVL", "HOME" };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(noise); i++)
		if (strcmp(name, noise[i]) == 0)
			return true;
	return strncmp(name, "FORGE_", 6) == 0 || strncmp(name, "__forge_", 8) == 0;
}

/*
 * Adds one variable that the scripts set. A value made from $HOME has the workdir of the
 * run that sourced them; another run has another workdir.
 */
static int add_change(json_t *changes, const char *name, const char *value,
		      const char *workdir)
{
	forge_auto_free char *text = substitute(value, workdir, WORKDIR_MARK);

	if (!text)
		return -ENOMEM;
	json_t *j = json_string(text);
	return j ? json_object_set_new(changes, name, j) : -EILSEQ;
}

static int split_dump(const char *dump, size_t len, struct forge_strv *ret)
{
	for (size_t at = 0; at < len; at += strlen(dump + at) + 1)
		if (strchr(dump + at, '=') && forge_strv_add(ret, dump + at) < 0)
			return -ENOMEM;
	return 0;
}

/* The difference between env and the dump of a shell that sourced the scripts. */
static int add_changes(const struct forge_strv *env, const struct forge_strv *after,
		       const char *workdir, json_t *changes)
{
	int rc = 0;

	forge_strv_foreach (pair, after) {
		forge_auto_free char *name = strndup(pair, strcspn(pair, "="));
		const char *old = name ? forge_strv_getenv(env, name) : NULL;
		const char *new = pair + (name ? strlen(name) + 1 : 0);
		if (rc == 0 && name && !is_noise(name) && (!old || strcmp(old, new) != 0))
			rc = add_change(changes, name, new, workdir);
	}
	forge_strv_foreach (pair, env) {
		forge_auto_free char *name = strndup(pair, strcspn(pair, "="));
		if (name && !is_noise(name) && !forge_strv_getenv(after, name))
			json_object_set_new(changes, name, json_null());
	}
	return rc;
}

/* Reads an output of the run that sourced the scripts. Returns its length or -errno. */
static ssize_t read_output(const struct forge_home *home, const json_t *record,
			   const char *path, char *buf, size_t size)
{
	const json_t *output;
	size_t i;

	json_array_foreach (json_object_get(record, "outputs"), i, output)
		if (strcmp(forge_json_string_or(output, "path", ""), path) == 0)
			return forge_read_at(
				home->fd, forge_json_string_or(output, "stored_as", ""),
				buf, size);
	return -ENOENT;
}

/* The script that the shell began last, by a number from the run; NULL: unknown. */
static const char *last_script(const struct forge_home *home, const json_t *record,
			       const struct forge_strv *scripts)
{
	char numbers[8192];
	ssize_t n = read_output(home, record, "outputs/script", numbers, sizeof(numbers));
	unsigned long at = 0;

	for (char *p = numbers, *end; n > 0 && (end = strchr(p, '\n')); p = end + 1)
		at = strtoul(p, NULL, 10);
	return at > 0 && at <= scripts->n ? scripts->v[at - 1] : NULL;
}

static int take_changes(const struct forge_home *home, const json_t *record,
			const struct forge_strv *scripts, const struct forge_strv *env,
			json_t **ret, struct forge_error *err)
{
	forge_auto_strv struct forge_strv after = { 0 };
	forge_auto_free char *dump = malloc(DUMP_MAX);
	json_t *changes = json_object();
	ssize_t n =
		dump ? read_output(home, record, "outputs/environment", dump, DUMP_MAX)
		     : -ENOMEM;
	bool has_ended =
		strcmp(forge_json_string_or(record, "status", ""), "succeeded") == 0;
	int rc = !has_ended	     ? -ECHILD
		 : n == 0	     ? -ENOENT
		 : n < 0	     ? (int)n
		 : n == DUMP_MAX - 1 ? -E2BIG
				     : split_dump(dump, (size_t)n, &after);

	if (rc == 0)
		rc = add_changes(env, &after, forge_json_string_or(record, "workdir", ""),
				 changes);
	if (rc == 0) {
		*ret = changes;
		return 0;
	}
	json_decref(changes);
	if (rc == -ENOMEM)
		return forge_fail(err, ENOMEM, "out of memory");
	bool is_ended = rc == -ECHILD || rc == -ENOENT;
	const char *script = is_ended ? last_script(home, record, scripts) : NULL;
	return forge_hint(
		err,
		forge_fail(err, ENOEXEC, "its activate.d scripts failed: %s%s%s",
			   script ? script : "", script ? ": " : "",
			   rc == -ECHILD
				   ? forge_json_string_or(record, "completion_notes", "")
			   : rc == -ENOENT ? "it ended the shell"
			   : rc == -E2BIG  ? "they set more than 1 MiB"
			   : rc == -EILSEQ ? "a value is not UTF-8"
					   : strerror(-rc)),
		"See: forge logs %s", forge_json_string_or(record, "run_id", ""));
}

bool forge_probe_is_about_runtime(const json_t *record)
{
	const char *status = forge_json_string_or(record, "status", "");

	return strcmp(status, "cancelled") != 0 && strcmp(status, "rejected") != 0;
}

struct forge_run_request forge_probe_request(const struct forge_runtime *rt,
					     const char *store, char **argv,
					     uint64_t wall_usec)
{
	return (struct forge_run_request){
		.profile = "tool",
		.limits = { .wall_usec = wall_usec },
		.store = store,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.argv = argv,
		.runtime = forge_runtime_word(rt),
		.is_probe = true,
	};
}

static int remake_environment(const struct forge_ready_run *run, struct forge_error *err)
{
	return forge_activate(run->cfg, run->req, run->home, run->store, run->spec, err);
}

static int describe(const struct forge_home *home, struct forge_spec *s,
		    struct forge_error *err)
{
	struct forge_runtime_state state = { .health = FORGE_UNCHECKED };
	int rc = forge_runtime_state(home, &s->runtime, &state, err);

	if (rc == 0)
		s->runtime_json = forge_runtime_describe(s, &state);
	forge_runtime_state_done(&state);
	return rc;
}

int forge_probe_run(const struct forge_config *cfg, const struct forge_run_request *req,
		    const struct forge_home *home, const char *store,
		    struct forge_run_result *ret, struct forge_error *err)
{
	forge_auto_spec struct forge_spec spec = { 0 };
	const struct forge_ready_run ready = { .cfg = cfg,
					       .req = req,
					       .spec = &spec,
					       .home = home,
					       .store = store,
					       .remake_environment = remake_environment };
	int rc = forge_spec_resolve(cfg, req, &spec, err);

	if (rc == 0 && spec.has_runtime)
		rc = describe(home, &spec, err);
	if (rc == 0)
		rc = forge_activate(cfg, req, home, store, &spec, err);
	return rc < 0 ? rc : forge_carry_out(&ready, ret, err);
}

/* A minute, or the limit of the runtime's runs if that is less. */
static uint64_t scripts_time(const struct forge_runtime_decl *d)
{
	const uint64_t most = 60 * 1000000ull;

	return d->limits.wall_usec && d->limits.wall_usec < most ? d->limits.wall_usec
								 : most;
}

/*
 * Sources the scripts in a sandbox that has the runtime and the environment so far. Their
 * output goes to the log. The environment is written to one output file, and the number
 * of the current script to another. Both are opened first, because a script may change
 * the directory. The return value of a script is ignored, as conda does; a script that
 * ends the shell is an error.
 */
static int source_scripts(const struct forge_config *cfg, const struct forge_home *home,
			  const char *store, const struct forge_runtime *rt,
			  const struct forge_strv *scripts, const struct forge_strv *env,
			  json_t **ret, struct forge_error *err)
{
	static const char shell[] =
		"mkdir -p outputs && exec 8>outputs/script 9>outputs/environment || "
		"exit 9; __forge_n=0; "
		"for __forge_s; do __forge_n=$((__forge_n + 1)); "
		"echo $__forge_n >&8; "
		". \"$__forge_s\" >&2; done; command -p env -0 >&9";
	forge_auto_strv struct forge_strv argv = { 0 };
	struct forge_run_result result = { 0 };
	const char *bash = access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
	int rc = forge_strv_add(&argv, bash);

	if (rc == 0)
		rc = forge_strv_add(&argv, "-c");
	if (rc == 0)
		rc = forge_strv_add(&argv, shell);
	if (rc == 0)
		rc = forge_strv_add(&argv, "activate");
	forge_strv_foreach (path, scripts)
		if (rc == 0)
			rc = forge_strv_add(&argv, path);
	if (rc < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	struct forge_run_request req =
		forge_probe_request(rt, store, argv.v, scripts_time(rt->decl));
	req.exact_env = env;
	rc = forge_probe_run(cfg, &req, home, store, &result, err);
	if (rc == 0 && !forge_probe_is_about_runtime(result.record))
		rc = forge_fail(
			err, ECANCELED, "its scripts could not be sourced: %s",
			forge_json_string_or(result.record, "completion_notes", ""));
	else if (rc == 0)
		rc = take_changes(home, result.record, scripts, env, ret, err);
	json_decref(result.record);
	return rc;
}

static json_t *load_changes(int cache, const char *name)
{
	forge_auto_free char *text = malloc(DUMP_MAX);
	ssize_t n = text ? forge_read_at(cache, name, text, DUMP_MAX) : -1;

	return n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
}

/* Returns the changes from the cache, or sources the scripts now. */
static int changes_of(const struct forge_config *cfg, const struct forge_home *home,
		      const char *store, const struct forge_runtime *rt,
		      const struct forge_strv *scripts, const struct forge_strv *env,
		      json_t **ret, struct forge_error *err)
{
	char key[FORGE_DIGEST_MAX], name[96];
	int rc = scripts_key(rt, scripts, env, key, err);
	forge_auto_close int cache = rc < 0 ? rc : forge_home_subdir(home, "cache", err);

	if (cache < 0)
		return cache;
	(void)snprintf(name, sizeof(name), "activate-%s", strchr(key, ':') + 1);
	*ret = load_changes(cache, name);
	if (*ret)
		return 0;
	rc = source_scripts(cfg, home, store, rt, scripts, env, ret, err);
	if (rc < 0)
		return rc;
	forge_auto_free char *dump = json_dumps(*ret, JSON_COMPACT);
	if (dump)
		(void)!forge_replace_file(cache, name, dump, strlen(dump), false);
	return 0;
}

int forge_runtime_enter(const struct forge_config *cfg, const struct forge_home *home,
			const char *store, const struct forge_runtime *rt,
			const char *workdir, struct forge_strv *env,
			struct forge_strv *warnings, struct forge_error *err)
{
	forge_auto_strv struct forge_strv scripts = { 0 };
	json_t *changes = NULL;
	int rc = forge_runtime_activate(rt, env, &scripts, warnings, err);

	if (rc < 0 || scripts.n == 0)
		return rc;
	rc = changes_of(cfg, home, store, rt, &scripts, env, &changes, err);
	if (rc < 0)
		return forge_wrap(err, rc, "runtime %s", rt->decl->name);
	rc = apply_changes(changes, workdir, env);
	json_decref(changes);
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory")
		      : forge_runtime_settle(rt, env, err);
}

int forge_activate(const struct forge_config *cfg, const struct forge_run_request *req,
		   const struct forge_home *home, const char *store, struct forge_spec *s,
		   struct forge_error *err)
{
	int rc = forge_spec_begin_environment(s, cfg, req, err);

	if (rc == 0 && s->has_runtime && !req->exact_env)
		rc = forge_runtime_enter(cfg, home, store, &s->runtime, s->workdir,
					 &s->env, &s->warnings, err);
	return rc < 0 ? rc : forge_spec_end_environment(s, cfg, req, err);
}
