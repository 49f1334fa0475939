/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the runtime of a run, and reads the requests of its script. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/parse.h"
#include "spec/spec.h"

/* ---- "# forge: memory=4G timeout=2h runtime=data-ml" in the first lines of a script ---- */

#define HEADER_BYTES 4096

static int set_network(struct forge_spec *s, const char *script, const char *value,
		       struct forge_error *err)
{
	if (strcmp(value, "none") != 0 && strcmp(value, "host") != 0)
		return forge_fail(err, EINVAL,
				  "%s: '# forge: network=%.40s' is not one of none, host",
				  script, value);
	free(s->wishes.network);
	s->wishes.network = strdup(value);
	return s->wishes.network ? 0 : -ENOMEM;
}

static int set_variable(struct forge_spec *s, const char *script, char *value,
			struct forge_error *err)
{
	char *eq = strchr(value, '=');

	if (!eq || forge_parse_env_name(value, (size_t)(eq - value), NULL) < 0)
		return forge_fail(err, EINVAL,
				  "%s: '# forge: env=%.60s' is not env=NAME=VALUE",
				  script, value);
	*eq = '\0';
	return forge_strv_setenv(&s->wishes.env, value, eq + 1);
}

static int set_word(struct forge_spec *s, const char *script, char *word,
		    struct forge_error *err)
{
	char *value = strchr(word, '=');

	if (!value || !value[1])
		return forge_fail(err, EINVAL, "%s: '# forge: %s' is not NAME=VALUE",
				  script, word);
	*value++ = '\0';
	if (strcmp(word, "runtime") == 0) {
		free(s->header_runtime);
		s->header_runtime = strdup(value);
		s->header_why = "the script's header";
		return s->header_runtime ? 0 : forge_fail(err, ENOMEM, "out of memory");
	}
	int done = strcmp(word, "input") == 0 ? forge_strv_add(&s->wishes.inputs, value)
		   : strcmp(word, "output") == 0
			   ? forge_strv_add(&s->wishes.outputs, value)
		   : strcmp(word, "network") == 0 ? set_network(s, script, value, err)
		   : strcmp(word, "env") == 0	  ? set_variable(s, script, value, err)
						  : 1;
	if (done == -ENOMEM)
		return forge_fail(err, ENOMEM, "out of memory");
	if (done <= 0)
		return done;
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *row = &forge_limit_rows[i];
		if (strcmp(row->key, word) != 0 && strcmp(row->name, word) != 0)
			continue;
		int rc = forge_limit_set(&s->header_limits, row, value, err);
		return rc < 0 ? forge_wrap(err, rc, "%s: '# forge: %s'", script, word)
			      : 0;
	}
	return forge_fail(err, EINVAL,
			  "%s: '# forge: %s' is no limit (memory, cpus, timeout ...) nor "
			  "runtime, input, "
			  "output, network or env",
			  script, word);
}

static int read_header(struct forge_spec *s, const char *script, struct forge_error *err)
{
	char text[HEADER_BYTES];
	ssize_t n = forge_read_at(AT_FDCWD, script, text, sizeof(text));
	int rc = 0;

	for (char *line = text, *end; n > 0 && rc == 0 && line && *line; line = end) {
		end = strchr(line, '\n');
		if (end)
			*end++ = '\0';
		line += strspn(line, " \t");
		if (*line != '#')
			continue;
		line += strspn(line, "# \t");
		if (strncmp(line, "forge:", 6) != 0)
			continue;
		for (char *word = line + 6; rc == 0;) {
			word += strspn(word, " \t\r");
			size_t len = strcspn(word, " \t\r");
			if (!len)
				break;
			char *next = word + len + (word[len] ? 1 : 0);
			word[len] = '\0';
			rc = set_word(s, script, word, err);
			word = next;
		}
	}
	return rc;
}

