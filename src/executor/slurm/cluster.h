/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What forge asks of a Slurm cluster, through its commands and their plain-text formats. A job is found by
 * its name, which has the id of the run, and never by its number: a controller that crashed may give
 * the same number to another job.
 */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "base/strv.h"
#include "executor/executor.h"

#define FORGE_JOB_NAME_MAX 48

/* How a cluster is asked. */
struct forge_cluster {
	const char *conf; /* SLURM_CONF, NULL: as in the environment */
	int stop_fd; /* readable: a question is given up, as if there were no answer; -1: none */
};

struct forge_cluster_job {
	char name[FORGE_JOB_NAME_MAX];
	char id[32], state[24], reason[64], node[64];
	enum forge_remote_state remote;
};

/* The name of the job of this run. Returns buf. */
const char *forge_cluster_name(const char *run_id, char buf[FORGE_JOB_NAME_MAX]);

/* "Slurm 22.05.8, 3 nodes" */
FORGE_MUST_CHECK int forge_cluster_probe(const struct forge_cluster *c,
					 const char *partition, char *buf, size_t size,
					 struct forge_error *err);
/*
 * Submits a job; argv are options of sbatch, script its text. 0: *ret_id is its number. 1: it may have been
 * submitted or not. Negative: it was not submitted.
 */
FORGE_MUST_CHECK int forge_cluster_submit(const struct forge_cluster *c,
					  const struct forge_strv *argv,
					  const char *script, char ret_id[32],
					  struct forge_error *err);
/*
 * The job of this name. With remote FORGE_REMOTE_ENDED and without a state it is not there. Negative: the
 * cluster cannot be asked, and *ret is FORGE_REMOTE_UNKNOWN.
 */
FORGE_MUST_CHECK int forge_cluster_find(const struct forge_cluster *c, const char *name,
					struct forge_cluster_job *ret,
					struct forge_error *err);
/* How the program of a job that has ended did, as of wait(2). */
FORGE_MUST_CHECK int forge_cluster_exit(const struct forge_cluster *c,
					const struct forge_cluster_job *job,
					int *ret_status, struct forge_error *err);
/* All jobs of forge of this user, by one question. *ret is sorted by name and belongs to the caller. */
FORGE_MUST_CHECK int forge_cluster_list(const struct forge_cluster *c,
					struct forge_cluster_job **ret, size_t *ret_n,
					struct forge_error *err);
/* One of these by its name, NULL: it is not there. */
const struct forge_cluster_job *forge_cluster_pick(const struct forge_cluster_job *jobs,
						   size_t n, const char *name);
enum forge_cluster_cancel {
	FORGE_CLUSTER_ASK, /* SIGTERM to the program of the job alone, which is forge */
	/* The second one is another signal, SIGINT: two of the same become one for a program that is not scheduled. */
	FORGE_CLUSTER_INSIST,
	FORGE_CLUSTER_KILL,
	/* The same for a job that would do nothing: this side does not wait for it long. */
	FORGE_CLUSTER_DROP,
};
/* Success says nothing about the job: scancel also succeeds for a name that no job has. */
FORGE_MUST_CHECK int forge_cluster_cancel(const struct forge_cluster *c, const char *name,
					  enum forge_cluster_cancel how,
					  struct forge_error *err);
/*
 * Whether a job has been pending for too long: for max_pending seconds (0: no bound), or for a minute with a
 * reason that does not pass. Times are seconds of the epoch; reason_since 0: not known.
 */
bool forge_cluster_is_overdue(uint64_t submitted_at, uint64_t reason_since,
			      uint64_t max_pending, const char *reason);
/* "Slurm job 12 is pending: Priority". Returns buf. */
const char *forge_cluster_describe(const struct forge_cluster_job *j, char *buf,
				   size_t size);
