/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The code of the cloned process. Everything declared here runs in the new namespaces (the file
 * prefix child_ says so), allocates nothing, and reports failure as a struct forge_child_report
 * over a pipe.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sandbox/plan.h"

/* The step of setup that failed; forge_stage_names has their texts. */
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

/*
 * The command's process to the supervisor, with the descriptor of its seccomp listener: the
 * supervisor reads requests for sockets from it.
 */
#define FORGE_CTL_LISTENER 'n'

/*
 * Init to supervisor: the command has ended. is_alone means that the kernel knows of no other
 * process in the namespace: the whole run is over, and only init itself has still to end.
 */
struct forge_ctl_exit {
	int32_t status; /* as from waitpid */
	int32_t is_alone;
	/* Blocks of 512 bytes, by all processes that ended. */
	uint64_t blocks_in, blocks_out;
	/* Only for a command that failed: packets that had no route or no receiver. */
	uint64_t network_tries;
	/* Left in /tmp, not counting hidden files. */
	uint64_t tmp_files, tmp_bytes;
	int32_t landlock_abi; /* of a container: what confines the command */
	int32_t is_shim;      /* it is one; FORGE_SHIM_LATE: killed at the last moment */
#define FORGE_SHIM_LATE 2
};

struct forge_child {
	const struct forge_plan *plan;
	/* For each mount: a detached tree opened by a privileged supervisor, or -1. */
	const int *sources;
	/* Files to write "0" to, ended by -1; see struct forge_cgroup. */
	const int *cgroups;
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
/* Length of the seccomp program in instructions. */
size_t forge_filter_length(void);
void forge_child_build_root(const struct forge_child *c);
/* Becomes the sandbox's user, keeping the capabilities that building the root needs. */
void forge_child_set_ids(const struct forge_child *c);
/* Sets the rest, for init and the command alike: cgroup namespace, limits, capabilities. */
void forge_child_confine(const struct forge_child *c);
/*
 * Sets the limit of open files. It comes last: until then, descriptors inherited from the
 * supervisor occupy the low numbers.
 */
void forge_child_limit_files(const struct forge_child *c);
void forge_child_landlock_plan(const struct forge_plan *plan, int report);
/* The same by hand: everything may be read and executed, these paths may be written; absent ones are left out. */
int forge_child_landlock_begin(int abi, int report);
void forge_child_landlock_allow(int rules, int abi, const char *path, bool is_device,
				int report);
void forge_child_landlock_end(int rules, int report);

/* Loads the seccomp filter; sends the listener that counts sockets over control. */
struct forge_child_filter {
	bool own_network, may_allocate;
	uint64_t sockets; /* the limit, FORGE_UNLIMITED: they are not counted */
	bool notes_sockets; /* with the host's network all of them, else those of UNIX */
	int control, report;
};
void forge_child_filter(const struct forge_child_filter *f);
/* Sends a listener to the supervisor, which decides about sockets. 0 or -1. */
int forge_child_send_listener(int control, int listener);
_Noreturn void forge_child_exec(const struct forge_child *c);
/*
 * Counts how often a process in this network namespace tried to reach a host or look up a name,
 * without success.
 */
uint64_t forge_child_count_network_tries(void);
/* Adds the files left in /tmp to ret. */
void forge_child_count_tmp(struct forge_ctl_exit *ret);
