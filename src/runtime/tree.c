/* SPDX-License-Identifier: Apache-2.0 */
/* Walks a tree and hashes its files. */
#include "runtime/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/sha256.h"

#define DEPTH_MAX 64

static int add_file(int dir, const char *name, const char *path, const struct stat *st,
		    struct forge_packages *ret)
{
	char digest[FORGE_DIGEST_MAX], target[PATH_MAX];
	struct forge_sha256 h;
	uint64_t size;
	int rc;

	if (S_ISLNK(st->st_mode)) {
		ssize_t n = readlinkat(dir, name, target, sizeof(target));
		if (n < 0)
			return forge_strv_addf(&ret->notes, "%s: %s", path,
					       strerror(errno));
		forge_sha256_init(&h);
		forge_sha256_add(&h, "link:", 5);
		forge_sha256_add(&h, target, (size_t)n);
		forge_sha256_done(&h, digest);
	} else {
		forge_auto_close int fd =
			openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		rc = fd < 0 ? -errno : forge_sha256_fd(fd, -1, digest, &size);
		if (rc < 0)
			return forge_strv_addf(&ret->notes, "%s: %s", path,
					       strerror(-rc));
	}
	return forge_packages_add(ret, "file", path, "", st->st_mode & 0111 ? "x" : "",
				  digest, "");
}

static int walk(int fd, const char *prefix, unsigned depth, struct forge_packages *ret);

static int add_entry(int dir, const char *name, const char *path, unsigned depth,
		     struct forge_packages *ret)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0; /* gone meanwhile: a check of the times notices */
	if (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode))
		return add_file(dir, name, path, &st, ret);
	if (!S_ISDIR(st.st_mode))
		return 0;
	if (depth == DEPTH_MAX)
		return -EFBIG;
	int sub = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return sub < 0 ? forge_strv_addf(&ret->notes, "%s: not read", path)
		       : walk(sub, path, depth + 1, ret);
}

/* Takes fd. -EFBIG: the tree is too deep. */
static int walk(int fd, const char *prefix, unsigned depth, struct forge_packages *ret)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int rc = forge_entries_take(&d, fd);

	for (const char *name; rc == 0 && (name = forge_entries_next(&d));) {
		char path[PATH_MAX];
		if (strcmp(name, "__pycache__") == 0)
			continue;
		rc = snprintf(path, sizeof(path), "%s%s%s", prefix, *prefix ? "/" : "",
			      name) >= (int)sizeof(path)
			     ? -EFBIG
			     : add_entry(forge_entries_fd(&d), name, path, depth, ret);
	}
	/* A digest of only the part that was read would be that of another tree. */
	return rc < 0 ? rc : d.error;
}

int forge_tree_packages(const char *dir, const char *label, struct forge_packages *ret,
			struct forge_error *err)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return forge_fail_errno(err, errno, "read %s", dir);
	int rc = walk(fd, label, 0, ret);
	if (rc == -EFBIG)
		return forge_fail(err, EFBIG, "%s has directories more than %d deep", dir,
				  DEPTH_MAX);
	return rc < 0 ? forge_fail_errno(err, -rc, "read %s", dir) : 0;
}

int forge_tree_prepend_path(const char *prefix, struct forge_strv *env)
{
	const char *old = forge_strv_getenv(env, "PATH");
	forge_auto_free char *path =
		forge_asprintf("%s/bin%s%s", prefix, old ? ":" : "", old ? old : "");

	return path ? forge_strv_setenv(env, "PATH", path) : -ENOMEM;
}
