/* SPDX-License-Identifier: Apache-2.0 */
/* File helpers shared by every layer. */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sys.h"

int forge_write_all(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(fd, p, len);
		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int forge_write_at(int dirfd, const char *path, const char *text)
{
	forge_auto_close int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	size_t len = strlen(text);
	ssize_t n = write(fd, text, len);
	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -EIO;
}

ssize_t forge_read_at(int dirfd, const char *path, char *buf, size_t size)
{
	forge_auto_close int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	size_t len = 0;
	while (len < size - 1) {
		ssize_t n = read(fd, buf + len, size - 1 - len);
		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (n == 0)
			break;
		len += (size_t)n;
	}
	buf[len] = '\0';
	return (ssize_t)len;
}

int forge_read_u64_at(int dirfd, const char *path, uint64_t *ret)
{
	char buf[64];
	ssize_t n = forge_read_at(dirfd, path, buf, sizeof(buf));
	if (n < 0)
		return (int)n;
	if (strncmp(buf, "max", 3) == 0) {
		*ret = UINT64_MAX;
		return 0;
	}
	char *end;
	errno = 0;
	unsigned long long v = strtoull(buf, &end, 10);
	if (end == buf || errno != 0)
		return -EINVAL;
	*ret = v;
	return 0;
}

uint64_t forge_key_u64(const char *text, const char *key, uint64_t fallback)
{
	size_t len = strlen(key);

	for (const char *p = text; p && *p; p = strchr(p, '\n')) {
		if (*p == '\n')
			p++;
		if (strncmp(p, key, len) == 0 && p[len] == ' ')
			return strtoull(p + len + 1, NULL, 10);
	}
	return fallback;
}

/* For kernels before 5.6: one O_NOFOLLOW open for each component. */
static int open_by_component(int top, const char *start, const char *path, int flags)
{
	forge_auto_close int dir = openat(top, start, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	char name[NAME_MAX + 1];
	const char *p = path + strspn(path, "/");
	if (!*p)
		return openat(dir, ".", flags | O_CLOEXEC);
	for (;;) {
		size_t len = strcspn(p, "/");
		if (len > NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(name, p, len);
		name[len] = '\0';
		if (strcmp(name, "..") == 0)
			return -EXDEV;
		p += len;
		p += strspn(p, "/");
		bool last = !*p;
		int fd = openat(dir, name,
				(last ? flags : O_PATH | O_DIRECTORY) | O_NOFOLLOW |
					O_CLOEXEC);
		if (fd < 0)
			return errno == ENOTDIR && !last ? -ELOOP : -errno;
		if (last) {
			struct stat st;
			/* O_PATH|O_NOFOLLOW opens the link itself instead of failing. */
			if ((flags & O_PATH) && fstat(fd, &st) == 0 &&
			    S_ISLNK(st.st_mode)) {
				close(fd);
				return -ELOOP;
			}
			return fd;
		}
		close(dir);
		dir = fd;
	}
}

int forge_open_nolink(const char *path, int flags)
{
	if (path[0] != '/')
		return -EINVAL;
	int fd = sys_openat2(AT_FDCWD, path, (uint64_t)(unsigned)(flags | O_CLOEXEC), 0,
			     RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
	if (fd >= 0)
		return fd;
	/* EPERM: a seccomp filter of an older container engine that does not know openat2. */
	if (errno != ENOSYS && errno != EPERM)
		return -errno;
	return open_by_component(AT_FDCWD, "/", path, flags);
}

static int open_in(int dirfd, const char *path, int flags, uint64_t resolve)
{
	int fd = sys_openat2(dirfd, path, (uint64_t)(unsigned)(flags | O_CLOEXEC), 0,
			     RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | resolve);
	if (fd >= 0)
		return fd;
	if (errno != ENOSYS && errno != EPERM)
		return -errno;
	return open_by_component(dirfd, ".", path, flags);
}

int forge_open_beneath(int dirfd, const char *path, int flags)
{
	return open_in(dirfd, path, flags, 0);
}

int forge_open_inside(int dirfd, const char *path, int flags)
{
	return open_in(dirfd, path, flags, RESOLVE_NO_SYMLINKS);
}

/* The size of a regular file that has no more than max bytes. */
static int regular_size(int fd, uint64_t max, uint64_t *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EMEDIUMTYPE;
	if ((uint64_t)st.st_size > max)
		return -EFBIG;
	*ret = (uint64_t)st.st_size;
	return 0;
}

/* Non-blocking, because opening a fifo could wait forever. */
int forge_open_regular(int dirfd, const char *path, uint64_t max, uint64_t *ret_size)
{
	forge_auto_close int fd =
		forge_open_beneath(dirfd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return fd;
	int rc = regular_size(fd, max, ret_size);
	return rc < 0 ? rc : forge_take_fd(fd);
}

bool forge_has_no_writer(int fd)
{
	/*
	 * If a process opens the file now, it waits, and we get a signal: SIGURG, which is
	 * ignored.
	 */
	if (fcntl(fd, F_SETSIG, SIGURG) < 0 || fcntl(fd, F_SETLEASE, F_RDLCK) < 0)
		return false;
	(void)fcntl(fd, F_SETLEASE, F_UNLCK); /* closing fd would release it too */
	return true;
}

const char *forge_regular_problem(int rc)
{
	switch (-rc) {
	case EMEDIUMTYPE:
		return "it is no regular file";
	case EFBIG:
		return "it is too large";
	case EXDEV:
	case ELOOP:
		return "a link leads out of the tree";
	default:
		return strerror(-rc);
	}
}

int forge_read_fd(int fd, uint64_t max, char **ret, size_t *ret_len)
{
	uint64_t size;
	size_t len = 0;
	int rc = regular_size(fd, max, &size);

	if (rc < 0)
		return rc;
	forge_auto_free char *text = malloc((size_t)size + 1);
	if (!text)
		return -ENOMEM;
	/* Reads no more than the size seen above, because the file may grow meanwhile. */
	while (len < (size_t)size) {
		ssize_t n = pread(fd, text + len, (size_t)size - len, (off_t)len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		len += (size_t)n;
	}
	text[len] = '\0';
	*ret_len = len;
	*ret = forge_take_ptr(text);
	return 0;
}

int forge_read_regular(int dirfd, const char *path, uint64_t max, char **ret,
		       size_t *ret_len)
{
	uint64_t size;
	forge_auto_close int fd = forge_open_regular(dirfd, path, max, &size);

	return fd < 0 ? fd : forge_read_fd(fd, max, ret, ret_len);
}

int forge_read_file(int dirfd, const char *name, uint64_t max, char **ret,
		    size_t *ret_len)
{
	forge_auto_close int fd = openat(
		dirfd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : forge_read_fd(fd, max, ret, ret_len);
}

bool forge_path_is_below(const char *path, const char *top)
{
	size_t len = strlen(top);

	return strncmp(path, top, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

bool forge_path_is_inner(const char *path)
{
	if (!*path)
		return false;
	for (size_t len; *path; path += len + (path[len] == '/')) {
		len = strcspn(path, "/");
		if (len == 0 || (len <= 2 && strncmp(path, "..", len) == 0))
			return false;
	}
	return true;
}

int forge_mkdirs(const char *path, mode_t mode)
{
	char buf[PATH_MAX];
	size_t len = strlen(path);

	if (len == 0 || len >= sizeof(buf))
		return -ENAMETOOLONG;
	memcpy(buf, path, len + 1);
	if (mkdir(buf, mode) == 0 || errno == EEXIST)
		return 0;
	if (errno != ENOENT)
		return -errno;
	for (char *p = buf + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (mkdir(buf, mode) < 0 && errno != EEXIST)
			return -errno;
		*p = '/';
	}
	return mkdir(buf, mode) < 0 && errno != EEXIST ? -errno : 0;
}

int forge_replace_file(int dirfd, const char *name, const void *data, size_t len,
		       bool durable)
{
	char tmp[NAME_MAX + 1];

	if (snprintf(tmp, sizeof(tmp), ".%s.%ld", name, (long)getpid()) >=
	    (int)sizeof(tmp))
		return -ENAMETOOLONG;
	forge_auto_close int fd = openat(
		dirfd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	int rc = forge_write_all(fd, data, len);
	if (rc == 0 && durable && fdatasync(fd) < 0)
		rc = -errno;
	if (rc == 0 && renameat(dirfd, tmp, dirfd, name) < 0)
		rc = -errno;
	if (rc < 0) {
		(void)unlinkat(dirfd, tmp, 0); /* already failing */
		return rc;
	}
	/* The directory entry too: without it a power loss leaves the old file, or none. */
	return durable && fsync(dirfd) < 0 ? -errno : 0;
}
