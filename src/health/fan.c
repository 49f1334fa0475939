/* SPDX-License-Identifier: Apache-2.0 */
/* fanotify: marks on file systems, and events with names. */
#include "health/fan.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/strv.h"

/* Newer than the headers we may be built with. */
#ifndef FAN_REPORT_PIDFD
#define FAN_REPORT_PIDFD 0x00000080
#endif
#ifndef FAN_REPORT_TARGET_FID
#define FAN_REPORT_TARGET_FID 0x00001000
#endif
#ifndef FAN_RENAME
#define FAN_RENAME 0x10000000
#endif
#define INFO_FID	   1
#define INFO_DFID_NAME	   2
#define INFO_DFID	   3
#define INFO_PIDFD	   4
#define INFO_OLD_DFID_NAME 10
#define INFO_NEW_DFID_NAME 12

#define EVENTS                                                                           \
	(FAN_MODIFY | FAN_CLOSE_WRITE | FAN_ATTRIB | FAN_CREATE | FAN_DELETE |           \
	 FAN_RENAME | FAN_ONDIR)

#define BUFFER_SIZE (256u << 10)
#define CACHE_SIZE  4096 /* paths of directories; a power of two */
#define HANDLE_MAX  128

struct mark {
	__kernel_fsid_t fsid;
	int fd; /* a directory of that file system, for open_by_handle_at() */
};

/* The path of a directory that an event named. */
struct cached {
	unsigned char key[HANDLE_MAX + sizeof(__kernel_fsid_t)];
	size_t len; /* 0: empty */
	char *path; /* NULL: it was gone */
};

struct forge_fan {
	int fd;
	struct mark *marks;
	size_t n;
	struct cached cache[CACHE_SIZE];
	char *buffer;
};

int forge_fan_open(struct forge_fan **ret, struct forge_error *err)
{
	int fd = fanotify_init(FAN_CLASS_NOTIF | FAN_NONBLOCK | FAN_CLOEXEC |
				       FAN_REPORT_FID | FAN_REPORT_DFID_NAME |
				       FAN_REPORT_TARGET_FID | FAN_REPORT_PIDFD,
			       O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return forge_fail_errno(err, errno,
					errno == EPERM
						? "only root can watch files"
						: "this kernel cannot watch files");
	struct forge_fan *f = calloc(1, sizeof(*f));
	if (f)
		*f = (struct forge_fan){ .fd = fd, .buffer = malloc(BUFFER_SIZE) };
	if (!f || !f->buffer) {
		free(f);
		close(fd);
		return forge_fail(err, ENOMEM, "out of memory");
	}
	*ret = f;
	return 0;
}

static void forget_paths(struct forge_fan *f)
{
	for (size_t i = 0; i < CACHE_SIZE; i++) {
		free(f->cache[i].path);
		f->cache[i].path = NULL;
		f->cache[i].len = 0;
	}
}

void forge_fan_close(struct forge_fan *f)
{
	if (!f)
		return;
	forget_paths(f);
	for (size_t i = 0; i < f->n; i++)
		close(f->marks[i].fd);
	free(f->marks);
	free(f->buffer);
	close(f->fd);
	free(f);
}

int forge_fan_fd(const struct forge_fan *f)
{
	return f->fd;
}

/* ---- marks ---- */

/* Others write there too, and this kernel does not hear of it. */
static const char *is_remote(unsigned long type)
{
	static const struct {
		unsigned long type;
		const char *name;
	} known[] = { { 0x6969, "NFS" },	{ 0xff534d42, "CIFS" },
		      { 0xfe534d42, "SMB" },	{ 0x517b, "SMB" },
		      { 0x65735546, "FUSE" },	{ 0x00c36400, "Ceph" },
		      { 0x0bd00bd0, "Lustre" }, { 0x01021997, "9p" },
		      { 0x5346414f, "AFS" },	{ 0x47504653, "GPFS" },
		      { 0x19830326, "BeeGFS" } };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(known); i++)
		if ((type & 0xffffffff) == known[i].type)
			return known[i].name;
	return NULL;
}

static const struct mark *find_mark(const struct forge_fan *f, const __kernel_fsid_t *id)
{
	for (size_t i = 0; i < f->n; i++)
		if (memcmp(&f->marks[i].fsid, id, sizeof(*id)) == 0)
			return &f->marks[i];
	return NULL;
}

/* The descriptor of the nearest directory that exists. */
static int open_nearest(const char *path)
{
	forge_auto_free char *at = strdup(path);
	int fd = -ENOMEM;

	while (at) {
		fd = open(at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0 || (errno != ENOENT && errno != ENOTDIR))
			break;
		char *slash = strrchr(at, '/');
		if (!slash)
			break;
		slash[slash == at] = '\0';
	}
	return fd < 0 && at ? -errno : fd;
}

