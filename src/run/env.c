/* SPDX-License-Identifier: Apache-2.0 */
/* Identity with a memory, probes, and scripts that have to be sourced. */
#include "run/env.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "run/run.h"

/* A new version of how identity is computed makes what was remembered worthless. */
#define IDENTITY_VERSION "1"

void forge_runtime_state_done(struct forge_runtime_state *s)
{
	json_decref(s->versions);
	*s = (struct forge_runtime_state){ .health = FORGE_UNCHECKED };
}

/* ---- the digest, remembered ---- */

static void add_text(struct forge_sha256 *h, const char *text)
{
	forge_sha256_add(h, text ? text : "", text ? strlen(text) + 1 : 1);
}

static void add_list(struct forge_sha256 *h, const struct forge_strv *list)
{
	forge_strv_foreach (s, list)
		add_text(h, s);
	add_text(h, NULL);
}

/* What was written down; a probe of another declaration says nothing about this one. */
static void add_declaration(struct forge_sha256 *h, const struct forge_runtime_decl *d)
{
	add_text(h, d->kind);
	add_text(h, d->prefix);
	add_text(h, d->smoke);
	add_list(h, &d->commands);
	add_list(h, &d->python);
	add_list(h, &d->r);
	add_list(h, &d->libraries);
	add_list(h, &d->env);
}

