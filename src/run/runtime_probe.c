/* SPDX-License-Identifier: Apache-2.0 */
/* Checks in a sandbox whether a runtime works; saves and stores the result. */
#include "run/runtime_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/entries.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/lock.h"
#include "run/runtime_activation.h"
#include "run/signals.h"
#include "runtime/dpkg.h"

/* How often a probe waits while packages are installed, and how long each time. */
#define QUIET_TRIES 3
#define QUIET_MSEC  60000
#define POLL_MSEC   200

/*
 * Runs in the sandbox, under sh. The first word is the directory of the runtime's own
 * programs, the second is "" when Python and R may be the host's. Then "c NAME" for a
 * program, "o NAME" for one that must be the runtime's own, "p MODULE" for Python, "r
 * PACKAGE" for R, "s LINE" for the smoke test. Each is answered by one line: kind, name,
 * tab, "ok" or "no", tab, a version or the error. Not every program supports --version,
 * but one that cannot be executed, or dies of a signal, does not work.
 */
static const char probe_script[] =
	"say() { printf '%s\\t%s\\t%s\\t%s\\n' \"$1\" \"$2\" \"$3\" \"$(printf %s \"$4\" "
	"| "
	"command -p tr '\\t\\n\\r' '   ' | command -p cut -c1-300)\"; }\n"
	"own=$1 strict=$2; shift 2\n"
	"find() { p=$(command -v -- \"$1\") || return 1; case $p in \"$own\"*) ;; *) "
	"return 1 ;; esac; }\n"
	"own() { find \"$1\" || { [ -z \"$strict\" ] && p=$(command -v -- \"$1\"); }; }\n"
	"own python3 || own python || p=; py=$p\n"
	"while [ $# -gt 1 ]; do\n"
	"case $1 in\n"
	"c|o) if { [ $1 = c ] && p=$(command -v -- \"$2\"); } || find \"$2\"; then\n"
	"     v=$(\"$2\" --version </dev/null 2>&1); e=$?\n"
	"     if [ $e -eq 126 ] || [ $e -eq 127 ]; then say c \"$2\" no 'it cannot be "
	"executed'\n"
	"     elif [ $e -gt 128 ] && [ $e -le 192 ]; then\n"
	"       say c \"$2\" no \"died of signal $((e - 128))\"\n"
	"     else\n"
	"       [ $e -eq 0 ] && v=$(printf %s \"$v\" | command -p grep -m 1 '[0-9]') || "
	"v=present\n"
	"       say c \"$2\" ok \"$v\"\n"
	"     fi\n"
	"   elif [ $1 = o ]; then say c \"$2\" no 'it has none of its own'\n"
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
	"r) if ! own Rscript; then say r \"$2\" no 'there is no Rscript'\n"
	"   elif v=$(Rscript --vanilla -e 'a <- commandArgs(TRUE)[1]; "
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

static const char *const interpreters[] = { "python",  "python3", "R",
					    "Rscript", "julia",	  "perl" };

static int add_word(struct forge_strv *argv, const char *what, const char *name)
{
	int rc = forge_strv_add(argv, what);

	return rc < 0 ? rc : forge_strv_add(argv, name);
}

static int add_words(struct forge_strv *argv, const char *what,
		     const struct forge_strv *names)
{
	int rc = 0;

	forge_strv_foreach (name, names)
		if (rc == 0)
			rc = add_word(argv, what, name);
	return rc;
}

static int add_commands(const struct forge_runtime *rt, struct forge_strv *argv)
{
	int rc = 0;

	forge_strv_foreach (name, &rt->decl->commands)
		if (rc == 0)
			rc = add_word(argv, forge_runtime_must_own(rt, name) ? "o" : "c",
				      name);
	return rc;
}

/*
 * Whether bin/ has a program of that name. Only looks at the file; the sandbox runs it.
 */
static bool is_program(int bin, const char *name)
{
	struct stat st;

	return fstatat(bin, name, &st, 0) == 0 && S_ISREG(st.st_mode) &&
	       (st.st_mode & 0111);
}

