/* SPDX-License-Identifier: Apache-2.0 */
/* Tree removal and chown, by descriptor; see rmtree.h for what they withstand. */
#include "base/rmtree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

#define MAX_DEPTH                                                                        \
	32 /* descriptors held at once; what is deeper is pulled up to the top */

struct walk {
	int top; /* the tree's root directory */
	dev_t dev;
	unsigned long hoisted;
	struct forge_rmtree_stats *stats;
};

/*
 * Makes a directory usable for us, by a descriptor of the inode itself: a name could be a link
 * to somewhere else by now, if somebody were still here after all.
 */
static int make_fd_usable(int path_fd)
{
	char path[40];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", path_fd);
	return chmod(path, 0700) < 0 ? -errno : 0;
}

static int make_usable(int parent, const char *name)
{
	forge_auto_close int fd =
		openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : make_fd_usable(fd);
}

/* Opens a subdirectory for reading and writing entries, whatever mode its maker gave it. */
static int open_dir(int parent, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(parent, name, flags);
	struct stat st;

	if (fd < 0 && errno == EACCES) {
		int rc = make_usable(parent, name);
		if (rc < 0)
			return rc;
		fd = openat(parent, name, flags);
	}
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
		(void)fchmod(fd, 0700); /* not ours: then unlinkat will say so */
	return fd;
}

/* Moves a too deep directory to the top, where the next pass finds it. */
static int hoist(struct walk *w, int parent, const char *name)
{
	char to[64];

	(void)snprintf(to, sizeof(to), ".forge-removing-%lu", w->hoisted++);
	/* Moving a directory rewrites its "..": it must be writable. */
	int rc = make_usable(parent, name);
	if (rc < 0)
		return rc;
	if (renameat(parent, name, w->top, to) < 0)
		return -errno;
	return 0;
}

static int empty_dir(struct walk *w, int fd, unsigned depth);

static int remove_entry(struct walk *w, int dir, const char *name, unsigned depth)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (st.st_dev != w->dev)
		return -EXDEV; /* a mount: not ours to empty */
	if (!S_ISDIR(st.st_mode)) {
		if (unlinkat(dir, name, 0) < 0)
			return -errno;
		w->stats->files++;
		if (st.st_nlink <= 1)
			w->stats->bytes += (uint64_t)st.st_blocks * 512;
		return 0;
	}
	if (depth >= MAX_DEPTH)
		return hoist(w, dir, name);
	forge_auto_close int sub = open_dir(dir, name);
	if (sub < 0)
		return sub;
	int rc = empty_dir(w, sub, depth + 1);
	if (rc < 0)
		return rc;
	if (unlinkat(dir, name, AT_REMOVEDIR) < 0)
		return -errno;
	w->stats->dirs++;
	return 0;
}

/* Recursion is bounded by MAX_DEPTH. */
static int empty_dir(struct walk *w, int fd, unsigned depth)
{
	int dup_fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	forge_auto_dir DIR *d = dup_fd < 0 ? NULL : fdopendir(dup_fd);

	if (!d)
		return -errno;
	for (;;) {
		bool found = false;
		struct dirent *e;
		while ((e = readdir(d))) {
			if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
				continue;
			int rc = remove_entry(w, fd, e->d_name, depth);
			if (rc < 0)
				return rc;
			found = true;
		}
		/* Removing while reading may skip entries: read until there are none. */
		if (!found)
			return 0;
		rewinddir(d);
	}
}

static int open_verified(const char *path, dev_t dev, ino_t ino, struct forge_error *err)
{
	int fd = forge_open_nolink(path, O_PATH | O_DIRECTORY);
	struct stat st;

	if (fd == -ENOENT)
		return fd;
	if (fd < 0)
		return forge_fail_errno(err, -fd, "open %s", path);
	if (fstat(fd, &st) < 0 || st.st_dev != dev || st.st_ino != ino) {
		close(fd);
		return forge_fail(err, ESTALE, "%s is not the directory that was made",
				  path);
	}
	int top = -EACCES;
	if ((st.st_mode & 0700) == 0700 || make_fd_usable(fd) == 0)
		top = open_dir(fd, ".");
	close(fd);
	return top < 0 ? forge_fail_errno(err, -top, "open %s", path) : top;
}

int forge_rmtree(const char *path, dev_t dev, ino_t ino, struct forge_rmtree_stats *ret,
		 struct forge_error *err)
{
	struct forge_rmtree_stats stats = { 0 };
	forge_auto_close int top = open_verified(path, dev, ino, err);

	if (top < 0)
		return top == -ENOENT ? 0 : top;
	struct walk w = { .top = top, .dev = dev, .stats = &stats };
	int rc = empty_dir(&w, top, 0);
	if (rc < 0)
		return forge_fail_errno(err, -rc, "empty %s", path);
	if (rmdir(path) < 0)
		return forge_fail_errno(err, errno, "remove %s", path);
	stats.dirs++;
	if (ret)
		*ret = stats;
	return 0;
}

static int chown_dir(int fd, uid_t uid, gid_t gid, dev_t dev, unsigned depth)
{
	int dup_fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	forge_auto_dir DIR *d = dup_fd < 0 ? NULL : fdopendir(dup_fd);
	struct dirent *e;

	if (!d)
		return -errno;
	while ((e = readdir(d))) {
		struct stat st;
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    st.st_dev != dev)
			continue;
		/* The kernel drops setuid and setgid of files with a change of owner. */
		if (fchownat(fd, e->d_name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		if (!S_ISDIR(st.st_mode))
			continue;
		if (depth >= 256)
			return -ELOOP;
		forge_auto_close int sub = open_dir(fd, e->d_name);
		int rc = sub < 0 ? sub : chown_dir(sub, uid, gid, dev, depth + 1);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int forge_chown_tree(const char *path, uid_t uid, gid_t gid, dev_t dev, ino_t ino,
		     struct forge_error *err)
{
	forge_auto_close int top = open_verified(path, dev, ino, err);

	if (top < 0)
		return top;
	int rc = chown_dir(top, uid, gid, dev, 0);
	if (rc == 0 && fchown(top, uid, gid) < 0)
		rc = -errno;
	return rc < 0 ? forge_fail_errno(err, -rc, "give %s to its owner", path) : 0;
}
