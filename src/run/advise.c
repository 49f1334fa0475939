/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for words of the command that are files, for a network and programs it lacks. */
#include "run/advise.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

/* A command line can have a hundred thousand words; a user types only a few. */
#define WORDS_MAX 64

static bool is_system(const char *path)
{
	static const char *const dirs[] = { "/usr",   "/bin",	"/sbin",   "/lib",
					    "/lib32", "/lib64", "/libx32", "/etc",
					    "/proc",  "/sys",	"/dev",	   "/run" };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(dirs); i++)
		if (forge_path_is_below(path, dirs[i]))
			return true;
	return strcmp(path, "/") == 0;
}

static bool is_given(const struct forge_spec *s, const char *path)
{
	forge_strv_foreach (root, &s->read_only)
		if (forge_path_is_below(path, root))
			return true;
	return false;
}

bool forge_advise_is_seen(const struct forge_spec *s, const char *path)
{
	return is_system(path) || is_given(s, path);
}

/* "--data=x.csv" means x.csv; other options name no file. */
static const char *path_of(const char *word)
{
	if (*word != '-')
		return word;
	const char *eq = strchr(word, '=');
	return eq ? eq + 1 : "";
}

static bool ends_as_script(const char *word);

#define SCRIPT_BYTES (1 << 18)

/*
 * Whether a script may take this option itself: its text has the option, or it uses a
 * library that makes options from other things. A script that cannot be read as a whole
 * may.
 */
static bool may_take(const char *script, const char *option)
{
	static const char *const makers[] = { "getopt", "import fire", "typer" };
	forge_auto_free char *name = strndup(option, strcspn(option, "="));
	forge_auto_free char *text = NULL;
	size_t len;

	forge_auto_close int fd =
		open(script, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (!name || fd < 0 || forge_read_fd(fd, SCRIPT_BYTES, &text, &len) < 0)
		return true;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(makers); i++)
		if (strstr(text, makers[i]))
			return true;
	return strstr(text, name) || strlen(text) != len;
}

int forge_advise_prepare(struct forge_spec *s, const struct forge_run_request *req,
			 struct forge_error *err)
{
	struct stat st;

	if (req->is_probe || req->parent_run || !req->argv[0])
		return 0;
	s->has_late_option = req->late_option && ends_as_script(req->argv[0]) &&
			     !may_take(req->argv[0], req->late_option);
	for (size_t i = 1; req->argv[i] && i < WORDS_MAX; i++) {
		const char *path = path_of(req->argv[i]);
		if (!*path || strlen(path) >= PATH_MAX || stat(path, &st) < 0 ||
		    (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
			continue;
		forge_auto_free char *real = realpath(path, NULL);
		if (!real || forge_advise_is_seen(s, real))
			continue;
		s->not_given_is_dir = S_ISDIR(st.st_mode);
		s->not_given = strdup(path);
		return s->not_given ? 0 : forge_fail(err, ENOMEM, "out of memory");
	}
	return 0;
}

static bool ends_as_script(const char *word)
{
	static const char *const endings[] = {
		".py", ".R", ".sh", ".ipynb", ".pl", ".jl"
	};
	const char *dot = strrchr(word, '.');

	for (size_t i = 0; dot && i < FORGE_ARRAY_SIZE(endings); i++)
		if (strcasecmp(dot, endings[i]) == 0)
			return true;
	return false;
}

/* is_word: it is a word of the command, so the user may have meant to run it. */
static void advise_input(const char *word, bool is_dir, bool is_word,
			 struct forge_verdict *v)
{
	const char *slash = strrchr(word, '/');
	/* Suggests the directory of a file, which may have more inputs. */
	int len = !is_dir && slash && slash != word ? (int)(slash - word)
						    : (int)strlen(word);

	if (len == 2 && strncmp(word, "..", 2) == 0)
		len = (int)strlen(word);
	if (is_word && ends_as_script(word))
		forge_judge_add(v,
				"%s exists here but was not given to the run: use `forge "
				"run %s`, or add -i %s.",
				word, word, word);
	else
		forge_judge_add(v,
				"%s exists here but was not given to the run: add -i "
				"%.*s.",
				word, len, word);
}

/* Adds a name to the list in buf if there is room for it. */
static void list_one(char *buf, size_t size, const char *name)
{
	size_t len = strlen(buf);

	if (len + strlen(name) + 3 < size)
		(void)snprintf(buf + len, size - len, "%s%s", len ? ", " : "", name);
}

/* Lists the programs that the runtime declares or, without any, the common ones that it has. */
static void list_programs(const struct forge_spec *s, char *buf, size_t size)
{
	static const char *const programs[] = { "python3", "python", "Rscript", "R",
						"julia",   "perl",   "bash" };
	const char *path = "";

	buf[0] = '\0';
	/* They have a directory of their own inside, which is not in the PATH here. */
	forge_strv_foreach (name, &s->runtime.decl->commands)
		list_one(buf, size, name);
	if (*buf)
		return;
	forge_strv_foreach (var, &s->env)
		if (strncmp(var, "PATH=", 5) == 0)
			path = var + 5;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(programs); i++)
		for (const char *p = path; *p;) {
			char file[PATH_MAX];
			size_t n = strcspn(p, ":");
			int made = snprintf(file, sizeof(file), "%.*s/%s", (int)n, p,
					    programs[i]);
			p += n + (p[n] == ':');
			if (made >= (int)sizeof(file) || access(file, X_OK) < 0)
				continue;
			list_one(buf, size, programs[i]);
			break;
		}
}

/* A program name is looked up in PATH; a path or a script must exist here. */
static bool is_missing_file(const char *word)
{
	struct stat st;

	return (strchr(word, '/') || ends_as_script(word)) && lstat(word, &st) < 0 &&
	       errno == ENOENT;
}

int forge_advise_missing(const struct forge_spec *s, const struct forge_run_request *req,
			 struct forge_error *err)
{
	const char *word = req->argv[0];

