/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run between the door and the record: for run.c (the way in), run_tell.c (what is told meanwhile) and
 * run_end.c (the way out), and for nobody else.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "executor/executor.h"
#include "record/courier.h"
#include "record/judge.h"
#include "record/record.h"
#include "run/admit.h"
#include "run/input_hasher.h"
#include "spec/spec.h"
#include "state/home.h"
#include "state/objects.h"
#include "state/slot.h"
#include "store/state.h"

/* How long the end of a run waits for the store before the record is kept for later. */
#define STORE_USEC (10 * 1000000ull)

/* Everything a run holds between the door and the record. */
struct run {
	const struct forge_config *cfg;
	const struct forge_run_request *req;
	struct forge_spec spec;
	struct forge_home home;
	struct forge_slot slot;
	const struct forge_executor_ops *executor;
	struct forge_execution *execution;
	struct forge_job job; /* of the execution */
	struct forge_record record;
	struct forge_share share;
	struct forge_ticket ticket; /* held: the run has no share yet */
	int admission_error;	    /* why the wait for a share ended without one, or 0 */
	struct forge_courier courier;
	struct forge_hasher hasher;
	struct forge_objects objects;
	char *store;	   /* URL */
	json_t *post_rows; /* what the post-process said */
	bool has_started;  /* the command ran: there is something to keep */
	bool is_stopping;  /* whoever asked for that has been answered */
	bool keeps; /* the workdir: the user wants it, or it has what is kept nowhere else */
	bool is_confirmed; /* somebody was told that this run will happen */
	bool is_behind; /* the store missed something of this run, and the user knows */
	bool needs_repair; /* something could not be removed: the next repair tries again */
};

/* ---- run_tell.c ---- */

void forge_run_warn(const struct run *r, const struct forge_error *warning);
void forge_run_note(const struct run *r, const char *text);
void forge_run_set_status(struct run *r, const char *status, const char *detail);
enum forge_status forge_run_status(const struct run *r);
void forge_run_log_failed(struct run *r, const char *detail);
/* The run's directory, if it is not there yet. */
FORGE_MUST_CHECK int forge_run_make_files(struct run *r, struct forge_error *err);
/* What is new since the last time, to the store; who waits for the answer does so by the courier. */
void forge_run_report(struct run *r, bool durable, bool is_last);
/* Everything again. */
void forge_run_report_all(struct run *r);
/* The store could not be told: some later command does it. */
void forge_run_defer_delivery(struct run *r, const struct forge_error *why);

/* ---- run_end.c ---- */

/* Waits for what the kernel has yet to tear down. False: something is left, and the record says so. */
bool forge_run_end_execution(struct run *r);
/* Inputs, outputs and post-process; success may be taken back. */
void forge_run_take_results(struct run *r, const struct forge_outcome *o,
			    struct forge_verdict *v);
/* Keeps or removes the workdir, and says what was done. A failure is left for repair. */
FORGE_MUST_CHECK int forge_run_clean(struct run *r, struct forge_error *err);
/* The verdict, recorded and told; negative: it is safe nowhere. */
FORGE_MUST_CHECK int forge_run_finish(struct run *r, const struct forge_outcome *o,
				      const struct forge_verdict *v,
				      struct forge_error *err);
