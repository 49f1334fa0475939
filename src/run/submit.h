/* SPDX-License-Identifier: Apache-2.0 */
/* Detached runs: the same door, behind a supervisor that outlives its caller. */
#pragma once

#include "run/run.h"

/* What `forge submit` prints. */
struct forge_submitted {
	char run_id[27];
	bool is_existing;	    /* the idempotency key had this run already */
	struct forge_error warning; /* code != 0: it will happen, but */
};

/*
 * Starts a supervisor in a session of its own and returns when the run is recorded, durably. What
 * forge_run() would refuse is refused here, with the same words.
 */
FORGE_MUST_CHECK int forge_submit(const struct forge_config *cfg,
				  const struct forge_run_request *req,
				  struct forge_submitted *ret, struct forge_error *err);
