/* SPDX-License-Identifier: Apache-2.0 */
/* For health.c only: a run that waits until the host is healthy. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct run;

/* What keeps a run from starting. */
struct forge_obstacle {
	char text[480];
	bool waits; /* the run waits; else it is rejected */
};

/*
 * Records the run as queued for this reason, and waits until it is worth to look again. 0: look again.
 * -ECANCELED: a signal; -ETIMEDOUT: the deadline (microseconds, forge_now_usec()) has come.
 */
FORGE_MUST_CHECK int forge_run_wait_for_health(struct run *r,
					       const struct forge_obstacle *why,
					       uint64_t deadline,
					       struct forge_error *err);
