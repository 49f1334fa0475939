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
#include "base/clock.h"
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
#define MARK_IGNORE_SURV   (0x00000400 | FAN_MARK_IGNORED_SURV_MODIFY)
#define MARK_EVICTABLE	   0x00000200
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
#define MOUNTS_MAX  8 /* of one file system; two paths of each are in an event */
#define QUIET_MAX   4096
#define LATE_MAX    8192
#define LATE_USEC   2000000ull
#define LATE_PIDFDS 256

/*
 * A mount of a file system that is watched. It has no descriptor: with one, nobody could unmount it. When it is
 * needed, and the mount is still there, the directory is opened by its path.
 */
struct mount {
	__kernel_fsid_t fsid;
	uint64_t id;
	char *path; /* of its root; NULL: it was unmounted */
	int fd;	    /* that directory, while events are read; else -1 */
};

/* The identity of a file: file system and handle. */
struct key {
	unsigned char bytes[HANDLE_MAX + sizeof(__kernel_fsid_t)];
	size_t len; /* 0: none */
};

/* The paths of a directory that an event named, one for each mount that shows it. */
struct cached {
	struct key key;
	struct forge_strv paths; /* none: no mount shows it */
};

/*
 * An event in a directory that is gone, or went elsewhere, before the event was read. The event that says so
 * comes later, and has the path.
 */
struct late {
	struct key dir;	   /* in which it happened */
	struct key target; /* to which */
	unsigned what;
	pid_t pid;
	int pidfd;
	char *name;
	uint64_t since;
};

struct forge_fan {
	int fd;
	struct mount *mounts;
	size_t n;
	struct cached *cache; /* CACHE_SIZE of them */
	struct late *late;
	size_t n_late, cap_late, n_pidfds;
	unsigned n_quiet; /* directories whose names are not reported, at most */
	bool has_lost;
	char *buffer;
};

static bool is_same(const struct key *a, const struct key *b)
{
	return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

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
		*f = (struct forge_fan){ .fd = fd,
					 .buffer = malloc(BUFFER_SIZE),
					 .cache = calloc(CACHE_SIZE, sizeof(*f->cache)) };
	if (!f || !f->buffer || !f->cache) {
		if (!f)
			close(fd);
		forge_fan_close(f);
		return forge_fail(err, ENOMEM, "out of memory");
	}
	*ret = f;
	return 0;
}

static void forget_paths(struct forge_fan *f)
{
	for (size_t i = 0; i < CACHE_SIZE && f->cache; i++) {
		forge_strv_done(&f->cache[i].paths);
		f->cache[i].key.len = 0;
	}
}

static void forget_late(struct forge_fan *f, size_t i)
{
	struct late *l = &f->late[i];

	if (l->pidfd >= 0) {
		close(l->pidfd);
		f->n_pidfds--;
	}
	free(l->name);
	f->n_late--;
	memmove(l, l + 1, (f->n_late - i) * sizeof(*l));
}

void forge_fan_close(struct forge_fan *f)
{
	if (!f)
		return;
	forget_paths(f);
	while (f->n_late > 0)
		forget_late(f, f->n_late - 1);
	for (size_t i = 0; i < f->n; i++)
		free(f->mounts[i].path);
	free(f->mounts);
	free(f->late);
	free(f->cache);
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

static struct mount *find_mount(const struct forge_fan *f, const __kernel_fsid_t *fsid)
{
	for (size_t i = 0; i < f->n; i++)
		if (memcmp(&f->mounts[i].fsid, fsid, sizeof(*fsid)) == 0)
			return &f->mounts[i];
	return NULL;
}

/* The descriptor of the nearest directory that exists. */
static int open_nearest(const char *top)
{
	char path[PATH_MAX];
	int fd;

	(void)snprintf(path, sizeof(path), "%s", top);
	while ((fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 &&
	       (errno == ENOENT || errno == ENOTDIR)) {
		char *slash = strrchr(path, '/');
		if (!slash || strcmp(path, "/") == 0)
			break;
		slash[slash == path] = '\0';
	}
	return fd < 0 ? -errno : fd;
}

static int mount_id(int fd, uint64_t *ret)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0)
		return -errno;
	*ret = st.stx_mnt_id;
	return 0;
}

