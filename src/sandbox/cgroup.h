/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups: they limit and count memory, CPUs and processes of a run, and kill them.
 * Managers are rows of a table; callers use only the forge_cgroup_*() functions.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/strv.h"
#include "config/config.h"
#include "sandbox/blockdev.h"

/*
 * An unknown peak, time or amount of I/O is UINT64_MAX; unknown counts of kills and refusals
 * are 0.
 */
struct forge_cgroup_usage {
	uint64_t memory_peak_bytes;
	uint64_t cpu_usec;
	uint64_t pids_peak;
	uint64_t oom_kills;
	bool oom_elsewhere; /* killed for memory, but not because of this group's limit */
	uint64_t pids_refused; /* forks that failed because of the limit */
	uint64_t io_read_bytes, io_write_bytes;
};

/* The largest process of a group, for messages. */
struct forge_largest {
	/* Its name, with unsafe characters replaced; "": unknown. */
	char name[16];
	uint64_t bytes; /* resident */
};

struct forge_cgroup {
	const struct forge_cgroup_ops *ops;
	struct forge_limits limits;
	char *name; /* "forge-<run id>" */
	/* Directories of this run: one on v2, one for each hierarchy on v1. */
	struct forge_strv dirs;
	int v2_fd; /* on the unified tree: for CLONE_INTO_CGROUP and kill, or -1 */
	int memory_fd, cpu_fd, cpuacct_fd, pids_fd, blkio_fd; /* v1 directories, or -1 */
	/*
	 * Files to which init writes "0" as its first step, to enter the group. When a thread
	 * moves itself through "tasks" the kernel needs no grace period. Moving another process
	 * needs one, which takes milliseconds. -1 ends the list.
	 */
	int enter_fds[6];
	int oom_fd; /* readable when memory ran out and the rest must be killed, or -1 */
	/*
	 * Becomes ready when memory is scarce, before the kernel kills a process for it: an
	 * eventfd (POLLIN) on v1, memory.events (POLLPRI) on v2. -1: the kernel has no such
	 * event here, or memory is not limited.
	 */
	int pressure_fd;
	short pressure_poll;
	/*
	 * v2 without memory.oom.group: after an event of pressure_fd the supervisor must check oom_kills and end the
	 * run, because the kernel has killed only one process.
	 */
	bool must_kill_rest;
	unsigned missing; /* 1u << enum forge_mechanism: what is not enforced */
	struct forge_blockdev io_disk; /* name "": no I/O rate was asked for */
	bool has_io;		       /* the I/O rate is in force */
	struct forge_error io_error;   /* why FORGE_MECH_IO is missing */
};

/*
 * Contract of a manager. Ops never log; they fill err (with a hint where a person can fix the
 * problem) and return -errno. Groups are made below our own cgroup or, by v2, in the place that
 * cgroup_place.c finds.
 */
struct forge_cgroup_ops {
	/* "v2", "systemd", "v1" or "none"; the record has this name too. */
	const char *name;

	/* required: makes the directories and sets cg->missing to what will not be limited. */
	int (*create)(struct forge_cgroup *cg, struct forge_error *err);
	/*
	 * required: writes the limits. Called while init builds the sandbox, before the command
	 * runs.
	 */
	int (*configure)(struct forge_cgroup *cg, struct forge_error *err);
	/* required: sets the fields it knows and leaves the others unchanged. */
	void (*usage)(struct forge_cgroup *cg, struct forge_cgroup_usage *u);
};

extern const struct forge_cgroup_ops forge_cgroup_v2, forge_cgroup_systemd,
	forge_cgroup_v1, forge_cgroup_none;

/*
 * Picks the manager (auto: the first of v2, v1, systemd that works) and makes the group. The
 * I/O rate in limits applies to io_disk; when its name is empty there is no I/O limit.
 */
