/* SPDX-License-Identifier: Apache-2.0 */
/* Shares and tickets as locked files. */
#include "state/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/entries.h"
#include "base/lock.h"

int forge_queue_lock(const struct forge_home *home, struct forge_error *err)
{
	int fd = forge_lock_file(home->fd, "queue.lock", FORGE_LOCK_EXCLUSIVE,
				 FORGE_LOCK_WAIT_FOREVER, -1);

	return fd < 0 ? forge_fail_errno(err, -fd, "lock %s/queue.lock", home->path) : fd;
}

/* How long such a look may take on a busy host. */
#define LOOKED_AT_MSEC 10000

bool forge_queue_is_locked(int dir, const char *name)
{
	forge_auto_close int fd =
		openat(dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? errno != ENOENT : flock(fd, LOCK_EX | LOCK_NB) < 0;
}

bool forge_queue_is_alive(int dir, const char *name)
{
	if (forge_queue_is_locked(dir, name))
		return true;
	(void)unlinkat(dir, name, 0); /* on failure the next pass tries again */
	return false;
}

/* Where the files of a slot are while they are not in use, seen from queue/. */
#define SPARE "../spare"

static const char *spare_name(unsigned slot, enum forge_queue_file kind,
			      char buf[NAME_MAX + 1])
{
	(void)snprintf(buf, NAME_MAX + 1, SPARE "/%u.%s", slot,
		       kind == FORGE_QUEUE_TICKET ? "ticket" : "share");
	return buf;
}

/*
 * Whether another run still reads the ticket of the last run in this slot: with a new writer, it would not notice the
 * end of the old one.
 */
static bool is_read(int dir, const char *spare)
{
	forge_auto_close int fd =
		openat(dir, spare, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);

	return fd >= 0;
}

/* The file of the last run in this slot, or a new one. */
static int open_spare(int dir, const char *spare, enum forge_queue_file kind)
{
	const int flags = O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW;

	if (kind == FORGE_QUEUE_TICKET && is_read(dir, spare))
		(void)unlinkat(dir, spare, 0); /* its reader keeps it */
	int fd = openat(dir, spare, flags);
	if (fd >= 0 || errno != ENOENT)
		return fd < 0 ? -errno : fd;
	(void)mkdirat(dir, SPARE, 0700); /* else the next call says why */
	if (kind == FORGE_QUEUE_TICKET && mkfifoat(dir, spare, 0600) < 0)
		return -errno;
	fd = openat(dir, spare, kind == FORGE_QUEUE_TICKET ? flags : flags | O_CREAT,
		    0600);
	return fd < 0 ? -errno : fd;
}

void forge_queue_put_back(int dir, const char *name, unsigned slot,
			  enum forge_queue_file kind)
{
	char spare[NAME_MAX + 1];

	spare_name(slot, kind, spare);
	if (renameat(dir, name, dir, spare) == 0)
		return;
	if (errno == ENOENT && mkdirat(dir, SPARE, 0700) == 0 &&
	    renameat(dir, name, dir, spare) == 0)
		return;
	(void)unlinkat(dir, name, 0); /* on failure, the released lock says the same */
}

/*
 * A ticket is a fifo that its owner has open for writing: a process that reads it is woken when the owner
 * leaves or dies. (inotify would do too, but a user has only 128 instances.)
 *
 * Files are used again, because ext4 checks every inode that was freed in the last five seconds before it
 * makes a new one, and hundreds of runs free hundreds of inodes.
 */
int forge_queue_make(int dir, const char *name, unsigned slot, enum forge_queue_file kind,
		     struct forge_error *err)
{
	char spare[NAME_MAX + 1];
	int fd = open_spare(dir, spare_name(slot, kind, spare), kind);
	int rc = fd < 0 ? fd : 0;

	/* A process that looked at the queue may have opened it when it was there, and lock it now, for a moment. */
	if (rc == 0)
		rc = forge_lock_fd(fd, FORGE_LOCK_EXCLUSIVE, LOOKED_AT_MSEC, -1);
	if (rc == 0 && renameat(dir, spare, dir, name) < 0)
		rc = -errno;
	if (rc < 0) {
		if (fd >= 0)
			close(fd);
		return forge_fail_errno(err, -rc, "make queue/%s", name);
	}
	return fd;
}

int forge_queue_sweep(const struct forge_home *home,
		      bool (*remove)(void *arg, const char *name), void *arg,
		      struct forge_error *err)
{
	forge_auto_close int lock = forge_queue_lock(home, err);
	int fd = lock < 0 ? lock : forge_home_subdir(home, "queue", err);
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	if (fd < 0)
		return fd;
	(void)forge_entries_take(&d, fd); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));)
		if (name[0] != '.' &&
		    !forge_queue_is_locked(forge_entries_fd(&d), name) &&
		    remove(arg, name))
			(void)unlinkat(forge_entries_fd(&d), name,
				       0); /* on failure it is found again */
	return d.error ? forge_fail_errno(err, -d.error, "read the queue") : 0;
}
