/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kinds that use the host's own programs: system (only declared programs are in PATH) and r (R
 * with its own library directories).
 */
#include <errno.h>
#include <glob.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/fd.h"
#include "runtime/dpkg.h"
#include "runtime/runtime.h"

#define DESCRIPTION_MAX (1u << 20)

static const char *const path_dirs[] = { "/usr/local/bin", "/usr/bin", "/bin" };

/* The canonical path of a program of the host; NULL: not found. */
static char *find_program(const char *name)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(path_dirs); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", path_dirs[i], name);
		if (access(path, X_OK) == 0)
			return realpath(path, NULL);
	}
	return NULL;
}

/* ---- what the host lacks ---- */

static bool has_package(const char *name)
{
	char path[PATH_MAX];
	glob_t found;

	(void)snprintf(path, sizeof(path), "/var/lib/dpkg/info/%s.list", name);
	if (access(path, F_OK) == 0)
		return true;
	(void)snprintf(path, sizeof(path), "/var/lib/dpkg/info/%s:*.list", name);
	if (glob(path, 0, NULL, &found) != 0)
		return false;
	globfree(&found);
	return true;
}

static int add_r_package(const char *package, const struct forge_strv *libraries,
			 struct forge_strv *files);
static int add_module(const char *dir, const char *name, struct forge_strv *files);

/* Would the host's Python find this module, as far as that can be seen without running it? */
static bool has_module(const char *module)
{
	forge_auto_strv struct forge_strv files = { 0 };
	char name[128];
	glob_t dirs = { 0 };

	if (forge_python_module_file(module, &files) < 0 || files.n > 0)
		return true;
	(void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(module, "."), module);
	if (glob("/usr/lib/python3.*", 0, NULL, &dirs) == 0) {
		for (size_t i = 0; i < dirs.gl_pathc && files.n == 0; i++)
			(void)!add_module(dirs.gl_pathv[i], name, &files);
		globfree(&dirs);
	}
	return files.n > 0;
}

static bool has_r_package(const struct forge_runtime_decl *d, const char *package)
{
	forge_auto_strv struct forge_strv files = { 0 };

	return add_r_package(package, &d->libraries, &files) < 0 || files.n > 0;
}

/*
 * Lists the declared packages that are not installed, " a b". Their programs may have been
 * installed by other means, so this alone is no error.
 */
static void list_missing(const struct forge_runtime_decl *d, char *buf, size_t size)
{
	size_t len = 0;

	buf[0] = '\0';
	forge_strv_foreach (package, &d->needs)
		if (!has_package(package) && len < size)
			len += (size_t)snprintf(buf + len, size - len, " %s", package);
}

static int not_installed(const char *packages, const char *program,
			 struct forge_error *err)
{
	if (*packages)
		return forge_hint(
			err, forge_fail(err, ENOPKG, "not installed: needs%s", packages),
			"Debian: apt install%s", packages);
	return forge_hint(
		err,
		forge_fail(err, ENOPKG, "not installed: needs the program '%s'", program),
		"Install it, or take it out of the runtime's commands");
}

/* Fails when a program is missing, or a module together with a package that would provide it. */
static int check_host(const struct forge_runtime_decl *d, const char *program,
		      struct forge_error *err)
{
	char packages[256];
	const char *missing = NULL;
	bool is_lacking = false;

	forge_strv_foreach (name, &d->commands)
		if (strchr(name, '/'))
			return forge_fail(err, EINVAL,
					  "command '%s' must be a name, not a path",
					  name);
	forge_auto_free char *main_path = program ? find_program(program) : NULL;
	if (program && !main_path)
		missing = program;
	forge_strv_foreach (name, &d->commands) {
		forge_auto_free char *path = missing ? NULL : find_program(name);
		if (!missing && !path)
			missing = name;
	}
	list_missing(d, packages, sizeof(packages));
	if (!missing && *packages) {
		forge_strv_foreach (module, &d->python)
			is_lacking |= !has_module(module);
		forge_strv_foreach (package, &d->r)
			is_lacking |= !has_r_package(d, package);
	}
	return missing || is_lacking ? not_installed(packages, missing, err) : 0;
}

static int system_open(struct forge_runtime *rt, struct forge_error *err)
{
	if (rt->decl->commands.n == 0)
		return forge_hint(
			err, forge_fail(err, EINVAL, "kind system declares no commands"),
			"Name the programs it may run: commands: [python3]");
	return check_host(rt->decl, NULL, err);
}

