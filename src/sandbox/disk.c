/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a workdir while the run may be changing it. Links are never followed. A directory
 * that moves away during a scan only makes that scan less exact. Deleted files that are still
 * held are found through the processes (disk_held.c).
 */
#include "sandbox/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

struct level {
	int fd;
	long len, pos; /* of the entries in buf */
	char buf[4096];
};

/* An entry as getdents64 writes it; the name follows. */
struct kernel_dirent {
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

struct forge_disk {
	int root;
	struct forge_disk_tasks tasks;
	const struct forge_quota *quota;
	uint64_t max_bytes, max_inodes;
	struct level *levels[FORGE_DISK_MAX_DEPTH];
	unsigned depth;		/* levels in use; 0: no scan is under way */
	uint64_t bytes, inodes; /* of the current scan; at its end, with held files */
	uint64_t tree_bytes, tree_inodes; /* of the scan, without held files */
	uint64_t busy_usec;		  /* CPU time of this scan so far */
	uint64_t last_cost_usec;
	bool has_closed;    /* the scan met a directory that it could not open */
	uint64_t looked_at; /* loss of the file system at the last frozen scan */
	/* Most free bytes seen on the file system, UINT64_MAX when unknown. */
	uint64_t most_free;
	unsigned unsure_looks; /* thorough looks in a row that missed something */
	uint64_t (*cpu_usec)(void *arg);
	uint64_t (*shmem_bytes)(void *arg);
	void *arg;
	struct forge_disk_held held;
	struct forge_disk_usage usage;
};

static uint64_t free_bytes(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) < 0 ? UINT64_MAX
				    : (uint64_t)fs.f_bfree * (uint64_t)fs.f_bsize;
}

int forge_disk_new(const struct forge_disk_spec *spec, struct forge_disk **ret)
{
	struct forge_disk *d = calloc(1, sizeof(*d));
	struct stat st;

	if (!d)
		return -ENOMEM;
	d->root = spec->dir_fd;
	d->quota = spec->quota;
	d->tasks = spec->tasks;
	d->max_bytes = spec->max_bytes;
	d->max_inodes = spec->max_inodes;
	d->cpu_usec = spec->cpu_usec;
	d->shmem_bytes = spec->shmem_bytes;
	d->arg = spec->arg;
	d->held.workdir = spec->workdir;
	if (fstat(d->root, &st) == 0) {
		d->held.dev = st.st_dev;
		d->held.ino = st.st_ino;
	}
	d->most_free = free_bytes(d->root);
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

/* A directory that is gone is skipped. One of mode 0 may hide files: see charge_unseen(). */
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
		d->has_closed = d->has_closed || errno == EACCES;
		return;
	}
	struct level *l = d->levels[d->depth++];
	l->fd = fd;
	l->len = l->pos = 0;
}

