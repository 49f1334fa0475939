/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run's own directory on disk: made once, never reused, removed whatever is in it.
 *
 * On the host it is FORGE_WORKDIR_INNER in a directory of mode 0700 that the supervisor owns, and that has
 * the name of the template. The run may give its own directory any mode, but no
 * other user can pass the directory around it. Inside it is mounted under the template's name.
 */
#pragma once

#include <sys/types.h>

#include "executor/executor.h"

#include "base/error.h"
#include "base/rmtree.h"
#include "base/strv.h"
#include "sandbox/ids.h"
#include "sandbox/plan.h"
#include "state/home.h"

#define FORGE_WORKDIR_INNER FORGE_PLAN_WORKDIR

struct forge_workdir {
	const char *path; /* of the directory around it; borrowed */
	int fd;		  /* of the run's own, O_RDONLY, -1 before it is made */
	dev_t dev;
	ino_t ino;   /* of the one around it */
	ino_t inner; /* of the run's own, on the same device */
};

/*
 * -EEXIST: the name is taken. Refuses a parent directory where others could swap it. The directory around the
 * run's own is that of the last run in this slot of home, if it was given back: see
 * forge_workdir_remove().
 */
FORGE_MUST_CHECK int forge_workdir_make(const char *path, const struct forge_home *home,
					unsigned slot, struct forge_workdir *ret,
					struct forge_error *err);
/*
 * Removes the run's own directory with all that is in it. The one around it, which no run can write to, is
 * kept in spare/ for the next run in this slot, where that is on the same file system: a directory less is
 * made and freed, and ext4 looks at each inode that was freed lately before it makes a new one.
 */
FORGE_MUST_CHECK int forge_workdir_remove(const struct forge_workdir *w,
					  const struct forge_home *home, unsigned slot,
					  struct forge_rmtree_stats *ret,
					  struct forge_error *err);
/* Links for relative inputs ("rel", "target" pairs), then everything to the run's user. */
FORGE_MUST_CHECK int forge_workdir_fill(struct forge_workdir *w,
					const struct forge_strv *links, uid_t uid,
					gid_t gid, struct forge_error *err);
void forge_workdir_close(struct forge_workdir *w);

/*
 * For --keep, when everything that ran is dead: the run's own directory takes the place of the one
 * around it, belongs to us and is closed to others. Where it is then goes into *ret_path, a new string: the
 * same path or, if another process took that name at this moment, that with the run's id; its identity
 * is dev and inner. Can be repeated after a crash at any point.
 */
FORGE_MUST_CHECK int forge_workdir_keep(const struct forge_workdir *w, const char *run_id,
					char **ret_path, struct forge_error *err);

/* ---- for the executors ---- */

/* Makes and fills the workdir of a job, and writes into its slot which directory that is. */
FORGE_MUST_CHECK int forge_workdir_make_noted(struct forge_workdir *w,
					      const struct forge_job *job,
					      const struct forge_ids *ids,
					      struct forge_error *err);
/* Opens the workdir that a slot identifies; path is borrowed. -ESTALE: another directory has the name. */
FORGE_MUST_CHECK int forge_workdir_reopen(const json_t *slot, const char *path,
					  struct forge_workdir *ret,
					  struct forge_error *err);
/* See struct forge_executor_ops. */
bool forge_workdir_drop_empty(const struct forge_workdir *w);
FORGE_MUST_CHECK int forge_workdir_keep_as(struct forge_workdir *w, const char *run_id,
					   struct forge_kept *ret,
					   struct forge_error *err);
FORGE_MUST_CHECK int forge_workdir_repair(const struct forge_repair *r,
					  struct forge_error *err);
FORGE_MUST_CHECK int forge_workdir_repair_kept(const struct forge_repair *r,
					       struct forge_kept *ret,
					       struct forge_error *err);
