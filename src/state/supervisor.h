/* SPDX-License-Identifier: Apache-2.0 */
/* A reference to the supervisor of a run, held by another process: to signal it and to wait for it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "state/home.h"

/*
 * The value of a SIGTERM that was queued (sigqueue(3)) and means: kill the run at once. It is one signal,
 * because a second one could arrive after the end of the run and stop the collecting of its outputs.
 */
#define FORGE_SIGNAL_NOW 0x6e6f77

struct forge_supervisor_ref {
	pid_t pid;
	int pidfd;
};
#define FORGE_SUPERVISOR_REF_INIT ((struct forge_supervisor_ref){ .pidfd = -1 })

/*
 * Finds the living supervisor of a run in this FORGE_HOME. -ESRCH: there is none. The process is the right
 * one: it held the slot of the run after the pidfd was opened, and a pidfd never refers to another process.
 */
FORGE_MUST_CHECK int forge_supervisor_find(const struct forge_home *home,
					   const char *run_id,
					   struct forge_supervisor_ref *ret,
					   struct forge_error *err);
/* Asks it to stop the run; now: without the grace period. */
FORGE_MUST_CHECK int forge_supervisor_stop(const struct forge_supervisor_ref *s, bool now,
					   struct forge_error *err);
/* Waits until it has ended, and with it the run. 1: not within msec (-1: no bound). */
int forge_supervisor_wait(const struct forge_supervisor_ref *s, int msec);
void forge_supervisor_close(struct forge_supervisor_ref *s);
