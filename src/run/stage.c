/* SPDX-License-Identifier: Apache-2.0 */
/* Staging directories. */
#include "run/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/rmtree.h"
#include "base/sha256.h"
#include "run/input_hasher.h"
#include "state/objects.h"

/* mkdir -p for the parents of path. None of them can be a link: all are new. */
static int make_parents(int dir, const char *path)
{
	char buf[PATH_MAX];

	if (strlen(path) >= sizeof(buf))
		return -ENAMETOOLONG;
	for (size_t i = 0; path[i]; i++) {
		buf[i] = path[i];
		if (path[i + 1] != '/')
			continue;
		buf[i + 1] = '\0';
		if (mkdirat(dir, buf, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

/* The object, opened and checked. */
static int open_object(const struct forge_home *home, const char *digest,
		       bool trusts_times)
{
	char stored[FORGE_STORED_MAX], is[FORGE_DIGEST_MAX];
	uint64_t size;

	if (!trusts_times)
		return forge_objects_get(home, digest);
	if (!forge_objects_is_digest(digest))
		return -EINVAL;
	forge_auto_close int fd =
		openat(home->fd, forge_objects_path(stored, digest),
		       O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW);
	int rc = fd < 0 ? -errno : forge_object_digest(home, fd, is, &size);
	if (rc < 0)
		return rc;
	return strcmp(is, digest) == 0 ? forge_take_fd(fd) : -EUCLEAN;
}

int forge_stage_make(const struct forge_home *home, const char *name,
		     struct forge_stage *ret, struct forge_error *err)
{
	struct stat st;

	*ret = FORGE_STAGE_INIT;
	(void)snprintf(ret->path, sizeof(ret->path), "%s/staging/%s", home->path, name);
	forge_auto_close int staging = forge_home_subdir(home, "staging", err);
	if (staging < 0)
		return staging;
	/* gc takes this lock exclusively: held until the new directory is locked. */
	if (flock(staging, LOCK_SH) < 0 || mkdirat(staging, name, 0755) < 0)
		return forge_fail_errno(err, errno, "make %s", ret->path);
	ret->fd = openat(staging, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (ret->fd < 0 || flock(ret->fd, LOCK_EX | LOCK_NB) < 0 ||
	    fstat(ret->fd, &st) < 0)
		return forge_fail_errno(err, errno, "open %s", ret->path);
	ret->dev = st.st_dev;
	ret->ino = st.st_ino;
	return 0;
}

int forge_stage_object(const struct forge_stage *s, const struct forge_home *home,
		       const char *path, const char *digest, bool trusts_times)
{
	char self[40], copied[FORGE_DIGEST_MAX];
	uint64_t size;

	if (!path || !forge_path_is_inner(path))
		return -EINVAL;
	forge_auto_close int from = open_object(home, digest, trusts_times);
	if (from < 0)
		return from;
	int rc = make_parents(s->fd, path);
	if (rc < 0)
		return rc;
	/* Links the inode that was checked; its name may refer to another file by now. */
	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", from);
	if (linkat(AT_FDCWD, self, s->fd, path, AT_SYMLINK_FOLLOW) == 0)
		return 0;
	if (errno == EEXIST)
		return -EEXIST;
	forge_auto_close int to = openat(
		s->fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0444);
	if (to < 0)
		return -errno;
	if (ioctl(to, FICLONE, from) == 0)
		return 0;
	rc = forge_sha256_fd(from, to, copied, &size);
	if (rc < 0)
		return rc;
	return strcmp(copied, digest) == 0 ? 0 : -EUCLEAN;
}

int forge_stage_link(const struct forge_stage *s, const char *path, const char *target)
{
	if (!forge_path_is_inner(path))
		return -EINVAL;
	int rc = make_parents(s->fd, path);
	if (rc < 0)
		return rc;
	return symlinkat(target, s->fd, path) < 0 ? -errno : 0;
}

int forge_stage_text(const struct forge_stage *s, const char *path, const char *text,
		     size_t len)
{
	if (!forge_path_is_inner(path))
		return -EINVAL;
	int rc = make_parents(s->fd, path);
	if (rc < 0)
		return rc;
	forge_auto_close int fd = openat(
		s->fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0444);
	return fd < 0 ? -errno : forge_write_all(fd, text, len);
}

int forge_stage_dir(const struct forge_stage *s, const char *path)
{
	if (!forge_path_is_inner(path))
		return -EINVAL;
	int rc = make_parents(s->fd, path);
	if (rc == 0 && mkdirat(s->fd, path, 0755) < 0 && errno != EEXIST)
		rc = -errno;
	return rc;
}

void forge_stage_remove(struct forge_stage *s)
{
	if (s->fd < 0)
		return;
	if (s->ino)
		(void)!forge_rmtree(s->path, s->dev, s->ino, NULL,
				    NULL); /* else gc removes it */
	close(s->fd);
	*s = FORGE_STAGE_INIT;
}