static void add_stat(struct forge_sha256 *h, int dir, const char *name)
{
	char text[200];
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		add_text(h, name);
		return;
	}
	(void)snprintf(text, sizeof(text),
		       "%" PRIu64 " %" PRIu64 " %lld %lld.%09ld %lld.%09ld",
		       (uint64_t)st.st_dev, (uint64_t)st.st_ino, (long long)st.st_size,
		       (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
		       (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
	add_text(h, name);
	add_text(h, text);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* Every entry of a directory, and of those below it down to depth. */
static void add_dir(struct forge_sha256 *h, const char *path, unsigned depth)
{
	struct dirent **list = NULL;
	forge_auto_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int n = fd < 0 ? -1 : scandirat(fd, ".", &list, NULL, by_name);

	add_stat(h, AT_FDCWD, path);
	for (int i = 0; i < n; i++) {
		const char *name = list[i]->d_name;
		if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
		    strcmp(name, "__pycache__") != 0) {
			add_stat(h, fd, name);
			if (depth > 0 && list[i]->d_type == DT_DIR) {
				char sub[PATH_MAX];
				(void)snprintf(sub, sizeof(sub), "%s/%s", path, name);
				add_dir(h, sub, depth - 1);
			}
		}
		free(list[i]);
	}
	free(list);
}

/*
 * What must look the same for the content to be the same, by kind: package managers change the
 * times of these when they install or remove anything.
 */
static void add_places(struct forge_sha256 *h, const struct forge_runtime *rt)
{
	static const char *const host[] = {
		"/var/lib/dpkg/status",	   "/usr/bin",
		"/usr/local/bin",	   "/usr/lib/python3/dist-packages",
		"/usr/lib/R/site-library", "/usr/local/lib/R/site-library"
	};
	char path[PATH_MAX];

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(host); i++)
		add_stat(h, AT_FDCWD, host[i]);
	forge_strv_foreach (dir, &rt->decl->libraries)
		add_dir(h, dir, 0);
	if (!rt->prefix)
		return;
	/* No package manager vouches for these: every file is looked at. */
	if (rt->kind == &forge_kind_prefix) {
		add_dir(h, rt->prefix, 64);
		return;
	}
	(void)snprintf(path, sizeof(path), "%s/conda-meta", rt->prefix);
	add_dir(h, path, 0);
	(void)snprintf(path, sizeof(path), "%s/var/lib/dpkg/status", rt->prefix);
	add_stat(h, AT_FDCWD, path);
	(void)snprintf(path, sizeof(path), "%s/bin", rt->prefix);
	add_stat(h, AT_FDCWD, path);
	(void)snprintf(path, sizeof(path), "%s/pyvenv.cfg", rt->prefix);
	add_stat(h, AT_FDCWD, path);
	(void)snprintf(path, sizeof(path), "%s/lib", rt->prefix);
	forge_auto_dir DIR *d = opendir(path);
	for (struct dirent *e; d && (e = readdir(d));)
		if (strncmp(e->d_name, "python", 6) == 0) {
			(void)snprintf(path, sizeof(path), "%s/lib/%s/site-packages",
				       rt->prefix, e->d_name);
			add_dir(h, path, 0);
		}
}

static void fingerprint(const struct forge_runtime *rt, char ret[FORGE_DIGEST_MAX])
{
	struct forge_sha256 h;

	forge_sha256_init(&h);
	add_text(&h, IDENTITY_VERSION);
	add_declaration(&h, rt->decl);
	add_text(&h, rt->prefix);
	add_places(&h, rt);
	forge_sha256_done(&h, ret);
}

/* Names in cache/ are "identity-<hex>"; the content is the digest. */
int forge_runtime_digest(const struct forge_home *home, const struct forge_runtime *rt,
			 char ret[FORGE_DIGEST_MAX], struct forge_error *err)
{
	char print[FORGE_DIGEST_MAX], name[96], text[FORGE_DIGEST_MAX + 1];
	struct forge_packages p = { .v = NULL };

	fingerprint(rt, print);
	(void)snprintf(name, sizeof(name), "identity-%s", strchr(print, ':') + 1);
	forge_auto_close int cache = forge_home_subdir(home, "cache", err);
	if (cache < 0)
		return cache;
	if (forge_read_at(cache, name, text, sizeof(text)) == FORGE_DIGEST_MAX - 1) {
		memcpy(ret, text, FORGE_DIGEST_MAX);
		return 0;
	}
	int rc = forge_runtime_identify(rt, &p, err);
	if (rc == 0) {
		forge_packages_digest(&p, ret);
		(void)!forge_replace_file(cache, name, ret, strlen(ret),
					  false); /* a memory */
	}
	forge_packages_done(&p);
	return rc;
}

/* ---- what the last probe said ---- */

static void declaration_digest(const struct forge_runtime *rt, char ret[FORGE_DIGEST_MAX])
{
	struct forge_sha256 h;

	forge_sha256_init(&h);
	add_declaration(&h, rt->decl);
	forge_sha256_done(&h, ret);
}

static json_t *load_state(const struct forge_home *home, const char *name)
{
	char file[96], text[65536];
	forge_auto_close int dir = forge_home_subdir(home, "runtimes", NULL);

	(void)snprintf(file, sizeof(file), "%s.json", name);
	ssize_t n = dir < 0 ? -1 : forge_read_at(dir, file, text, sizeof(text));
	return n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
}

static const char *text_of(const json_t *j, const char *key)
{
	const char *s = json_string_value(json_object_get(j, key));

	return s ? s : "";
}

int forge_runtime_state(const struct forge_home *home, const struct forge_runtime *rt,
			struct forge_runtime_state *ret, struct forge_error *err)
{
	char declared[FORGE_DIGEST_MAX];
	struct forge_runtime_state s = { .health = FORGE_UNCHECKED };
	int rc = forge_runtime_digest(home, rt, s.digest, err);

	if (rc < 0)
		return rc;
	declaration_digest(rt, declared);
	json_t *j = load_state(home, rt->decl->name);
	if (j && strcmp(text_of(j, "digest"), s.digest) == 0 &&
	    strcmp(text_of(j, "declaration"), declared) == 0) {
		s.health = strcmp(text_of(j, "status"), "healthy") == 0 ? FORGE_HEALTHY
									: FORGE_BROKEN;
		(void)snprintf(s.checked_at, sizeof(s.checked_at), "%s",
			       text_of(j, "checked_at"));
		(void)snprintf(s.probe_run, sizeof(s.probe_run), "%s",
			       text_of(j, "probe_run"));
		(void)snprintf(s.problem, sizeof(s.problem), "%s", text_of(j, "problem"));
		s.versions = json_incref(json_object_get(j, "versions"));
	}
	json_decref(j);
	*ret = s;
	return 0;
}

static int save_state(const struct forge_home *home, const struct forge_runtime *rt,
		      const struct forge_runtime_state *s, struct forge_error *err)
{
	char declared[FORGE_DIGEST_MAX], file[96];

	declaration_digest(rt, declared);
	json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:O?}", "name",
			      rt->decl->name, "status",
			      s->health == FORGE_HEALTHY ? "healthy" : "broken", "digest",
			      s->digest, "declaration", declared, "checked_at",
			      s->checked_at, "probe_run", s->probe_run, "problem",
			      s->problem, "versions", s->versions);
	forge_auto_free char *text = j ? json_dumps(j, JSON_INDENT(2)) : NULL;
	json_decref(j);
	if (!text)
		return forge_fail(err, ENOMEM, "out of memory");
	forge_auto_close int dir = forge_home_subdir(home, "runtimes", err);
	if (dir < 0)
		return dir;
	(void)snprintf(file, sizeof(file), "%s.json", rt->decl->name);
	int rc = forge_replace_file(dir, file, text, strlen(text), true);
	return rc < 0 ? forge_fail_errno(err, -rc, "keep the state of runtime %s",
					 rt->decl->name)
		      : 0;
}