/* "name-1.0-0.json" is about the package "name". */
static void package_name(const char *file, char *buf, size_t size)
{
	(void)snprintf(buf, size, "%s", file);
	for (int i = 0; i < 2; i++) {
		char *dash = strrchr(buf, '-');
		if (dash && dash != buf)
			*dash = '\0';
	}
	size_t n = strlen(buf);
	if (n > 5 && strcmp(buf + n - 5, ".json") == 0)
		buf[n - 5] = '\0';
}

#define TOOLS_MAX 3 /* tried in an environment without interpreters */

/* Programs with the name of a package, or else the first program. */
static int tool_commands(const struct forge_runtime *rt, struct forge_strv *ret)
{
	char name[NAME_MAX + 1], first[NAME_MAX + 1] = "";
	forge_auto_close int top =
		open(rt->real_prefix, O_PATH | O_DIRECTORY | O_CLOEXEC);
	forge_auto_close int bin =
		top < 0 ? -1 : forge_open_beneath(top, "bin", O_RDONLY | O_DIRECTORY);
	forge_auto_entries struct forge_entries packages = FORGE_ENTRIES_INIT,
						programs = FORGE_ENTRIES_INIT;
	int meta =
		bin < 0 ? -1
			: forge_open_beneath(top, "conda-meta", O_RDONLY | O_DIRECTORY);
	int rc = 0;

	if (bin < 0)
		return 0;
	if (meta >= 0)
		(void)forge_entries_take(&packages, meta);
	for (const char *file; meta >= 0 && rc == 0 && ret->n < TOOLS_MAX &&
			       (file = forge_entries_next(&packages));) {
		package_name(file, name, sizeof(name));
		if (*name && is_program(bin, name))
			rc = forge_strv_add(ret, name);
	}
	if (rc < 0 || ret->n > 0)
		return rc;
	(void)forge_entries_take(&programs, fcntl(bin, F_DUPFD_CLOEXEC, 3));
	for (const char *file; (file = forge_entries_next(&programs));)
		if (is_program(bin, file) && (!*first || strcmp(file, first) < 0))
			(void)snprintf(first, sizeof(first), "%s", file);
	return *first ? forge_strv_add(ret, first) : 0;
}

/*
 * The commands to check of a runtime that declares nothing: its interpreters, or else
 * some of its programs.
 */
static int default_commands(const struct forge_runtime *rt, struct forge_strv *ret)
{
	char path[PATH_MAX];
	int rc = 0;

	/* What is in an image is not known here; every probe needs a shell. */
	if (rt->kind == &forge_kind_image)
		return forge_strv_add(ret, "sh");
	for (size_t i = 0;
	     rt->real_prefix && i < FORGE_ARRAY_SIZE(interpreters) && rc == 0; i++) {
		(void)snprintf(path, sizeof(path), "%s/%sbin/%s", rt->real_prefix,
			       rt->kind == &forge_kind_rootfs ? "usr/" : "",
			       interpreters[i]);
		struct stat st;
		if (lstat(path, &st) == 0)
			rc = forge_strv_add(ret, interpreters[i]);
	}
	return rc == 0 && ret->n == 0 && rt->real_prefix && rt->kind != &forge_kind_rootfs
		       ? tool_commands(rt, ret)
		       : rc;
}

static int add_own(const struct forge_runtime *rt, struct forge_strv *argv)
{
	bool is_tree = rt->prefix && rt->kind != &forge_kind_rootfs;
	int rc = is_tree ? forge_strv_addf(argv, "%s/", rt->prefix)
			 : forge_strv_add(argv, "");

	return rc < 0 ? rc
		      : forge_strv_add(argv, forge_runtime_must_own(rt, "python3")
						     ? "strict"
						     : "");
}

static int probe_argv(const struct forge_runtime *rt, const struct forge_strv *usual,
		      struct forge_strv *argv)
{
	static const char *const head[] = { "/bin/sh", "-c", probe_script, "probe" };
	const struct forge_runtime_decl *d = rt->decl;
	int rc = 0;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(head) && rc == 0; i++)
		rc = forge_strv_add(argv, head[i]);
	if (rc == 0)
		rc = add_own(rt, argv);
	if (rc == 0)
		rc = usual->n ? add_words(argv, "o", usual) : add_commands(rt, argv);
	if (rc == 0)
		rc = add_words(argv, "p", &d->python);
	if (rc == 0)
		rc = add_words(argv, "r", &d->r);
	return rc == 0 && d->smoke ? add_word(argv, "s", d->smoke) : rc;
}

