/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/executor/container only: a run in a container, and how its supervisor is connected to it. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "executor/container/engine.h"
#include "executor/executor.h"
#include "executor/workdir.h"
#include "sandbox/cgroup.h"
#include "sandbox/ids.h"
#include "sandbox/quota.h"
#include "sandbox/sandbox.h"

struct forge_container {
	struct forge_execution base;
	const struct forge_job *job;
	const struct forge_executor_decl *decl;
	struct forge_ids ids;
	struct forge_workdir workdir;
	struct forge_engine engine;
	struct forge_cgroup *cg;
	struct forge_sandbox *sb; /* what the supervisor has of it */
	struct forge_quota quota;
	char name[48];		  /* "forge-<run id>" */
	char *control;		  /* the directory of socket and fifos */
	int control_fd, listener; /* -1: none */
	bool is_open, is_made, is_ended, is_stuck;
	bool has_ended;	  /* before another supervisor attached to it */
	int landlock_abi; /* of the command, as forge-shim says */
	json_t *mounts;	  /* [{target, dev, ino}]: what was to be mounted */
};
_Static_assert(offsetof(struct forge_container, base) == 0, "base must come first");

/* The directory of the socket and the fifos of a run; NULL: out of memory. */
char *forge_container_control_path(const struct forge_job *job);
/* Makes it, and listens there. */
FORGE_MUST_CHECK int forge_container_make_control(struct forge_container *e,
						  struct forge_error *err);
/* Listens there again, in place of a dead supervisor. */
FORGE_MUST_CHECK int forge_container_listen(struct forge_container *e,
					    struct forge_error *err);
void forge_container_remove_control(const char *path);
/* Notes what the body of a create call mounts, for the comparison in forge_container_connect(). */
FORGE_MUST_CHECK int forge_container_note_mounts(struct forge_container *e,
						 const json_t *body,
						 struct forge_error *err);
/*
 * Waits for forge-shim, checks mounts and limits, opens the streams and lets the command start. shim_pid: of a
 * container that is running already, whose command goes on; 0: it has just been started.
 */
FORGE_MUST_CHECK int forge_container_connect(struct forge_container *e, pid_t shim_pid,
					     struct forge_error *err);
