/* SPDX-License-Identifier: Apache-2.0 */
/* Kind venv: a Python virtual environment, with the interpreter it was made from. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/fd.h"
#include "runtime/conda.h"
#include "runtime/dpkg.h"
#include "runtime/runtime.h"
#include "runtime/tree.h"

#define CFG_MAX 65536

/* The value of "key = value" in pyvenv.cfg. False: there is none. */
static bool cfg_value(const char *prefix, const char *key, char *buf, size_t size)
{
	forge_auto_close int top = open(prefix, O_PATH | O_DIRECTORY | O_CLOEXEC);
	forge_auto_free char *text = NULL;
	size_t len = strlen(key), size_of_text;

	if (top < 0 ||
	    forge_read_regular(top, "pyvenv.cfg", CFG_MAX, &text, &size_of_text) < 0)
		return false;
	for (char *p = text; p && *p; p = strchr(p, '\n')) {
		p += *p == '\n';
		size_t n = strspn(p, " \t");
		if (strncmp(p + n, key, len) != 0)
			continue;
		char *v = p + n + len;
		v += strspn(v, " \t");
		if (*v != '=')
			continue;
		v += 1 + strspn(v + 1, " \t");
		(void)snprintf(buf, size, "%.*s", (int)strcspn(v, "\r\n"), v);
		return true;
	}
	return false;
}

/* The interpreter behind bin/python, canonical. */
static char *interpreter(const char *prefix)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/bin/python", prefix);
	char *real = realpath(path, NULL);
	if (real)
		return real;
	(void)snprintf(path, sizeof(path), "%s/bin/python3", prefix);
	return realpath(path, NULL);
}

static int venv_open(struct forge_runtime *rt, struct forge_error *err)
{
	char home[PATH_MAX];

	if (!rt->decl->prefix)
		return forge_fail(err, EINVAL, "it has no prefix");
	int rc = forge_runtime_set_prefix(rt, rt->decl->prefix, err);
	if (rc < 0)
		return rc;
	if (!cfg_value(rt->real_prefix, "home", home, sizeof(home)))
		return forge_hint(err,
				  forge_fail(err, ENOENT,
					     "%s has no pyvenv.cfg with a home",
					     rt->prefix),
				  "Make it with: python3 -m venv %s", rt->prefix);
	forge_auto_free char *python = interpreter(rt->real_prefix);
	if (!python || access(python, X_OK) < 0)
		return forge_hint(err,
				  forge_fail(err, ENOENT,
					     "%s/bin/python leads to no interpreter",
					     rt->prefix),
				  "The Python it was made with (%s) is gone or has "
				  "moved: make it anew",
				  home);
	return 0;
}

/* Is a Python installed there? Then lib/pythonX.Y has its own modules. */
static bool has_python(const char *tree)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/lib", tree);
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	(void)forge_entries_follow(&d, path); /* unreadable: counts as none */
	for (const char *name; (name = forge_entries_next(&d));) {
		(void)snprintf(path, sizeof(path), "%s/lib/%s/os.py", tree, name);
		if (strncmp(name, "python", 6) == 0 && access(path, F_OK) == 0)
			return true;
	}
	return false;
}

/*
 * An interpreter outside of /usr needs its own tree: for <tree>/bin/python3.11 the run sees
 * <tree>. The author of the environment chose where bin/python leads, so the run may only see a
 * tree that has a Python, and never one that contains the user's home.
 */
static int add_interpreter(const char *python, struct forge_strv *read_only,
			   struct forge_error *err)
{
	const char *home = getenv("HOME"), *name = strrchr(python, '/');
	size_t len = name ? (size_t)(name - python) : 0;

	if (len <= 4 || strncmp(name - 4, "/bin", 4) != 0)
		return forge_fail(err, ENOENT, "its interpreter %s lies in no bin/",
				  python);
	forge_auto_free char *tree = strndup(python, len - 4);
	if (!tree)
		return forge_fail(err, ENOMEM, "out of memory");
	if (!has_python(tree) || (home && forge_path_is_below(home, tree)))
		return forge_hint(
			err,
			forge_fail(err, EPERM,
				   "its interpreter %s is in no tree that could "
				   "be shown",
				   python),
			"Make it with a Python that has a directory of its own");
	return forge_strv_add(read_only, tree) < 0
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : 0;
}

static int venv_view(const struct forge_runtime *rt, struct forge_strv *read_only,
		     char **ret_root, struct forge_error *err)
{
	forge_auto_free char *python = interpreter(rt->real_prefix);

	(void)ret_root;
	if (forge_strv_add(read_only, rt->real_prefix) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	if (!python || forge_path_is_below(python, "/usr") ||
	    forge_path_is_below(python, rt->real_prefix))
		return 0;
	return add_interpreter(python, read_only, err);
}

static int venv_activate(const struct forge_runtime *rt, struct forge_strv *env,
			 struct forge_strv *scripts, struct forge_strv *warnings,
			 struct forge_error *err)
{
	(void)warnings;
	(void)scripts;
	if (forge_tree_prepend_path(rt->prefix, env) < 0 ||
	    forge_strv_setenv(env, "VIRTUAL_ENV", rt->prefix) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	return 0;
}

/* With system site-packages the host's modules count too, as far as they are declared. */
static int venv_identify(const struct forge_runtime *rt, struct forge_packages *ret,
			 struct forge_error *err)
{
	forge_auto_strv struct forge_strv files = { 0 };
	char shared[16] = "";

	if (forge_strv_take(&files, interpreter(rt->real_prefix)) < 0)
		return forge_fail(err, ENOENT, "its interpreter is gone");
	(void)cfg_value(rt->real_prefix, "include-system-site-packages", shared,
			sizeof(shared));
	forge_strv_foreach (module, &rt->decl->python)
		if (strcmp(shared, "true") == 0 &&
		    forge_python_module_file(module, &files) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
	int rc = forge_dpkg_packages(&files, ret, err);
	return rc < 0 ? rc : forge_pip_prefix(rt->real_prefix, ret, err);
}

const struct forge_runtime_kind forge_kind_venv = {
	.name = "venv",
	.help = "a Python virtual environment",
	.open = venv_open,
	.view = venv_view,
	.activate = venv_activate,
	.identify = venv_identify,
};