/* The standard output of the run, as far as the log has it. */
static char *read_log(const json_t *record)
{
	const char *path =
		forge_json_string_or(json_object_get(record, "logs"), "stdout", "");
	char *text = malloc(1 << 20);

	if (text && forge_read_at(AT_FDCWD, path, text, 1 << 20) < 0) {
		free(text);
		return NULL;
	}
	return text;
}

/* Reads one answer. The first "no" is the reason. */
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
	/* The probe ended early: the verdict of the run says why. */
	if (!s->problem[0] &&
	    (answers < asked ||
	     strcmp(forge_json_string_or(record, "status", ""), "succeeded") != 0))
		(void)snprintf(s->problem, sizeof(s->problem),
			       "the probe did not end: %s",
			       forge_json_string_or(record, "completion_notes", ""));
	s->health = s->problem[0] ? FORGE_BROKEN : FORGE_HEALTHY;
}

/* Two minutes, or the limit of the runtime's runs if that is less. */
static uint64_t probe_time(const struct forge_runtime_decl *d)
{
	const uint64_t most = 120 * 1000000ull;

	return d->limits.wall_usec && d->limits.wall_usec < most ? d->limits.wall_usec
								 : most;
}

/* ---- the store ---- */

static void note_store(void *arg, const struct forge_error *warning)
{
	/* With EAGAIN the run only waits for room; others are about the store. */
	if (warning->code != EAGAIN)
		*(bool *)arg = true;
}

int forge_runtime_store(const struct forge_home *home, struct forge_store *st,
			const struct forge_runtime *rt, struct forge_runtime_state *s,
			struct forge_error *err)
{
	json_t *prefix = rt->prefix ? forge_json_name(rt->prefix) : NULL;
	forge_auto_free char *versions =
		s->versions ? json_dumps(s->versions, JSON_COMPACT | JSON_SORT_KEYS)
			    : NULL;
	const struct forge_runtime_check check = {
		.name = rt->decl->name,
		.kind = rt->kind->name,
		.prefix = json_string_value(prefix),
		.digest = s->digest,
		.time = s->checked_at,
		.run_id = s->probe_run,
		.verdict = s->health == FORGE_HEALTHY ? "healthy" : "broken",
		.problem = s->problem,
		.versions = versions,
	};
	int rc = forge_store_put_check(st, &check, err);

	json_decref(prefix);
	if (rc < 0)
		return rc;
	s->is_stored = true;
	return forge_runtime_save(home, rt, s, err);
}

/* Opens and closes the store: the caller forks later, which SQLite does not survive. */
static void store_now(const struct forge_home *home, const char *url,
		      const struct forge_runtime *rt, struct forge_runtime_state *s)
{
	forge_auto_store struct forge_store *st = NULL;

	if (forge_store_open(url, &st, NULL) == 0)
		(void)!forge_runtime_store(home, st, rt, s,
					   NULL); /* the next history command retries */
}

/* ---- the probe ---- */

/* Makes the words of the probe. Returns the number of expected answers, or an error. */
static int prepare_probe(const struct forge_runtime *rt, struct forge_strv *argv,
			 struct forge_error *err)
{
	forge_auto_strv struct forge_strv usual = { 0 };
	size_t asked = count_asked(rt->decl);

	if ((!asked && default_commands(rt, &usual) < 0) ||
	    probe_argv(rt, &usual, argv) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	asked += usual.n;
	/* Without any check it is not known whether the runtime works. */
	if (!asked)
		return forge_hint(err,
				  forge_fail(err, ENOEXEC,
					     "runtime %s has nothing that could be tried",
					     rt->decl->name),
				  "Declare its commands");
	return (int)asked;
}

/* Failed scripts also make a runtime broken; other failures are not about the runtime. */
static int judge_failure(const struct forge_runtime *rt, int rc, struct forge_error *why,
			 struct forge_runtime_state *s, struct forge_error *err)
{
	char begin[96];