/* ---- the probe ---- */

/*
 * Runs inside, under sh: the words are "c NAME" for a program, "p MODULE" for Python, "r PACKAGE"
 * for R, "s LINE" for the smoke test. Each answers with one line: what, name, tab, "ok" or "no",
 * tab, a version or what is wrong.
 */
static const char probe_script[] =
	"say() { printf '%s\\t%s\\t%s\\t%s\\n' \"$1\" \"$2\" \"$3\" \"$(printf %s \"$4\" "
	"| "
	"command -p tr '\\t\\n\\r' '   ' | command -p cut -c1-300)\"; }\n"
	"py=$(command -v python3 || command -v python)\n"
	"while [ $# -gt 1 ]; do\n"
	"case $1 in\n"
	"c) if p=$(command -v -- \"$2\"); then\n"
	"     v=$(\"$2\" --version </dev/null 2>&1) && v=$(printf %s \"$v\" | command -p "
	"grep -m 1 "
	"'[0-9]') || v=present\n"
	"     say c \"$2\" ok \"$v\"\n"
	"   else say c \"$2\" no 'not in PATH'; fi ;;\n"
	"p) if [ -z \"$py\" ]; then say p \"$2\" no 'there is no python'\n"
	"   elif v=$(\"$py\" -c 'import importlib, sys\n"
	"name = sys.argv[1]\n"
	"m = importlib.import_module(name)\n"
	"v = getattr(m, \"__version__\", None)\n"
	"if not isinstance(v, str):\n"
	"    try:\n"
	"        import importlib.metadata as md\n"
	"        v = md.version(name)\n"
	"    except Exception:\n"
	"        v = \"present\"\n"
	"print(v)' \"$2\" 2>&1); then say p \"$2\" ok \"$(printf %s \"$v\" | command -p "
	"tail -n 1)\"\n"
	"   else e=$?; v=$(printf %s \"$v\" | command -p tail -n 1); [ $e -lt 128 ] || "
	"v=\"died of signal "
	"$((e - 128)) $v\"; say p \"$2\" no \"$v\"; fi ;;\n"
	"r) if v=$(Rscript --vanilla -e 'a <- commandArgs(TRUE)[1]; "
	"suppressMessages(library(a, character.only = TRUE)); "
	"cat(as.character(packageVersion(a)))' \"$2\" 2>&1); then say r \"$2\" ok "
	"\"$v\"\n"
	"   else say r \"$2\" no \"$(printf %s \"$v\" | command -p head -n 2)\"; fi ;;\n"
	"s) if v=$(/bin/sh -c \"$2\" 2>&1 </dev/null); then say s smoke ok \"\"\n"
	"   else say s smoke no \"exit $?: $(printf %s \"$v\" | command -p tail -n 1)\"; "
	"fi ;;\n"
	"esac\n"
	"shift 2\n"
	"done\n";

