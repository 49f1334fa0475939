/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of the disk a run's workdir holds. Measured from outside in small slices while the
 * run goes on, so that no tree, however large, delays the supervisor.
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

/* Where the threads that may hold deleted files are listed. */
struct forge_disk_tasks {
	int cgroup; /* directory, borrowed, or -1 */
	pid_t init; /* without one: its descendants */
};

/* dir_fd and quota are borrowed. With a quota the kernel is asked and nothing is scanned. */
FORGE_MUST_CHECK int forge_disk_new(int dir_fd, const struct forge_quota *quota,
				    struct forge_disk_tasks tasks, uint64_t max_bytes,
				    uint64_t max_inodes, struct forge_disk **ret);
/* Works for about budget_usec. */
enum forge_disk_state forge_disk_step(struct forge_disk *d, uint64_t budget_usec);
const struct forge_disk_usage *forge_disk_usage(const struct forge_disk *d);
/*
 * When to start the next scan: soon when little room is left (a disk takes some GB/s), but
 * never so often that scanning costs more than a tenth of a CPU.
 */
uint64_t forge_disk_pause_usec(const struct forge_disk *d);
/* For disk.c: what it needs of the run's processes. */
/* Does one of them hold deleted files of dev by a mapping, or any in a socket? */
bool forge_disk_has_hidden(struct forge_disk_tasks tasks, dev_t dev);
/* Their ids, one a line. Returns the length (size - 1: there may be more) or -errno. */
ssize_t forge_disk_read_tasks(struct forge_disk_tasks tasks, char *buf, size_t size);
/* Stops all of them (0 once they stand), or lets them go on. v2 directories only. */
int forge_disk_freeze(struct forge_disk_tasks tasks, bool frozen);
void forge_disk_free(struct forge_disk *d);
FORGE_DEFINE_AUTO(disk, struct forge_disk *, forge_disk_free)
#define forge_auto_disk FORGE_CLEANUP(forge_auto_disk_)