static void close_mounts(struct forge_fan *f)
{
	for (size_t i = 0; i < f->n; i++) {
		if (f->mounts[i].fd >= 0)
			close(f->mounts[i].fd);
		f->mounts[i].fd = -1;
	}
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

/* Where it is mounted now; NULL: nowhere in our namespace. */
static char *find_mount_point(uint64_t id)
{
	forge_auto_file FILE *mounts = fopen("/proc/self/mountinfo", "re");
	forge_auto_free char *line = NULL;
	size_t cap = 0;

	while (mounts && getline(&line, &cap, mounts) > 0) {
		char point[PATH_MAX];
		unsigned long long one;
		if (sscanf(line, "%llu %*s %*s %*s %4095s", &one, point) == 2 &&
		    one == id) {
			decode(point);
			return strdup(point);
		}
	}
	return NULL;
}

static int open_root(const struct mount *m)
{
	forge_auto_close int dir =
		m->path ? open(m->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	uint64_t id = 0;

	if (dir < 0 || mount_id(dir, &id) < 0 || id != m->id)
		return -ENODEV;
	return forge_take_fd(dir);
}

/* The root of the mount, until close_mounts(); -ENODEV: it was unmounted. */
static int open_mount(struct mount *m)
{
	if (m->fd < 0 && m->path)
		m->fd = open_root(m);
	/* A directory above it may have another name by now. */
	if (m->fd < 0 && m->path) {
		free(m->path);
		m->path = find_mount_point(m->id);
		m->fd = open_root(m);
	}
	return m->fd < 0 ? -ENODEV : m->fd;
}

static void forget_unmounted(struct forge_fan *f)
{
	size_t to = 0;

	for (size_t i = 0; i < f->n; i++) {
		if (open_mount(&f->mounts[i]) >= 0)
			f->mounts[to++] = f->mounts[i];
		else
			free(f->mounts[i].path);
	}
	f->n = to;
	close_mounts(f);
}

/* Paths are looked for in the mount of this directory, too. 0 or -errno. */
static int add_mount(struct forge_fan *f, const __kernel_fsid_t *fsid, int fd)
{
	uint64_t id = 0;
	size_t n = 0;
	int rc = mount_id(fd, &id);

	for (size_t i = 0; i < f->n && rc == 0; i++) {
		bool is_there = memcmp(&f->mounts[i].fsid, fsid, sizeof(*fsid)) == 0;
		if (is_there && f->mounts[i].id == id)
			return 0;
		n += is_there;
	}
	if (rc < 0 || n == MOUNTS_MAX)
		return rc < 0 ? rc : -EOPNOTSUPP;
	struct mount *grown = reallocarray(f->mounts, f->n + 1, sizeof(*grown));
	if (grown)
		f->mounts = grown;
	struct mount m = {
		.fsid = *fsid, .id = id, .path = find_mount_point(id), .fd = -1
	};
	if (!grown || !m.path) {
		free(m.path);
		return grown ? -ENODEV : -ENOMEM;
	}
	grown[f->n++] = m;
	forget_paths(f); /* there may be more of them now */
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
	/* Also where it seems to be marked: it may have been unmounted meanwhile. */
	if (fanotify_mark(f->fd, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, EVENTS, fd, NULL) <
	    0)
		return forge_fail_errno(err, errno == ENOMEM ? ENOMEM : EOPNOTSUPP,
					"%s cannot be watched (%s)", path,
					strerror(errno));
	int rc = add_mount(f, &id, fd);
	return rc < 0 ? forge_fail_errno(err, -rc, "watch %s", path) : 0;
}

void forge_fan_ignore_writes(struct forge_fan *f, int dir)
{
	/* Older kernels have another word for it; if both are unknown, more is reported. */
	if (fanotify_mark(f->fd, FAN_MARK_ADD | FAN_MARK_MOUNT | MARK_IGNORE_SURV,
			  FAN_MODIFY | FAN_CLOSE_WRITE, dir, NULL) < 0)
		(void)fanotify_mark(f->fd,
				    FAN_MARK_ADD | FAN_MARK_MOUNT |
					    FAN_MARK_IGNORED_MASK |
					    FAN_MARK_IGNORED_SURV_MODIFY,
				    FAN_MODIFY | FAN_CLOSE_WRITE, dir, NULL);
}

int forge_fan_watch(struct forge_fan *f, const char *path, struct forge_error *err)
{
	forge_auto_file FILE *mounts = fopen("/proc/self/mountinfo", "re");
	forge_auto_free char *line = NULL;
	size_t cap = 0;
	forget_unmounted(f);
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

static void make_key(const struct fid *fid, struct key *ret)
{
	size_t n = fid->handle ? fid->handle->handle_bytes : 0;

	ret->len = 0;
	if (!fid->handle || n > HANDLE_MAX)
		return;
	memcpy(ret->bytes, fid->fsid, sizeof(*fid->fsid));
	memcpy(ret->bytes + sizeof(*fid->fsid), fid->handle->f_handle, n);
	ret->len = sizeof(*fid->fsid) + n;
}

static int open_in(struct mount *m, const struct fid *fid)
{
	int dir = open_mount(m);

	if (dir < 0)
		return dir;
	int fd = open_by_handle_at(dir, (struct file_handle *)fid->handle,
				   O_PATH | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/*
 * The path of the directory in this mount. Of one that is deleted or that the mount does not show, the kernel
 * has a path, too; but what is found by that path is something else. 1: the directory is gone.
 */
static int add_path(struct mount *m, const struct fid *fid, struct forge_strv *ret)
{
	char link[32], path[PATH_MAX];
	forge_auto_close int fd = open_in(m, fid);
	struct stat a, b;

	if (fd == -ENODEV)
		return 0;
	if (fd < 0 || fstat(fd, &a) < 0 || a.st_nlink == 0)
		return 1;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return -errno;
	path[n] = '\0';
	if (lstat(path, &b) < 0 || a.st_ino != b.st_ino || a.st_dev != b.st_dev)
		return 0;
	forge_strv_foreach (other, ret)
		if (strcmp(other, path) == 0)
			return 0;
	return forge_strv_add(ret, path);
}

/* The paths of the directory, from the cache if they are there. NULL: it is gone. */
static const struct forge_strv *find_paths(struct forge_fan *f, const struct fid *fid,
					   const struct key *key)
{
	uint64_t hash = 14695981039346656037u;

	for (size_t i = 0; i < key->len; i++)
		hash = (hash ^ key->bytes[i]) * 1099511628211u;
	struct cached *c = &f->cache[(hash ^ hash >> 32) & (CACHE_SIZE - 1)];
	if (is_same(&c->key, key))
		return &c->paths;
	forge_strv_done(&c->paths);
	c->key.len = 0;
	for (size_t i = 0; i < f->n; i++) {
		if (memcmp(&f->mounts[i].fsid, fid->fsid, sizeof(*fid->fsid)) != 0)
			continue;
		int rc = add_path(&f->mounts[i], fid, &c->paths);
		if (rc == 1)
			return NULL;
		f->has_lost |= rc < 0;
	}
	c->key = *key;
	return &c->paths;
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
	struct mount *m =
		target && target->handle ? find_mount(e->fan, target->fsid) : NULL;

	return m ? open_in(m, target) : -ESTALE;
}

void forge_fan_ignore_names(const struct forge_fan_event *e)
{
	const struct fid *dir = e->dir;
	struct mount *m = dir && dir->handle ? find_mount(e->fan, dir->fsid) : NULL;
	forge_auto_close int fd = m ? open_in(m, dir) : -1;

	/* Linux 6.0 can. */
	if (fd < 0 ||
	    fanotify_mark(e->fan->fd, FAN_MARK_ADD | MARK_IGNORE_SURV | MARK_EVICTABLE,
			  FAN_CREATE | FAN_DELETE, fd, ".") < 0)
		return;
	if (++e->fan->n_quiet == QUIET_MAX)
		forge_fan_report_names(e->fan); /* many of them may be gone by now */
}

void forge_fan_report_names(struct forge_fan *f)
{
	/* All marks of directories; those of file systems and mounts stay. */
	if (f->n_quiet > 0)
		(void)fanotify_mark(f->fd, FAN_MARK_FLUSH, 0, AT_FDCWD, NULL);
	f->n_quiet = 0;
}

/* ---- events that come before their paths are known ---- */

struct visitor {
	void (*visit)(const struct forge_fan_event *e, void *arg);
	void *arg;
};

static void keep_for_later(struct forge_fan *f, const struct forge_fan_event *e,
			   const struct key *dir, const struct key *target,
			   const char *name)
{
	if (f->n_late == f->cap_late && f->cap_late < LATE_MAX) {
		size_t more = f->cap_late ? f->cap_late * 2 : 64;
		struct late *grown = reallocarray(f->late, more, sizeof(*grown));
		if (grown) {
			f->late = grown;
			f->cap_late = more;
		}
	}
	struct late l = { .dir = *dir,
			  .target = *target,
			  .what = e->what,
			  .pid = e->pid,
			  .pidfd = -1,
			  .name = strdup(name),
			  .since = forge_now_usec() };
	if (f->n_late == f->cap_late || !l.name) {
		free(l.name);
		f->has_lost = true;
		return;
	}
	if (e->pidfd >= 0 && f->n_pidfds < LATE_PIDFDS)
		l.pidfd = fcntl(e->pidfd, F_DUPFD_CLOEXEC, 3);
	f->n_pidfds += l.pidfd >= 0;
	f->late[f->n_late++] = l;
}

/* The late event with this index has these paths. */
static void visit_late(struct forge_fan *f, size_t i, char *const *paths, size_t n,
		       const struct visitor *v)
{
	const struct late *l = &f->late[i];
	struct forge_fan_event e = {
		.what = l->what, .pid = l->pid, .pidfd = l->pidfd, .fan = f, .n = n
	};

	memcpy(e.paths, paths, n * sizeof(*paths));
	v->visit(&e, v->arg);
}

/* This directory was at these paths until it was deleted or renamed: what was late in it is late no longer. */
static void visit_below(struct forge_fan *f, const struct key *dir,
			const struct forge_strv *paths, const struct visitor *v)
{
	for (size_t i = 0; i < f->n_late && dir->len > 0;) {
		struct late *l = &f->late[i];
		forge_auto_strv struct forge_strv full = { 0 };
		if (!is_same(&l->dir, dir)) {
			i++;
			continue;
		}
		forge_strv_foreach (path, paths)
			if (full.n < FORGE_FAN_PATHS &&
			    forge_strv_addf(&full, "%s/%s", path, l->name) < 0)
				f->has_lost = true;
		visit_late(f, i, full.v, full.n, v);
		struct key below = l->target;
		bool is_dir = l->what & FORGE_FAN_DIR &&
			      l->what & (FORGE_FAN_DELETE | FORGE_FAN_RENAME);
		forget_late(f, i);
		if (is_dir) {
			visit_below(f, &below, &full, v);
			i = 0;
		}
	}
}

static void forget_old(struct forge_fan *f)
{
	uint64_t now = forge_now_usec();

	while (f->n_late > 0 && f->late[0].since + LATE_USEC < now)
		forget_late(f, 0);
}

/* ---- one event ---- */

/* What an event says, beside what it is. */
struct infos {
	struct fid dir, new_dir, target;
};

/* The event, which has this beginning, in the buffer. */
static void read_infos(const struct fanotify_event_metadata *m, const char *raw,
		       struct infos *ret, int *ret_pidfd)
{
	const char *p = raw + m->metadata_len;
	const char *end = raw + m->event_len;

	for (const struct info_header *h; p + sizeof(*h) <= end; p += h->len) {
		h = (const void *)p;
		if (h->len < sizeof(*h))
			break;
		if (h->type == INFO_PIDFD)
			memcpy(ret_pidfd, h + 1, sizeof(*ret_pidfd));
		else if (h->type == INFO_FID)
			read_fid(h, &ret->target);
		else if (h->type == INFO_NEW_DFID_NAME)
			read_fid(h, &ret->new_dir);
		else
			read_fid(h, &ret->dir);
	}
}

/* The paths of what an event names; none, and the event comes later. */
static void add_paths(struct forge_fan *f, const struct fid *fid,
		      const struct key *target, const struct forge_fan_event *e,
		      struct forge_strv *ret)
{
	struct key key;

	make_key(fid, &key);
	if (key.len == 0)
		return;
	const struct forge_strv *dirs = find_paths(f, fid, &key);
	bool is_itself = !fid->name || strcmp(fid->name, ".") == 0;
	if (!dirs && !is_itself)
		keep_for_later(f, e, &key, target, fid->name);
	if (!dirs)
		return;
	forge_strv_foreach (dir, dirs)
		if (forge_strv_addf(ret, "%s%s%s", strcmp(dir, "/") == 0 ? "" : dir,
				    is_itself ? "" : "/", is_itself ? "" : fid->name) < 0)
			f->has_lost = true;
}

static void read_event(struct forge_fan *f, const struct fanotify_event_metadata *m,
		       const char *raw, const struct visitor *v)
{
	const struct fid none = { NULL, NULL, NULL };
	struct infos is = { none, none, none };
	struct forge_fan_event e = {
		.what = what_of(m->mask), .pid = m->pid, .pidfd = -1, .fan = f
	};
	forge_auto_strv struct forge_strv old = { 0 }, new = { 0 };
	struct key target;
	bool moves_dir =
		e.what & FORGE_FAN_DIR && e.what & (FORGE_FAN_RENAME | FORGE_FAN_DELETE);

	/* It, or one above it, may be quiet, and now be where files are guarded. Its paths may come late. */
	if (e.what & FORGE_FAN_DIR && e.what & FORGE_FAN_RENAME)
		forge_fan_report_names(f);
	read_infos(m, raw, &is, &e.pidfd);
	make_key(&is.target, &target);
	/* An event about a directory itself may have no name. */
	if (!is.dir.handle && e.what & FORGE_FAN_DIR)
		is.dir = is.target;
	add_paths(f, &is.dir, &target, &e, &old);
	add_paths(f, &is.new_dir, &target, &e, &new);
	forge_strv_foreach (path, &old)
		if (e.n < FORGE_FAN_PATHS)
			e.paths[e.n++] = path;
	forge_strv_foreach (path, &new)
		if (e.n < FORGE_FAN_PATHS)
			e.paths[e.n++] = path;
	e.target = &is.target;
	e.dir = &is.dir;
	if (e.n > 0 || (!is.dir.handle && !is.new_dir.handle))
		v->visit(&e, v->arg);
	if (moves_dir && old.n > 0)
		visit_below(f, &target, &old, v);
	if (e.pidfd >= 0)
		close(e.pidfd);
	/* What was cached of paths below it is no longer true. */
	if (moves_dir)
		forget_paths(f);
}

int forge_fan_read(struct forge_fan *f,
		   void (*visit)(const struct forge_fan_event *e, void *arg), void *arg)
{
	const struct visitor v = { visit, arg };

	for (;;) {
		ssize_t n = read(f->fd, f->buffer, BUFFER_SIZE);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			int error = n < 0 && errno != EAGAIN ? -errno : 0;
			forget_old(f);
			close_mounts(f);
			bool has_lost = f->has_lost;
			f->has_lost = false;
			return has_lost ? -EOVERFLOW : error;
		}
		/* Events follow each other at multiples of four; their beginning would need eight. */
		struct fanotify_event_metadata m;
		for (const char *p = f->buffer; n >= (ssize_t)sizeof(m);
		     p += m.event_len, n -= m.event_len) {
			memcpy(&m, p, sizeof(m));
			if (m.vers != FANOTIFY_METADATA_VERSION ||
			    m.event_len < sizeof(m) || m.event_len > n)
				return -EPROTO;
			if (m.mask & FAN_Q_OVERFLOW) {
				f->has_lost = true;
				forge_fan_report_names(f); /* one may have been renamed */
			} else {
				read_event(f, &m, p, &v);
			}
		}
	}
}