static int add_words(struct forge_strv *argv, const char *what,
		     const struct forge_strv *names)
{
	int rc = 0;

	forge_strv_foreach (name, names) {
		if (rc == 0)
			rc = forge_strv_add(argv, what);
		if (rc == 0)
			rc = forge_strv_add(argv, name);
	}
	return rc;
}

/* What is asked of a runtime that says nothing about itself: its interpreters must run. */
static int default_commands(const struct forge_runtime *rt, struct forge_strv *ret)
{
	static const char *const usual[] = { "python", "python3", "Rscript", "julia",
					     "perl" };
	char path[PATH_MAX];
	int rc = 0;

	for (size_t i = 0; rt->prefix && i < FORGE_ARRAY_SIZE(usual) && rc == 0; i++) {
		(void)snprintf(path, sizeof(path), "%s/%sbin/%s", rt->prefix,
			       rt->kind == &forge_kind_rootfs ? "usr/" : "", usual[i]);
		struct stat st;
		if (lstat(path, &st) == 0)
			rc = forge_strv_add(ret, usual[i]);
	}
	return rc;
}

static int probe_argv(const struct forge_runtime_decl *d, const struct forge_strv *usual,
		      struct forge_strv *argv)
{
	static const char *const head[] = { "/bin/sh", "-c", probe_script, "probe" };
	int rc = 0;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(head) && rc == 0; i++)
		rc = forge_strv_add(argv, head[i]);
	if (rc == 0)
		rc = add_words(argv, "c", usual->n ? usual : &d->commands);
	if (rc == 0)
		rc = add_words(argv, "p", &d->python);
	if (rc == 0)
		rc = add_words(argv, "r", &d->r);
	if (rc == 0 && d->smoke) {
		rc = forge_strv_add(argv, "s");
		if (rc == 0)
			rc = forge_strv_add(argv, d->smoke);
	}
	return rc;
}

/* The run's standard output, as far as it is kept. */
static char *read_log(const json_t *record)
{
	const char *path = text_of(json_object_get(record, "logs"), "stdout");
	char *text = malloc(1 << 20);

	if (text && forge_read_at(AT_FDCWD, path, text, 1 << 20) < 0) {
		free(text);
		return NULL;
	}
	return text;
}

/* One answer; the first bad one is the reason. */
static void take_answer(char *line, struct forge_runtime_state *s)
{
	char *name = strchr(line, '\t'), *how = name ? strchr(name + 1, '\t') : NULL;
	char *detail = how ? strchr(how + 1, '\t') : NULL;

	if (!detail)
		return;
	*name++ = *how++ = *detail++ = '\0';
	if (strcmp(how, "ok") == 0) {
		if (*detail)
			json_object_set_new(s->versions, name, forge_json_text(detail));
		return;
	}
	if (!s->problem[0])
		(void)snprintf(s->problem, sizeof(s->problem), "%s%s%s: %s",
			       *line == 'c'   ? "command"
			       : *line == 'p' ? "Python module"
			       : *line == 'r' ? "R package"
					      : "its own test",
			       *line == 's' ? "" : " ", *line == 's' ? "" : name, detail);
}

static size_t count_asked(const struct forge_runtime_decl *d)
{
	return d->commands.n + d->python.n + d->r.n + (d->smoke ? 1 : 0);
}

static void judge_probe(size_t asked, const json_t *record, struct forge_runtime_state *s)
{
	size_t answers = 0;
	forge_auto_free char *text = read_log(record);

	for (char *line = text, *end; line && (end = strchr(line, '\n'));
	     line = end + 1) {
		*end = '\0';
		answers++;
		take_answer(line, s);
	}
	/* It died in the middle: then the verdict of the run says why. */
	if (!s->problem[0] &&
	    (answers < asked || strcmp(text_of(record, "status"), "succeeded") != 0))
		(void)snprintf(s->problem, sizeof(s->problem),
			       "the probe did not end: %s",
			       text_of(record, "completion_notes"));
	s->health = s->problem[0] ? FORGE_BROKEN : FORGE_HEALTHY;
}

/* Two minutes, or what its runs have when that is less. */
static uint64_t probe_time(const struct forge_runtime_decl *d)
{
	const uint64_t most = 120 * 1000000ull;

	return d->limits.wall_usec && d->limits.wall_usec < most ? d->limits.wall_usec
								 : most;
}

