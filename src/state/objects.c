/* SPDX-License-Identifier: Apache-2.0 */
/* The object directory. */
#include "state/objects.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/lock.h"
#include "state/damage.h"

int forge_objects_open(const struct forge_home *home, int stop_fd,
		       struct forge_objects *ret, struct forge_error *err)
{
	struct forge_objects o = FORGE_OBJECTS_INIT;
	struct stat st;

	o.fd = forge_home_subdir(home, "objects", err);
	if (o.fd < 0)
		return o.fd;
	o.home_fd = fcntl(home->fd, F_DUPFD_CLOEXEC, 0);
	int rc = o.home_fd < 0 || fstat(o.fd, &st) < 0 ? -errno : 0;
	/* gc holds the lock while it sweeps: stop_fd ends the wait for a gc that takes long or is stopped. */
	if (rc == 0)
		rc = o.lock_fd =
			forge_lock_file(home->fd, "objects.lock", FORGE_LOCK_SHARED,
					FORGE_LOCK_WAIT_FOREVER, stop_fd);
	if (rc < 0) {
		forge_objects_close(&o);
		return forge_fail_errno(err, -rc, "open %s/objects", home->path);
	}
	o.dev = st.st_dev;
	o.shared = home->shared;
	forge_home_share(home, o.fd);
	o.stop_fd = stop_fd;
	*ret = o;
	return 0;
}

void forge_objects_close(struct forge_objects *o)
{
	if (o->fd >= 0)
		close(o->fd);
	if (o->lock_fd >= 0)
		close(o->lock_fd);
	if (o->home_fd >= 0)
		close(o->home_fd);
	*o = FORGE_OBJECTS_INIT;
}

bool forge_objects_is_digest(const char *digest)
{
	return digest && strncmp(digest, "sha256:", 7) == 0 && strlen(digest + 7) == 64 &&
	       strspn(digest + 7, "0123456789abcdef") == 64;
}

const char *forge_objects_path(char buf[FORGE_STORED_MAX], const char *digest)
{
	const char *hex = strchr(digest, ':') + 1;

	(void)snprintf(buf, FORGE_STORED_MAX, "objects/%.2s/%s", hex, hex + 2);
	return buf;
}

static void touch(struct forge_objects *o, const char *name)
{
	unsigned n = 0;

	(void)sscanf(name, "%2x", &n); /* two hex digits, by construction */
	__atomic_or_fetch(&o->touched[n / 8], (uint8_t)(1u << n % 8), __ATOMIC_RELAXED);
}