	/* A runtime may have it in its PATH, or at that path in its own root. */
	if (*word == '/' ||
	    (!strchr(word, '/') && (s->has_runtime || forge_spec_is_program(word))))
		return 0;
	return is_missing_file(word)
		       ? forge_fail(err, ENOENT, "%.300s does not exist here", word)
		       : 0;
}

/* Notebooks run without jupyter, and its server would have no clients. */
static bool is_jupyter(const char *word)
{
	return strcmp(word, "jupyter") == 0 || strncmp(word, "jupyter-", 8) == 0;
}

static void advise_program(const struct forge_spec *s, const char *word,
			   struct forge_verdict *v)
{
	char has[160];

	if (is_jupyter(word)) {
		const char *dot = s->not_given ? strrchr(s->not_given, '.') : NULL;
		const char *named = dot && strcmp(dot, ".ipynb") == 0 ? s->not_given
								      : "NOTEBOOK.ipynb";
		/* "cannot be executed": it may exist without its interpreter. */
		(void)snprintf(v->notes, sizeof(v->notes),
			       "Not started: %.60s cannot be executed in %s%.200s, and a "
			       "notebook is run without it: `forge run %.300s`.",
			       word, s->has_runtime ? "runtime " : "the sandbox",
			       s->has_runtime ? s->runtime.decl->name : "", named);
		return;
	}
	if (strchr(word, '/') || ends_as_script(word)) {
		if (is_missing_file(word))
			(void)snprintf(v->notes, sizeof(v->notes),
				       "Not started: %.300s does not exist here.", word);
		return;
	}
	if (!s->has_runtime)
		return;
	list_programs(s, has, sizeof(has));
	(void)snprintf(v->notes, sizeof(v->notes),
		       "Not started: runtime %s has no %.200s%s%s%s.",
		       s->runtime.decl->name, word, *has ? " (it has " : "", has,
		       *has ? ")" : "");
}

/* The command line names no such file, but the log may. */
static void advise_log(const struct forge_spec *s, int run_dir, struct forge_verdict *v)
{
	bool is_dir = false;
	forge_auto_free char *name = forge_advise_log(s, run_dir, &is_dir);

	if (name)
		advise_input(name, is_dir, false, v);
}

void forge_advise(const struct forge_spec *s, const struct forge_run_request *req,
		  const struct forge_outcome *o, int run_dir, struct forge_verdict *v)
{
	if (strcmp(v->status, "failed") != 0 || req->is_probe || req->parent_run)
		return;
	if (o->is_exec_failure && o->start_error.code == ENOENT)
		advise_program(s, req->argv[0], v);
	if (!o->has_status || (o->is_exec_failure && is_jupyter(req->argv[0])))
		return;
	if (s->not_given)
		advise_input(s->not_given, s->not_given_is_dir, true, v);
	else if (!o->is_exec_failure)
		advise_log(s, run_dir, v);
	if (s->has_late_option)
		forge_judge_add(v,
				"%.60s%s%.60s after %.200s was given to %.200s; options "
				"of forge run come before it.",
				req->late_option, req->late_value ? " " : "",
				req->late_value ? req->late_value : "", req->argv[0],
				req->argv[0]);
	if (o->network_tries && s->own_network)
		forge_judge_add(
			v, "It looked for a host or a name on the network, and has "
			   "none (--network none); --network host gives it the host's.");
}