static void count(struct forge_disk *d, const struct stat *st)
{
	/* All names of an inode are in this tree, so each counts for its share of the blocks. */
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

static void count_held(struct forge_disk *d, bool is_thorough, uint64_t budget_usec)
{
	forge_disk_held_count(&d->held, d->tasks, is_thorough, budget_usec);
	d->bytes = d->tree_bytes + d->held.bytes;
	d->inodes = d->tree_inodes + d->held.inodes;
}

static void start_scan(struct forge_disk *d)
{
	struct stat st;

	d->bytes = d->inodes = 0;
	d->has_closed = false;
	/* A directory that has, or once had, many entries takes many blocks itself. */
	if (fstat(d->root, &st) == 0 && (uint64_t)st.st_blocks * 512 > 64 << 10)
		d->bytes += (uint64_t)st.st_blocks * 512;
	push(d, d->root, ".");
}

static void end_scan(struct forge_disk *d)
{
	d->tree_bytes = d->bytes;
	d->tree_inodes = d->inodes;
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

/*
 * Scans again while all processes of the run are frozen, and so finds what evaded the first
 * scan.
 */
static void scan_frozen(struct forge_disk *d)
{
	uint64_t until = forge_now_usec() + 2000000;
	bool is_frozen = forge_disk_freeze(d->tasks, true) == 0;

	start_scan(d);
	while (d->depth > 0 && !is_over(d) && forge_now_usec() < until)
		advance(d);
	d->has_closed = d->has_closed || d->depth > 0; /* the time ran out */
	while (d->depth > 0)
		pop(d);
	end_scan(d);
	count_held(d, true, 2000000);
	if (is_frozen)
		(void)!forge_disk_freeze(d->tasks, false); /* as freezing worked */
}

/*
 * The most that the run can hold: the bytes it wrote or, on a tmpfs, the memory it is charged
 * for.
 */
static uint64_t most_held(const struct forge_disk *d)
{
	struct statfs fs;

	if (fstatfs(d->root, &fs) == 0 && (long)fs.f_type == TMPFS_MAGIC)
		return d->shmem_bytes(d->arg);
	return forge_disk_most_written(d->tasks, d->cpu_usec(d->arg));
}

/*
 * When the file system has lost more space than the run may use, the run is measured
 * thoroughly, frozen if need be. Other processes write to the file system too, so the loss
 * alone proves nothing: only what is found counts. But descriptors can be in flight in sockets,
 * and an ordinary user can neither look into directories of mode 0 nor see the size of mapped
 * files. If two looks in a row find such a thing, and the run has written more than it may
 * hold, it is charged with the loss, up to what it can have written. Without such a loss this
 * costs one statfs.
 */
static void charge_unseen(struct forge_disk *d)
{
	uint64_t now = free_bytes(d->root);

	/* Space that other processes free must not hide what the run takes. */
	if (now != UINT64_MAX && now > d->most_free)
		d->most_free = now;
	uint64_t lost = now < d->most_free ? d->most_free - now : 0;
	if (lost <= d->max_bytes || lost <= d->bytes) {
		d->unsure_looks = 0;
		return;
	}
	/*
	 * Other processes may be the writers, so the run is frozen only when the loss has grown
	 * or when something stayed unseen.
	 */
	if (lost > d->looked_at + d->max_bytes / 8 || d->unsure_looks > 0) {
		d->looked_at = lost;
		scan_frozen(d);
	} else {
		count_held(d, true, 20000);
	}
	d->unsure_looks = d->held.is_unsure || d->has_closed ? d->unsure_looks + 1 : 0;
	if (d->unsure_looks < 2 || is_over(d))
		return;
	uint64_t written = most_held(d);
	if (written > d->max_bytes)
		d->bytes = lost < written ? lost : written;
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

/* Scans for one time slice; returns true when the scan is complete. */
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
	end_scan(d);
	count_held(d, false, 20000);
	charge_unseen(d);
	return true;
}

/*
 * The cost of a scan is its CPU time: on a busy machine a scan takes longer, but is as urgent
 * as ever.
 */
static uint64_t own_cpu_usec(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts); /* cannot fail */
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

enum forge_disk_state forge_disk_step(struct forge_disk *d, uint64_t budget_usec)
{
	uint64_t start = own_cpu_usec();
	bool is_complete;

	if (d->depth == 0) {
		d->busy_usec = 0;
		if (d->quota->fd >= 0 &&
		    forge_quota_usage(d->quota, &d->bytes, &d->inodes) == 0)
			return finish(d);
		start_scan(d);
	}
	is_complete = scan_some(d, budget_usec);
	d->busy_usec += own_cpu_usec() - start;
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
	/* The speed of a fast disk: bytes per microsecond, and microseconds per file. */
	const uint64_t rate = (2ULL << 30) / 1000000, usec_per_file = 10;
	uint64_t room = d->max_bytes > d->usage.bytes ? d->max_bytes - d->usage.bytes : 0;
	uint64_t files =
		d->max_inodes > d->usage.inodes ? d->max_inodes - d->usage.inodes : 0;
	/*
	 * Half the time that filling the remaining room would take: the overshoot halves with
	 * each scan.
	 */
	uint64_t pause = room / rate / 2;

	if (files < 1000000 && files * usec_per_file / 2 < pause)
		pause = files * usec_per_file / 2;
	if (pause < 20000)
		pause = 20000;
	if (pause > 1000000)
		pause = 1000000;
	return pause < d->last_cost_usec * 10 ? d->last_cost_usec * 10 : pause;
}
