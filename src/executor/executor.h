/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executors: where a run happens. An executor makes the place of a run, carries the run out under its
 * limits and reports what happened as facts (an outcome). What the facts mean, the verdict, is decided
 * in src/record/judge.c.
 *
 * An execution is one run on one executor. The door calls, in this order:
 *
 *   open          what belongs to the slot that the run has (a user id)
 *   plan          what is going to be made, written into the slot before anything is made
 *   make_workdir  the run's own directory
 *   prepare       everything else but the command; may go on in the background
 *   start         the command
 *   wait          until nothing of the run runs any more
 *   keep, clean   the workdir
 *   end           what the run still holds of the host
 *   close         the memory
 *
 * Any step may be the last but one: close follows in any case. After a crash, repair does from the slot
 * what clean, keep and end would have done.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/rmtree.h"
#include "base/strv.h"
#include "config/config.h"
#include "state/home.h"
#include "state/kept.h"
#include "state/samples.h"
#include "state/slot.h"

/* What to run. All pointers are borrowed until the execution is closed. */
struct forge_job {
	const char *run_id;
	char *const *argv;
	const struct forge_strv *env;	    /* complete */
	const struct forge_strv *read_only; /* canonical absolute paths */
	const struct forge_strv *aliases;   /* "typed path", "canonical path", ... */
	const struct forge_strv *tools;	    /* "link inside", "its text", ... */
	const struct forge_strv *links; /* "path below the workdir", "its target", ... */
	const char *root;  /* a directory with another system's trees, NULL: the host's */
	const char *image; /* of a runtime of kind image, NULL: none */
	const struct forge_executor_decl *executor;
	const char *workdir; /* its path inside */
	/* Its directory on this machine, which another machine has made; NULL: made here, at workdir. */
	const char *place;
	bool own_network;
	bool pass_stdin;
	bool only_looks; /* with attach: wait() returns 1 at once when the run goes on */
	const struct forge_limits *limits;
	const struct forge_config *config;
	const struct forge_home *home;
	struct forge_slot *slot; /* NULL in a dry run */
	/* Where points of its use are kept; NULL: with its record, as often as config says. */
	struct forge_samples *samples;
	bool is_checked;	 /* the health of the host where it runs counts */
	const int *log_fd;	 /* stdout, stderr: plain files, from start on */
	int live_fd[2];		 /* also shown here, -1: nowhere */
	/* Receives everything that is worth a line in the run's events; detail may be NULL. */
	void (*on_event)(void *arg, const char *event, const char *detail);
	/*
	 * Before the command starts, of a run whose processes do not descend from this one: process 1 of it, from
	 * which all of them descend.
	 */
	void (*on_init)(void *arg, pid_t init);
	/*
	 * Not NULL: the connections of the run are to be counted. After its processes are gone: what
	 * forge_connections_read() says, or {why} if that could not be counted; and in both cases sockets, how many the run
	 * made over IP and of UNIX, and sockets_unix, how many of them of UNIX, null if that is not known. Of a run with its own
	 * network: sockets_unix only. The callee takes it. Executors that count nothing do not call it.
	 */
	void (*on_connections)(void *arg, json_t *connections);
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
	FORGE_STOP_PENDING, /* a cluster had no room for it for too long */
};

/* What happened. UINT64_MAX in usage: not known. */
struct forge_outcome {
	bool has_started; /* execve succeeded */
	bool has_status;  /* wait_status is the command's own */
	int wait_status;
	enum forge_stop stop;
	bool is_interrupted; /* a signal asked to end it, also when it was ending already */
	bool is_exec_failure;		/* start_error is about the command itself */
	struct forge_error start_error; /* code != 0: the command never ran */
	uint64_t network_tries; /* of a command that failed: packets that found no way */
	uint64_t tmp_files, tmp_bytes; /* left in its /tmp, which is gone */
	uint64_t wall_usec, cpu_usec, memory_peak_bytes, pids_peak;
	uint64_t disk_peak_bytes, inodes_peak, io_read_bytes, io_write_bytes;
	uint64_t stream_bytes[2]; /* produced, as far as they were read */
	bool is_truncated[2];
	uint64_t oom_kills, pids_refused, sockets_refused;
	/* With on_connections, if they could be noted: sockets over IP and of UNIX. UINT64_MAX: not known. */
	uint64_t sockets_made, unix_sockets_made;
	/* The process with most memory just before memory ran out; bytes 0: not known. */
	char largest_name[16];
	uint64_t largest_bytes;
	/* Stopped for this much kernel memory that no cgroup is charged for; 0: not for that. */
	uint64_t kernel_memory_bytes;
	bool oom_elsewhere; /* the host or an outer group ran out, not this run's limit */
	bool is_too_deep;   /* the workdir's tree was beyond measuring */
	bool is_stuck;	    /* processes of it do not die; their cgroups are left */
	bool has_quota;	    /* the kernel enforced the disk limit */
	unsigned missing;   /* 1u << enum forge_mechanism */
	const char *cgroup_manager;
	int landlock_abi;
	/* Of a container: "Docker 20.10.24", the name and the id of the image; "": there is none. */
	char engine[96], image[256], image_id[96];
	/* Of a run on a cluster: "Slurm 22.05.8", its job there and the node; "": there is none. */
	char cluster[64], cluster_job[32], node[64];
	/* For the verdict: what the cluster says of a run that left no status of its own; "": nothing. */
	char explanation[320];
};

