/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop of a supervisor around one run, which may be in a sandbox or in a container. */
#pragma once

#include "executor/executor.h"
#include "sandbox/cgroup.h"
#include "sandbox/quota.h"
#include "sandbox/sandbox.h"

/* All pointers are borrowed. */
struct forge_supervision {
	const struct forge_job *job;
	const char *workdir; /* its path inside */
	uint64_t n_cpus;     /* at most so many run at once */
	struct forge_cgroup *cg;
	const struct forge_quota *quota;
	struct forge_sandbox *sb;
	int workdir_fd;
	bool notes_sockets; /* the filter of the command does, see socket_count.h */
	bool own_network;   /* ... those of UNIX only */
	bool watches_kernel_memory; /* see sandbox/kernel_memory.h */
};

/*
 * Supervises the sandbox until everything in it is gone; its init may have yet to end. SIGINT, SIGTERM and
 * SIGHUP to this process cancel the run; a second one kills at once. The caller must have blocked them.
 */
FORGE_MUST_CHECK int forge_supervise(const struct forge_supervision *what,
				     struct forge_outcome *ret, struct forge_error *err);
