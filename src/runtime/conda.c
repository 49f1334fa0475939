/* SPDX-License-Identifier: Apache-2.0 */
/* Kind conda: finding environments, and what they consist of. */
#include "runtime/conda.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/yaml.h"

/* ---- finding ---- */

/* A prefix is an environment when conda has written its history there. */
static bool is_environment(const char *prefix)
{
	char path[PATH_MAX];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s/conda-meta/history", prefix);
	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool is_installation(const char *prefix)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/condabin", prefix);
	return is_environment(prefix) && access(path, F_OK) == 0;
}

/* Where conda itself lives: what the caller's variables say, then where people put it. */
static char *find_root(void)
{
	static const char *const places[] = { "miniconda3", "miniforge3", "mambaforge",
					      "anaconda3", "micromamba" };
	static const char *const shared[] = { "/opt/conda", "/opt/miniconda3",
					      "/opt/miniforge3", "/opt/anaconda3" };
	const char *home = getenv("HOME"), *exe = getenv("CONDA_EXE"),
		   *root = getenv("CONDA_ROOT"), *mamba = getenv("MAMBA_ROOT_PREFIX");
	char path[PATH_MAX];

	if (exe && exe[0] == '/' && strlen(exe) < sizeof(path)) {
		(void)snprintf(path, sizeof(path), "%s", exe);
		for (int up = 0; up < 2 && strrchr(path, '/'); up++)
			*strrchr(path, '/') = '\0';
		if (is_environment(path))
			return realpath(path, NULL);
	}
	if (root && is_environment(root))
		return realpath(root, NULL);
	if (mamba && is_environment(mamba))
		return realpath(mamba, NULL);
	for (size_t i = 0; home && i < FORGE_ARRAY_SIZE(places); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", home, places[i]);
		if (is_installation(path))
			return realpath(path, NULL);
	}
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(shared); i++)
		if (is_installation(shared[i]))
			return realpath(shared[i], NULL);
	return NULL;
}

static int add_dirs(const char *list, struct forge_strv *ret)
{
	int rc = 0;

	for (const char *p = list; p && *p && rc == 0;) {
		size_t len = strcspn(p, ":");
		if (len)
			rc = forge_strv_addf(ret, "%.*s", (int)len, p);
		p += len + (p[len] == ':');
	}
	return rc;
}

/* envs_dirs of one condarc; a file that forge cannot read is conda's business. */
static int add_condarc(const char *path, struct forge_strv *ret)
{
	forge_auto_yaml struct forge_yaml *root = NULL;
	char text[65536];
	const char *home = getenv("HOME");
	ssize_t n = forge_read_at(AT_FDCWD, path, text, sizeof(text));
	int rc = 0;

	if (n <= 0 || forge_yaml_parse(text, (size_t)n, path, &root, NULL) < 0 ||
	    root->type != FORGE_YAML_MAP)
		return 0;
	for (const struct forge_yaml *key = root->child; key; key = key->next) {
		if (strcmp(key->key, "envs_dirs") != 0 || key->type != FORGE_YAML_LIST)
			continue;
		for (const struct forge_yaml *dir = key->child; dir && rc == 0;
		     dir = dir->next)
			if (dir->type == FORGE_YAML_SCALAR && dir->scalar[0] == '~' &&
			    home)
				rc = forge_strv_addf(ret, "%s%s", home, dir->scalar + 1);
			else if (dir->type == FORGE_YAML_SCALAR)
				rc = forge_strv_add(ret, dir->scalar);
	}
	return rc;
}

static int envs_dirs(const char *root, struct forge_strv *ret)
{
	const char *home = getenv("HOME"), *extra = getenv("CONDARC");
	char path[PATH_MAX];
	int rc = add_dirs(getenv("CONDA_ENVS_DIRS"), ret);

	if (rc == 0)
		rc = add_dirs(getenv("CONDA_ENVS_PATH"), ret);
	if (rc == 0)
		rc = add_condarc("/etc/conda/.condarc", ret);
	if (rc == 0 && root) {
		(void)snprintf(path, sizeof(path), "%s/.condarc", root);
		rc = add_condarc(path, ret);
	}
	if (rc == 0 && home) {
		(void)snprintf(path, sizeof(path), "%s/.condarc", home);
		rc = add_condarc(path, ret);
	}
	if (rc == 0 && extra)
		rc = add_condarc(extra, ret);
	bool root_first = root && access(root, W_OK) == 0;
	for (int i = 0; i < 2 && rc == 0; i++) {
		if ((i == 0) == root_first && root)
			rc = forge_strv_addf(ret, "%s/envs", root);
		else if (home && (i == 0) != root_first)
			rc = forge_strv_addf(ret, "%s/.conda/envs", home);
	}
	return rc;
}

/* The installation that an environment in its envs/ belongs to. */
static char *root_of(const char *prefix)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s", prefix);
	char *slash = strrchr(path, '/');
	if (slash && slash - path > 5 && strncmp(slash - 5, "/envs", 5) == 0) {
		slash[-5] = '\0';
		if (is_installation(path))
			return strdup(path);
	}
	return is_installation(prefix) ? strdup(prefix) : find_root();
}

static int found(char *prefix, char **ret_prefix, char **ret_root_prefix)
{
	*ret_prefix = prefix;
	*ret_root_prefix = root_of(prefix);
	return 0;
}

