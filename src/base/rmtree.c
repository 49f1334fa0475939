/* SPDX-License-Identifier: Apache-2.0 */
/* Tree removal and chown, by descriptor; rmtree.h says what they withstand. */
#include "base/rmtree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/entries.h"
#include "base/fd.h"

/* Most descriptors held at once; deeper directories are moved up to the top. */
#define MAX_DEPTH 32

/*
 * A tree is everything on one mount. On btrfs it can have subvolumes, which any user may make.
 * Each looks like a device of its own, and only a subvolume can be moved from one to another.
 */
struct walk {
	int top;   /* the tree's root directory */
	int near;  /* the root of the current subvolume; without subvolumes, top */
	dev_t dev; /* of that subvolume */
	uint64_t mount;
	struct forge_rmtree_stats *stats;
};

/* From linux/btrfs.h, which has fields with names that banned.h forbids. */
#define SUBVOLUME_SET_FLAGS _IOW(0x94, 26, uint64_t)

/*
 * Makes a directory usable for us, through a descriptor of the inode itself. A name could have
 * become a link to somewhere else, if the author of the tree were still active after all.
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

/* Opens a subdirectory for reading and writing entries, whatever its mode is. */
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
		(void)fchmod(fd, 0700); /* or unlinkat reports it */
	return fd;
}

static int mount_of(int dir, const char *name, struct statx *ret)
{
	return statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT,
		     STATX_BASIC_STATS | STATX_MNT_ID, ret) < 0
		       ? -errno
		       : 0;
}

static dev_t device_of(const struct statx *st)
{
	return makedev(st->stx_dev_major, st->stx_dev_minor);
}

/* The author of the tree may have made a subvolume read-only; its owner can undo that. */
static void make_subvolume_writable(int fd)
{
	uint64_t flags = 0;

	(void)ioctl(fd, SUBVOLUME_SET_FLAGS, &flags); /* or unlinkat reports it */
}

/*
 * No other process can take the name meanwhile, so a file system without RENAME_NOREPLACE is as
 * safe.
 */
