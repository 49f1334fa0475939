/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a workdir while its owner may be changing it. Every name is looked at without
 * following links; a directory that moves away meanwhile only makes one scan less exact.
 * Files that were deleted but are still open are found through the processes' descriptors.
 */
#include "sandbox/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

struct level {
	int fd;
	long len, pos; /* of what getdents64 gave */
	char buf[4096];
};

/* What getdents64 writes; the name follows. */
struct kernel_dirent {
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

#define MAX_DELETED 512

struct forge_disk {
	int root;
	struct forge_disk_tasks tasks;
	const struct forge_quota *quota;
	uint64_t max_bytes, max_inodes;
	struct level *levels[FORGE_DISK_MAX_DEPTH];
	unsigned depth;		/* levels in use; 0: no scan is under way */
	uint64_t bytes, inodes; /* of the scan under way */
	uint64_t busy_usec;	/* what this scan has cost so far */
	uint64_t last_cost_usec;
	bool has_hidden;	/* the scan met something it could not look into */
	uint64_t looked_at;	/* loss of the file system at the last frozen scan */
	uint64_t free_at_start; /* of the file system, UINT64_MAX when it cannot tell */
	struct forge_disk_usage usage;
};

static uint64_t free_bytes(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) < 0 ? UINT64_MAX
				    : (uint64_t)fs.f_bfree * (uint64_t)fs.f_bsize;
}

int forge_disk_new(int dir_fd, const struct forge_quota *quota,
		   struct forge_disk_tasks tasks, uint64_t max_bytes, uint64_t max_inodes,
		   struct forge_disk **ret)
{
	struct forge_disk *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->root = dir_fd;
	d->quota = quota;
	d->tasks = tasks;
	d->max_bytes = max_bytes;
	d->max_inodes = max_inodes;
	d->free_at_start = free_bytes(dir_fd);
	*ret = d;
	return 0;
}

static void pop(struct forge_disk *d)
{
	close(d->levels[--d->depth]->fd);
}

void forge_disk_free(struct forge_disk *d)
{
	if (!d)
		return;
	while (d->depth > 0)
		pop(d);
	for (unsigned i = 0; i < FORGE_DISK_MAX_DEPTH; i++)
		free(d->levels[i]);
	free(d);
}

/* A directory that is gone is skipped. One of mode 0 may hide something: see charge_hidden(). */
static void push(struct forge_disk *d, int parent, const char *name)
{
	if (d->depth == FORGE_DISK_MAX_DEPTH) {
		d->usage.is_too_deep = true;
		return;
	}
	if (!d->levels[d->depth])
		d->levels[d->depth] = malloc(sizeof(struct level));
	if (!d->levels[d->depth])
		return;
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		d->has_hidden = d->has_hidden || errno == EACCES;
		return;
	}
	struct level *l = d->levels[d->depth++];
	l->fd = fd;
	l->len = l->pos = 0;
}

static void count(struct forge_disk *d, const struct stat *st)
{
	/* All names of an inode are in this tree, so each carries its share of it. */
	uint64_t links = S_ISDIR(st->st_mode) || st->st_nlink < 2 ? 1 : st->st_nlink;

	d->bytes += (uint64_t)st->st_blocks * 512 / links;
	d->inodes++;
}