FORGE_MUST_CHECK int forge_cgroup_new(enum forge_cgroup_choice choice, const char *run_id,
				      const struct forge_limits *limits,
				      const struct forge_blockdev *io_disk,
				      struct forge_cgroup **ret, struct forge_error *err);
/*
 * The group that another program (a container engine) has made for a process: limited, counted, watched and
 * killed as one of ours, but not removed. What it has no group of its own for is in missing.
 */
FORGE_MUST_CHECK int forge_cgroup_adopt(pid_t pid, const char *run_id,
					const struct forge_limits *limits,
					struct forge_cgroup **ret,
					struct forge_error *err);
/* Of an adopted group: 1u << enum forge_mechanism for each limit that its files do not have. */
unsigned forge_cgroup_unlimited(struct forge_cgroup *cg);
/* The directories of a process in the hierarchies that are counted, as an array of paths. */
json_t *forge_cgroup_paths(pid_t pid);
/* What the groups with these paths use now. What cannot be read stays as it is. */
void forge_cgroup_read_now(const json_t *paths, uint64_t *memory_bytes,
			   uint64_t *cpu_usec);
/* Every directory that a run of this id could make from here; for repair after a crash. */
FORGE_MUST_CHECK int forge_cgroup_predict(const char *run_id, struct forge_strv *ret);
/* Writes the limits. Called after init has been started and before the command is. */
FORGE_MUST_CHECK int forge_cgroup_configure(struct forge_cgroup *cg,
					    struct forge_error *err);
/* Opens <dir>/<file> and adds it to enter_fds. */
FORGE_MUST_CHECK int forge_cgroup_add_entry(struct forge_cgroup *cg, int dir,
					    const char *file, struct forge_error *err);
void forge_cgroup_usage(struct forge_cgroup *cg, struct forge_cgroup_usage *ret);
/* What the group uses at this moment; UINT64_MAX where that is unknown. */
struct forge_cgroup_now {
	uint64_t memory_bytes, cpu_usec, pids;
};
void forge_cgroup_now(struct forge_cgroup *cg, struct forge_cgroup_now *ret);
/* CPU time of the group so far, UINT64_MAX when unknown. */
uint64_t forge_cgroup_cpu_usec(struct forge_cgroup *cg);
/* Memory of the group that is files on a tmpfs, UINT64_MAX when unknown. */
uint64_t forge_cgroup_shmem_bytes(struct forge_cgroup *cg);
/*
 * Lifts the I/O limits. A process that waits for throttled I/O cannot die before the I/O is
 * done, which can take hours at the limited rate, so this is part of the end of every run.
 */
void forge_cgroup_release_io(struct forge_cgroup *cg);
/* Number of processes that were killed for memory, 0 when unknown. */
uint64_t forge_cgroup_oom_kills(struct forge_cgroup *cg);
/*
 * Whether memory ran out at the limit of this group. On v1 a group also hears of it when a group around it ran
 * out, which may concern other processes only. Not known counts as yes.
 */
bool forge_cgroup_is_own_oom(const struct forge_cgroup *cg);
/*
 * Consumes the event of pressure_fd and finds the largest process other than init. Returns
 * false, with *ret unchanged, when the answer is not certain: dying processes look small.
 */
bool forge_cgroup_look(struct forge_cgroup *cg, pid_t init, struct forge_largest *ret);
/* Kills every process in the group; does not wait. */
void forge_cgroup_kill(struct forge_cgroup *cg);
/* Waits until the group is empty, then removes its directories. */
FORGE_MUST_CHECK int forge_cgroup_remove(struct forge_cgroup *cg,
					 struct forge_error *err);
/*
 * The same for a directory that a dead supervisor left, by path; first kills the processes in
 * it.
 */
FORGE_MUST_CHECK int forge_cgroup_remove_dir(const char *path, struct forge_error *err);
/*
 * Removes the groups beside ours that runs of this user left when their forge was killed. For a node of a cluster, where no
 * slot names them. job_prefix: what the names of groups begin with that the cluster makes for its jobs; where ours is in such a
 * group, those of all jobs are looked into, and the ones that become empty are removed. The group of a run that a living
 * forge has made, and any group with a process in it, stays.
 */
