/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs and the command: maps paths as typed to paths in the sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/fd.h"
#include "config-build.h"
#include "sandbox/plan.h"
#include "spec/spec.h"
#include "state/home.h"

/* "a/./b//c/" -> "a/b/c"; *has_up: there is a ".." component. */
static void normalise(const char *in, char out[PATH_MAX], bool *has_up)
{
	size_t len = 0;

	*has_up = false;
	if (*in == '/')
		out[len++] = '/';
	while (*in) {
		in += strspn(in, "/");
		size_t n = strcspn(in, "/");
		if (n == 2 && strncmp(in, "..", 2) == 0)
			*has_up = true;
		if (n > 0 && !(n == 1 && *in == '.') && len + n + 2 < PATH_MAX) {
			if (len > 0 && out[len - 1] != '/')
				out[len++] = '/';
			memcpy(out + len, in, n);
			len += n;
		}
		in += n;
	}
	out[len] = '\0';
}

/* Runs of root have another uid in the sandbox: reports now what it could not read. */
static int check_readable(const char *path, const struct stat *st,
			  struct forge_error *err)
{
	mode_t want = S_ISDIR(st->st_mode) ? 05 : 04;

	if (geteuid() != 0)
		return access(path, S_ISDIR(st->st_mode) ? R_OK | X_OK : R_OK) == 0
			       ? 0
			       : forge_fail_errno(err, errno, "input %s", path);
	if ((st->st_mode & want) == want)
		return 0;
	return forge_hint(err,
			  forge_fail(err, EACCES, "input %s cannot be read inside", path),
			  "Runs of root have an unprivileged user id: chmod o+r%s %s",
			  S_ISDIR(st->st_mode) ? "x" : "", path);
}

static int check_input(const char *typed, const char *path, const char *workdir,
		       struct forge_error *err)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return forge_fail_errno(err, errno, "input %s", typed);
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return forge_fail(err, EINVAL,
				  "input %s is neither a file nor a directory", typed);
	int rc = forge_plan_check_root(path, workdir, err);
	if (rc < 0)
		return forge_wrap(err, rc, "input %s", typed);
	forge_auto_free char *named = forge_home_path();
	/* It may not exist yet, or be reached through links. */
	forge_auto_free char *home = named ? realpath(named, NULL) : NULL;
	if (home && (forge_path_is_below(home, path) || forge_path_is_below(path, home)))
		return forge_fail(err, EPERM,
				  "input %s would show forge's own records (%s)", typed,
				  home);
	return check_readable(path, &st, err);
}

/* "-i .": links each entry into the workdir under its own name, as without forge. */
int forge_spec_link_entries(struct forge_spec *s, const char *real)
{
	const size_t most = 10000;
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int rc = forge_entries_follow(&d, real);

	for (const char *name;
	     rc == 0 && s->links.n < 2 * most && (name = forge_entries_next(&d));) {
		rc = forge_strv_add(&s->links, name);
		if (rc == 0)
			rc = forge_strv_addf(&s->links, "%s/%s", real, name);
	}
	return rc < 0 ? rc : d.error;
}

/*
 * Makes "../data" work from the workdir too, as an alias beside the workdir. Other paths
 * upwards ("..", "../a/../b") work only by the absolute path.
 */
static int add_outside(struct forge_spec *s, const char *name, const char *real)
{
	size_t len = strlen(s->workdir);

	while (strncmp(name, "../", 3) == 0) {
		name += 3;
		while (len > 0 && s->workdir[len - 1] != '/')
			len--;
		len -= len > 0;
	}
	if (strcmp(name, "..") == 0 || strstr(name, "/..") ||
	    strncmp(name, "../", 3) == 0)
		return 0;
	forge_auto_free char *path =
		forge_asprintf("%.*s/%s", (int)len, s->workdir, name);
	if (!path)
		return -ENOMEM;
	if (strcmp(path, real) == 0)
		return 0;
	int rc = forge_strv_add(&s->aliases, path);
	return rc < 0 ? rc : forge_strv_add(&s->aliases, real);
}

