/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory of the host the kernel keeps for itself without charging anybody, and what a run
 * is seen to have of it. For kernel_memory.c.
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

/* All memory that is neither free nor a process's nor a cache's. One file is read for it. */
int64_t forge_kernel_rough_number(const struct forge_kernel_numbers *k);

/* ... without the free pages in the lists of the CPUs, which can be hundreds of MiB: two files. */
int64_t forge_kernel_near_number(const struct forge_kernel_numbers *k);

/* Everything that tells how much of that nobody is charged for; two of them say how it grew. */
struct forge_kernel_reading {
	int64_t rough;
	int64_t in_lists;    /* free pages in the lists of the CPUs */
	int64_t reclaimable; /* slabs that give way, like caches; not in rough */
	int64_t charged;     /* kernel memory that cgroups are charged for */
	bool is_split;	     /* charged is without what is reclaimable */
	int64_t held;	     /* charged to the run, and held by the kernel alone */
	int64_t zfs; /* ZFS has a cache of its own, which gives way like any other */
};

void forge_kernel_read(const struct forge_kernel_numbers *k,
		       struct forge_kernel_reading *ret);
/* By how many bytes the memory that nobody is charged for has grown. */
int64_t forge_kernel_growth(const struct forge_kernel_reading *then,
			    const struct forge_kernel_reading *now);
/* What the run could still be charged for before it is at its limit. */
int64_t forge_kernel_room(const struct forge_kernel_numbers *k);
/*
 * CPU time that the run has used, UINT64_MAX where the kernel does not tell. All of it: how much was
 * in the kernel is a guess by samples, which a run can dodge.
 */
uint64_t forge_kernel_cpu_usec(const struct forge_kernel_numbers *k);
/* Less than a twentieth of the host's memory is to be had. */
bool forge_kernel_is_scarce(const struct forge_kernel_numbers *k);
/* Do all file systems of this host keep what they have read where it counts as cache? */
bool forge_kernel_has_plain_file_systems(void);
/* Bytes of locks that the run's processes have; from `enough` on they are not counted. */
int64_t forge_kernel_bytes_of_locks(const struct forge_kernel_numbers *k, int64_t enough);
/* Is the run charged for so much more in queues than there is in them that it can have pinned this? */
bool forge_kernel_has_thin_queues(const struct forge_kernel_numbers *k, int64_t grew);
