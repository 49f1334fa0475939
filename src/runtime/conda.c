/* SPDX-License-Identifier: Apache-2.0 */
/* Kind conda: finds environments and their packages. */
#include "runtime/conda.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/fd.h"
#include "config/schema.h"
#include "runtime/conda_config.h"

/* Most environments in one list; each costs a look at the file system. */
#define FOUND_MAX 4096

/* ---- finding ---- */

static bool is_kind(const char *prefix, const char *inner, mode_t type)
{
	char path[PATH_MAX];
	struct stat st;

	return snprintf(path, sizeof(path), "%s/%s", prefix, inner) < (int)sizeof(path) &&
	       stat(path, &st) == 0 && (st.st_mode & S_IFMT) == type;
}

/* A prefix is an environment when conda has written its history there. */
static bool is_environment(const char *prefix)
{
	return is_kind(prefix, "conda-meta/history", S_IFREG);
}

static bool is_installation(const char *prefix)
{
	return is_environment(prefix) && is_kind(prefix, "condabin", S_IFDIR);
}

bool forge_conda_is_mamba(const char *root)
{
	return !is_kind(root, "condabin", S_IFDIR) &&
	       !is_kind(root, "bin/conda", S_IFREG);
}

/* micromamba's root need not be an environment: it has directories of environments and packages. */
static bool is_mamba_root(const char *root)
{
	return forge_conda_is_mamba(root) && is_kind(root, "envs", S_IFDIR) &&
	       is_kind(root, "pkgs", S_IFDIR);
}

/* Where micromamba keeps its environments, absolute; NULL: nowhere. */
static char *find_mamba_root(void)
{
	const char *home = getenv("HOME"), *said = getenv("MAMBA_ROOT_PREFIX"),
		   *data = getenv("XDG_DATA_HOME");
	char path[PATH_MAX];

	if (said && (is_mamba_root(said) || is_environment(said)))
		return forge_path_absolute(NULL, said);
	(void)snprintf(path, sizeof(path), "%s/micromamba", home ? home : "");
	if (home && is_mamba_root(path))
		return forge_path_absolute(NULL, path);
	(void)snprintf(path, sizeof(path), "%s%s/mamba",
		       data   ? data
		       : home ? home
			      : "",
		       data ? "" : "/.local/share");
	return (data || home) && is_mamba_root(path) ? forge_path_absolute(NULL, path)
						     : NULL;
}

/* Finds the conda installation: first by the caller's variables, then in the usual places. */
static char *find_root(void)
{
	static const char *const places[] = { "miniconda3", "miniforge3", "mambaforge",
					      "anaconda3" };
	static const char *const shared[] = { "/opt/conda", "/opt/miniconda3",
					      "/opt/miniforge3", "/opt/anaconda3" };
	const char *home = getenv("HOME"), *exe = getenv("CONDA_EXE"),
		   *root = getenv("CONDA_ROOT");
	char path[PATH_MAX];

	if (exe && exe[0] == '/' && strlen(exe) < sizeof(path)) {
		(void)snprintf(path, sizeof(path), "%s", exe);
		for (int up = 0; up < 2 && strrchr(path, '/'); up++)
			*strrchr(path, '/') = '\0';
		if (is_environment(path))
			return forge_path_absolute(NULL, path);
	}
	if (root && is_environment(root))
		return forge_path_absolute(NULL, root);
	for (size_t i = 0; home && i < FORGE_ARRAY_SIZE(places); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", home, places[i]);
		if (is_installation(path))
			return forge_path_absolute(NULL, path);
	}
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(shared); i++)
		if (is_installation(shared[i]))
			return strdup(shared[i]);
	return find_mamba_root();
}

/* ---- directories of environments ---- */

/* Adds a directory once. */
static int add_dir(struct forge_strv *ret, const char *dir)
{
	forge_strv_foreach (have, ret)
		if (strcmp(have, dir) == 0)
			return 0;
	return forge_strv_add(ret, dir);
}

/*
 * The installation's directory comes before the user's if the user may write there; else after
 * it.
 */
static int add_usual_dirs(const char *root, struct forge_strv *ret)
{
	const char *home = getenv("HOME");
	forge_auto_free char *mamba = find_mamba_root();
	forge_auto_free char *shared = root ? forge_asprintf("%s/envs", root) : NULL;
	forge_auto_free char *own = home ? forge_asprintf("%s/.conda/envs", home) : NULL;
	forge_auto_free char *history =
		root ? forge_asprintf("%s/conda-meta/history", root) : NULL;
	bool root_first = history && access(history, W_OK) == 0;
	const char *first = root_first ? shared : own,
		   *second = root_first ? own : shared;
	int rc = first ? add_dir(ret, first) : 0;

	if (rc == 0 && second)
		rc = add_dir(ret, second);
	if (rc < 0 || !mamba)
		return rc;
	forge_auto_free char *envs = forge_asprintf("%s/envs", mamba);
	return envs ? add_dir(ret, envs) : -ENOMEM;
}