	if (rc != -ENOEXEC) {
		if (err)
			*err = *why;
		return rc;
	}
	int n = snprintf(begin, sizeof(begin), "runtime %s: ", rt->decl->name);
	bool has_name = strncmp(why->msg, begin, (size_t)n) == 0;
	(void)snprintf(s->problem, sizeof(s->problem), "%s",
		       why->msg + (has_name ? n : 0));
	s->health = FORGE_BROKEN;
	return 0;
}

static int run_probe(const struct forge_config *cfg, const struct forge_home *home,
		     const char *store, const struct forge_runtime *rt,
		     struct forge_runtime_state *s, bool *ret_is_away,
		     struct forge_error *err)
{
	forge_auto_strv struct forge_strv argv = { 0 };
	struct forge_run_result result = { 0 };
	struct forge_error why = FORGE_ERROR_INIT;
	int asked = prepare_probe(rt, &argv, err);

	if (asked < 0)
		return asked;
	struct forge_run_request req =
		forge_probe_request(rt, store, argv.v, probe_time(rt->decl));
	req.on_warning = note_store;
	req.arg = ret_is_away;
	int rc = forge_probe_run(cfg, &req, home, store, &result, &why);
	if (rc == 0 && !forge_probe_is_about_runtime(result.record)) {
		rc = forge_fail(
			err, ECANCELED, "runtime %s could not be checked: %s",
			rt->decl->name,
			forge_json_string_or(result.record, "completion_notes", ""));
	} else if (rc == 0) {
		judge_probe((size_t)asked, result.record, s);
		(void)snprintf(s->probe_run, sizeof(s->probe_run), "%s",
			       forge_json_string_or(result.record, "run_id", ""));
	} else {
		rc = judge_failure(rt, rc, &why, s, err);
	}
	json_decref(result.record);
	return rc;
}

/* The text came from a program and may have been cut inside a character. */
static void clean_problem(struct forge_runtime_state *s)
{
	json_t *text = forge_json_text(s->problem);

	if (text)
		(void)snprintf(s->problem, sizeof(s->problem), "%s",
			       json_string_value(text));
	json_decref(text);
}

/* If it changed meanwhile, neither the old nor the new content was probed. */
static int note_change(const struct forge_home *home, const struct forge_runtime *rt,
		       struct forge_runtime_state *s, struct forge_error *err)
{
	char now[FORGE_DIGEST_MAX];
	int rc = forge_runtime_digest(home, rt, now, err);

	if (rc == 0 && strcmp(now, s->digest) != 0) {
		s->health = FORGE_BROKEN;
		(void)snprintf(s->problem, sizeof(s->problem),
			       "it changed while it was checked");
	}
	return rc;
}

static int probe_once(const struct forge_config *cfg, const struct forge_home *home,
		      const char *store, const struct forge_runtime *rt,
		      struct forge_runtime_state *s, bool *ret_is_away,
		      struct forge_error *err)
{
	*s = (struct forge_runtime_state){ .versions = json_object() };
	int rc = s->versions ? forge_runtime_digest(home, rt, s->digest, err)
			     : forge_fail(err, ENOMEM, "out of memory");

	if (rc == 0)
		rc = run_probe(cfg, home, store, rt, s, ret_is_away, err);
	return rc == 0 ? note_change(home, rt, s, err) : rc;
}

/* ---- waiting for package installations ---- */

/* Waits until no packages are being installed, or until a timeout. */
static int wait_until_quiet(const struct forge_runtime *rt,
			    const struct forge_probe_listener *listener,
			    struct forge_error *err)
{
	forge_auto_close int signals = forge_signals_fd();
	struct forge_error warning = FORGE_ERROR_INIT;

	for (int waited = 0; forge_dpkg_is_busy() && waited < QUIET_MSEC;
	     waited += POLL_MSEC) {
		struct pollfd end = { .fd = signals, .events = POLLIN };
		(void)forge_fail(&warning, EBUSY,
				 "packages are being installed on this host (dpkg): "
				 "runtime %s is checked when that is over",
				 rt->decl->name);
		if (waited == 0 && listener->call)
			listener->call(listener->arg, &warning);
		/* There is no descriptor that shows the release of dpkg's lock. */
		if (poll(&end, 1, POLL_MSEC) > 0)
			return forge_fail(err, ECANCELED,
					  "interrupted while packages are installed");
	}
	return 0;
}

/* Whether packages of the host have changed since the stamp, or are changing. */
static bool is_installing(uint64_t stamp)
{
	return forge_dpkg_stamp() != stamp || forge_dpkg_is_busy();
}

int forge_runtime_probe(const struct forge_config *cfg, const struct forge_home *home,
			const char *store, const struct forge_runtime *rt,
			const struct forge_probe_listener *listener,
			struct forge_runtime_state *ret, struct forge_error *err)
{
	struct forge_runtime_state s;
	bool is_away = false;
	int rc;

