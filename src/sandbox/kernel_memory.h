/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backstop for memory that no limit counts: what the kernel keeps for a run without charging
 * any cgroup for it. The classes that are known are closed or bounded elsewhere (the filter,
 * socket_count.c, netns.c); this is for those that nobody has thought of.
 *
 * The host's kernel memory that is charged to nobody is a number that hardly changes: everything
 * in use, less what belongs to processes and caches, less free pages that wait in the lists of
 * each CPU, less what cgroups are charged for. While a run uses CPU time the number
 * is looked at. When it grew by SUSPICIOUS the run is stopped for a moment, let go for a moment,
 * and so on: if the number grows only while the run moves, the run is the cause. Others that
 * allocate are not blamed on it, because they go on while it stands. A run that pauses while it is
 * tried is judged by what it is seen to hold (locks, queues of single bytes); where nothing is
 * seen it goes on, until the host has little memory left.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "sandbox/cgroup.h"

struct forge_kernel_memory;

/* cg is borrowed; init is in the run's network. NULL in *ret, and 0: nothing is limited here, so nothing is watched. */
FORGE_MUST_CHECK int forge_kernel_memory_new(struct forge_cgroup *cg, pid_t init,
					     struct forge_kernel_memory **ret);
/*
 * To be called at the time it returned last, or later. *ret_taken: 0, or how many bytes the run
 * has taken; then it must be ended.
 */
uint64_t forge_kernel_memory_step(struct forge_kernel_memory *k, uint64_t now,
				  uint64_t *ret_taken);
/* The run moves again, if it was stopped. Accepts NULL. */
void forge_kernel_memory_free(struct forge_kernel_memory *k);

/* ---- for its tests: what a series of moments, stopped and not, says ---- */

struct forge_memory_trial {
	int64_t grew_stopped, grew_moving; /* bytes */
	uint64_t usec_stopped, usec_moving;
	unsigned rounds;
	unsigned alike; /* of them: that look like the run's doing each by itself */
	bool is_slow;	/* the moments are long ones */
};

enum forge_memory_opinion {
	FORGE_MEMORY_UNCLEAR, /* another round */
	FORGE_MEMORY_CAUSED,
	FORGE_MEMORY_NOT_CAUSED,
};

/* One more round. */
void forge_memory_note(struct forge_memory_trial *t, int64_t grew_stopped,
		       uint64_t usec_stopped, int64_t grew_moving, uint64_t usec_moving);
enum forge_memory_opinion forge_memory_judge(const struct forge_memory_trial *t);
