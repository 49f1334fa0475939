/* SPDX-License-Identifier: Apache-2.0 */
/* flock(2) with a time limit, and with a descriptor that ends the wait. */
#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

/* A lock cannot be polled: a wait with a limit retries, soon at first. */
#define MOST_RETRY_MSEC 20

int forge_lock_fd(int fd, enum forge_lock_kind kind, int wait_msec, int stop_fd)
{
	int how = kind == FORGE_LOCK_SHARED ? LOCK_SH : LOCK_EX;
	bool blocks = wait_msec == FORGE_LOCK_WAIT_FOREVER && stop_fd < 0;
	uint64_t end = wait_msec < 0 ? UINT64_MAX
				     : forge_now_usec() + (uint64_t)wait_msec * 1000;
	int retry_msec = 1;

	while (flock(fd, blocks ? how : how | LOCK_NB) < 0) {
		struct pollfd stop = { .fd = stop_fd, .events = POLLIN };
		if (errno == EINTR && blocks)
			continue;
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (forge_now_usec() >= end)
			return -EWOULDBLOCK;
		if (poll(&stop, 1, retry_msec) > 0)
			return -ECANCELED;
		retry_msec = retry_msec < MOST_RETRY_MSEC / 2 ? 2 * retry_msec
							      : MOST_RETRY_MSEC;
	}
	return 0;
}

int forge_lock_file(int dirfd, const char *name, enum forge_lock_kind kind, int wait_msec,
		    int stop_fd)
{
	forge_auto_close int fd =
		openat(dirfd, name, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -errno;
	int rc = forge_lock_fd(fd, kind, wait_msec, stop_fd);
	return rc < 0 ? rc : forge_take_fd(fd);
}
