/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads how much memory of the host the kernel uses without charging any cgroup, and how much
 * of it a run is seen to hold. For kernel_memory.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sandbox/cgroup.h"

struct forge_kernel_numbers {
	struct forge_cgroup *cg; /* borrowed */
	pid_t init;		 /* in the run's network namespace */
	int meminfo, zoneinfo, cpu_stat, arcstats;
	int root_kernel; /* what all cgroups are charged for kernel memory, -1: unknown */
};

/* Enough for the rough number; the rest is opened when it is needed. */
void forge_kernel_numbers_open(struct forge_kernel_numbers *k, struct forge_cgroup *cg,
			       pid_t init);
void forge_kernel_numbers_open_rest(struct forge_kernel_numbers *k);
void forge_kernel_numbers_close(struct forge_kernel_numbers *k);

/* All memory that is neither free nor used by processes or caches. Reads one file. */
int64_t forge_kernel_rough_number(const struct forge_kernel_numbers *k);

/*
 * The same without the free pages in the lists of the CPUs, which can be hundreds of MiB. Reads
 * two files.
 */
int64_t forge_kernel_near_number(const struct forge_kernel_numbers *k);

/*
 * All numbers that are needed to tell how much memory no cgroup is charged for; two readings
 * tell how it grew.
 */
struct forge_kernel_reading {
	int64_t rough;
	int64_t in_lists;    /* free pages in the lists of the CPUs */
	int64_t reclaimable; /* reclaimable slabs, like caches; not in rough */
	int64_t charged;     /* kernel memory that cgroups are charged for */
	bool is_split;	     /* charged does not include reclaimable */
	int64_t held;	     /* charged to the run, and held by the kernel alone */
	/* The cache of ZFS, which is reclaimed like any other. */
	int64_t zfs;
};

void forge_kernel_read(const struct forge_kernel_numbers *k,
		       struct forge_kernel_reading *ret);
/* Growth in bytes of the memory that no cgroup is charged for. */
int64_t forge_kernel_growth(const struct forge_kernel_reading *then,
			    const struct forge_kernel_reading *now);
/* Bytes that the run can still be charged for before it reaches its limit. */
int64_t forge_kernel_room(const struct forge_kernel_numbers *k);
/*
 * CPU time that the run has used, UINT64_MAX where the kernel does not report it. User and
 * system time together: the kernel estimates the share of system time by sampling, which a run
 * can evade.
 */
uint64_t forge_kernel_cpu_usec(const struct forge_kernel_numbers *k);
/* Is less than a twentieth of the host's memory available? */
bool forge_kernel_is_scarce(const struct forge_kernel_numbers *k);
/* Do all file systems of this host keep what they read in memory that counts as cache? */
bool forge_kernel_has_plain_file_systems(void);
/* Bytes of file locks that the run's processes hold; counting stops at `enough`. */
int64_t forge_kernel_bytes_of_locks(const struct forge_kernel_numbers *k, int64_t enough);
/*
 * Is the run charged for so much more than the bytes in its queues that they can have pinned
 * `grew` bytes?
 */
bool forge_kernel_has_thin_queues(const struct forge_kernel_numbers *k, int64_t grew);