static int move_to_free_name(int parent, const char *name, int top, const char *to)
{
	struct stat st;

	if (renameat2(parent, name, top, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	if (fstatat(top, to, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	return renameat(parent, name, top, to) < 0 ? -errno : 0;
}

/*
 * Moves a directory that is too deep to a top, where the next pass finds it. The new name is
 * random, so that the author of the tree cannot have taken it: a directory cannot be moved to a
 * name that exists.
 */
static int hoist(int parent, const char *name, int top)
{
	/* Moving a directory rewrites its "..", so it must be writable. */
	int rc = make_usable(parent, name);

	if (rc < 0)
		return rc;
	rc = -EEXIST;
	for (int tries = 0; tries < 100 && rc == -EEXIST; tries++) {
		uint64_t chance[2] = { 0 };
		char to[64];
		if (getrandom(chance, sizeof(chance), 0) != sizeof(chance))
			return -EIO;
		(void)snprintf(to, sizeof(to), ".forge-%016" PRIx64 "%016" PRIx64,
			       chance[0], chance[1]);
		rc = move_to_free_name(parent, name, top, to);
	}
	return rc;
}

/* The directories above the one that dig() is in, to recognise them on the way up. */
struct path {
	struct {
		dev_t dev;
		ino_t ino;
	} * above;
	size_t n, cap;
};

static int path_push(struct path *p, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (p->n == p->cap) {
		size_t cap = p->cap ? 2 * p->cap : 64;
		void *grown = reallocarray(p->above, cap, sizeof(*p->above));
		if (!grown)
			return -ENOMEM;
		p->above = grown;
		p->cap = cap;
	}
	p->above[p->n].dev = st.st_dev;
	p->above[p->n++].ino = st.st_ino;
	return 0;
}

/*
 * Moves *cur up by one. The parent must be the directory we came from: a process that moved
 * *cur must not lead us away.
 */
static int path_pop(struct path *p, int *cur)
{
	forge_auto_close int up =
		openat(*cur, "..", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (up < 0 || fstat(up, &st) < 0)
		return -errno;
	p->n--;
	if (st.st_dev != p->above[p->n].dev || st.st_ino != p->above[p->n].ino)
		return -ESTALE;
	close(*cur);
	*cur = forge_take_fd(up);
	return 0;
}

/*
 * Removes as much of dir as possible; ret_sub is the first directory that is not empty, "" if
 * none.
 */
static int clear_level(struct walk *w, int dir, char ret_sub[NAME_MAX + 1])
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int rc = forge_entries_open(&d, dir, ".");

	ret_sub[0] = '\0';
	for (const char *name; rc == 0 && (name = forge_entries_next(&d));) {
		struct statx st;
		rc = mount_of(dir, name, &st);
		if (rc == 0 && (st.stx_mnt_id != w->mount || device_of(&st) != w->dev))
			rc = -EXDEV;
		if (rc < 0)
			break;
		bool is_dir = S_ISDIR(st.stx_mode);
		if (unlinkat(dir, name, is_dir ? AT_REMOVEDIR : 0) == 0) {
			w->stats->dirs += is_dir;
			w->stats->files += !is_dir;
			if (!is_dir && st.stx_nlink <= 1)
				w->stats->bytes += st.stx_blocks * 512;
		} else if (is_dir && (errno == ENOTEMPTY || errno == EEXIST)) {
			(void)snprintf(ret_sub, NAME_MAX + 1, "%s", name);
			return 0;
		} else {
			rc = -errno;
		}
	}
	return rc < 0 ? rc : d.error;
}

/*
 * Removes a directory that is too deep in its place, with one descriptor and sixteen bytes per
 * level: for when nothing can be moved (a full disk, an encrypted directory).
 */
static int dig(struct walk *w, int dir, const char *name)
{
	forge_auto_close int cur = open_dir(dir, name);
	struct path p = { NULL, 0, 0 };
	char sub[NAME_MAX + 1];
	int rc = cur < 0 ? cur : 0;

	while (rc == 0) {
		rc = clear_level(w, cur, sub);
		if (rc == 0 && !sub[0] && p.n == 0)
			break;
		if (rc == 0 && !sub[0]) {
			rc = path_pop(&p, &cur);
		} else if (rc == 0) {
			rc = path_push(&p, cur);
			int next = rc < 0 ? rc : open_dir(cur, sub);
			rc = next < 0 ? next : 0;
			if (next >= 0) {
				close(cur);
				cur = next;
			}
		}
	}
	free(p.above);
	if (rc == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0)
		rc = -errno;
	w->stats->dirs += rc == 0;
	return rc;
}

static int empty_dir(struct walk *w, int fd, unsigned depth);

/* Subvolumes are emptied only at the top, so the descriptors stay few however they are nested. */
static int empty_subvolume(struct walk *w, int fd, dev_t dev)
{
	struct walk outer = *w;

	w->near = fd;
	w->dev = dev;
	int rc = empty_dir(w, fd, 1);
	w->near = outer.near;
	w->dev = outer.dev;
	return rc;
}

static int remove_dir(struct walk *w, int dir, const char *name, unsigned depth,
		      const struct statx *st)
{
	bool is_subvolume = device_of(st) != w->dev;

	if (depth >= MAX_DEPTH && !is_subvolume)
		return hoist(dir, name, w->near) == 0 ? 0 : dig(w, dir, name);
	forge_auto_close int sub = open_dir(dir, name);
	if (sub < 0)
		return sub;
	if (is_subvolume) {
		make_subvolume_writable(sub);
		/*
		 * The placeholder of a subvolume in a snapshot is always empty and cannot be
		 * moved.
		 */
		if (unlinkat(dir, name, AT_REMOVEDIR) == 0) {
			w->stats->dirs++;
			return 0;
		}
		if (depth > 0)
			return hoist(dir, name, w->top);
	}
	int rc = is_subvolume ? empty_subvolume(w, sub, device_of(st))
			      : empty_dir(w, sub, depth + 1);
	if (rc < 0)
		return rc;
	if (unlinkat(dir, name, AT_REMOVEDIR) < 0)
		return -errno;
	w->stats->dirs++;
	return 0;
}

static int remove_entry(struct walk *w, int dir, const char *name, unsigned depth)
{
	struct statx st;
	int rc = mount_of(dir, name, &st);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	if (st.stx_mnt_id != w->mount)
		return -EXDEV; /* another mount is not ours to empty */
	if (S_ISDIR(st.stx_mode))
		return remove_dir(w, dir, name, depth, &st);
	if (unlinkat(dir, name, 0) < 0)
		return -errno;
	w->stats->files++;
	if (st.stx_nlink <= 1)
		w->stats->bytes += st.stx_blocks * 512;
	return 0;
}

/*
 * Recursion is bounded by MAX_DEPTH. An entry that cannot be removed does not stop the others:
 * on a full disk a directory can be moved once something else is gone.
 */
static int empty_dir(struct walk *w, int fd, unsigned depth)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int rc = forge_entries_open(&d, fd, ".");

	while (rc == 0) {
		bool has_moved = false;
		int first = 0;
		for (const char *name; (name = forge_entries_next(&d));) {
			int one = remove_entry(w, fd, name, depth);
			has_moved |= one == 0;
			first = first ? first : one;
		}
		if (d.error)
			return d.error;
		/* Removing while reading may skip entries, so read again until none is removed. */
		if (!has_moved)
			return first;
		forge_entries_rewind(&d);
	}
	return rc;
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
	struct statx st;
	int rc = mount_of(top, "", &st);
	struct walk w = { .top = top,
			  .near = top,
			  .dev = dev,
			  .mount = rc < 0 ? 0 : st.stx_mnt_id,
			  .stats = &stats };
	if (rc == 0)
		rc = empty_dir(&w, top, 0);
	if (rc < 0)
		return forge_fail_errno(err, -rc, "empty %s", path);
	if (rmdir(path) < 0)
		return forge_fail_errno(err, errno, "remove %s", path);
	stats.dirs++;
	if (ret)
		*ret = stats;
	return 0;
}

#define CHOWN_DEPTH 256

/* The user and the group that a tree is given to. */
struct owner {
	uid_t uid;
	gid_t gid;
	uint64_t mount;
	bool has_project;
	struct fsxattr outside; /* has_project: of the directory that the tree is in */
};

/*
 * Files of a run with a project quota have the number of the project in their inodes, and the next run has the
 * same number. They leave the project, so that they do not count for that run. Best effort: other
 * files than these cannot be asked, and take no space.
 */
static void leave_project(const struct owner *o, int fd, bool is_dir)
{
	struct fsxattr its;

	if (!o->has_project || ioctl(fd, FS_IOC_FSGETXATTR, &its) < 0)
		return;
	its.fsx_projid = o->outside.fsx_projid;
	if (is_dir)
		its.fsx_xflags = (its.fsx_xflags & ~(uint32_t)FS_XFLAG_PROJINHERIT) |
				 (o->outside.fsx_xflags & FS_XFLAG_PROJINHERIT);
	(void)ioctl(fd, FS_IOC_FSSETXATTR, &its);
}

static void leave_project_at(const struct owner *o, int dir, const char *name)
{
	if (!o->has_project)
		return;
	forge_auto_close int fd =
		openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0)
		leave_project(o, fd, false);
}

static bool is_in_project(int top, struct fsxattr *ret_outside)
{
	struct fsxattr its;
	forge_auto_close int outside =
		openat(top, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return outside >= 0 && ioctl(top, FS_IOC_FSGETXATTR, &its) == 0 &&
	       ioctl(outside, FS_IOC_FSGETXATTR, ret_outside) == 0 &&
	       its.fsx_projid != ret_outside->fsx_projid;
}

static int chown_dir(const struct owner *o, int fd, unsigned depth)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	(void)forge_entries_open(&d, fd, "."); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));) {
		struct statx st;
		int rc = mount_of(fd, name, &st);
		if (rc < 0)
			return rc;
		if (st.stx_mnt_id != o->mount)
			continue;
		/* The kernel clears setuid and setgid of files when the owner changes. */
		if (fchownat(fd, name, o->uid, o->gid, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		if (S_ISREG(st.stx_mode))
			leave_project_at(o, fd, name);
		/*
		 * Deeper entries keep their owner; they must not prevent the rest from becoming
		 * ours.
		 */
		if (!S_ISDIR(st.stx_mode) || depth >= CHOWN_DEPTH)
			continue;
		forge_auto_close int sub = open_dir(fd, name);
		rc = sub < 0 ? sub : chown_dir(o, sub, depth + 1);
		if (rc < 0)
			return rc;
	}
	leave_project(o, fd, true);
	return d.error;
}

int forge_chown_tree(const char *path, uid_t uid, gid_t gid, dev_t dev, ino_t ino,
		     struct forge_error *err)
{
	forge_auto_close int top = open_verified(path, dev, ino, err);

	if (top < 0)
		return top;
	struct statx st;
	int rc = mount_of(top, "", &st);
	struct owner o = { .uid = uid, .gid = gid, .mount = rc < 0 ? 0 : st.stx_mnt_id };
	o.has_project = is_in_project(top, &o.outside);
	if (rc == 0)
		rc = chown_dir(&o, top, 0);
	if (rc == 0 && fchown(top, uid, gid) < 0)
		rc = -errno;
	return rc < 0 ? forge_fail_errno(err, -rc, "give %s to its owner", path) : 0;
}