static int add_mark(struct forge_fan *f, const __kernel_fsid_t *fsid, int fd)
{
	struct mark *grown = reallocarray(f->marks, f->n + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	f->marks = grown;
	grown[f->n++] = (struct mark){ .fsid = *fsid, .fd = fd };
	return 0;
}

static int mark_one(struct forge_fan *f, const char *path, struct forge_error *err)
{
	forge_auto_close int fd = open_nearest(path);
	struct statfs fs;
	__kernel_fsid_t id;

	if (fd < 0 || fstatfs(fd, &fs) < 0)
		return forge_fail_errno(err, fd < 0 ? -fd : errno, "%s", path);
	const char *remote = is_remote((unsigned long)fs.f_type);
	if (remote)
		return forge_fail(err, EOPNOTSUPP,
				  "%s is on %s, where others can change files unseen",
				  path, remote);
	memcpy(&id, &fs.f_fsid, sizeof(id));
	if (find_mark(f, &id))
		return 0;
	if (fanotify_mark(f->fd, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, EVENTS, fd, NULL) <
	    0)
		return forge_fail_errno(err, errno == ENOMEM ? ENOMEM : EOPNOTSUPP,
					"%s cannot be watched (%s)", path,
					strerror(errno));
	int rc = add_mark(f, &id, fd);
	if (rc == 0)
		fd = -1;
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}

/* A mount point in mountinfo(5) has its blanks written as \040. */
static void decode(char *text)
{
	char *to = text;

	for (const char *p = text; *p; p++) {
		unsigned c;
		if (*p == '\\' && sscanf(p, "\\%3o", &c) == 1) {
			*to++ = (char)c;
			p += 3;
		} else {
			*to++ = *p;
		}
	}
	*to = '\0';
}

int forge_fan_watch(struct forge_fan *f, const char *path, struct forge_error *err)
{
	forge_auto_file FILE *mounts = fopen("/proc/self/mountinfo", "re");
	forge_auto_free char *line = NULL;
	size_t cap = 0;
	int rc = mark_one(f, path, err);

	if (rc == 0 && !mounts)
		rc = forge_fail_errno(err, errno, "/proc/self/mountinfo");
	while (rc == 0 && getline(&line, &cap, mounts) > 0) {
		char point[PATH_MAX];
		if (sscanf(line, "%*s %*s %*s %*s %4095s", point) != 1)
			continue;
		decode(point);
		if (strcmp(point, path) != 0 && forge_path_is_below(point, path))
			rc = mark_one(f, point, err);
	}
	return rc;
}

/* ---- events ---- */

struct info_header {
	uint8_t type, pad;
	uint16_t len;
};

/* A directory, or a file, as an event names it. */
struct fid {
	const __kernel_fsid_t *fsid;
	const struct file_handle *handle;
	const char *name; /* in the directory; NULL: none */
};

static void read_fid(const struct info_header *h, struct fid *ret)
{
	const char *p = (const char *)(h + 1);

	ret->fsid = (const void *)p;
	ret->handle = (const void *)(p + sizeof(__kernel_fsid_t));
	ret->name = (const char *)ret->handle->f_handle + ret->handle->handle_bytes;
	if (h->type == INFO_FID || h->type == INFO_DFID)
		ret->name = NULL;
}

static int open_fid(const struct forge_fan *f, const struct fid *fid, int flags)
{
	const struct mark *m = find_mark(f, fid->fsid);
	int fd = m ? open_by_handle_at(m->fd, (struct file_handle *)fid->handle,
				       flags | O_CLOEXEC)
		   : -1;

	return fd >= 0 ? fd : m ? -errno : -ESTALE;
}

static char *path_of(const struct forge_fan *f, const struct fid *fid)
{
	char link[32], path[PATH_MAX];
	forge_auto_close int fd = open_fid(f, fid, O_PATH);

	if (fd < 0)
		return NULL;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return NULL;
	path[n] = '\0';
	return strdup(path);
}

/* The path of the directory, from the cache if it is there. NULL: it is gone. */
static const char *dir_path(struct forge_fan *f, const struct fid *fid)
{
	unsigned char key[sizeof(f->cache[0].key)];
	size_t len = fid->handle->handle_bytes + sizeof(*fid->fsid);
	uint64_t hash = 14695981039346656037u;

	if (len > sizeof(key))
		return NULL;
	memcpy(key, fid->fsid, sizeof(*fid->fsid));
	memcpy(key + sizeof(*fid->fsid), fid->handle->f_handle,
	       fid->handle->handle_bytes);
	for (size_t i = 0; i < len; i++)
		hash = (hash ^ key[i]) * 1099511628211u;
	struct cached *c = &f->cache[(hash ^ hash >> 32) & (CACHE_SIZE - 1)];
	if (c->len == len && memcmp(c->key, key, len) == 0)
		return c->path;
	free(c->path);
	c->path = path_of(f, fid);
	memcpy(c->key, key, len);
	c->len = len;
	return c->path;
}

static bool make_path(struct forge_fan *f, const struct fid *fid, char buf[PATH_MAX])
{
	const char *dir = fid->handle ? dir_path(f, fid) : NULL;

	if (!dir)
		return false;
	if (!fid->name || strcmp(fid->name, ".") == 0)
		return snprintf(buf, PATH_MAX, "%s", dir) < PATH_MAX;
	return snprintf(buf, PATH_MAX, "%s/%s", strcmp(dir, "/") == 0 ? "" : dir,
			fid->name) < PATH_MAX;
}

static unsigned what_of(uint64_t mask)
{
	static const struct {
		uint64_t bit;
		unsigned what;
	} bits[] = { { FAN_CREATE, FORGE_FAN_CREATE },
		     { FAN_DELETE, FORGE_FAN_DELETE },
		     { FAN_RENAME, FORGE_FAN_RENAME },
		     { FAN_MODIFY, FORGE_FAN_MODIFY },
		     { FAN_ATTRIB, FORGE_FAN_ATTRIB },
		     { FAN_CLOSE_WRITE, FORGE_FAN_CLOSE_WRITE },
		     { FAN_ONDIR, FORGE_FAN_DIR } };
	unsigned what = 0;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(bits); i++)
		if (mask & bits[i].bit)
			what |= bits[i].what;
	return what;
}

