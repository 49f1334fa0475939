/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run that is being carried out: for carry_out.c (from the slot to the end of the command), run_end.c (from
 * there to the record) and run_report.c (what is reported meanwhile), and for no other file.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "run/carry_out.h"

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

/* How long a run waits for the store before the delivery of its record is deferred. */
#define STORE_USEC (10 * 1000000ull)

/* Everything that such a run holds. */
struct forge_guard;
struct run {
	const struct forge_ready_run *ready;
	const struct forge_config *cfg;
	const struct forge_run_request *req;
	struct forge_spec *spec;
	const struct forge_home *home;
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
	struct forge_retry_file retry; /* for the attempt after this one */
	bool is_retried;	       /* there is one */
	struct forge_guard *guard;     /* observes guarded files; NULL: none are */
	const json_t *guarded_files; /* of the supervisor before, borrowed; NULL: none */
	enum forge_unattributed unattributed; /* as when the run began */
	json_t *connections; /* that it made, see forge_job; NULL: nothing was counted */
	uint64_t
		health_deadline; /* until then the run waits for health; 0: it has not yet */
	bool has_warned_of_health;
	bool gave_share_back;		/* while it waited for health */
	bool is_announced;		/* the caller has heard of it */
	struct forge_verdict unhealthy; /* a check failed when the run had its share */
	char pending[FORGE_WHY_MAX];	/* why the run waits, as its slot says */
	const char *store;		/* URL */
	json_t *post_rows;		/* what the post-process said */
	bool has_started;		/* the command ran: there is something to keep */
	bool is_stopping;		/* the user knows that it is being stopped */
	bool keeps; /* the workdir: the user wants it, or it has outputs that are not stored */
	bool is_confirmed; /* the caller knows that this run will happen */
	bool is_behind; /* the store misses something of this run, and the user knows */
	enum forge_status found_status; /* of a run that was reopened */
	bool only_looks;   /* at a run that goes on, and does not wait for its end */
	bool has_left;	   /* the run goes on, and the slot stays for a watcher */
	bool needs_repair; /* something could not be removed: repair tries again */
};

/* ---- retry.c ---- */

/* Makes the file for the attempt that may follow, before the run is reported to anyone. */
FORGE_MUST_CHECK int forge_run_arm_retry(struct run *r, struct forge_error *err);
/* The run is recorded: the file of the attempt before has done its duty. */
void forge_run_disarm_previous(struct run *r);
/* Decides whether the run is tried again: v and the record say so. */
void forge_run_choose_retry(struct run *r, const struct forge_outcome *o,
			    struct forge_verdict *v);
/* Hands the file over to the next attempt, leaves it to repair, or removes it. */
void forge_run_end_retry(struct run *r);

/* ---- health.c ---- */

/*
 * Before the run has its share of the host: carries out the checks, and waits where a failed one says so.
 * *ret_verdict is set when the run must not start.
 */
FORGE_MUST_CHECK int forge_run_check_before(struct run *r,
					    struct forge_verdict *ret_verdict,
					    struct forge_error *err);
/* The record says that there are guarded files, and since when: should this supervisor die, others know. */
void forge_run_note_guard(struct run *r);
/* Observes guarded files from now on; the command has not started. */
FORGE_MUST_CHECK int forge_run_guard(struct run *r, struct forge_error *err);
/* This process and all of its descendants belong to the run, which is arg. */
void forge_run_note_init(void *arg, pid_t init);
/* Has the run a network, and are there tables that it may not change? Then its connections matter. */
bool forge_run_needs_connections(const struct run *r);
/* The executor's answer; see forge_job. */
void forge_run_note_connections(void *arg, json_t *connections);
/* Takes what the supervisor before this one has saved of them. The slot must outlive r. */
void forge_run_take_guard(struct run *r, const json_t *slot);
/* All processes of the run are gone: what they changed, and the checks after it. v may become "corrupted". */
void forge_run_check_after(struct run *r, struct forge_verdict *v);

/* ---- carry_out.c ---- */

/* Makes the run safe in the store or on disk, and tells the caller its id. */
FORGE_MUST_CHECK int forge_run_record_durably(struct run *r, struct forge_error *err);

/* ---- run_report.c ---- */

void forge_run_warn(const struct run *r, const struct forge_error *warning);
void forge_run_note(const struct run *r, const char *text);
/* Tells the user why the run waits, and forge ps through the slot. */
void forge_run_note_pending(struct run *r, const char *why);
void forge_run_set_status(struct run *r, const char *status, const char *detail);
enum forge_status forge_run_status(const struct run *r);
void forge_run_log_failed(struct run *r, const char *detail);
/* The run's directory, if it is not there yet. */
FORGE_MUST_CHECK int forge_run_make_files(struct run *r, struct forge_error *err);
/* Sends what is new since the last report to the store; the courier has the answer. */
void forge_run_report(struct run *r, bool durable, bool is_last);
/* Sends everything again. */
void forge_run_report_all(struct run *r);
/* The store has not confirmed: a later command delivers the record. */
void forge_run_defer_delivery(struct run *r, const struct forge_error *why);

/* ---- run_end.c ---- */

/* Waits until the kernel has taken the run apart. False: something is left, and the record says so. */
bool forge_run_end_execution(struct run *r);
/* Inputs, outputs and post-process. A success may become a failure. */
void forge_run_take_results(struct run *r, const struct forge_outcome *o,
			    struct forge_verdict *v);
/* Keeps or removes the workdir, with an event that says so. What fails is left for repair. */
FORGE_MUST_CHECK int forge_run_clean(struct run *r, struct forge_error *err);
/* Records and reports the verdict. Negative: it is safe neither on disk nor in the store. */
FORGE_MUST_CHECK int forge_run_finish(struct run *r, const struct forge_outcome *o,
				      const struct forge_verdict *v,
				      struct forge_error *err);