/* Reads forge.yaml in the script's directory; only the section "analysis" is used. */
static int read_beside(struct forge_spec *s, const char *script, struct forge_error *err)
{
	const char *slash = strrchr(script, '/');
	forge_auto_free char *path = forge_asprintf(
		"%.*sforge.yaml", slash ? (int)(slash - script + 1) : 0, script);
	forge_auto_config struct forge_config *c = NULL;

	if (!path)
		return forge_fail(err, ENOMEM, "out of memory");
	int rc = forge_config_read(path, &c, err);
	if (rc <= 0)
		return rc;
	s->beside_limits = c->analysis.limits;
	s->wishes.inputs = c->analysis.inputs;
	s->wishes.outputs = c->analysis.outputs;
	s->wishes.env = c->analysis.env;
	s->wishes.network = forge_take_ptr(c->analysis.network);
	c->analysis.inputs = c->analysis.outputs = c->analysis.env =
		(struct forge_strv){ 0 };
	s->header_runtime = forge_take_ptr(c->analysis.runtime);
	s->header_why = "the forge.yaml beside the script";
	s->header_profile = forge_take_ptr(c->analysis.profile);
	return 0;
}

char *forge_spec_beside(const char *script, const char *path)
{
	const char *slash = strrchr(script, '/');

	return *path == '/' || !slash
		       ? strdup(path)
		       : forge_asprintf("%.*s/%s", (int)(slash - script), script, path);
}

/* The directory that names the script: a link to a script elsewhere does not widen it. */
static char *home_of(const char *script)
{
	const char *slash = strrchr(script, '/');
	forge_auto_free char *dir =
		slash ? strndup(script, (size_t)(slash - script) + 1) : strdup(".");

	return dir ? realpath(dir, NULL) : NULL;
}

/* Whether real is below the script's own directory or a root of every run. */
static bool may_read(const struct forge_config *cfg, const char *script, const char *real)
{
	forge_auto_free char *here = home_of(script);

	if (here && forge_path_is_below(real, here))
		return true;
	forge_strv_foreach (root, &cfg->read_only) {
		forge_auto_free char *top = realpath(root, NULL);
		if (top && forge_path_is_below(real, top))
			return true;
	}
	return false;
}

/*
 * The user may not have read the script. So inputs outside of its own directory have to
 * be given by an option. Each path is resolved once, and the run gets the resolved path.
 */