int forge_fan_target(const struct forge_fan_event *e)
{
	const struct fid *target = e->target;

	return target->handle ? open_fid(e->fan, target, O_PATH) : -ESTALE;
}

static void read_event(struct forge_fan *f, const struct fanotify_event_metadata *m,
		       void (*visit)(const struct forge_fan_event *e, void *arg),
		       void *arg)
{
	struct fid dir = { NULL, NULL, NULL }, new_dir = dir, target = dir;
	struct forge_fan_event e = { .what = what_of(m->mask),
				     .pid = m->pid,
				     .pidfd = -1,
				     .fan = f,
				     .target = &target };
	const char *p = (const char *)m + m->metadata_len;
	const char *end = (const char *)m + m->event_len;
	char path[PATH_MAX], new_path[PATH_MAX];

	for (const struct info_header *h; p + sizeof(*h) <= end; p += h->len) {
		h = (const void *)p;
		if (h->len < sizeof(*h))
			break;
		if (h->type == INFO_PIDFD)
			memcpy(&e.pidfd, h + 1, sizeof(e.pidfd));
		else if (h->type == INFO_FID)
			read_fid(h, &target);
		else if (h->type == INFO_NEW_DFID_NAME)
			read_fid(h, &new_dir);
		else
			read_fid(h, &dir);
	}
	/* An event about a directory itself may have no name. */
	if (!dir.handle && e.what & FORGE_FAN_DIR)
		dir = target;
	if (make_path(f, &dir, path))
		e.path = path;
	if (make_path(f, &new_dir, new_path))
		e.new_path = new_path;
	visit(&e, arg);
	if (e.pidfd >= 0)
		close(e.pidfd);
	/* What was cached of paths below it is no longer true. */
	if (e.what & FORGE_FAN_DIR && e.what & (FORGE_FAN_RENAME | FORGE_FAN_DELETE))
		forget_paths(f);
}

int forge_fan_read(struct forge_fan *f,
		   void (*visit)(const struct forge_fan_event *e, void *arg), void *arg)
{
	bool has_lost = false;

	for (;;) {
		ssize_t n = read(f->fd, f->buffer, BUFFER_SIZE);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return has_lost			  ? -EOVERFLOW
			       : n < 0 && errno != EAGAIN ? -errno
							  : 0;
		const struct fanotify_event_metadata *m = (const void *)f->buffer;
		for (; FAN_EVENT_OK(m, n); m = FAN_EVENT_NEXT(m, n)) {
			if (m->vers != FANOTIFY_METADATA_VERSION)
				return -EPROTO;
			if (m->mask & FAN_Q_OVERFLOW)
				has_lost = true;
			else
				read_event(f, m, visit, arg);
		}
	}
}
