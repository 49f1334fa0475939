/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor of a run, as seen from another process: who it is, to signal it, to wait for it. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "run/home.h"

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
/* Whether anybody holds the run's slot, also one in another pid namespace. */
bool forge_live_is_held(const struct forge_home *home, const char *run_id);
FORGE_MUST_CHECK int forge_live_signal(const struct forge_live *l, int sig,
				       struct forge_error *err);
/* Until it is gone, and with it all that it ran. 1: not within msec (-1: for ever). */
int forge_live_wait(const struct forge_live *l, int msec);
void forge_live_close(struct forge_live *l);