	for (int tries = 0;; tries++) {
		uint64_t stamp = forge_dpkg_stamp();
		rc = probe_once(cfg, home, store, rt, &s, &is_away, err);
		/* A runtime that is being replaced can look broken in any way. */
		bool is_doubtful = rc == -EBUSY || (rc == 0 && s.health != FORGE_HEALTHY);
		if (!is_doubtful || !is_installing(stamp))
			break;
		if (tries == QUIET_TRIES) {
			size_t n = strlen(s.problem);
			(void)snprintf(s.problem + n, sizeof(s.problem) - n,
				       " (packages are being installed on this host)");
			break;
		}
		forge_runtime_state_done(&s);
		rc = wait_until_quiet(rt, listener, err);
		if (rc < 0)
			return rc;
		if (err)
			*err = FORGE_ERROR_INIT;
	}
	if (rc == 0) {
		clean_problem(&s);
		s.checked_unix = time(NULL);
		(void)forge_format_now(s.checked_at);
		rc = forge_runtime_save(home, rt, &s, err);
	}
	if (rc < 0) {
		forge_runtime_state_done(&s);
		return rc;
	}
	if (store && !is_away)
		store_now(home, store, rt, &s);
	*ret = s;
	return 0;
}

/* ---- for a run ---- */

/* One probe at a time; other runs wait for its result. Returns the fd or -errno. */
static int lock_probe(const struct forge_home *home, const struct forge_runtime *rt,
		      struct forge_error *err)
{
	char name[FORGE_RUNTIME_FILE_MAX];
	forge_auto_close int dir = forge_home_subdir(home, "runtimes", err);
	forge_auto_close int signals = forge_signals_fd();

	if (dir < 0)
		return dir;
	(void)forge_runtime_file(rt, ".lock", name);
	int fd = forge_lock_file(dir, name, FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_WAIT_FOREVER,
				 signals);
	if (fd == -ECANCELED)
		return forge_fail(err, ECANCELED,
				  "interrupted while runtime %s is checked",
				  rt->decl->name);
	return fd < 0 ? forge_fail_errno(err, -fd, "lock runtime %s", rt->decl->name)
		      : fd;
}

static bool is_known(const struct forge_runtime_state *s)
{
	return s->health == FORGE_HEALTHY || forge_runtime_is_known_broken(s);
}

/* The saved result, read while no installation changes the runtime. */
static int known_state(const struct forge_home *home, const struct forge_runtime *rt,
		       const struct forge_probe_listener *listener,
		       struct forge_runtime_state *ret, struct forge_error *err)
{
	int rc = forge_runtime_state(home, rt, ret, err);

	for (int tries = 0; rc == -EBUSY && tries < QUIET_TRIES && forge_dpkg_is_busy();
	     tries++) {
		rc = wait_until_quiet(rt, listener, err);
		if (rc == 0)
			rc = forge_runtime_state(home, rt, ret, err);
	}
	return rc;
}

int forge_runtime_ensure(const struct forge_config *cfg, const struct forge_home *home,
			 const char *store, const struct forge_runtime *rt,
			 const struct forge_probe_listener *listener,
			 struct forge_runtime_state *ret, struct forge_error *err)
{
	int rc = known_state(home, rt, listener, ret, err);

	if (rc < 0 || is_known(ret))
		return rc;
	forge_auto_close int lock = lock_probe(home, rt, err);
	forge_runtime_state_done(ret);
	if (lock < 0)
		return lock;
	/* The previous holder of the lock may have probed it. */
	rc = known_state(home, rt, listener, ret, err);
	if (rc == 0 && !is_known(ret)) {
		forge_runtime_state_done(ret);
		rc = forge_runtime_probe(cfg, home, store, rt, listener, ret, err);
	}
	(void)flock(lock, LOCK_UN); /* a live child may have it open */
	return rc;
}