static int add_names(struct forge_spec *s, const char *typed, const char *real)
{
	char name[PATH_MAX];
	bool has_up;

	normalise(typed, name, &has_up);
	if (name[0] == '/') {
		if (has_up || strcmp(name, real) == 0)
			return 0;
		int rc = forge_strv_add(&s->aliases, name);
		return rc < 0 ? rc : forge_strv_add(&s->aliases, real);
	}
	if (!*name)
		return forge_spec_link_entries(s, real);
	if (has_up)
		return add_outside(s, name, real);
	int rc = forge_strv_add(&s->links, name);
	return rc < 0 ? rc : forge_strv_add(&s->links, real);
}

/*
 * The path is canonical, and nothing resolves it again: a link that somebody makes after this
 * check does not lead elsewhere.
 */
static int check_root(const struct forge_spec *s, const char *name, const char *real,
		      struct forge_error *err)
{
	if (!s->input_roots || !s->input_roots->n)
		return 0;
	forge_strv_foreach (root, s->input_roots) {
		forge_auto_free char *top = realpath(root, NULL);
		if (strcmp(root, "none") != 0 && top && forge_path_is_below(real, top))
			return 0;
	}
	return forge_fail(err, EPERM,
			  "input %s is not below a directory that --input-below names",
			  name);
}

/* real: the canonical path; name: the path as typed, which the run uses. */
static int add_input(struct forge_spec *s, const char *real, const char *name,
		     struct forge_error *err)
{
	int rc = check_root(s, name, real, err);

	if (rc == 0)
		rc = check_input(name, real, s->workdir, err);
	if (rc < 0)
		return rc;
	size_t before = s->links.n;
	rc = forge_strv_add(&s->inputs, real);
	if (rc == 0)
		rc = add_names(s, name, real);
	/* The record has one name per input; "-i ." has many links. */
	const char *linked = s->links.n == before + 2 ? s->links.v[before] : "";
	if (rc == 0)
		rc = forge_strv_add(&s->input_names, linked);
	return rc < 0 ? forge_fail_errno(err, -rc, "input %s", name) : 0;
}

int forge_spec_add_input(struct forge_spec *s, const char *typed, struct forge_error *err)
{
	if (!*typed)
		return forge_fail(err, EINVAL, "input: the path is empty");
	forge_auto_free char *real = realpath(typed, NULL);
	return real ? add_input(s, real, typed, err)
		    : forge_fail_errno(err, errno, "input %s", typed);
}

int forge_spec_add_wish(struct forge_spec *s, const char *real, const char *name,
			struct forge_error *err)
{
	return add_input(s, real, name, err);
}

bool forge_spec_is_program(const char *word)
{
	static const char *const dirs[] = { "/usr/local/bin", "/usr/bin", "/bin" };
	char path[PATH_MAX];

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(dirs); i++)
		if (snprintf(path, sizeof(path), "%s/%s", dirs[i], word) <
			    (int)sizeof(path) &&
		    access(path, X_OK) == 0)
			return true;
	return false;
}

/* The interpreter for a script that is not executable, by its ending. */
static const char *interpreter(const char *path)
{
	static const struct {
		const char *ending, *program;
	} table[] = { { ".py", "python3" }, { ".R", "Rscript" }, { ".sh", "sh" } };
	const char *dot = strrchr(path, '.');

	for (size_t i = 0; dot && i < FORGE_ARRAY_SIZE(table); i++)
		if (strcasecmp(dot, table[i].ending) == 0)
			return table[i].program;
	return NULL;
}

/* The installed one, or the one in the build tree. */
static char *find_notebook_runner(void)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	static const char *const places[] = { "../libexec/forge", "../../../share",
					      "share" };

	for (size_t i = 0; n > 0 && i < FORGE_ARRAY_SIZE(places); i++) {
		self[n] = '\0';
		*strrchr(self, '/') = '\0';
		forge_auto_free char *path =
			forge_asprintf("%s/%s/run_notebook.py", self, places[i]);
		char *real = path ? realpath(path, NULL) : NULL;
		if (real)
			return real;
		n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	}
	return realpath(FORGE_LIBEXECDIR "/run_notebook.py", NULL);
}

/*
 * A notebook is executed by share/run_notebook.py in the runtime's Python. The executed
 * notebook is an output with the name of the notebook.
 */
