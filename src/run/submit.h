/* SPDX-License-Identifier: Apache-2.0 */
/* Detached runs: forge_run() in a supervisor that outlives its caller. */
#pragma once

#include "run/run.h"

/* What `forge submit` prints. */
struct forge_submitted {
	char run_id[27];
	bool is_existing;	    /* an earlier run has the idempotency key */
	struct forge_error warning; /* code != 0: a warning about the run */
};

/*
 * Starts a supervisor in a session of its own and returns when the run is stored durably.
 * Requests that forge_run() would refuse are refused here, with the same message.
 */
FORGE_MUST_CHECK int forge_submit(const struct forge_config *cfg,
				  const struct forge_run_request *req,
				  struct forge_submitted *ret, struct forge_error *err);