void forge_cgroup_sweep(const char *job_prefix);
/* Closes and frees; directories that were not removed stay. Accepts NULL and half-made groups. */
void forge_cgroup_free(struct forge_cgroup *cg);
FORGE_DEFINE_AUTO(cgroup, struct forge_cgroup *, forge_cgroup_free)
#define forge_auto_cgroup FORGE_CLEANUP(forge_auto_cgroup_)

/*
 * On a unified hierarchy, the leaf group that processes are moved into so that the group they
 * were in can give controllers to its children.
 */
#define FORGE_CGROUP_LEAF "forge-supervisors"
/* The directory of the runs' groups where the group above it is shared with other software. */
#define FORGE_CGROUP_DIR "forge"

/* For the managers, and for cgroup_sweep.c. */
#define FORGE_CGROUP_ROOT "/sys/fs/cgroup"
/* Whether an open group has not been removed. */
bool forge_cgroup_is_there(int dir);
/* Without directories; NULL: out of memory. */
struct forge_cgroup *forge_cgroup_alloc(const struct forge_cgroup_ops *ops,
					const char *run_id,
					const struct forge_limits *limits,
					const struct forge_blockdev *io_disk);
/*
 * Our own directory in each hierarchy we use, NULL where that is not mounted. It is looked up
 * again when the content of /proc/self/cgroup has changed, and valid until then.
 */
struct forge_cgroup_own {
	char *unified, *memory, *pids, *cpu, *cpuacct, *blkio;
	char *top; /* where the unified hierarchy is mounted; unified is this or below it */
};
FORGE_MUST_CHECK int forge_cgroup_own(const struct forge_cgroup_own **ret);

/* Which processes must leave a group before it can give controllers to its children. */
enum forge_cgroup_move {
	FORGE_CGROUP_MOVE_NONE,
	FORGE_CGROUP_MOVE_SELF, /* and the helpers we started */
	FORGE_CGROUP_MOVE_ALL,
};

/* Where the groups of runs are made on a unified hierarchy; see cgroup_place.c. */
struct forge_cgroup_place {
	char *dir;  /* the group whose controllers are given out; NULL: there is none */
	char *runs; /* dir, or FORGE_CGROUP_DIR in it */
	enum forge_cgroup_move move;
};
/*
 * Finds the place without changing anything; -ENOENT when there is none. *ret is valid until
 * our own group changes.
 */
FORGE_MUST_CHECK int forge_cgroup_place(const struct forge_cgroup_own *own,
					const struct forge_cgroup_place **ret);
/* Sets err to why there is no place. */
int forge_cgroup_place_explain(const struct forge_cgroup_own *own,
			       struct forge_error *err);
/* Moves the processes that must leave, enables the controllers and makes runs. May be repeated. */
FORGE_MUST_CHECK int forge_cgroup_place_prepare(const struct forge_cgroup_place *p,
						struct forge_error *err);
/* Is word one of the words in text? */
bool forge_cgroup_has_word(const char *text, const char *word);
/*
 * Makes <parent>/<name>, notes it in dirs, opens and locks it. Returns the fd or -errno. While the fd is open,
 * forge_cgroup_sweep() leaves the group alone.
 */
int forge_cgroup_make_dir(struct forge_cgroup *cg, const char *parent);
/* Writes the I/O rate into dir: io.max where it has one, else the files of v1's blkio. */
FORGE_MUST_CHECK int forge_cgroup_limit_io(struct forge_cgroup *cg, int dir, bool is_v2,
					   struct forge_error *err);
/* Removes every I/O limit that is set in dir. */
void forge_cgroup_release_io_dir(int dir);
/* Is any swap area in use on this host? */
bool forge_host_has_swap(void);
