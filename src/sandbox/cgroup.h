/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups: where memory, CPUs and processes of a run are limited, counted and killed.
 * Managers are rows of a table; everyone calls the forge_cgroup_*() functions.
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

/* UINT64_MAX where the kernel does not tell. */
struct forge_cgroup_usage {
	uint64_t memory_peak_bytes;
	uint64_t cpu_usec;
	uint64_t pids_peak;
	uint64_t oom_kills;
	bool oom_elsewhere; /* killed for memory, but not because of this group's limit */
	uint64_t pids_refused; /* forks that met the limit */
	uint64_t io_read_bytes, io_write_bytes;
};

/* A process of the group, for people. */
struct forge_largest {
	char name[16];	/* what it calls itself, made harmless; "": unknown */
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
	 * Files that init writes "0" to, first thing, to enter. A thread that moves itself
	 * through "tasks" needs no grace period of the kernel's; moving another process does,
	 * and that takes milliseconds. -1 ends the list.
	 */
	int enter_fds[6];
	int oom_fd; /* readable when memory ran out and the rest must be killed, or -1 */
	/*
	 * Tells that memory is scarce, before anybody is killed for it: an eventfd (POLLIN) on
	 * v1, memory.events (POLLPRI) on v2. -1: nobody tells, or nothing is limited.
	 */
	int pressure_fd;
	short pressure_poll;
	unsigned missing; /* 1u << enum forge_mechanism: what is not enforced */
	struct forge_blockdev io_disk; /* name "": no I/O rate was asked for */
	bool has_io;		       /* and it is limited */
	struct forge_error io_error;   /* why FORGE_MECH_IO is missing */
};

/*
 * Contract of a manager. Ops never log; they fill err (with a hint where a person can fix
 * it) and return -errno. Groups are made below our own cgroup, or in the place of manager v2.
 */
struct forge_cgroup_ops {
	const char *name; /* "v2", "systemd", "v1", "none": also what the record says */

	/* required: makes the directories; missing says what will not be limited. */
	int (*create)(struct forge_cgroup *cg, struct forge_error *err);
	/* required: writes the limits. Called while init prepares, before the command runs. */
	int (*configure)(struct forge_cgroup *cg, struct forge_error *err);
	/* required: fills what it knows, leaves the rest. */
	void (*usage)(struct forge_cgroup *cg, struct forge_cgroup_usage *u);
};

extern const struct forge_cgroup_ops forge_cgroup_v2, forge_cgroup_systemd,
	forge_cgroup_v1, forge_cgroup_none;

/*
 * Picks the manager (auto: v2, v1, systemd, the first that works) and makes the group. The
 * I/O rate of limits is for io_disk; with none (its name is empty) nothing is made for it.
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
/* Writes the limits: after init is in, before the command is. */
FORGE_MUST_CHECK int forge_cgroup_configure(struct forge_cgroup *cg,
					    struct forge_error *err);
/* Opens <dir>/<file> as one more of enter_fds. */
FORGE_MUST_CHECK int forge_cgroup_add_entry(struct forge_cgroup *cg, int dir,
					    const char *file, struct forge_error *err);
void forge_cgroup_usage(struct forge_cgroup *cg, struct forge_cgroup_usage *ret);
/* CPU time so far, UINT64_MAX when unknown. */
uint64_t forge_cgroup_cpu_usec(struct forge_cgroup *cg);
/* Memory of it that is files on a tmpfs, UINT64_MAX when unknown. */
uint64_t forge_cgroup_shmem_bytes(struct forge_cgroup *cg);
/*
 * Lets go what waits for its turn on the disk. A process that does cannot die before it is
 * done, and at its rate that can take hours; so this comes with the end of every run.
 */
void forge_cgroup_release_io(struct forge_cgroup *cg);
/* Processes that were killed for memory, 0 when unknown. */
uint64_t forge_cgroup_oom_kills(struct forge_cgroup *cg);
/*
 * Takes the event of pressure_fd and finds the largest process but init. False, with *ret as it
 * was, when there is none to be sure of: the dying look small.
 */
