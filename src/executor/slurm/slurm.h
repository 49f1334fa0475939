/* SPDX-License-Identifier: Apache-2.0 */
/* A run on Slurm: for slurm.c (the contract of executors) and await.c (until it ends), and for no other file. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "executor/executor.h"
#include "executor/slurm/cluster.h"
#include "executor/slurm/job_dir.h"
#include "executor/workdir.h"

struct forge_slurm {
	struct forge_execution base;
	const struct forge_job *job;
	const struct forge_executor_decl *decl;
	/* As in the slot: the configuration may say something else when another supervisor goes on. */
	char *conf; /* SLURM_CONF, NULL: as in the environment */
	uint64_t poll_usec, max_lag_usec;
	uint64_t max_pending_sec; /* 0: no bound */
	uint64_t submitted_at;	  /* seconds of the epoch */
	char name[FORGE_JOB_NAME_MAX];
	struct forge_job_dir dir;
	struct forge_workdir workdir;
	struct forge_cluster_job found; /* at the last question */
	char cluster[64];
	char pending[128];	/* what was reported last, and when */
	uint64_t pending_since; /* seconds of the epoch */
	int signals;
	int n_signals; /* received here */
	int n_asked; /* of them passed on to forge on the node, which counts them, too */
	bool is_urgent;	 /* one of them asked for an end without grace */
	uint64_t ask_at; /* the next question to Slurm */
	uint64_t
		ended_at; /* Slurm said that it ended, seconds of the epoch; 0: it goes on */
	uint64_t
		state_at; /* the next question what became of a job that has an outcome */
	uint64_t
		outcome_at; /* its outcome was there, seconds of the epoch; 0: it was not */
	uint64_t kill_at; /* it was asked to end, and must have by then; 0: it was not */
	off_t shown[2];	  /* of its logs, to the live readers */
	bool is_open, is_submitted, is_new, has_node, has_started;
	bool is_unreadable; /* the outcome may be there */
	bool is_over;	    /* nothing of it runs, or ever will */
};

static inline void forge_slurm_event(const struct forge_slurm *e, const char *name,
				     const char *detail)
{
	e->job->on_event(e->job->arg, name, detail);
}

/* Takes the run from whatever job there may be. 1: it is ours. 0: a node has it. Negative: not known. */
FORGE_MUST_CHECK int forge_slurm_take_back(struct forge_slurm *e, const char *why);
/* Asks for the job, by its name. 1: it is there. 0: it is not. Negative: not known. */
FORGE_MUST_CHECK int forge_slurm_find(struct forge_slurm *e);
/* Whether a signal from outside ended the program of the job that was found. Negative: not known. */
FORGE_MUST_CHECK int forge_slurm_was_killed(struct forge_slurm *e);
/* Negative: Slurm may not have received it. An event reports that, so callers may ignore it. */
int forge_slurm_cancel(struct forge_slurm *e, enum forge_cluster_cancel how);
/* As wait() of an executor. */
FORGE_MUST_CHECK int forge_slurm_await(struct forge_slurm *e, struct forge_outcome *ret,
				       struct forge_error *err);
