/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runs on the other side of clone3. Everything declared here runs in the new namespaces
 * (the file prefix child_ says so), allocates nothing, and reports failure as a struct
 * forge_child_report over a pipe.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sandbox/plan.h"

/* Where setup was when it failed; forge_stage_names has the words. */
enum forge_stage {
	FORGE_STAGE_NONE,
	FORGE_STAGE_SYNC,
	FORGE_STAGE_CGROUP,
	FORGE_STAGE_PROPAGATION,
	FORGE_STAGE_ROOT,
	FORGE_STAGE_MKDIR,
	FORGE_STAGE_OPEN,
	FORGE_STAGE_CHANGED, /* the source is not the inode the plan saw */
	FORGE_STAGE_READ_ONLY,
	FORGE_STAGE_MOUNT,
	FORGE_STAGE_ATTACH,
	FORGE_STAGE_WRITE,
	FORGE_STAGE_PIVOT,
	FORGE_STAGE_LOOPBACK,
	FORGE_STAGE_HOSTNAME,
	FORGE_STAGE_IDS,
	FORGE_STAGE_CAPS,
	FORGE_STAGE_RLIMIT,
	FORGE_STAGE_CGROUP_NS,
	FORGE_STAGE_FORK,
	FORGE_STAGE_STDIO,
	FORGE_STAGE_CHDIR,
	FORGE_STAGE_LANDLOCK,
	FORGE_STAGE_SECCOMP,
	FORGE_STAGE_EXEC,
	FORGE_STAGE_COUNT,
};
extern const char *const forge_stage_names[FORGE_STAGE_COUNT];

/* One write to the report pipe, shorter than PIPE_BUF: it arrives whole or not at all. */
struct forge_child_report {
	int32_t stage;
	int32_t error; /* errno */
	char what[248];
};

/* Messages on the control socket. Supervisor to init: */
#define FORGE_CTL_IDS_READY 'i' /* id maps are written */
#define FORGE_CTL_GO	    'g' /* all limits are set: the command may start */
/* ... and 's' followed by a signal number: send it to every process of the run. */
#define FORGE_CTL_SIGNAL 's'

/* The command's process to the supervisor, with a descriptor: who counts its sockets reads here. */
#define FORGE_CTL_LISTENER 'n'

/*
 * Init to supervisor: the command has ended. Alone means that the kernel knows of no other process in the
 * namespace: everything that the run was is over, and only init's own end is still to come.
 */
struct forge_ctl_exit {
	int32_t status; /* as from waitpid */
	int32_t is_alone;
	uint64_t blocks_in, blocks_out; /* of 512 bytes, by all that ended */
	uint64_t network_tries; /* of a command that failed: packets that found no way */
	uint64_t tmp_files, tmp_bytes; /* left in /tmp, hidden ones aside */
};

struct forge_child {
	const struct forge_plan *plan;
	const int *
		sources; /* per mount: a detached tree opened by a privileged supervisor, -1 */
	const int *
		cgroups; /* files to write "0" to, ended by -1; see struct forge_cgroup */
	bool needs_loopback;
	int control; /* SOCK_SEQPACKET */
	int report;
	int stdio[3];
};

/* Main function of the cloned process; never returns. */
_Noreturn void forge_child_main(const struct forge_child *c);

/* Used between the child_*.c files. Reports and exits. */
_Noreturn void forge_child_die(int report, enum forge_stage stage, const char *what);
/*
 * Opens the source of a mount as a detached tree with its final attributes. Called by the
 * supervisor when it is privileged, by the child otherwise. Returns the fd, or -1 with
 * *ret_stage and errno set.
 */
int forge_child_open_source(const struct forge_mount *m, enum forge_stage *ret_stage);
/* Of the seccomp program, in instructions. */
size_t forge_filter_length(void);
void forge_child_build_root(const struct forge_child *c);
/* Becomes the sandbox's user, keeping the capabilities that building the root needs. */
void forge_child_set_ids(const struct forge_child *c);
/* The rest, for init and the command alike: cgroup namespace, limits, capabilities. */
void forge_child_confine(const struct forge_child *c);
/* Last of the limits: what the supervisor had open still takes the low numbers before. */
void forge_child_limit_files(const struct forge_child *c);
void forge_child_landlock(const struct forge_plan *plan, int report);
_Noreturn void forge_child_exec(const struct forge_child *c);
/* How often something in this network namespace looked for a host or a name, and found none. */
uint64_t forge_child_count_network_tries(void);
/* Adds what is left in /tmp to ret. */
void forge_child_count_tmp(struct forge_ctl_exit *ret);