int forge_conda_resolve(const char *name, char **ret_prefix, char **ret_root_prefix,
			struct forge_error *err)
{
	forge_auto_strv struct forge_strv dirs = { 0 };
	forge_auto_free char *root = NULL;

	if (strchr(name, '/')) {
		char *real = realpath(name, NULL);
		if (!real)
			return forge_fail_errno(err, errno, "prefix %s", name);
		if (is_environment(real))
			return found(real, ret_prefix, ret_root_prefix);
		free(real);
		return forge_hint(
			err,
			forge_fail(err, ENOENT,
				   "%s is no conda environment: conda-meta/history is "
				   "not there",
				   name),
			"conda env list shows those there are");
	}
	root = find_root();
	if (root && (strcmp(name, "base") == 0 || strcmp(name, "root") == 0))
		return found(forge_take_ptr(root), ret_prefix, ret_root_prefix);
	if (envs_dirs(root, &dirs) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	forge_strv_foreach (dir, &dirs) {
		forge_auto_free char *path = forge_asprintf("%s/%s", dir, name);
		char *real = path && is_environment(path) ? realpath(path, NULL) : NULL;
		if (real)
			return found(real, ret_prefix, ret_root_prefix);
	}
	return forge_hint(
		err, forge_fail(err, ENOENT, "there is no conda environment '%s'", name),
		"Give its path as prefix, or set CONDA_ENVS_DIRS");
}

static int add_pair(struct forge_strv *ret, const char *name, const char *prefix)
{
	for (size_t i = 1; i < ret->n; i += 2)
		if (strcmp(ret->v[i], prefix) == 0)
			return 0;
	int rc = forge_strv_add(ret, name);
	return rc < 0 ? rc : forge_strv_add(ret, prefix);
}

/* Named when it lies in a directory of environments. */
static int add_listed(struct forge_strv *ret, const char *prefix)
{
	forge_auto_free char *real = realpath(prefix, NULL);
	const char *slash = real ? strrchr(real, '/') : NULL;

	if (!real || !is_environment(real))
		return 0; /* stale: conda would rewrite the file */
	bool is_named = slash - real > 5 && strncmp(slash - 5, "/envs", 5) == 0;
	return add_pair(ret, is_named ? slash + 1 : "", real);
}

int forge_conda_discover(struct forge_strv *ret, struct forge_error *err)
{
	forge_auto_strv struct forge_strv dirs = { 0 };
	forge_auto_free char *root = find_root();
	const char *home = getenv("HOME");
	char path[PATH_MAX], text[65536];
	int rc = root ? add_pair(ret, "base", root) : 0;

	if (rc == 0)
		rc = envs_dirs(root, &dirs);
	forge_strv_foreach (dir, &dirs) {
		forge_auto_dir DIR *d = opendir(dir);
		for (struct dirent *e; d && rc == 0 && (e = readdir(d));) {
			(void)snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
			if (e->d_name[0] == '.' || !is_environment(path))
				continue;
			forge_auto_free char *real = realpath(path, NULL);
			rc = real ? add_pair(ret, e->d_name, real) : 0;
		}
	}
	(void)snprintf(path, sizeof(path), "%s/.conda/environments.txt",
		       home ? home : "");
	if (rc == 0 && home && forge_read_at(AT_FDCWD, path, text, sizeof(text)) > 0)
		for (char *line = text, *end; *line && rc == 0; line = end) {
			end = line + strcspn(line, "\n");
			end += *end ? (*end = '\0', 1) : 0;
			rc = *line ? add_listed(ret, line) : 0;
		}
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}

/* ---- the kind ---- */

static int conda_open(struct forge_runtime *rt, struct forge_error *err)
{
	char path[PATH_MAX];
	struct stat st;

	if (!rt->decl->prefix)
		return forge_fail(err, EINVAL,
				  "it has no prefix (a path, or a name of conda's)");
	int rc =
		forge_conda_resolve(rt->decl->prefix, &rt->prefix, &rt->root_prefix, err);
	if (rc < 0)
		return rc;
	(void)snprintf(path, sizeof(path), "%s/bin", rt->prefix);
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode)
		       ? 0
		       : forge_fail(err, ENOENT, "%s has no bin/", rt->prefix);
}

static int conda_view(const struct forge_runtime *rt, struct forge_strv *read_only,
		      char **ret_root, struct forge_error *err)
{
	(void)ret_root;
	return forge_strv_add(read_only, rt->prefix) < 0
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : 0;
}

static int conda_activate(const struct forge_runtime *rt, struct forge_strv *env,
			  struct forge_strv *scripts, struct forge_error *err)
{
	forge_auto_strv struct forge_strv warnings = { 0 };
	struct forge_conda_spec spec = { .prefix = rt->prefix,
					 .root_prefix = rt->root_prefix,
					 .change_prompt = true };

	return forge_conda_activate(&spec, env, scripts, &warnings, err);
}

static int conda_identify(const struct forge_runtime *rt, struct forge_packages *ret,
			  struct forge_error *err)
{
	return forge_conda_packages(rt->prefix, ret, err);
}

static int conda_lock(const struct forge_runtime *rt, FILE *out, struct forge_error *err)
{
	return forge_conda_lock(rt->prefix, out, err);
}

const struct forge_runtime_kind forge_kind_conda = {
	.name = "conda",
	.help = "an environment of conda, mamba, micromamba or pixi",
	.open = conda_open,
	.view = conda_view,
	.activate = conda_activate,
	.identify = conda_identify,
	.lock = conda_lock,
};
