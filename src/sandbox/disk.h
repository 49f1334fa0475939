/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how much of the disk a run's workdir holds, from outside and in small slices while
 * the run goes on, so that no tree, however large, delays the supervisor.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "sandbox/quota.h"

/* A tree deeper than this counts as over the limit: it cannot be measured. */
#define FORGE_DISK_MAX_DEPTH 256

struct forge_disk;

enum forge_disk_state {
	FORGE_DISK_MORE, /* the scan goes on with the next step */
	FORGE_DISK_DONE, /* a whole scan is finished; the totals are new */
	FORGE_DISK_OVER, /* over a limit, found before the scan was finished */
};

struct forge_disk_usage {
	uint64_t bytes, inodes;		  /* of the last whole scan */
	uint64_t peak_bytes, peak_inodes; /* highest seen */
	bool is_too_deep;
};

/* The threads that may hold deleted files. */
struct forge_disk_tasks {
	int cgroup; /* directory, borrowed, or -1 */
	pid_t init; /* without a cgroup: init and its descendants */
};

/*
 * dir_fd, quota and workdir (the path inside) are borrowed. With a quota the kernel reports the
 * usage and nothing is scanned. cpu_usec returns the CPU time of the run so far, shmem_bytes
 * its memory in files of a tmpfs; UINT64_MAX: unknown.
 */
struct forge_disk_spec {
	int dir_fd;
	const char *workdir;
	const struct forge_quota *quota;
	struct forge_disk_tasks tasks;
	uint64_t max_bytes, max_inodes;
	uint64_t (*cpu_usec)(void *arg);
	uint64_t (*shmem_bytes)(void *arg);
	void *arg;
};
FORGE_MUST_CHECK int forge_disk_new(const struct forge_disk_spec *spec,
				    struct forge_disk **ret);
/* Works for about budget_usec. */
enum forge_disk_state forge_disk_step(struct forge_disk *d, uint64_t budget_usec);
const struct forge_disk_usage *forge_disk_usage(const struct forge_disk *d);
/*
 * How long to wait before the next scan: short when little room is left (a disk takes some
 * GB/s), but never so short that scanning costs more than a tenth of a CPU.
 */
uint64_t forge_disk_pause_usec(const struct forge_disk *d);
/* ---- for disk.c: held files (disk_held.c) and the processes of the run (disk_tasks.c) ---- */

/* Files and directories that were deleted but that a process still holds. */
struct forge_disk_held {
	dev_t dev; /* of the workdir */
	ino_t ino;
	const char *workdir; /* the path inside, borrowed */
	uint64_t mount_id;   /* of the workdir's mount inside, 0: not known yet */
	pid_t init;
	uint64_t seen[2048]; /* inodes that are counted already */
	size_t n_seen;
	uint64_t bytes, inodes;
	bool is_unsure; /* something is held whose size cannot be seen */
};

/* is_thorough: also looks at mappings, and at sockets with descriptors in flight. */
void forge_disk_held_count(struct forge_disk_held *h, struct forge_disk_tasks tasks,
			   bool is_thorough, uint64_t budget_usec);
/*
 * Writes the thread ids, one per line. Returns the length (size - 1: there may be more) or
 * -errno.
 */
ssize_t forge_disk_read_tasks(struct forge_disk_tasks tasks, char *buf, size_t size);
/* Freezes all threads (0 once they are frozen), or thaws them. v2 directories only. */
int forge_disk_freeze(struct forge_disk_tasks tasks, bool frozen);
/*
 * An upper bound of the bytes written by all processes that the run ever had, from its CPU time
 * so far.
 */
uint64_t forge_disk_most_written(struct forge_disk_tasks tasks, uint64_t cpu_usec);

void forge_disk_free(struct forge_disk *d);
FORGE_DEFINE_AUTO(disk, struct forge_disk *, forge_disk_free)
#define forge_auto_disk FORGE_CLEANUP(forge_auto_disk_)