static int envs_dirs(const char *root, struct forge_strv *ret,
		     struct forge_strv *warnings)
{
	forge_auto_conda_config struct forge_conda_config config = { .env_prompt = NULL };
	int rc = forge_conda_config_read(root, &config, warnings);

	if (rc == 0)
		rc = forge_strv_copy(ret, &config.envs_dirs);
	return rc < 0 ? rc : add_usual_dirs(root, ret);
}

/* ---- names and paths ---- */

/* The installation in whose envs/ a prefix lies; NULL: in none. */
static char *root_above(const char *prefix)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s", prefix);
	char *slash = strrchr(path, '/');
	if (!slash || slash - path <= 5 || strncmp(slash - 5, "/envs", 5) != 0)
		return NULL;
	slash[-5] = '\0';
	return is_installation(path) || is_mamba_root(path) ? strdup(path) : NULL;
}

/* The installation to which an environment belongs, by its path or its real path. pixi has none. */
static char *root_of(const char *prefix)
{
	if (is_kind(prefix, "conda-meta/pixi", S_IFREG))
		return NULL;
	if (is_installation(prefix))
		return strdup(prefix);
	char *root = root_above(prefix);
	if (root)
		return root;
	forge_auto_free char *real = realpath(prefix, NULL);
	root = real && strcmp(real, prefix) != 0 ? root_above(real) : NULL;
	return root ? root : find_root();
}

static int found(const char *path, char **ret_prefix, char **ret_root_prefix,
		 struct forge_error *err)
{
	char *full = forge_path_absolute(NULL, path);

	if (!full || access(full, F_OK) < 0) {
		free(full);
		return forge_fail_errno(err, errno, "prefix %s", path);
	}
	if (!is_kind(full, "conda-meta", S_IFDIR)) {
		free(full);
		return forge_hint(err,
				  forge_fail(err, ENOENT,
					     "%s is no conda environment: conda-meta is "
					     "not there",
					     path),
				  "conda env list shows those there are");
	}
	*ret_prefix = full;
	*ret_root_prefix = root_of(full);
	return 0;
}

int forge_conda_resolve(const char *name, char **ret_prefix, char **ret_root_prefix,
			struct forge_error *err)
{
	forge_auto_strv struct forge_strv dirs = { 0 };

	if (strchr(name, '/')) {
		forge_auto_free char *path = forge_conda_expand(name);
		return path ? found(path, ret_prefix, ret_root_prefix, err)
			    : forge_fail(err, ENOMEM, "out of memory");
	}
	if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return forge_fail(err, EINVAL, "'%s' is no name of an environment", name);
	forge_auto_free char *root = find_root();
	if (root && (strcmp(name, "base") == 0 || strcmp(name, "root") == 0))
		return found(root, ret_prefix, ret_root_prefix, err);
	forge_auto_strv struct forge_strv warnings = { 0 };
	if (envs_dirs(root, &dirs, &warnings) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	forge_strv_foreach (dir, &dirs) {
		/* The first directory of this name decides, environment or not, as in conda. */
		forge_auto_free char *path = forge_asprintf("%s/%s", dir, name);
		if (path && is_kind(path, "", S_IFDIR))
			return found(path, ret_prefix, ret_root_prefix, err);
	}
	/* A configuration of conda that was not understood may be the reason. */
	return forge_hint(
		err, forge_fail(err, ENOENT, "there is no conda environment '%s'", name),
		"%s",
		warnings.n ? warnings.v[0]
			   : "Give its path as prefix, or set CONDA_ENVS_DIRS");
}

/* A directory beside the declaration may be meant, but a path needs a slash. */
static int hint_directory(const struct forge_runtime_decl *d, int rc,
			  struct forge_error *err)
{
	const char *slash = d->file ? strrchr(d->file, '/') : NULL;
	forge_auto_free char *beside =
		forge_asprintf("%.*s%s", slash ? (int)(slash - d->file) + 1 : 0,
			       slash ? d->file : "", d->prefix);
	forge_auto_free char *here = forge_path_absolute(NULL, d->prefix);