int forge_runtime_probe(const struct forge_config *cfg, const struct forge_home *home,
			const char *store, const struct forge_runtime *rt,
			struct forge_runtime_state *ret, struct forge_error *err)
{
	forge_auto_strv struct forge_strv argv = { 0 }, usual = { 0 };
	struct forge_runtime_state s = { .versions = json_object() };
	struct forge_run_result result = { 0 };
	size_t asked = count_asked(rt->decl);
	int rc = forge_runtime_digest(home, rt, s.digest, err);

	if (rc == 0 && (!s.versions || (!asked && default_commands(rt, &usual) < 0) ||
			probe_argv(rt->decl, &usual, &argv) < 0))
		rc = forge_fail(err, ENOMEM, "out of memory");
	asked += usual.n;
	/* What nothing was tried of is not known to work. */
	if (rc == 0 && !asked)
		rc = forge_hint(err,
				forge_fail(err, ENOEXEC,
					   "runtime %s has nothing that could be tried",
					   rt->decl->name),
				"Declare its commands");
	struct forge_run_request req = {
		.analysis_id = NULL,
		.profile = "tool",
		.limits = { .wall_usec = probe_time(rt->decl) },
		.store = store,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.argv = argv.v,
		.runtime = rt->decl->name,
		.is_probe = true,
	};
	if (rc == 0)
		rc = forge_run(cfg, &req, &result, err);
	if (rc == 0) {
		judge_probe(asked, result.record, &s);
		(void)snprintf(s.probe_run, sizeof(s.probe_run), "%s",
			       text_of(result.record, "run_id"));
		(void)forge_format_now(s.checked_at);
		rc = save_state(home, rt, &s, err);
	}
	json_decref(result.record);
	if (rc < 0) {
		forge_runtime_state_done(&s);
		return rc;
	}
	*ret = s;
	return 0;
}

/* ---- scripts ---- */

/* Its key: what the scripts say, and what they are given. */
static int scripts_key(const struct forge_strv *scripts, const struct forge_strv *env,
		       char ret[FORGE_DIGEST_MAX], struct forge_error *err)
{
	struct forge_sha256 h;
	char digest[FORGE_DIGEST_MAX];
	uint64_t size;

	forge_sha256_init(&h);
	add_text(&h, "activate-1");
	forge_strv_foreach (path, scripts) {
		forge_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		int rc = fd < 0 ? -errno : forge_sha256_fd(fd, -1, digest, &size);
		if (rc < 0)
			return forge_fail_errno(err, -rc, "read %s", path);
		add_text(&h, path);
		add_text(&h, digest);
	}
	/* Run ids and the like differ each time and are no business of theirs. */
	forge_strv_foreach (pair, env)
		if (strncmp(pair, "FORGE_", 6) != 0 && strncmp(pair, "HOME=", 5) != 0 &&
		    strncmp(pair, "PWD=", 4) != 0)
			add_text(&h, pair);
	forge_sha256_done(&h, ret);
	return 0;
}

/* {"NAME": "value" or null} applied to env. */
static int apply_changes(const json_t *changes, struct forge_strv *env)
{
	const char *name;
	json_t *value;
	int rc = 0;

	json_object_foreach((json_t *)changes, name, value)
	{
		if (rc == 0 && json_is_string(value))
			rc = forge_strv_setenv(env, name, json_string_value(value));
		else if (rc == 0)
			forge_strv_unsetenv(env, name);
	}
	return rc;
}