static int no_view(const struct forge_runtime *rt, struct forge_strv *read_only,
		   char **ret_root, struct forge_error *err)
{
	(void)rt;
	(void)read_only;
	(void)ret_root;
	(void)err;
	return 0;
}

/* forge_spec_runtime() has the plan make the directory of links. */
static int system_activate(const struct forge_runtime *rt, struct forge_strv *env,
			   struct forge_strv *scripts, struct forge_strv *warnings,
			   struct forge_error *err)
{
	(void)warnings;
	(void)rt;
	(void)scripts;
	return forge_strv_setenv(env, "PATH", FORGE_SYSTEM_BIN) < 0
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : 0;
}

/* Returns 1 when the module was found and added. */
static int add_module(const char *dir, const char *name, struct forge_strv *files)
{
	static const char *const forms[] = { "/__init__.py", ".py" };
	char path[PATH_MAX];
	glob_t found;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(forms); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s%s", dir, name, forms[i]);
		if (access(path, R_OK) == 0)
			return forge_strv_add(files, path) < 0 ? -ENOMEM : 1;
	}
	(void)snprintf(path, sizeof(path), "%s/%s.*.so", dir, name);
	if (glob(path, 0, NULL, &found) != 0)
		return 0;
	int rc = forge_strv_add(files, found.gl_pathv[0]) < 0 ? -ENOMEM : 1;
	globfree(&found);
	return rc;
}

/*
 * Finds the file of a module in Debian's directories: a package, a module or an extension. The
 * order is that of Python's own search, in which modules of the administrator come before
 * Debian's.
 */
int forge_python_module_file(const char *module, struct forge_strv *files)
{
	char name[128];
	glob_t local = { 0 };
	int rc = 0;

	(void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(module, "."), module);
	if (glob("/usr/local/lib/python3*/dist-packages", 0, NULL, &local) == 0) {
		for (size_t i = 0; i < local.gl_pathc && rc == 0; i++)
			rc = add_module(local.gl_pathv[i], name, files);
		globfree(&local);
	}
	if (rc == 0)
		rc = add_module("/usr/lib/python3/dist-packages", name, files);
	/*
	 * 0 when not found: then it is of the standard library, which belongs to the
	 * interpreter.
	 */
	return rc < 0 ? rc : 0;
}

static int add_r_package(const char *package, const struct forge_strv *libraries,
			 struct forge_strv *files)
{
	static const char *const dirs[] = { "/usr/local/lib/R/site-library",
					    "/usr/lib/R/site-library",
					    "/usr/lib/R/library" };
	char path[PATH_MAX];

	forge_strv_foreach (dir, libraries) {
		(void)snprintf(path, sizeof(path), "%s/%s/DESCRIPTION", dir, package);
		if (access(path, R_OK) == 0)
			return forge_strv_add(files, path);
	}
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(dirs); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s/DESCRIPTION", dirs[i], package);
		if (access(path, R_OK) == 0)
			return forge_strv_add(files, path);
	}
	return 0;
}

static int system_identify(const struct forge_runtime *rt, struct forge_packages *ret,
			   struct forge_error *err)
{
	forge_auto_strv struct forge_strv files = { 0 };
	int rc = 0;