/* The process that made it may have died before the file was on disk, or may be about to sync it. */
static int sync_object(const struct forge_objects *o, const char *name)
{
	forge_auto_close int fd = openat(o->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static void share(const struct forge_objects *o, const char *name)
{
	const struct forge_home home = { .shared = o->shared };
	forge_auto_close int fd =
		o->shared ? openat(o->fd, name,
				   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
			  : -1;

	if (fd >= 0)
		forge_home_share(&home, fd);
}

/*
 * Puts the inode of self in the place of the object at name, in one step: another process, which
 * may be checking the object, never finds no file there.
 */
static int replace(const struct forge_objects *o, const char *self, const char *name)
{
	char tmp[NAME_MAX];

	(void)snprintf(tmp, sizeof(tmp), "%.3s.%s-%ld.%ld", name, name + 3,
		       (long)gettid(), (long)getpid()); /* gc removes a leftover */
	(void)unlinkat(o->fd, tmp, 0);
	if (linkat(AT_FDCWD, self, o->fd, tmp, AT_SYMLINK_FOLLOW) < 0)
		return -errno;
	int rc = renameat(o->fd, tmp, o->fd, name) < 0 ? -errno : 0;
	/* On failure, and where both are names of the same inode, it is still there. */
	(void)unlinkat(o->fd, tmp, 0);
	return rc;
}

/* Gives the inode of fd its name. 1: it is there already, with the same content. */
static int give_name(struct forge_objects *o, const char *self,
		     const struct forge_object *obj)
{
	char path[FORGE_STORED_MAX];
	const char *name = forge_objects_path(path, obj->digest) + strlen("objects/");
	char dir[3] = { name[0], name[1], '\0' };
	struct stat st;

	touch(o, dir);
	for (int tries = 0; tries < 2; tries++) {
		if (linkat(AT_FDCWD, self, o->fd, name, AT_SYMLINK_FOLLOW) == 0)
			return 0;
		if (errno != ENOENT)
			break;
		if (mkdirat(o->fd, dir, 0700) < 0 && errno != EEXIST)
			return -errno;
		share(o, dir);
	}
	if (errno != EEXIST)
		return -errno;
	if (fstatat(o->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	/* Torn by a power cut, damaged, or not one that we made: put the good one in its place. */
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != obj->size ||
	    st.st_uid != geteuid() || (st.st_mode & 0222))
		return replace(o, self, name);
	return 1;
}

/*
 * Stores the content of a damaged object again. The mark is removed when the good content is on
 * disk. Under the lock, so that forge verify does not mark the new file for what the old one had.
 */
static int repair(struct forge_objects *o, const char *self,
		  const struct forge_object *obj)
{
	char path[FORGE_STORED_MAX];
	const char *name = forge_objects_path(path, obj->digest) + strlen("objects/");
	char dir[3] = { name[0], name[1], '\0' };
	forge_auto_close int marks = forge_damage_lock(o->home_fd, false);
	int is_marked =
		marks < 0 ? marks : forge_damage_is_marked(o->home_fd, obj->digest);

	if (is_marked == -ENOENT || is_marked == 0) /* it was repaired just now */
		return give_name(o, self, obj);
	if (is_marked < 0)
		return is_marked;
	int named = give_name(o, self, obj);
	int rc = named == 1 ? replace(o, self, name) : named;
	if (rc == 0)
		rc = sync_object(o, name);
	if (rc == 0)
		rc = sync_object(o, dir);
	if (rc == 0)
		rc = forge_damage_unmark(marks, obj->digest);
	return rc < 0 ? rc : 0;
}

/*
 * Waits for the disk when the name is there, not before: what has no name is not written to Btrfs's log
 * by fsync(), and owner and mode of what gets another one may be taken from before.
 */
static int publish(struct forge_objects *o, int fd, bool sync,
		   const struct forge_object *obj)
{
	char path[FORGE_STORED_MAX], self[32];
	const char *name = forge_objects_path(path, obj->digest) + strlen("objects/");

	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	/* Where that cannot be known, storing it again does no harm. */
	int named = forge_damage_is_marked(o->home_fd, obj->digest) == 0
			    ? give_name(o, self, obj)
			    : repair(o, self, obj);

	if (named < 0 || !sync)
		return named < 0 ? named : 0;
	int rc = sync_object(o, name);
	/* The kernel reports a write error once: the next fsync() would succeed. */
	if (rc < 0 && named == 0)
		(void)unlinkat(o->fd, name, 0);
	return rc;
}

/*
 * A run's project quota counts its files by a number in the inode, and the next run has the same
 * number: the object must not be counted for it. -EXDEV: it would be, so copy it.
 */
static int leave_project(const struct forge_objects *o, int fd)
{
	struct fsxattr ours, its;

	if (ioctl(fd, FS_IOC_FSGETXATTR, &its) < 0 || its.fsx_projid == 0)
		return 0; /* nothing is counted */
	if (ioctl(o->fd, FS_IOC_FSGETXATTR, &ours) < 0)
		return -EXDEV;
	if (its.fsx_projid == ours.fsx_projid)
		return 0;
	its.fsx_projid = ours.fsx_projid;
	return ioctl(fd, FS_IOC_FSSETXATTR, &its) < 0 ? -EXDEV : 0;
}

/*
 * Its owner becomes us, so that no later run with the same uid could write it. A process that has it open for
 * writing already, having been handed a descriptor by the run, could do so for ever: -EXDEV, copy it.
 */
static int put_itself(struct forge_objects *o, int fd, bool sync,
		      struct forge_object *ret)
{
	int rc =
		fchown(fd, geteuid(), getegid()) < 0 || fchmod(fd, 0444) < 0 ? -errno : 0;

	if (rc == 0 && !forge_has_no_writer(fd))
		rc = -EXDEV;
	if (rc == 0)
		rc = leave_project(o, fd);
	if (rc == 0)
		rc = forge_sha256_until(fd, -1, o->stop_fd, ret->digest, &ret->size);
	return rc < 0 ? rc : publish(o, fd, sync, ret);
}

/* A nameless file: a crash leaves nothing. */
static int put_copy(struct forge_objects *o, int fd, bool sync, struct forge_object *ret)
{
	forge_auto_close int copy =
		openat(o->fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0444);

	if (copy < 0)
		return -errno;
	/* The digest is of what we have: the original may be changing. */
	bool is_cloned = ioctl(copy, FICLONE, fd) == 0;
	int rc = forge_sha256_until(is_cloned ? copy : fd, is_cloned ? -1 : copy,
				    o->stop_fd, ret->digest, &ret->size);
	return rc < 0 ? rc : publish(o, copy, sync, ret);
}

int forge_objects_put(struct forge_objects *o, int fd, bool may_link, bool sync,
		      struct forge_object *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (may_link && st.st_dev == o->dev) {
		int rc = put_itself(o, fd, sync, ret);
		/* Too many links, another quota project, an immutable file: copy it. */
		if (rc != -EMLINK && rc != -EXDEV && rc != -EPERM)
			return rc;
	}
	return put_copy(o, fd, sync, ret);
}

int forge_objects_sync(struct forge_objects *o, bool all)
{
	bool has_any = false;

	if (all && syncfs(o->fd) < 0)
		return -errno;
	for (unsigned n = 0; n < 256 && !all; n++) {
		char name[3];
		if (!(o->touched[n / 8] & (1u << n % 8)))
			continue;
		has_any = true;
		(void)snprintf(name, sizeof(name), "%02x", n);
		forge_auto_close int dir = openat(
			o->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (dir < 0 || fsync(dir) < 0)
			return -errno;
	}
	return has_any && fsync(o->fd) < 0 ? -errno : 0;
}

int forge_objects_open_unchecked(const struct forge_home *home, const char *digest,
				 struct stat *ret)
{
	char stored[FORGE_STORED_MAX];

	if (!forge_objects_is_digest(digest))
		return -EINVAL;
	forge_auto_close int fd =
		openat(home->fd, forge_objects_path(stored, digest),
		       O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, ret) < 0)
		return -errno;
	return S_ISREG(ret->st_mode) ? forge_take_fd(fd) : -EUCLEAN;
}

int forge_objects_get(const struct forge_home *home, const char *digest)
{
	char is[FORGE_DIGEST_MAX];
	struct stat st;
	uint64_t size;

	forge_auto_close int fd = forge_objects_open_unchecked(home, digest, &st);
	if (fd < 0)
		return fd;
	int rc = forge_sha256_fd(fd, -1, is, &size);
	if (rc < 0)
		return rc;
	return strcmp(is, digest) == 0 ? forge_take_fd(fd) : -EUCLEAN;
}
