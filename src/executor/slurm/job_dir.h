/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of a job, on a file system that this machine shares with the nodes. It is how the two sides
 * talk, and the truth about the run: the state that Slurm shows only explains what is missing here.
 *
 *   <dir>/.forge-shared       a random text: an empty mount point in its place is not the same directory
 *   <dir>/<run id>            the workdir: see executor/workdir.h
 *   <dir>/<run id>.job/
 *     job.json                what to run: see job_file.h
 *     stdin                   with --stdin
 *     claim                   a symbolic link, which symlink(2) makes once. The process that made it decides about the
 *                             run: forge on a node runs the command, a supervisor on this machine takes the run back
 *                             and never lets it run. A job that finds a claim ends without running anything.
 *     cancel                  forge here has asked for the end of the run
 *     started                 the command runs
 *     stdout, stderr          its logs
 *     usage.json              what it uses now
 *     outcome.json            what happened, complete and safe on disk before it has this name
 *     slurm.out               what the job itself printed
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"

struct forge_job_dir {
	char *dir, *place, *path; /* the shared one, the workdir, <run id>.job */
	int fd;			  /* of path, -1: not open */
	char mark[64];		  /* the text in .forge-shared */
};
#define FORGE_JOB_DIR_INIT ((struct forge_job_dir){ .fd = -1 })

/* Only the names. */
FORGE_MUST_CHECK int forge_job_dir_name(const char *dir, const char *run_id,
					struct forge_job_dir *ret,
					struct forge_error *err);
/*
 * Puts a mark into dir, which must be there, if it has none. seen is a file in a directory of this FORGE_HOME
 * that remembers the mark: a directory that had another one before is refused, because its file system is
 * probably not mounted.
 */
FORGE_MUST_CHECK int forge_job_dir_prepare(struct forge_job_dir *d, int seen_fd,
					   const char *seen, struct forge_error *err);
/* Makes path, which must not be there. */
FORGE_MUST_CHECK int forge_job_dir_make(struct forge_job_dir *d, struct forge_error *err);
/*
 * Opens path. -ENOENT: it is not there, for certain, because the shared directory with that mark is. Other
 * errors, such as -EHOSTDOWN for a shared directory that is not there, say nothing.
 */
FORGE_MUST_CHECK int forge_job_dir_open(struct forge_job_dir *d, const char *mark,
					struct forge_error *err);
/* Removes path with everything in it. Not being there is no error. */
FORGE_MUST_CHECK int forge_job_dir_remove(struct forge_job_dir *d,
					  struct forge_error *err);
void forge_job_dir_done(struct forge_job_dir *d);

#define FORGE_CLAIM_MAX 128
/* What a claim of this side begins with; the rest says why. */
#define FORGE_CLAIM_BACK "back "
/*
 * Makes the claim. 0: this call made it. -EEXIST: another process had made it before. In both cases ret_owner is the
 * text of the claim.
 */
FORGE_MUST_CHECK int forge_job_dir_claim(int fd, const char *text,
					 char ret_owner[FORGE_CLAIM_MAX]);
/* The text of the claim; "": there is none yet. Negative: it cannot be read now. */
FORGE_MUST_CHECK int forge_job_dir_owner(int fd, char ret_owner[FORGE_CLAIM_MAX]);
bool forge_job_dir_has(int fd, const char *name);
/* An object in a file; NULL without an error: there is no such file yet. */
FORGE_MUST_CHECK int forge_job_dir_load(int fd, const char *name, json_t **ret,
					struct forge_error *err);
/* The other way, whole or not at all; releases the object. */
FORGE_MUST_CHECK int forge_job_dir_store(int fd, const char *name, json_t *object,
					 struct forge_error *err);