#define FORGE_OUTCOME_INIT                                                               \
	((struct forge_outcome){                                                         \
		.wall_usec = UINT64_MAX,                                                 \
		.cpu_usec = UINT64_MAX,                                                  \
		.memory_peak_bytes = UINT64_MAX,                                         \
		.pids_peak = UINT64_MAX,                                                 \
		.disk_peak_bytes = UINT64_MAX,                                           \
		.inodes_peak = UINT64_MAX,                                               \
		.io_read_bytes = UINT64_MAX,                                             \
		.io_write_bytes = UINT64_MAX,                                            \
		.sockets_made = UINT64_MAX,                                              \
		.unix_sockets_made = UINT64_MAX,                                         \
	})

/* What a run uses now. UINT64_MAX: not known, or not visible from here. */
struct forge_usage_now {
	uint64_t memory_bytes, cpu_usec;
};

struct forge_executor_ops;

enum forge_executor_caps {
	/* A run goes on when its supervisor dies: attach() finds it again. */
	FORGE_EXECUTOR_OUTLIVES = 1 << 0,
	/*
	 * Runs are on other machines: they use no share of this host's budget, and a submitted run has no
	 * supervisor while it goes on. One watcher looks at all of them, by look().
	 */
	FORGE_EXECUTOR_REMOTE = 1 << 1,
};

/* What look() finds. */
enum forge_remote_state {
	FORGE_REMOTE_UNKNOWN, /* the cluster cannot be asked now */
	FORGE_REMOTE_PENDING, /* the command has not started */
	FORGE_REMOTE_RUNNING,
	FORGE_REMOTE_ENDED, /* or it is not there: attach() finds out what that means */
};

/* One run that a watcher looks at. */
struct forge_remote {
	const json_t *plan; /* what plan() returned */
	enum forge_remote_state state;
	uint64_t
		since; /* seconds of the epoch: since when why is what it is; 0: not known */
	char why[128]; /* it is pending, in the words of the cluster; "": it does not say */
};

/* First member of every executor's own struct. */
struct forge_execution {
	const struct forge_executor_ops *ops;
};

/* What repair needs to know of a run whose supervisor is dead. All pointers are borrowed. */
struct forge_repair {
	const char *run_id;
	const json_t *slot; /* the content of its slot */
	bool keeps_workdir; /* the workdir stays where it is */
	/* ... if there are files in it that the user may want; also hidden ones with_aside */
	bool keeps_results, with_aside;
	bool dry_run; /* only report what would be done */
	/* Receives what is done, e.g. "remove workdir", "/tmp/x". */
	void (*report)(void *arg, const char *what, const char *detail);
	void *arg;
};

/*
 * The contract of an executor. All members but attach and look are required. They
 * never print and never exit: they fill err and return -errno.
 */
struct forge_executor_ops {
	const char *kind;
	unsigned caps; /* enum forge_executor_caps */
	size_t size; /* of the executor's struct, which starts with struct forge_execution */

