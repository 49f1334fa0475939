/* SPDX-License-Identifier: Apache-2.0 */
/* Locks of keys: bytes of one file. */
#include "pipeline/keylock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

/* The byte whose number is the beginning of the key: there is no file to remove, however many keys there are. */
static off_t byte_of(const char *key)
{
	char digits[16] = "";

	(void)snprintf(digits, sizeof(digits), "%.15s", key + strlen("sha256:"));
	return (off_t)strtoull(digits, NULL, 16);
}

int forge_key_lock(const struct forge_home *home, const char *key, bool waits,
		   int *ret_fd, struct forge_error *err)
{
	struct flock lock = { .l_type = F_WRLCK,
			      .l_whence = SEEK_SET,
			      .l_start = byte_of(key),
			      .l_len = 1 };
	forge_auto_close int dir = forge_home_subdir(home, "pipelines", err);

	if (dir < 0)
		return dir;
	forge_auto_close int fd =
		openat(dir, "keys", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return forge_fail_errno(err, errno, "open %s/pipelines/keys", home->path);
	int rc = 0;
	if (fcntl(fd, F_OFD_SETLK, &lock) < 0) {
		if (errno != EAGAIN && errno != EACCES)
			return forge_fail_errno(err, errno, "lock a key");
		if (!waits)
			return 1;
		while (fcntl(fd, F_OFD_SETLKW, &lock) < 0)
			if (errno != EINTR)
				return forge_fail_errno(err, errno, "lock a key");
		rc = 1;
	}
	*ret_fd = forge_take_fd(fd);
	return rc;
}

void forge_key_unlock(int fd)
{
	struct flock all = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	if (fd >= 0)
		(void)fcntl(fd, F_OFD_SETLK, &all);
}
