/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor of a run, as seen from another process: who it is, to signal it, to wait for it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "state/home.h"

struct forge_live {
	pid_t pid;
	int pidfd;
};
#define FORGE_LIVE_INIT ((struct forge_live){ .pidfd = -1 })

/*
 * Finds the living supervisor of a run in this FORGE_HOME. -ESRCH: there is none. The process
 * found is the right one: it was seen to hold the run's slot after the descriptor was opened, and
 * a descriptor never comes to mean another process.
 */
FORGE_MUST_CHECK int forge_live_find(const struct forge_home *home, const char *run_id,
				     struct forge_live *ret, struct forge_error *err);
/*
 * Whether a slot names the run: its supervisor lives (here or in another pid namespace), or it is dead
 * and repair, which alone knows what it left, has not been there yet.
 */
bool forge_live_has_slot(const struct forge_home *home, const char *run_id);
/* The record of a run that has no verdict yet, as it was when it began; NULL: nobody has it. */
json_t *forge_live_record(const struct forge_home *home, const char *run_id);
/* What a run uses now. UINT64_MAX: that cannot be told, or not from here. */
struct forge_live_usage {
	uint64_t memory_bytes, cpu_usec;
};
void forge_live_usage(const struct forge_home *home, const char *run_id,
		      struct forge_live_usage *ret);
/* Asks its supervisor to end it; now: without the grace period. */
FORGE_MUST_CHECK int forge_live_end(const struct forge_live *l, bool now,
				    struct forge_error *err);
/* Until it is gone, and with it all that it ran. 1: not within msec (-1: for ever). */
int forge_live_wait(const struct forge_live *l, int msec);
void forge_live_close(struct forge_live *l);
