/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds prefix (any tree with bin/) and rootfs (another distribution's user land as /). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/dpkg.h"
#include "runtime/runtime.h"
#include "runtime/tree.h"

static bool is_dir(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int need_prefix(struct forge_runtime *rt, const char *must_have,
		       struct forge_error *err)
{
	if (!rt->decl->prefix)
		return forge_fail(err, EINVAL, "it has no prefix");
	int rc = forge_runtime_set_prefix(rt, rt->decl->prefix, err);
	if (rc < 0)
		return rc;
	forge_auto_free char *inner = forge_asprintf("%s/%s", rt->real_prefix, must_have);
	if (!inner)
		return forge_fail(err, ENOMEM, "out of memory");
	return is_dir(inner) ? 0
			     : forge_fail(err, ENOENT, "prefix %s has no %s/", rt->prefix,
					  must_have);
}

static int prefix_open(struct forge_runtime *rt, struct forge_error *err)
{
	return need_prefix(rt, "bin", err);
}

static int prefix_view(const struct forge_runtime *rt, struct forge_strv *read_only,
		       char **ret_root, struct forge_error *err)
{
	(void)ret_root;
	return forge_strv_add(read_only, rt->real_prefix) < 0
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : 0;
}

static int prefix_activate(const struct forge_runtime *rt, struct forge_strv *env,
			   struct forge_strv *scripts, struct forge_strv *warnings,
			   struct forge_error *err)
{
	(void)warnings;
	(void)scripts;
	return forge_tree_prepend_path(rt->prefix, env) < 0
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : 0;
}

static int prefix_identify(const struct forge_runtime *rt, struct forge_packages *ret,
			   struct forge_error *err)
{
	return forge_tree_packages(rt->real_prefix, "", ret, err);
}

const struct forge_runtime_kind forge_kind_prefix = {
	.name = "prefix",
	.help = "any tree with bin/, its PATH in front of the host's",
	.open = prefix_open,
	.view = prefix_view,
	.activate = prefix_activate,
	.identify = prefix_identify,
};

/* ---- rootfs ---- */

static int rootfs_open(struct forge_runtime *rt, struct forge_error *err)
{
	int rc = need_prefix(rt, "usr", err);

	if (rc < 0)
		return rc;
	return strcmp(rt->real_prefix, "/") != 0
		       ? 0
		       : forge_fail(err, EINVAL,
				    "'/' is the host; leave the runtime out");
}

static int rootfs_view(const struct forge_runtime *rt, struct forge_strv *read_only,
		       char **ret_root, struct forge_error *err)
{
	(void)read_only;
	*ret_root = strdup(rt->real_prefix);
	return *ret_root ? 0 : forge_fail(err, ENOMEM, "out of memory");
}

static int rootfs_activate(const struct forge_runtime *rt, struct forge_strv *env,
			   struct forge_strv *scripts, struct forge_strv *warnings,
			   struct forge_error *err)
{
	(void)warnings;
	(void)rt;
	(void)scripts;
	return forge_strv_setenv(
		       env, "PATH",
		       "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin") < 0
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : 0;
}

/*
 * Uses the package database of a Debian system; otherwise every file of the trees that a run
 * sees.
 */
static int rootfs_identify(const struct forge_runtime *rt, struct forge_packages *ret,
			   struct forge_error *err)
{
	static const char *const trees[] = { "usr", "bin", "sbin", "lib", "lib64" };
	int rc = forge_dpkg_installed(rt->real_prefix, ret, err);

	if (rc != -ENOENT)
		return rc;
	rc = 0;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(trees) && rc == 0; i++) {
		struct stat st;
		forge_auto_free char *path =
			forge_asprintf("%s/%s", rt->real_prefix, trees[i]);
		if (!path)
			rc = forge_fail(err, ENOMEM, "out of memory");
		else if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
			rc = forge_tree_packages(path, trees[i], ret, err);
	}
	return rc;
}

const struct forge_runtime_kind forge_kind_rootfs = {
	.name = "rootfs",
	.help = "a directory with another distribution's user land, as /",
	.open = rootfs_open,
	.view = rootfs_view,
	.activate = rootfs_activate,
	.identify = rootfs_identify,
};
