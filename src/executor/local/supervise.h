/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's event loop around one running sandbox. */
#pragma once

#include "executor/executor.h"
#include "sandbox/cgroup.h"
#include "sandbox/plan.h"
#include "sandbox/quota.h"
#include "sandbox/sandbox.h"

/* All pointers are borrowed. */
struct forge_supervision {
	const struct forge_job *job;
	const struct forge_plan *plan;
	struct forge_cgroup *cg;
	const struct forge_quota *quota;
	struct forge_sandbox *sb;
	int workdir_fd;
};

/*
 * Supervises the sandbox until everything in it is gone; its init may have yet to end. SIGINT, SIGTERM and
 * SIGHUP to this process cancel the run; a second one kills at once. The caller must have blocked them.
 */
FORGE_MUST_CHECK int forge_supervise(const struct forge_supervision *what,
				     struct forge_outcome *ret, struct forge_error *err);
