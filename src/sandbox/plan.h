/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan: everything a sandbox will be, decided before any process is made. It is built
 * once, printed by `forge run --dry-run`, and only read afterwards. Policy lives here; the
 * files named child_*.c carry it out and decide nothing.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sched.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/strv.h"
#include "config/limits.h"
#include "sandbox/blockdev.h"

enum forge_mount_type {
	FORGE_MOUNT_DIR,     /* an empty directory on the root tmpfs */
	FORGE_MOUNT_SYMLINK, /* source is the link's text */
	FORGE_MOUNT_FILE,    /* source is the file's content */
	FORGE_MOUNT_RO,	     /* source tree, read-only with everything mounted below it */
	FORGE_MOUNT_RW,	     /* source directory, writable: the workdir */
	FORGE_MOUNT_DEV,     /* source is a character device with the given rdev */
	FORGE_MOUNT_TMPFS,   /* fresh, writable, size- and inode-limited */
	FORGE_MOUNT_PROC,    /* of the new pid namespace, read-only */
	FORGE_MOUNT_MASK,    /* hides target: an empty file or directory, read-only */
};

/*
 * One step of building the new root, carried out in order. Sources are opened without
 * following links and must be the inode seen when the plan was made.
 */
struct forge_mount {
	enum forge_mount_type type;
	char *target; /* absolute, inside */
	char *source; /* host path or text, NULL where the type needs none */
	bool is_dir;  /* the source is a directory */
	bool noexec;
	uint64_t size_bytes; /* TMPFS */
	uint64_t inodes;     /* TMPFS */
	uint64_t dev, ino;   /* identity of the source */
	uint64_t rdev;	     /* DEV */
};

struct forge_plan {
	char *run_id;
	/* command */
	struct forge_strv argv;
	struct forge_strv env;
	struct forge_strv exec_paths; /* what execve tries, in order */
	char *workdir; /* inside; outside it is FORGE_PLAN_WORKDIR below place */
	char *place;
	/* view */
	struct forge_mount *mounts;
	size_t n_mounts, cap_mounts;
	/* identity: inside is always 1000:1000, "forge" */
	uid_t host_uid;
	gid_t host_gid;
	bool privileged; /* the supervisor opens sources and maps ids with its own rights */
	/* isolation */
	bool own_network;
	bool notes_sockets; /* see socket_count.h */
	bool may_allocate; /* there is a quota, which counts blocks that are not written */
	int landlock_abi;  /* to be enforced; 0: none */
	/* budget */
	struct forge_limits limits;
	cpu_set_t cpus; /* affinity */
	unsigned n_cpus;
	struct forge_blockdev io_disk; /* to which limits.io_bytes_per_second applies */
	/* code != 0: why there is no io_disk although a rate was asked for. */
	struct forge_error io_error;
};

/* The workdir outside; the directory around it can be entered by the supervisor only. */
#define FORGE_PLAN_WORKDIR "work"

#define FORGE_INSIDE_UID  1000
#define FORGE_INSIDE_GID  1000
#define FORGE_INSIDE_NAME "forge"

void forge_plan_free(struct forge_plan *p);
FORGE_DEFINE_AUTO(plan, struct forge_plan *, forge_plan_free)
#define forge_auto_plan FORGE_CLEANUP(forge_auto_plan_)

/* What the caller of the sandbox decides; everything is copied. */
struct forge_plan_spec {
	const char *run_id;
	char *const *argv;
	const struct forge_strv *env; /* complete environment */
	const struct forge_strv
		*read_only;		  /* inputs and roots: canonical absolute paths */
	const struct forge_strv *aliases; /* pairs: a path as typed, and its target */
	const struct forge_strv
		*links;	     /* pairs: a link to be made inside, its text; NULL: none */
	const char *root;    /* the system's trees are those below it; NULL: the host's */
	const char *workdir; /* absolute; need not exist yet for a dry run */
	const char *place;   /* its path outside, NULL: the same */
	bool workdir_exists;
	bool own_network;
	bool notes_sockets;	       /* see socket_count.h */
	uint64_t tmp_bytes, shm_bytes; /* 0: from the memory limit */
	uid_t host_uid;		       /* chosen by forge_ids_choose() */
	gid_t host_gid;
	bool privileged;
	int landlock_abi;
	const struct forge_limits *limits;
};

FORGE_MUST_CHECK int forge_plan_build(const struct forge_plan_spec *spec,
				      struct forge_plan **ret, struct forge_error *err);
/* Refuses a path that would undo the sandbox, or that overlaps the workdir. */
FORGE_MUST_CHECK int forge_plan_check_root(const char *path, const char *workdir,
					   struct forge_error *err);
/* The plan as JSON, for people and tests. NULL when out of memory. */
json_t *forge_plan_json(const struct forge_plan *p);