	/* What a user should know that it does not enforce, though a sandbox of our own does; "": nothing. */
	const char *cannot;
	/* Whether it can be reached now: what is there goes into buf, e.g. "Docker 20.10.24". */
	int (*probe)(const struct forge_executor_decl *decl, char *buf, size_t size,
		     struct forge_error *err);
	/* What a run of this job would do, as JSON. Makes nothing. */
	int (*explain)(const struct forge_job *job, json_t **ret,
		       struct forge_error *err);
	/* Takes what belongs to the slot. -EAGAIN: in use, another slot may have a free one. */
	int (*open)(struct forge_execution *e, const struct forge_executor_decl *decl,
		    const struct forge_config *cfg, unsigned slot,
		    struct forge_error *err);
	/* What is going to be made for the run, as an object for its slot. */
	int (*plan)(const struct forge_job *job, json_t **ret, struct forge_error *err);
	/* -EEXIST: the name of the workdir is taken; with another one this can be called again. */
	int (*make_workdir)(struct forge_execution *e, const struct forge_job *job,
			    struct forge_error *err);
	/*
	 * Initialises *ret. Negative: the run cannot be carried out here (sandbox or limits not
	 * available); missing, cgroup_manager and landlock_abi of *ret say what is known.
	 */
	int (*prepare)(struct forge_execution *e, struct forge_outcome *ret,
		       struct forge_error *err);
	int (*start)(struct forge_execution *e, struct forge_error *err);
	/*
	 * With FORGE_EXECUTOR_OUTLIVES, instead of make_workdir, prepare and start: finds a run that another
	 * supervisor started, by the content of its slot. -ESRCH: there is no such run, for certain. Other
	 * errors say nothing about the run.
	 */
	int (*attach)(struct forge_execution *e, const struct forge_job *job,
		      const json_t *slot, struct forge_outcome *ret,
		      struct forge_error *err);
	/*
	 * With FORGE_EXECUTOR_REMOTE: the state of many runs, which all have the same plan but for their names,
	 * with as few questions to the cluster as possible. Negative: the cluster cannot be asked.
	 */
	int (*look)(struct forge_remote *runs, size_t n, struct forge_error *err);
	/*
	 * 0: *ret is complete, whatever happened to the command. 1: only with only_looks. Negative: the run
	 * could not be watched any longer and was killed.
	 */
	int (*wait)(struct forge_execution *e, struct forge_outcome *ret,
		    struct forge_error *err);
	/* The run's workdir as a descriptor for reading, -1: there is none. Owned by the execution. */
	int (*workdir_fd)(const struct forge_execution *e);
	/* Removes the workdir if there is nothing in it. True: there was nothing. */
	bool (*drop_empty)(struct forge_execution *e);
	/* Keeps the workdir for the user. *ret is then its owner's (forge_kept_done()). */
	int (*keep)(struct forge_execution *e, struct forge_kept *ret,
		    struct forge_error *err);
	/* Removes the workdir with everything in it, if there still is one. */
	int (*clean)(struct forge_execution *e, struct forge_rmtree_stats *ret,
		     struct forge_error *err);
	/*
	 * Gives back what the run had of the host. Between wait and this, other work can be done while the
	 * kernel takes the run apart. Negative: something is left, err says what. A second call does nothing.
	 */
	int (*end)(struct forge_execution *e, struct forge_error *err);
	/* Frees what the struct points to. Accepts one that was never opened. */
	void (*close)(struct forge_execution *e);

	/* Kills and removes what a dead supervisor left. Can be repeated. */
	int (*repair)(const struct forge_repair *r, struct forge_error *err);
	/*
	 * Keeps the workdir that a dead supervisor left and repair did not remove, because of r->keeps_workdir
	 * or r->keeps_results. 1: *ret says where it is; 0: there is none.
	 */
	int (*repair_kept)(const struct forge_repair *r, struct forge_kept *ret,
			   struct forge_error *err);
	/* What the run uses now, by the content of its slot. */
	void (*usage)(const json_t *slot, struct forge_usage_now *ret);
	/*
	 * After the outcome: the health of the host where the run was, {pre, post} as in the record; NULL: it
	 * was not checked. Optional: only executors with FORGE_EXECUTOR_REMOTE have it.
	 */
	int (*health)(struct forge_execution *e, json_t **ret, struct forge_error *err);
};

extern const struct forge_executor_ops forge_executor_local, forge_executor_container,
	forge_executor_slurm;

/* The executor of this kind, NULL: this build has none. */
const struct forge_executor_ops *forge_executor_find(const char *kind);
/* The executor that a slot names; the slots of older versions are those of local runs. */
const struct forge_executor_ops *forge_executor_of_slot(const json_t *slot);

/* A new execution, not opened; NULL: out of memory. */
struct forge_execution *forge_execution_new(const struct forge_executor_ops *ops);
/* Closes and frees it. Accepts NULL. */
void forge_execution_free(struct forge_execution *e);
/* What a run uses now; slots is of forge_slot_all(). */
void forge_run_usage(const json_t *slots, const char *run_id,
		     struct forge_usage_now *ret);
/* Whether the run of this slot is on another machine. Accepts NULL. */
bool forge_slot_is_remote(const json_t *slot);
/* Why a queued run waits on another machine, "Slurm job 12 is pending: Priority". NULL: it is queued here. */
const char *forge_run_pending(const json_t *slots, const char *run_id);
/* Where the log of this run is while it goes on: a directory; NULL: with its record. slot may be NULL. */
const char *forge_run_log_dir(const json_t *slot);