/* The difference between env and the dump of a shell that sourced the scripts. */
static json_t *changes_of(const struct forge_strv *env, const char *dump, size_t len)
{
	static const char *const noise[] = { "_", "PWD", "OLDPWD", "SHLVL", "HOME" };
	forge_auto_strv struct forge_strv after = { 0 };
	json_t *changes = json_object();

	for (size_t at = 0; at < len; at += strlen(dump + at) + 1)
		if (strchr(dump + at, '=') && forge_strv_add(&after, dump + at) < 0)
			return NULL;
	forge_strv_foreach (pair, &after) {
		forge_auto_free char *name = strndup(pair, strcspn(pair, "="));
		bool is_noise = !name || strncmp(name, "FORGE_", 6) == 0;
		for (size_t i = 0; name && i < FORGE_ARRAY_SIZE(noise); i++)
			is_noise = is_noise || strcmp(name, noise[i]) == 0;
		const char *old = is_noise ? NULL : forge_strv_getenv(env, name);
		const char *new = pair + (name ? strlen(name) + 1 : 0);
		if (!is_noise && (!old || strcmp(old, new) != 0))
			json_object_set_new(changes, name, forge_json_text(new));
	}
	forge_strv_foreach (pair, env) {
		forge_auto_free char *name = strndup(pair, strcspn(pair, "="));
		if (name && strncmp(name, "FORGE_", 6) != 0 &&
		    !forge_strv_getenv(&after, name))
			json_object_set_new(changes, name, json_null());
	}
	return changes;
}

/*
 * Sources them in a sandbox that has the runtime and the environment as it is so far. What they
 * print is theirs; the environment comes through a file that is an output.
 */
static int source_scripts(const struct forge_config *cfg, const struct forge_home *home,
			  const char *store, const struct forge_runtime *rt,
			  const struct forge_strv *scripts, const struct forge_strv *env,
			  json_t **ret, struct forge_error *err)
{
	static const char shell[] =
		"for s; do . \"$s\" >&2 || { echo \"$s failed\" >&2; exit 9; }; "
		"done; mkdir -p outputs && env -0 > outputs/environment";
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
	struct forge_run_request req = {
		.profile = "tool",
		.limits = { .wall_usec = 60 * 1000000ull },
		.store = store,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.argv = argv.v,
		.runtime = rt->decl->name,
		.is_probe = true,
		.exact_env = env,
	};
	rc = forge_run(cfg, &req, &result, err);
	if (rc < 0)
		return rc;
	const json_t *output =
		json_array_get(json_object_get(result.record, "outputs"), 0);
	const char *stored = text_of(output, "stored_as");
	forge_auto_free char *dump = malloc(1 << 20);
	ssize_t n = dump && *stored ? forge_read_at(home->fd, stored, dump, 1 << 20) : -1;
	if (strcmp(text_of(result.record, "status"), "succeeded") != 0 || n < 0)
		rc = forge_hint(err,
				forge_fail(err, EIO, "its activate.d scripts failed: %s",
					   text_of(result.record, "completion_notes")),
				"See: forge logs %s", text_of(result.record, "run_id"));
	else if (!(*ret = changes_of(env, dump, (size_t)n)))
		rc = forge_fail(err, ENOMEM, "out of memory");
	json_decref(result.record);
	return rc;
}

int forge_runtime_enter(const struct forge_config *cfg, const struct forge_home *home,
			const char *store, const struct forge_runtime *rt,
			struct forge_strv *env, struct forge_error *err)
{
	forge_auto_strv struct forge_strv scripts = { 0 };
	char key[FORGE_DIGEST_MAX], name[96];
	int rc = forge_runtime_activate(rt, env, &scripts, err);

	if (rc < 0 || scripts.n == 0)
		return rc;
	rc = scripts_key(&scripts, env, key, err);
	forge_auto_close int cache = rc < 0 ? rc : forge_home_subdir(home, "cache", err);
	if (cache < 0)
		return cache;
	(void)snprintf(name, sizeof(name), "activate-%s", strchr(key, ':') + 1);
	forge_auto_free char *text = malloc(1 << 20);
	ssize_t n = text ? forge_read_at(cache, name, text, 1 << 20) : -1;
	json_t *changes = n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
	if (!changes) {
		rc = source_scripts(cfg, home, store, rt, &scripts, env, &changes, err);
		if (rc < 0)
			return forge_wrap(err, rc, "runtime %s", rt->decl->name);
		forge_auto_free char *dump = json_dumps(changes, JSON_COMPACT);
		if (dump)
			(void)!forge_replace_file(cache, name, dump, strlen(dump), false);
	}
	rc = apply_changes(changes, env);
	json_decref(changes);
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}
