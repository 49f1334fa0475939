/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backstop for memory that no limit counts: memory that the kernel keeps for a run without
 * charging any cgroup for it. The known classes are closed or bounded elsewhere (the filter,
 * socket_count.c, netns.c); this is for the unknown ones.
 *
 * The host's kernel memory that no cgroup is charged for is a number that hardly changes: all
 * memory in use, less that of processes and caches, less free pages in the lists of each CPU,
 * less what cgroups are charged for. The number is read while a run uses CPU time. When it has
 * grown by SUSPICIOUS there is a trial: the run is frozen for a moment, thawed for a moment,
 * and so on. If the number grows only while the run is not frozen, the run is the cause. It is
 * not blamed for other processes that allocate, because they go on while it is frozen. A run
 * that pauses during its trial is judged by what it is seen to hold (locks, queues of single
 * bytes). Where nothing is seen it goes on, until the host has little memory left.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "sandbox/cgroup.h"

struct forge_kernel_memory;

/*
 * cg is borrowed; init is in the run's network namespace. Returns 0 with NULL in *ret where
 * memory is not limited: then nothing is watched.
 */
FORGE_MUST_CHECK int forge_kernel_memory_new(struct forge_cgroup *cg, pid_t init,
					     struct forge_kernel_memory **ret);
/*
 * Returns the time at which, or after which, to call it again. *ret_taken is 0, or how many
 * bytes the run has taken; then the run must be ended.
 */
uint64_t forge_kernel_memory_step(struct forge_kernel_memory *k, uint64_t now,
				  uint64_t *ret_taken);
/* Thaws the run if it is frozen. Accepts NULL. */
void forge_kernel_memory_free(struct forge_kernel_memory *k);

/* ---- for its tests: the judgement of a series of frozen and running phases ---- */

struct forge_memory_trial {
	int64_t grew_stopped, grew_moving; /* bytes */
	uint64_t usec_stopped, usec_moving;
	unsigned rounds;
	unsigned alike; /* rounds that each point to the run; clear ones count twice */
	bool is_slow;	/* the phases are long ones */
};

enum forge_memory_opinion {
	FORGE_MEMORY_UNCLEAR, /* needs another round */
	FORGE_MEMORY_CAUSED,
	FORGE_MEMORY_NOT_CAUSED,
};

/* Adds a round. */
void forge_memory_note(struct forge_memory_trial *t, int64_t grew_stopped,
		       uint64_t usec_stopped, int64_t grew_moving, uint64_t usec_moving);
enum forge_memory_opinion forge_memory_judge(const struct forge_memory_trial *t);
