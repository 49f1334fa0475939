/* SPDX-License-Identifier: Apache-2.0 */
/* For src/pipeline and for what shows a pipeline: the state of a head, see head.h. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/error.h"
#include "config/config.h"
#include "pipeline/digests.h"
#include "pipeline/graph.h"
#include "pipeline/key.h"
#include "pipeline/launch.h"
#include "pipeline/results.h"
#include "pipeline/reuse.h"
#include "record/record.h"
#include "record/remove.h"
#include "state/home.h"
#include "store/store.h"

enum forge_task_state {
	FORGE_TASK_WAITING, /* for tasks that it reads from */
	FORGE_TASK_READY,   /* to run: it is not up to date */
	FORGE_TASK_RUNNING,
	FORGE_TASK_CACHED, /* up to date */
	FORGE_TASK_DONE,   /* it ran and succeeded */
	FORGE_TASK_GIVEN, /* not part of this run: an older result, or files of the user */
	FORGE_TASK_FAILED,
	FORGE_TASK_BLOCKED, /* it needs one that failed */
	FORGE_TASK_SKIPPED, /* when: does not hold */
	FORGE_TASK_LEFT,    /* not part of this run */
	FORGE_TASK_STATES,
};
extern const char *const forge_task_state_names[FORGE_TASK_STATES];

struct forge_head_task {
	enum forge_task_state state;
	unsigned missing; /* tasks that it still waits for */
	bool is_selected, is_forced;
	char key[FORGE_DIGEST_MAX]; /* "": not known yet */
	struct forge_result result;
	char run_id[FORGE_RUN_ID_MAX];
	char *why;   /* why it is not up to date */
	char *notes; /* how it ended, or why it cannot run; or what it waits for */
	unsigned attempt;
	unsigned used[FORGE_RETRY_COUNT]; /* further attempts that each reason has had */
	struct forge_limits limits;	  /* above those of the step; 0 where not set */
	uint64_t began_usec, ended_usec;  /* of the monotonic clock */
	json_t *usage,
		*allowed; /* of the record: usage and limits; NULL: it did not run */
	struct forge_head_job *job;
};

struct forge_head_options {
	const struct forge_strv *force, *from, *only; /* words that name tasks */
	const char *entry;
	const struct forge_strv *given; /* STEP=DIR */
	unsigned jobs;			/* tasks at once, 0: by the host's budget */
	bool stops_at_failure;
	/* Limits for the tasks that this word names: forge resume. */
	const char *limits_of;
	struct forge_limits limits;
	const json_t *given_params; /* for the records: how the pipeline can be resumed */
	/* Called for everything that happens: {time, event, task?, ...}; see docs/PIPELINES.md. */
	void (*on_event)(void *arg, const json_t *event);
	/* Called twice a second while tasks run. May be NULL. */
	void (*on_tick)(void *arg);
	void *arg;
};

struct forge_head {
	const struct forge_graph *g;
	const struct forge_config *cfg;
	const struct forge_home *home;
	const struct forge_head_options *o;
	char *store_url;
	struct forge_store *store;
	char user[FORGE_USER_MAX];
	bool is_shared;			/* others may write the store */
	struct forge_reuse_home *reuse; /* of users whose results are reused */
	size_t n_reuse;
	int stop_fd; /* readable: a long copy is given up; -1: none */
	struct forge_launch_env env;
	struct forge_launcher launcher;
	struct forge_script *scripts;	    /* of each step */
	char (*runtimes)[FORGE_DIGEST_MAX]; /* of each step; "": none */
	bool *is_remote;		    /* each step: its runs outlive a supervisor */
	struct forge_digests *digests;
	struct forge_head_task *tasks;
	unsigned *ready; /* a heap: the longest chain first */
	size_t n_ready;
	struct forge_head_job **jobs;
	size_t n_jobs, max_jobs;
	size_t n_waiters; /* of the jobs: those that wait for another process */
	size_t counts[FORGE_TASK_STATES];
	bool is_stopping; /* starts no more tasks */
	bool is_dry;	  /* only evaluates */
	/* Runs were active when the head was started: of a head that was killed, perhaps, or of one that works. */
	bool has_strangers;
	bool has_redone; /* a task ran again for a temporary output */
	uint64_t began_usec;
	uint64_t looked_usec; /* when runs that are followed were last looked at */
	struct forge_removal removal; /* of temporary outputs */
	uint64_t temp_bytes;
};