static int add_notebook(struct forge_spec *s, const char *real,
			const struct forge_strv *parameters, struct forge_error *err)
{
	forge_auto_free char *runner = find_notebook_runner();
	const char *name = strrchr(real, '/') + 1;

	if (!runner)
		return forge_hint(
			err, forge_fail(err, ENOENT, "run_notebook.py is not installed"),
			"It belongs in %s", FORGE_LIBEXECDIR);
	int rc = forge_strv_add(&s->argv, "python3");
	if (rc == 0)
		rc = forge_strv_add(&s->argv, runner);
	if (rc == 0)
		rc = forge_strv_add(&s->argv, real);
	s->notebook = forge_asprintf("outputs/%s", name);
	if (rc == 0)
		rc = s->notebook ? forge_strv_add(&s->argv, s->notebook) : -ENOMEM;
	forge_strv_foreach (p, parameters)
		if (rc == 0)
			rc = forge_strv_add(&s->argv, p);
	if (rc == 0)
		rc = forge_strv_add(&s->view, runner);
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}

bool forge_spec_is_notebook(const char *word)
{
	struct stat st;
	const char *dot = word ? strrchr(word, '.') : NULL;

	return dot && strcmp(dot, ".ipynb") == 0 && stat(word, &st) == 0 &&
	       S_ISREG(st.st_mode);
}

/* A file that is the command becomes an input, and is run by its path there. */
static int add_script(struct forge_spec *s, const char *word, bool *ret_is_script,
		      struct forge_error *err)
{
	struct stat st;

	*ret_is_script = false;
	if ((!strchr(word, '/') && forge_spec_is_program(word)) || stat(word, &st) < 0 ||
	    !S_ISREG(st.st_mode))
		return 0;
	forge_auto_free char *real = realpath(word, NULL);
	if (!real || forge_path_is_below(real, "/usr"))
		return 0;
	const char *by = st.st_mode & 0111 ? NULL : interpreter(real);
	int rc = forge_spec_add_input(s, word, err);
	if (rc < 0)
		return rc;
	if ((by && forge_strv_add(&s->argv, by) < 0) ||
	    forge_strv_add(&s->argv, real) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	*ret_is_script = true;
	return 0;
}

static int check_parameters(const struct forge_strv *parameters, bool is_notebook,
			    struct forge_error *err)
{
	if (parameters->n && !is_notebook)
		return forge_fail(err, EINVAL, "--param is for notebooks (.ipynb)");
	forge_strv_foreach (p, parameters) {
		size_t len = strcspn(p, "=");
		if (!p[len] || forge_parse_env_name(p, len, NULL) < 0)
			return forge_fail(err, EINVAL,
					  "--param: '%.64s' is not NAME=VALUE", p);
	}
	return 0;
}

static int notebook_command(struct forge_spec *s, char *const *argv,
			    const struct forge_strv *parameters, struct forge_error *err)
{
	forge_auto_free char *real = realpath(argv[0], NULL);

	if (!real)
		return forge_fail_errno(err, errno, "notebook %s", argv[0]);
	if (argv[1])
		return forge_fail(
			err, EINVAL,
			"a notebook takes no arguments; use --param NAME=VALUE");
	int rc = forge_spec_add_input(s, argv[0], err);
	return rc < 0 ? rc : add_notebook(s, real, parameters, err);
}

int forge_spec_command(struct forge_spec *s, char *const *argv,
		       const struct forge_strv *parameters, struct forge_error *err)
{
	bool is_script;

	struct stat st;

	if (!argv || !argv[0] || !*argv[0])
		return forge_fail(err, EINVAL, "the command is empty");
	bool is_notebook = forge_spec_is_notebook(argv[0]);
	int bad = check_parameters(parameters, is_notebook, err);
	if (bad < 0)
		return bad;
	if (is_notebook)
		return notebook_command(s, argv, parameters, err);
	if (*argv[0] != '/' && !forge_spec_is_program(argv[0]) &&
	    stat(argv[0], &st) == 0 && S_ISDIR(st.st_mode))
		return forge_hint(err,
				  forge_fail(err, EISDIR, "'%s' is a directory", argv[0]),
				  "Name the program to run; give the directory with -i");
	int rc = add_script(s, argv[0], &is_script, err);
	if (rc < 0)
		return rc;
	for (size_t i = is_script ? 1 : 0; argv[i] && rc == 0; i++)
		rc = forge_strv_add(&s->argv, argv[i]);
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}
