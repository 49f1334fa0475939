/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executors: where a run happens. An executor takes a job, carries it out under its limits
 * and says what happened as facts; what they mean (the verdict) is judged in src/run/.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/strv.h"
#include "config/config.h"

/* What to run. All pointers are borrowed. */
struct forge_job {
	const char *run_id;
	char *const *argv;
	const struct forge_strv *env;	    /* complete */
	const struct forge_strv *read_only; /* canonical absolute paths */
	const struct forge_strv *aliases;   /* "typed path", "canonical path", ... */
	const struct forge_strv *tools;	    /* "link inside", "its text", ... */
	const char *root; /* a directory with another system's trees, NULL: the host's */
	const char *workdir;
	int workdir_fd; /* -1 in a dry run */
	uid_t host_uid;
	gid_t host_gid;
	bool privileged;
	bool own_network;
	struct forge_netns *netns; /* one that is being made for it, or NULL */
	bool pass_stdin;
	int turns_fd; /* a directory for locks by which runs take turns, -1: none */
	const struct forge_limits *limits;
	const struct forge_config *config;
	const int *log_fd; /* stdout, stderr: plain files, once on_building ran */
	int live_fd[2];	   /* also shown here, -1: nowhere */
	/* Called while the place of the run is being built: work done here costs no time. */
	int (*on_building)(void *arg, struct forge_error *err);
	/* Then, when only the command is left to start; it may wait. Negative: it does not start. */
	int (*before_start)(void *arg, struct forge_error *err);
	/* Told of everything worth a line in the run's events; detail may be NULL. */
	void (*on_event)(void *arg, const char *event, const char *detail);
	void *arg;
};

/* Why the supervisor ended a run, if it did. */
enum forge_stop {
	FORGE_STOP_NONE,
	FORGE_STOP_WALL,
	FORGE_STOP_CPU,
	FORGE_STOP_MEMORY,
	FORGE_STOP_DISK,
	FORGE_STOP_OUTPUT,
	FORGE_STOP_CANCEL,
};

/* What happened. UINT64_MAX in usage means that this host cannot tell. */
struct forge_outcome {
	bool has_started; /* execve succeeded */
	bool has_status;  /* wait_status is the command's own */
	int wait_status;
	enum forge_stop stop;
	bool is_exec_failure;		/* start_error is about the command itself */
	struct forge_error start_error; /* code != 0: the command never ran */
	uint64_t network_tries; /* of a command that failed: packets that found no way */
	uint64_t tmp_files, tmp_bytes; /* left in its /tmp, which is gone */
	uint64_t wall_usec, cpu_usec, memory_peak_bytes, pids_peak;
	uint64_t disk_peak_bytes, inodes_peak, io_read_bytes, io_write_bytes;
	uint64_t stream_bytes[2]; /* produced, as far as they were read */
	bool is_truncated[2];
	uint64_t oom_kills, pids_refused, sockets_refused;
	/* Who had most of the memory just before it ran out; bytes 0: nobody knows. */
	char largest_name[16];
	uint64_t largest_bytes;
	/* Ended for memory of the host's kernel that nobody is charged for; 0: it was not that. */
	uint64_t kernel_memory_bytes;
	bool oom_elsewhere; /* the host or an outer group ran out, not this run's limit */
	bool is_too_deep;   /* the workdir's tree was beyond measuring */
	bool is_stuck;	    /* processes of it do not die; their cgroups are left */
	bool has_quota;	    /* the kernel enforced the disk limit */
	unsigned missing;   /* 1u << enum forge_mechanism */
	const char *cgroup_manager;
	int landlock_abi;
};

/* What an executor still holds of a run. */
struct forge_execution;

/* Contract of an executor; members are required. Ops never print and never exit. */
struct forge_executor_ops {
	const char *name;
	/* What run() would do, as JSON; makes nothing. */
	int (*explain)(const struct forge_job *job, json_t **ret,
		       struct forge_error *err);
	/*
	 * Carries the job out and waits until nothing of it runs. 0: *ret is filled, whatever happened
	 * to the command. Negative: it could not be started here (sandbox or limits unavailable);
	 * missing, cgroup_manager and landlock_abi are filled as far as known. In both cases
	 * *ret_execution, when it is not NULL, is to be ended.
	 */
	int (*run)(const struct forge_job *job, struct forge_outcome *ret,
		   struct forge_execution **ret_execution, struct forge_error *err);
	/*
	 * Gives back what the run had; other work can be done before, while the kernel tears it down.
	 * Negative: something is left, err says what. Accepts NULL.
	 */
	int (*end)(struct forge_execution *e, struct forge_error *err);
};

extern const struct forge_executor_ops forge_executor_local;