/* ---- between the parts ---- */

void forge_head_set_state(struct forge_head *h, unsigned task, enum forge_task_state to);
/* Reports an event about a task; takes extra (may be NULL), whose keys are added. */
void forge_head_event(struct forge_head *h, const char *event, int task, json_t *extra);
/* plan_event.c: the event "plan", with all tasks and what they wait for. */
void forge_head_plan_event(struct forge_head *h);
/* Sets why or notes; NULL clears. */
void forge_head_set_text(char **slot, const char *text);

/* evaluate.c: 1: up to date, the result is set; 0: it has to run; why says why. */
FORGE_MUST_CHECK int forge_head_evaluate_task(struct forge_head *h, unsigned task,
					      struct forge_error *err);
/* Whether the result has all that other tasks may need of it. Temporary outputs may be gone. */
bool forge_task_has_result(const struct forge_task *t, const struct forge_result *r);
/* The files and the parts of the key of a task whose inputs are all known. */
FORGE_MUST_CHECK int forge_head_task_facts(struct forge_head *h, unsigned task,
					   struct forge_task_files *ret_files,
					   json_t **ret_parts,
					   char ret_key[FORGE_DIGEST_MAX],
					   struct forge_error *err);
/*
 * explain.c: the record of the newest run of a task of this pipeline file, in *ret; NULL: there is none. Another
 * file may have the same name.
 */
FORGE_MUST_CHECK int forge_head_last_run(struct forge_head *h, unsigned task,
					 json_t **ret, struct forge_error *err);
/* Why a task runs that no run of the store is of. */
#define FORGE_NOT_RUN_YET "it has not run yet"
/* Why one runs whose last run, with the same key, has no result: the rest of the text is its status. */
#define FORGE_LAST_RUN "its last run "
/* Why a task that has to run is not up to date, from its last run in the store. */
FORGE_MUST_CHECK int forge_head_explain(struct forge_head *h, unsigned task,
					const json_t *parts, struct forge_error *err);
/*
 * The same for all tasks of a dry head that was evaluated. Those that a run would make again for their dropped outputs
 * get the state "ready", and those that another head runs "running".
 */
FORGE_MUST_CHECK int forge_head_explain_all(struct forge_head *h,
					    struct forge_error *err);
/*
 * Looks for results that are not in the store yet: of supervisors that died before they could report. To be called when
 * the lock of a key was had by another process.
 */
FORGE_MUST_CHECK int forge_head_catch_up(struct forge_head *h, struct forge_error *err);
/*
 * temp.c: a task is done: drops temporary outputs of tasks before it that no other task needs. Their objects are removed
 * now or by the second function.
 */
FORGE_MUST_CHECK int forge_head_drop_temp(struct forge_head *h, unsigned task,
					  struct forge_error *err);
FORGE_MUST_CHECK int forge_head_flush_temp(struct forge_head *h, struct forge_error *err);
/* A file that a task needs of the other one that the source names, and that was dropped; NULL: none. */
const char *forge_head_missing_input(const struct forge_head *h,
				     const struct forge_source *s);
/* The task is ready again: a task that has to run reads an output of it that was dropped. */
void forge_head_demand(struct forge_head *h, unsigned task, const char *missing,
		       const char *reader);
/* retry.c: whether it is tried again; then its limits are raised as its rules say. */
bool forge_head_choose_retry(struct forge_head *h, unsigned task, const json_t *record);
/* select.c */
FORGE_MUST_CHECK int forge_head_prepare(struct forge_head *h, struct forge_error *err);
FORGE_MUST_CHECK int forge_head_select(struct forge_head *h, struct forge_error *err);
/* Finds the result of a task that is not part of this run. */
FORGE_MUST_CHECK int forge_head_give(struct forge_head *h, unsigned task,
				     struct forge_error *err);
/* Whether the outputs of a task at this path are temporary. */
bool forge_task_is_temp(const struct forge_task *t, const char *path);