	if (rc != -ENOENT || strchr(d->prefix, '/'))
		return rc;
	if (beside && is_kind(beside, "", S_IFDIR))
		return forge_hint(err, rc, "write ./%s for the directory here",
				  d->prefix);
	if (here && is_kind(here, "", S_IFDIR))
		return forge_hint(err, rc, "write %s for the directory here", here);
	return rc;
}

/*
 * The environments found, and their real paths: the same directory under another name is not
 * added.
 */
struct finds {
	struct forge_strv *pairs;
	struct forge_strv real;
};

static int add_pair(struct finds *f, const char *name, const char *prefix)
{
	char *real = f->real.n < FOUND_MAX ? realpath(prefix, NULL) : NULL;
	bool is_known = false;

	if (!real)
		return 0;
	forge_strv_foreach (have, &f->real)
		is_known |= strcmp(have, real) == 0;
	if (is_known) {
		free(real);
		return 0;
	}
	int rc = forge_strv_take(&f->real, real);
	if (rc == 0)
		rc = forge_strv_add(f->pairs, name);
	return rc < 0 ? rc : forge_strv_add(f->pairs, prefix);
}

/* An environment has a name when it lies in a directory "envs". */
static int add_listed(struct finds *f, const char *listed)
{
	forge_auto_free char *prefix =
		listed[0] == '/' ? forge_path_absolute(NULL, listed) : NULL;
	const char *slash = prefix ? strrchr(prefix, '/') : NULL;

	if (!prefix || !is_environment(prefix))
		return 0; /* stale: conda would rewrite the file */
	bool is_named = slash - prefix > 5 && strncmp(slash - 5, "/envs", 5) == 0;
	return add_pair(f, is_named ? slash + 1 : "", prefix);
}

/* Children of a directory that are environments. */
static int add_children(struct finds *f, const char *dir)
{
	char path[PATH_MAX];
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int rc = 0;

	/* Mostly the directory does not exist; conda ignores that too. */
	(void)forge_entries_follow(&d, dir);
	for (const char *name; rc == 0 && (name = forge_entries_next(&d));) {
		if (name[0] == '.' ||
		    snprintf(path, sizeof(path), "%s/%s", dir, name) >=
			    (int)sizeof(path) ||
		    !is_environment(path))
			continue;
		rc = add_pair(f, name, path);
	}
	return rc < 0 ? rc : d.dir ? d.error : 0;
}

/* Only the list of this user: conda run by root would read those of all users, and trust them. */
static int add_environments_txt(struct finds *f)
{
	const char *home = getenv("HOME");
	char path[PATH_MAX];
	size_t n = 0;
	int rc = 0;

	(void)snprintf(path, sizeof(path), "%s/.conda/environments.txt",
		       home ? home : "");
	forge_auto_free char *text = NULL;
	if (!home || forge_conda_read_text(path, &text, &n) < 0)
		return 0;
	for (char *line = text, *end; *line && rc == 0; line = end) {
		end = line + strcspn(line, "\n");
		end += *end ? (*end = '\0', 1) : 0;
		line[strcspn(line, "\r")] = '\0';
		rc = *line ? add_listed(f, line) : 0;
	}
	return rc;
}

int forge_conda_discover(struct forge_strv *ret, struct forge_error *err)
{
	forge_auto_strv struct forge_strv dirs = { 0 };
	forge_auto_free char *root = find_root();
	struct finds f = { .pairs = ret };
	int rc = root && is_environment(root) ? add_pair(&f, "base", root) : 0;

	if (rc == 0)
		rc = envs_dirs(root, &dirs, NULL);
	forge_strv_foreach (dir, &dirs)
		if (rc == 0)
			rc = add_children(&f, dir);
	if (rc == 0)
		rc = add_environments_txt(&f);
	forge_strv_done(&f.real);
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
	forge_auto_free char *prefix = NULL;
	int rc = forge_conda_resolve(rt->decl->prefix, &prefix, &rt->root_prefix, err);
	if (rc < 0)
		return hint_directory(rt->decl, rc, err);
	if (rc == 0)
		rc = forge_runtime_set_prefix(rt, prefix, err);
	if (rc < 0)
		return rc;
	(void)snprintf(path, sizeof(path), "%s/bin", rt->real_prefix);
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode)
		       ? 0
		       : forge_fail(err, ENOENT, "%s has no bin/", rt->prefix);
}

static int conda_view(const struct forge_runtime *rt, struct forge_strv *read_only,
		      char **ret_root, struct forge_error *err)
{
	(void)ret_root;
	return forge_strv_add(read_only, rt->real_prefix) < 0
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : 0;
}

static int conda_activate(const struct forge_runtime *rt, struct forge_strv *env,
			  struct forge_strv *scripts, struct forge_strv *warnings,
			  struct forge_error *err)
{
	struct forge_conda_spec spec = { .prefix = rt->prefix,
					 .real_prefix = rt->real_prefix,
					 .root_prefix = rt->root_prefix };

	spec.is_mamba = rt->root_prefix && forge_conda_is_mamba(rt->root_prefix);
	forge_auto_conda_config struct forge_conda_config config = { .env_prompt = NULL };
	spec.prompt = "({default_env}) ";
	if (!spec.is_mamba) {
		if (forge_conda_config_read(rt->root_prefix, &config, warnings) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
		spec.keep_case = config.keeps_case;
		spec.prompt = config.env_prompt;
		spec.auto_stack = config.auto_stack;
	}
	return forge_conda_activate(&spec, env, scripts, warnings, err);
}

static int conda_identify(const struct forge_runtime *rt, struct forge_packages *ret,
			  struct forge_error *err)
{
	return forge_conda_packages(rt->real_prefix, ret, err);
}

static int conda_lock(const struct forge_runtime *rt, FILE *out, struct forge_error *err)
{
	return forge_conda_lock(rt->real_prefix, out, err);
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