static void visit(struct forge_disk *d, struct level *l, const char *name)
{
	struct stat st;

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
	    fstatat(l->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	count(d, &st);
	if (S_ISDIR(st.st_mode))
		push(d, l->fd, name);
}

/* Adds each deleted file that one thread holds open on our file system, once. */
static void count_deleted_of(struct forge_disk *d, long tid, dev_t dev, ino_t *seen,
			     size_t *n_seen)
{
	char path[64];
	struct statx st;

	(void)snprintf(path, sizeof(path), "/proc/%ld/fd", tid);
	forge_auto_dir DIR *dir = opendir(path);
	if (!dir)
		return; /* it has ended */
	for (struct dirent *e; (e = readdir(dir));) {
		/* Never ask a server: an input on a dead network file system must not hang us. */
		if (e->d_name[0] == '.' ||
		    statx(dirfd(dir), e->d_name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT,
			  STATX_BASIC_STATS, &st) < 0 ||
		    st.stx_nlink != 0 || !S_ISREG(st.stx_mode) ||
		    makedev(st.stx_dev_major, st.stx_dev_minor) != dev)
			continue;
		size_t i = 0;
		while (i < *n_seen && seen[i] != st.stx_ino)
			i++;
		if (i < *n_seen)
			continue;
		if (*n_seen == MAX_DELETED) {
			d->has_hidden = true; /* more than we remember */
			return;
		}
		seen[(*n_seen)++] = st.stx_ino;
		d->bytes += st.stx_blocks * 512;
		d->inodes++;
	}
}

/*
 * Looks at threads, not processes: a process whose first thread has ended shows no
 * descriptors, and a thread can have some of its own.
 */
static void count_deleted(struct forge_disk *d, uint64_t budget_usec)
{
	char buf[32768];
	ino_t seen[MAX_DELETED];
	size_t n_seen = 0;
	struct stat st;
	uint64_t until = forge_now_usec() + budget_usec;
	ssize_t n = fstat(d->root, &st) < 0
			    ? -1
			    : forge_disk_read_tasks(d->tasks, buf, sizeof(buf));

	for (char *p = buf; n > 0 && *p; p += strspn(p, "\n")) {
		long tid = strtol(p, &p, 10);
		if (tid > 0)
			count_deleted_of(d, tid, st.st_dev, seen, &n_seen);
		if (forge_now_usec() > until) {
			d->has_hidden =
				true; /* too many to look at: see charge_hidden() */
			return;
		}
	}
	d->has_hidden = d->has_hidden || n == (ssize_t)sizeof(buf) - 1;
}

static void start_scan(struct forge_disk *d)
{
	d->bytes = d->inodes = 0;
	d->has_hidden = false;
	push(d, d->root, ".");
}

static bool is_over(const struct forge_disk *d)
{
	return d->bytes > d->max_bytes || d->inodes > d->max_inodes ||
	       d->usage.is_too_deep;
}

/* Handles one entry, or fills the buffer, or leaves the directory. */
static void advance(struct forge_disk *d)
{
	struct level *l = d->levels[d->depth - 1];

	if (l->pos >= l->len) {
		l->len = syscall(SYS_getdents64, l->fd, l->buf, sizeof(l->buf));
		l->pos = 0;
		if (l->len <= 0)
			pop(d);
		return;
	}
	const struct kernel_dirent *e = (const void *)(l->buf + l->pos);
	l->pos += e->reclen;
	visit(d, l, e->name);
}

/* Once more, while nobody in the run can move: what evaded the first scan is found now. */
static void scan_frozen(struct forge_disk *d)
{
	uint64_t until = forge_now_usec() + 2000000;

	if (forge_disk_freeze(d->tasks, true) == 0) {
		start_scan(d);
		while (d->depth > 0 && !is_over(d) && forge_now_usec() < until)
			advance(d);
		while (d->depth > 0)
			pop(d);
		count_deleted(d, 2000000);
	}
	(void)!forge_disk_freeze(d->tasks,
				 false); /* cannot fail where the first did not */
}

/*
 * Deleted files can also be held by a mapping alone, or by a socket they were sent into; an
 * ordinary user cannot look into directories of mode 0; and a directory can be moved to where
 * the scan has already been. But when the file system lost more than the run may use, all that
 * is looked into: a run that hides things is charged with the loss, and one that may only have
 * been quick, or has too much to look at in passing, is stopped for another, thorough look: others
 * write to the file system too. Anybody else pays one statfs for this.
 */
static void charge_hidden(struct forge_disk *d)
{
	uint64_t now = free_bytes(d->root);
	uint64_t lost = now < d->free_at_start ? d->free_at_start - now : 0;
	struct stat st;

	if (lost <= d->max_bytes || lost <= d->bytes || fstat(d->root, &st) < 0)
		return;
	if (forge_disk_has_hidden(d->tasks, st.st_dev)) {
		d->bytes = lost;
	} else if (lost > d->looked_at + d->max_bytes / 8) {
		/* Others may be writing: look again only when it became worse. */
		d->looked_at = lost;
		scan_frozen(d);
		if (d->has_hidden)
			d->bytes = lost; /* it could not be looked through even so */
	}
}

static void note_peak(struct forge_disk *d)
{
	if (d->bytes > d->usage.peak_bytes)
		d->usage.peak_bytes = d->bytes;
	if (d->inodes > d->usage.peak_inodes)
		d->usage.peak_inodes = d->inodes;
}

static enum forge_disk_state finish(struct forge_disk *d)
{
	note_peak(d);
	d->usage.bytes = d->bytes;
	d->usage.inodes = d->inodes;
	return is_over(d) ? FORGE_DISK_OVER : FORGE_DISK_DONE;
}

/* One slice; true when the scan is complete. */
static bool scan_some(struct forge_disk *d, uint64_t budget_usec)
{
	uint64_t start = forge_now_usec();

	for (unsigned n = 1; d->depth > 0; n++) {
		advance(d);
		if (is_over(d)) {
			while (d->depth > 0)
				pop(d);
			return true;
		}
		if (n % 64 == 0 && forge_now_usec() - start > budget_usec)
			return false;
	}
	count_deleted(d, 20000);
	charge_hidden(d);
	return true;
}

enum forge_disk_state forge_disk_step(struct forge_disk *d, uint64_t budget_usec)
{
	uint64_t start = forge_now_usec();
	bool is_complete;

	if (d->depth == 0) {
		d->busy_usec = 0;
		if (d->quota->fd >= 0 &&
		    forge_quota_usage(d->quota, &d->bytes, &d->inodes) == 0)
			return finish(d);
		start_scan(d);
	}
	is_complete = scan_some(d, budget_usec);
	d->busy_usec += forge_now_usec() - start;
	if (!is_complete)
		return FORGE_DISK_MORE;
	d->last_cost_usec = d->busy_usec;
	return finish(d);
}

const struct forge_disk_usage *forge_disk_usage(const struct forge_disk *d)
{
	return &d->usage;
}

uint64_t forge_disk_pause_usec(const struct forge_disk *d)
{
	/* What a fast disk takes: bytes a microsecond, and microseconds a file. */
	const uint64_t rate = (2ULL << 30) / 1000000, usec_per_file = 10;
	uint64_t room = d->max_bytes > d->usage.bytes ? d->max_bytes - d->usage.bytes : 0;
	uint64_t files =
		d->max_inodes > d->usage.inodes ? d->max_inodes - d->usage.inodes : 0;
	/* Half the time it would take to fill what is left: overshoot halves with each scan. */
	uint64_t pause = room / rate / 2;

	if (files < 1000000 && files * usec_per_file / 2 < pause)
		pause = files * usec_per_file / 2;
	if (pause < 20000)
		pause = 20000;
	if (pause > 1000000)
		pause = 1000000;
	return pause < d->last_cost_usec * 10 ? d->last_cost_usec * 10 : pause;
}