static int resolve_wishes(struct forge_spec *s, const struct forge_config *cfg,
			  const char *script, struct forge_error *err)
{
	forge_strv_foreach (path, &s->wishes.inputs) {
		forge_auto_free char *joined = forge_spec_beside(script, path);
		char *real = joined ? realpath(joined, NULL) : NULL;
		if (!real)
			return forge_fail_errno(err, errno, "%s: input %s", script, path);
		if (!may_read(cfg, script, real)) {
			int rc =
				forge_fail(err, EPERM,
					   "%s asks for the input %s, which is not below "
					   "its own directory",
					   script, path);
			rc = forge_hint(err, rc,
					"If it may have it: -i %s (or read_only in the "
					"configuration)",
					joined);
			free(real);
			return rc;
		}
		if (forge_strv_take(&s->wishes_real, real) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
	}
	return 0;
}

static int check_wishes(struct forge_spec *s, const struct forge_config *cfg,
			const struct forge_run_request *req, const char *script,
			struct forge_error *err)
{
	/*
	 * The run sees the whole directory, and most directories have a bin/ somewhere.
	 */
	if (!req->runtime && s->header_runtime &&
	    forge_runtime_is_path(s->header_runtime)) {
		forge_auto_free char *joined =
			forge_spec_beside(script, s->header_runtime);
		forge_auto_free char *real = joined ? realpath(joined, NULL) : NULL;
		if (*s->header_runtime == '~' || !real || !may_read(cfg, script, real))
			return forge_hint(
				err,
				forge_fail(err, EPERM,
					   "%s asks for the runtime %s, which is not "
					   "below its own directory",
					   script, s->header_runtime),
				"If it may have it: -r %s", joined ? joined : "PATH");
	}
	if (!req->network && s->wishes.network &&
	    strcmp(s->wishes.network, "host") == 0 && !cfg->scripts_network)
		return forge_hint(
			err,
			forge_fail(err, EPERM, "%s asks for the host's network", script),
			"If it may have it: --network host (or "
			"host.scripts_network in the configuration)");
	return resolve_wishes(s, cfg, script, err);
}

/* Drops requests of the script for inputs that the user gave. */
static void drop_given(struct forge_spec *s, const struct forge_run_request *req,
		       const char *script)
{
	struct forge_strv *wishes = &s->wishes.inputs;

	for (size_t i = 0; i < wishes->n;) {
		forge_auto_free char *path = forge_spec_beside(script, wishes->v[i]);
		forge_auto_free char *wish = path ? realpath(path, NULL) : NULL;
		bool is_given = false;
		forge_strv_foreach (input, &req->inputs) {
			forge_auto_free char *given = realpath(input, NULL);
			is_given |= wish && given && forge_path_is_below(wish, given);
		}
		if (!is_given) {
			i++;
			continue;
		}
		free(wishes->v[i]);
		memmove(&wishes->v[i], &wishes->v[i + 1],
			(wishes->n - i) * sizeof(char *));
		wishes->n--;
	}
}

/* Only a script that is the command can make requests for the run. */
int forge_spec_header(struct forge_spec *s, const struct forge_config *cfg,
		      const struct forge_run_request *req, struct forge_error *err)
{
	struct stat st;
	const char *script = req->argv ? req->argv[0] : NULL;
	const char *dot = script ? strrchr(script, '.') : NULL;

	if (req->is_probe || !dot || stat(script, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	int rc = read_beside(s, script, err);
	if (rc >= 0)
		rc = read_header(s, script, err);
	if (rc < 0)
		return rc;
	drop_given(s, req, script);
	return check_wishes(s, cfg, req, script, err);
}

/* ---- the runtime ---- */

/* Links only the programs that a runtime of kind system declares. */
static int add_tools(struct forge_spec *s)
{
	static const char *const dirs[] = { "/usr/local/bin", "/usr/bin", "/bin" };
	int rc = 0;

	if (s->runtime.kind != &forge_kind_system)
		return 0;
	forge_strv_foreach (name, &s->runtime.decl->commands) {
		char path[PATH_MAX];
		for (size_t i = 0; i < FORGE_ARRAY_SIZE(dirs) && rc == 0; i++) {
			(void)snprintf(path, sizeof(path), "%s/%s", dirs[i], name);
			if (access(path, X_OK) < 0)
				continue;
			rc = forge_strv_addf(&s->tools, "%s/%s", FORGE_SYSTEM_BIN, name);
			if (rc == 0)
				rc = forge_strv_add(&s->tools, path);
			break;
		}
	}
	return rc;
}

/* A prefix that was named by a link is visible under both names. */
static int add_name(struct forge_spec *s)
{
	const struct forge_runtime *rt = &s->runtime;

	if (!rt->prefix || rt->kind == &forge_kind_rootfs ||
	    strcmp(rt->prefix, rt->real_prefix) == 0)
		return 0;
	int rc = forge_strv_add(&s->aliases, rt->prefix);
	return rc < 0 ? rc : forge_strv_add(&s->aliases, rt->real_prefix);
}

/*
 * A relative path in a file is below the file's directory; a path of the command line
 * stays as it is. NULL: out of memory.
 */
static char *from_file(const char *word, const char *file)
{
	const char *slash = file ? strrchr(file, '/') : NULL;
	bool is_relative = forge_runtime_is_path(word) && !strchr("/~", *word);

	return is_relative && slash
		       ? forge_asprintf("%.*s/%s", (int)(slash - file), file, word)
		       : strdup(word);
}

/* The runtime of the command line, the script or the configuration; NULL: none. */
static int choose(struct forge_spec *s, const struct forge_config *cfg,
		  const struct forge_run_request *req, char **ret)
{
	const char *script = req->argv ? req->argv[0] : NULL;
	bool is_configured = !req->parent_run && cfg->runtime;

	*ret = req->runtime	   ? strdup(req->runtime)
	       : s->header_runtime ? from_file(s->header_runtime, script)
	       : is_configured	   ? from_file(cfg->runtime, cfg->path)
				   : NULL;
	return *ret || !(req->runtime || s->header_runtime || is_configured) ? 0
									     : -ENOMEM;
}

/* pyenv sets no variable with a prefix; its programs are scripts that find others. */
static bool is_pyenv_first(char *buf, size_t size)
{
	const char *path = getenv("PATH");

	for (const char *p = path; p && *p;) {
		size_t len = strcspn(p, ":");
		(void)snprintf(buf, size, "%.*s/python3", (int)len, p);
		if (access(buf, X_OK) == 0)
			return len >= 6 && strncmp(p + len - 6, "/shims", 6) == 0;
		p += len + (p[len] == ':');
	}
	return false;
}

/*
 * Whether the command would have used this Python program without forge: Python itself,
 * pip, a Python script or a notebook, or another program in the same directory.
 */
static bool would_use_python(const char *command, const char *python)
{
	const char *slash = strrchr(command, '/'), *dot = strrchr(command, '.');
	const char *name = slash ? slash + 1 : command;
	char path[PATH_MAX];

	if (strncmp(name, "python", 6) == 0 || strncmp(name, "pip", 3) == 0 ||
	    (dot && (strcmp(dot, ".py") == 0 || strcmp(dot, ".ipynb") == 0)))
		return true;
	(void)snprintf(path, sizeof(path), "%.*s/%s",
		       (int)(strrchr(python, '/') - python), python, command);
	return !slash && access(path, X_OK) == 0;
}

bool forge_spec_is_unused_active(const struct forge_spec *s,
				 const struct forge_run_request *req,
				 struct forge_error *ret)
{
	static const char *const variables[] = { "VIRTUAL_ENV", "CONDA_PREFIX" };
	char path[PATH_MAX];

	if (s->has_runtime || req->is_probe || req->parent_run)
		return false;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(variables); i++) {
		const char *prefix = getenv(variables[i]);
		if (!prefix || *prefix != '/' || access(prefix, F_OK) < 0)
			continue;
		(void)forge_fail(ret, ENOEXEC,
				 "the active environment %.150s is not used; to run in "
				 "it: -r %.150s",
				 prefix, prefix);
		return true;
	}
	if (!is_pyenv_first(path, sizeof(path)) || !would_use_python(req->argv[0], path))
		return false;
	(void)forge_fail(ret, ENOEXEC,
			 "pyenv's Python %.200s is not used; to run in it: "
			 "-r \"$(pyenv prefix)\"",
			 path);
	return true;
}

int forge_spec_runtime(struct forge_spec *s, const struct forge_config *cfg,
		       const struct forge_run_request *req, struct forge_error *err)
{
	forge_auto_free char *name = NULL;

	if (choose(s, cfg, req, &name) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	if (!name)
		return 0;
	s->runtime_why = req->runtime	     ? "asked for"
			 : s->header_runtime ? s->header_why
					     : "the configuration";
	int rc = forge_catalog_open(cfg, &s->catalog, err);
	if (rc == 0)
		rc = forge_runtime_open(&s->catalog, name, &s->runtime, err);
	if (rc < 0)
		return rc;
	s->has_runtime = true;
	rc = forge_runtime_view(&s->runtime, &s->view, &s->root, err);
	if (rc == 0 && (add_tools(s) < 0 || add_name(s) < 0))
		rc = forge_fail(err, ENOMEM, "out of memory");
	return rc;
}