	forge_strv_foreach (name, &rt->decl->commands) {
		char *path = find_program(name);
		if (rc == 0 && path)
			rc = forge_strv_take(&files, path);
		else
			free(path);
	}
	forge_strv_foreach (module, &rt->decl->python)
		if (rc == 0)
			rc = forge_python_module_file(module, &files);
	forge_strv_foreach (package, &rt->decl->r)
		if (rc == 0)
			rc = add_r_package(package, &rt->decl->libraries, &files);
	if (rc < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	return forge_dpkg_packages(&files, ret, err);
}

const struct forge_runtime_kind forge_kind_system = {
	.name = "system",
	.help = "the host's programs, of which only the declared are in PATH",
	.open = system_open,
	.view = no_view,
	.activate = system_activate,
	.identify = system_identify,
};

/* ---- r ---- */

static int r_open(struct forge_runtime *rt, struct forge_error *err)
{
	forge_strv_foreach (dir, &rt->decl->libraries) {
		struct stat st;
		if (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
			return forge_fail(err, ENOENT, "library %s is no directory", dir);
		if (strchr(dir, ':'))
			return forge_fail(
				err, EINVAL,
				"library %s: R_LIBS cannot have a ':' in a path", dir);
	}
	return check_host(rt->decl, "Rscript", err);
}

static int r_view(const struct forge_runtime *rt, struct forge_strv *read_only,
		  char **ret_root, struct forge_error *err)
{
	(void)ret_root;
	forge_strv_foreach (dir, &rt->decl->libraries) {
		char *real = realpath(dir, NULL);
		if (!real)
			return forge_fail_errno(err, errno, "library %s", dir);
		if (forge_strv_take(read_only, real) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
	}
	return 0;
}

/* Uses the real paths, which exist inside: a link of the host would lead nowhere there. */
static int r_activate(const struct forge_runtime *rt, struct forge_strv *env,
		      struct forge_strv *scripts, struct forge_strv *warnings,
		      struct forge_error *err)
{
	(void)warnings;
	char libs[8192] = "";
	size_t len = 0;

	(void)scripts;
	forge_strv_foreach (dir, &rt->decl->libraries) {
		forge_auto_free char *real = realpath(dir, NULL);
		if (!real)
			return forge_fail_errno(err, errno, "library %s", dir);
		if (len < sizeof(libs))
			len += (size_t)snprintf(libs + len, sizeof(libs) - len, "%s%s",
						len ? ":" : "", real);
	}
	if (len >= sizeof(libs))
		return forge_fail(err, E2BIG, "the libraries' paths are too long");
	return forge_strv_setenv(env, "R_LIBS", libs) < 0
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : 0;
}

/* "Version: 1.2" at the beginning of a line. */
static void find_version(const char *text, char version[128])
{
	for (const char *p = text; p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
		if (strncmp(p, "Version:", 8) == 0) {
			(void)sscanf(p + 8, " %127s", version);
			return;
		}
}

/*
 * Adds one package of a library. DESCRIPTION has the time of the build, so its hash
 * distinguishes two builds of one version.
 */
static int add_installed(int library, const char *name, struct forge_packages *ret,
			 struct forge_error *err)
{
	char path[NAME_MAX + 16], version[128] = "", digest[FORGE_DIGEST_MAX];
	forge_auto_free char *text = NULL;
	struct forge_sha256 h;
	size_t len;

	(void)snprintf(path, sizeof(path), "%s/DESCRIPTION", name);
	int rc = forge_read_regular(library, path, DESCRIPTION_MAX, &text, &len);
	if (rc == -ENOENT || rc == -ENOTDIR)
		return 0;
	if (rc < 0)
		return forge_fail(err, EUCLEAN, "%s is damaged: %s", path,
				  forge_regular_problem(rc));
	find_version(text, version);
	forge_sha256_init(&h);
	forge_sha256_add(&h, text, len);
	forge_sha256_done(&h, digest);
	return forge_packages_add(ret, "r", name, version, "", digest, "") < 0
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : 0;
}

/* Adds every package of a library; each has its own directory. */
static int add_library(const char *dir, struct forge_packages *ret,
		       struct forge_error *err)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int rc = 0;

	(void)forge_entries_follow(&d, dir); /* d keeps the error */
	for (const char *name; rc == 0 && (name = forge_entries_next(&d));)
		if (name[0] != '.')
			rc = add_installed(forge_entries_fd(&d), name, ret, err);
	if (d.error)
		return forge_fail_errno(err, -d.error, "library %s", dir);
	return rc;
}

/* Is the package in a library of the runtime? Otherwise it is the host's own. */
static bool is_in_library(const char *package, const struct forge_strv *libraries)
{
	char path[PATH_MAX];

	forge_strv_foreach (dir, libraries) {
		(void)snprintf(path, sizeof(path), "%s/%s/DESCRIPTION", dir, package);
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

static int r_identify(const struct forge_runtime *rt, struct forge_packages *ret,
		      struct forge_error *err)
{
	forge_auto_strv struct forge_strv files = { 0 };
	int rc = forge_strv_take(&files, find_program("Rscript"));

	forge_strv_foreach (name, &rt->decl->commands) {
		if (rc == 0)
			rc = forge_strv_take(&files, find_program(name));
	}
	forge_strv_foreach (package, &rt->decl->r)
		if (rc == 0 && !is_in_library(package, &rt->decl->libraries))
			rc = add_r_package(package, &rt->decl->libraries, &files);
	if (rc < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	forge_strv_foreach (dir, &rt->decl->libraries)
		if (rc == 0)
			rc = add_library(dir, ret, err);
	if (rc < 0)
		return rc;
	return forge_dpkg_packages(&files, ret, err);
}

const struct forge_runtime_kind forge_kind_r = {
	.name = "r",
	.help = "the host's R, with library directories of its own",
	.open = r_open,
	.view = r_view,
	.activate = r_activate,
	.identify = r_identify,
};
