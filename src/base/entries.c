/* SPDX-License-Identifier: Apache-2.0 */
/* readdir() that keeps its errors; see entries.h. */
#include "base/entries.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int forge_entries_take(struct forge_entries *d, int fd)
{
	*d = FORGE_ENTRIES_INIT;
	d->dir = fd < 0 ? NULL : fdopendir(fd);
	if (d->dir)
		return 0;
	d->error = fd < 0 ? -EBADF : -errno;
	if (fd >= 0)
		close(fd);
	return d->error;
}

int forge_entries_follow(struct forge_entries *d, const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		return forge_entries_take(d, fd);
	*d = FORGE_ENTRIES_INIT;
	d->error = -errno;
	return d->error;
}

int forge_entries_open(struct forge_entries *d, int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (fd >= 0)
		return forge_entries_take(d, fd);
	*d = FORGE_ENTRIES_INIT;
	d->error = -errno;
	return d->error;
}

const char *forge_entries_next(struct forge_entries *d)
{
	while (d->dir && !d->error) {
		errno = 0;
		const struct dirent *e = readdir(d->dir);
		if (!e) {
			d->error = -errno;
			return NULL;
		}
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			return e->d_name;
	}
	return NULL;
}

void forge_entries_rewind(struct forge_entries *d)
{
	if (d->dir)
		rewinddir(d->dir);
}

int forge_entries_fd(const struct forge_entries *d)
{
	return d->dir ? dirfd(d->dir) : -1;
}

void forge_entries_done(struct forge_entries *d)
{
	if (d->dir)
		closedir(d->dir);
	d->dir = NULL;
}
