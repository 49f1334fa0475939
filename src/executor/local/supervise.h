/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's event loop around one running sandbox. */
#pragma once

#include "executor/executor.h"
#include "sandbox/cgroup.h"
#include "sandbox/plan.h"
#include "sandbox/quota.h"
#include "sandbox/sandbox.h"

/*
 * Watches sb until everything in it is gone; its init may have yet to end. SIGINT, SIGTERM and SIGHUP to this
 * process cancel the run; a second one kills at once. They must be blocked by the caller.
 */
FORGE_MUST_CHECK int forge_supervise(const struct forge_job *job,
				     const struct forge_plan *plan,
				     struct forge_cgroup *cg,
				     const struct forge_quota *quota,
				     struct forge_sandbox *sb, struct forge_outcome *ret,
				     struct forge_error *err);