bool forge_cgroup_look(struct forge_cgroup *cg, pid_t init, struct forge_largest *ret);
/* Kills everything in it; returns at once. */
void forge_cgroup_kill(struct forge_cgroup *cg);
/* Waits until it is empty and removes its directories. */
FORGE_MUST_CHECK int forge_cgroup_remove(struct forge_cgroup *cg,
					 struct forge_error *err);
/* The same for directories that a dead supervisor left, by path; killing what is in them. */
FORGE_MUST_CHECK int forge_cgroup_remove_dir(const char *path, struct forge_error *err);
/* Closes; the directories stay unless they were removed. Accepts NULL and half-made ones. */
void forge_cgroup_free(struct forge_cgroup *cg);
FORGE_DEFINE_AUTO(cgroup, struct forge_cgroup *, forge_cgroup_free)
#define forge_auto_cgroup FORGE_CLEANUP(forge_auto_cgroup_)

/* Where processes go on a unified host, so that the group they were in can have children. */
#define FORGE_CGROUP_LEAF "forge-supervisors"
/* What the groups of runs lie in where the group above is shared with others. */
#define FORGE_CGROUP_DIR "forge"

/* For the managers. */
/* Without directories; NULL: out of memory. */
struct forge_cgroup *forge_cgroup_alloc(const struct forge_cgroup_ops *ops,
					const char *run_id,
					const struct forge_limits *limits,
					const struct forge_blockdev *io_disk);
/*
 * Our own directory in each hierarchy we use; NULL where it is not mounted. Looked up again when
 * /proc/self/cgroup says something else than the last time; valid until then.
 */
struct forge_cgroup_own {
	char *unified, *memory, *pids, *cpu, *cpuacct, *blkio;
	char *top; /* where the unified one is mounted; unified is it or below it */
};
FORGE_MUST_CHECK int forge_cgroup_own(const struct forge_cgroup_own **ret);

/* Which processes must leave a group before it can give controllers to its children. */
enum forge_cgroup_move {
	FORGE_CGROUP_MOVE_NOBODY,
	FORGE_CGROUP_MOVE_US, /* and the helpers we started */
	FORGE_CGROUP_MOVE_ALL,
};

/* Where the groups of runs are made on a unified hierarchy; see cgroup_place.c. */
struct forge_cgroup_place {
	char *dir;  /* the group whose controllers are given out; NULL: there is none */
	char *runs; /* dir, or FORGE_CGROUP_DIR in it */
	enum forge_cgroup_move move;
};
/* Finds it and changes nothing. -ENOENT: there is none. Valid until our own group changes. */
FORGE_MUST_CHECK int forge_cgroup_place(const struct forge_cgroup_own *own,
					const struct forge_cgroup_place **ret);
/* Says why there is none. */
int forge_cgroup_place_explain(const struct forge_cgroup_own *own,
			       struct forge_error *err);
/* Moves who must be moved, enables the controllers, makes runs; all of it once. */
FORGE_MUST_CHECK int forge_cgroup_place_prepare(const struct forge_cgroup_place *p,
						struct forge_error *err);
/* Is it one of the words in text? */
bool forge_cgroup_has_word(const char *text, const char *word);
/* Makes <parent>/<name>, notes it in dirs and opens it. Returns the fd or -errno. */
int forge_cgroup_make_dir(struct forge_cgroup *cg, const char *parent);
/* Writes the I/O rate into dir: io.max where it has one, else the files of v1's blkio. */
FORGE_MUST_CHECK int forge_cgroup_limit_io(struct forge_cgroup *cg, int dir, bool is_v2,
					   struct forge_error *err);
/* Takes every I/O limit off that is written in dir. */
void forge_cgroup_release_io_dir(int dir);
/* Is any swap area in use on this host? */
bool forge_host_has_swap(void);
