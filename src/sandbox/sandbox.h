/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A running sandbox.
 *
 * Theory of operation. Three processes, from outside to inside:
 *
 *   supervisor  the forge process. Owns cgroups, pipes, timers, logs and the record; outside
 *               of everything it enforces. Never runs a line of the analysis.
 *   init        process 1 of the new pid namespace, made by clone3() with all namespaces and,
 *               on a v2 tree, already inside its cgroup. Builds the root, drops everything,
 *               forks the command, then reaps and passes on signals.
 *   command     the analysis: session leader, filtered, landlocked, execve'd by init's child.
 *
 * Three channels:
 *
 *   control     SOCK_SEQPACKET. Supervisor -> init: 'i' (ids are mapped), 'g' (limits
 *               are set: go), 's' N (send signal N to every process of the run). Init ->
 *               supervisor: the command's wait status. The command, before execve: 'n' with
 *               the descriptor at which its filter asks whether it may have a socket. When one
 *               side dies the other sees a hang-up and acts on it.
 *   report      pipe, close-on-exec. A struct forge_child_report when setup fails; end of
 *               file without one means execve succeeded and the analysis is running.
 *   stdio       three pipes (standard input may be /dev/null).
 *
 * "The program failed" and "the sandbox failed" cannot be confused: the first comes as a wait
 * status over control, the second as a report.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "sandbox/cgroup.h"
#include "sandbox/child.h"
#include "sandbox/netns.h"
#include "sandbox/plan.h"

struct forge_sandbox {
	pid_t pid;	     /* init, in our pid namespace */
	int pidfd;	     /* readable when init is dead */
	uint64_t start_usec; /* when the command was allowed to start, monotonic */
	int control;
	int report;   /* read end, -1 once it has ended */
	int out, err; /* read ends of the command's streams, non-blocking */
	int in;	      /* write end of its standard input, -1: it has /dev/null */
};

/*
 * Starts init in the cgroup and has it build what the plan says, up to the start of the
 * command. netns (or NULL) has a network namespace for it. On failure nothing is left running.
 */
FORGE_MUST_CHECK int forge_sandbox_start(const struct forge_plan *plan,
					 struct forge_cgroup *cg,
					 struct forge_netns *netns, bool pipe_stdin,
					 struct forge_sandbox **ret,
					 struct forge_error *err);
/* Lets the command start. A failure to start it arrives on the report pipe. */
FORGE_MUST_CHECK int forge_sandbox_go(struct forge_sandbox *sb, struct forge_error *err);
/* Asks init to signal every process of the run; does nothing when init is gone. */
void forge_sandbox_signal(struct forge_sandbox *sb, int sig);
/* Kills init, and with it the whole pid namespace. Returns at once. */
void forge_sandbox_kill(struct forge_sandbox *sb);
/* Reads a report: 1 and *ret filled, 0 at end of file (the command runs), or -EAGAIN. */
FORGE_MUST_CHECK int forge_sandbox_read_report(struct forge_sandbox *sb,
					       struct forge_child_report *ret);
/* Turns a report into a message a person can act on. Returns -errno of the report. */
int forge_sandbox_explain(const struct forge_child_report *r, struct forge_error *err);
/* Reaps init, when pidfd is readable or init was killed. */
void forge_sandbox_reap(struct forge_sandbox *sb);
/*
 * Kills init if it is alive, and waits up to msec for its end. -ETIMEDOUT: init is not dead by
 * then.
 */
FORGE_MUST_CHECK int forge_sandbox_end(struct forge_sandbox *sb, int msec);
/* Gives up an init that does not die: it is no longer waited for. */
void forge_sandbox_abandon(struct forge_sandbox *sb);
/* Kills and reaps if that has not happened yet. Accepts NULL. */
void forge_sandbox_free(struct forge_sandbox *sb);
FORGE_DEFINE_AUTO(sandbox, struct forge_sandbox *, forge_sandbox_free)
#define forge_auto_sandbox FORGE_CLEANUP(forge_auto_sandbox_)
