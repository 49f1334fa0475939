/* SPDX-License-Identifier: Apache-2.0 */
/* From the slot to the verdict: admit, prepare, run, judge; run_end.c does the rest. */
#include "run/carry_out.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "record/attendant.h"
#include "record/deliver.h"
#include "health/guard.h"
#include "run/advise.h"
#include "run/run_state.h"
#include "run/signals.h"
#include "spec/asked.h"
#include "spec/saved.h"

/* Memory that is freed in no time. */
#define LITTLE_MEMORY (128ull << 20)
/* Repair looks at the file for the next attempt in less time. */
#define CLAIM_MSEC 2000

static void run_done(struct run *r)
{
	if (!r->has_left)
		(void)forge_run_end_execution(
			r); /* only if something went wrong before */
	forge_courier_stop(&r->courier);
	forge_guard_free(r->guard);
	json_decref(r->connections);
	json_decref(forge_hasher_finish(&r->hasher, &r->spec->inputs, -1, 1));
	forge_objects_close(&r->objects);
	forge_admit_leave(&r->ticket);
	forge_admit_release(&r->share);
	forge_execution_free(r->execution);
	if (r->needs_repair)
		forge_slot_release(&r->slot);
	else
		forge_slot_close(&r->slot);
	forge_run_end_retry(r);
	forge_record_close(&r->record);
	json_decref(r->post_rows);
}

static void run_init(struct run *r, const struct forge_ready_run *ready)
{
	*r = (struct run){ .ready = ready,
			   .cfg = ready->cfg,
			   .req = ready->req,
			   .spec = ready->spec,
			   .home = ready->home,
			   .store = ready->store,
			   .executor = forge_executor_find(ready->spec->executor->kind),
			   .keeps = ready->req->keep,
			   .unattributed = ready->cfg->health.unattributed,
			   .slot = FORGE_SLOT_INIT,
			   .retry = FORGE_RETRY_FILE_INIT,
			   .record = FORGE_RECORD_INIT,
			   .share = FORGE_SHARE_INIT,
			   .ticket = FORGE_TICKET_INIT,
			   .courier = FORGE_COURIER_INIT,
			   .hasher = FORGE_HASHER_INIT,
			   .objects = FORGE_OBJECTS_INIT };
}

/* ---- before the command ---- */

static bool is_remote(const struct run *r)
{
	return r->executor->caps & FORGE_EXECUTOR_REMOTE;
}

static void on_event(void *arg, const char *event, const char *detail)
{
	struct run *r = arg;

	if (strcmp(event, "log_failed") == 0) {
		forge_run_log_failed(r, detail);
		return;
	}
	if (strcmp(event, "cancelled") == 0 && !r->is_stopping) {
		r->is_stopping = true;
		forge_run_note(r, "stopping; again to kill now");
	}
	if (strcmp(event, "pending") == 0) {
		forge_run_note_pending(r, detail);
		return;
	}
	/* A node has taken it: for a cluster it is no longer queued. */
	if (strcmp(event, "claimed") == 0) {
		if (forge_run_status(r) == FORGE_STATUS_QUEUED)
			forge_run_set_status(r, "preparing", detail);
		return;
	}
	if (strcmp(event, "started") == 0 && r->has_started) {
		forge_record_event(&r->record, "resumed", NULL); /* by this supervisor */
		return;
	}
	if (strcmp(event, "started") == 0) {
		r->has_started = true;
		if (forge_run_status(r) == FORGE_STATUS_QUEUED)
			forge_run_set_status(r, "preparing", NULL);
		forge_run_set_status(r, "running", detail);
		forge_run_report(r, false, false);
		return;
	}
	forge_record_event(&r->record, event, detail);
}

static void fill_job(struct run *r)
{
	r->job = (struct forge_job){
		.run_id = r->spec->run_id,
		.argv = r->spec->argv.v,
		.env = &r->spec->env,
		.read_only = &r->spec->read_only,
		.aliases = &r->spec->aliases,
		.tools = &r->spec->tools,
		.links = &r->spec->links,
		.root = r->spec->root,
		.image = r->spec->has_runtime ? r->spec->runtime.decl->image : NULL,
		.executor = r->spec->executor,
		.workdir = r->spec->workdir,
		.own_network = r->spec->own_network,
		.pass_stdin = r->req->pass_stdin,
		.only_looks = r->only_looks,
		.is_checked = r->ready->check_env != NULL,
		.limits = &r->spec->limits,
		.config = r->cfg,
		.home = r->home,
		.slot = &r->slot,
		.log_fd = r->record.log_fd,
		.live_fd = { r->req->stdout_fd, r->req->stderr_fd },
		.on_event = on_event,
		.on_init = forge_run_note_init,
		.on_connections = forge_run_needs_connections(r)
					  ? forge_run_note_connections
					  : NULL,
		.arg = r,
	};
}

/* A slot, and what the executor has for it. */
static int claim(struct run *r, struct forge_error *err)
{
	struct forge_error e = FORGE_ERROR_INIT;
	unsigned attempt = 0;
	int rc;

	r->execution = forge_execution_new(r->executor);
	if (!r->execution)
		return forge_fail(err, ENOMEM, "out of memory");
	for (;;) {
		rc = forge_slot_claim(r->home, &attempt, r->cfg->uid_count, &r->slot, &e);
		if (rc == 0)
			rc = r->executor->open(r->execution, r->spec->executor, r->cfg,
					       r->slot.number, &e);
		if (rc != -EAGAIN || r->slot.fd < 0)
			break;
		/* The slot is empty, but another FORGE_HOME uses its user id. */
		forge_slot_release(&r->slot);
	}
	if (rc < 0 && err)
		*err = e;
	return rc;
}

/*
 * The warnings of a probe are those of the run that it is for, which reports them. Those of a later attempt
 * were those of the first.
 */
static void report_warnings(struct run *r)
{
	struct forge_error e = FORGE_ERROR_INIT;

	if (r->req->is_probe) {
		forge_record_event(&r->record, "runtime_probe", NULL);
		return;
	}
	if (!r->req->again && !r->req->step &&
	    forge_spec_is_unused_active(r->spec, r->req, &e))
		forge_run_warn(r, &e);
	forge_strv_foreach (text, &r->spec->warnings) {
		e = FORGE_ERROR_INIT;
		(void)forge_fail(&e, EINVAL, "runtime %s: %s",
				 r->spec->runtime.decl->name, text);
		if (!r->req->again)
			forge_run_warn(r, &e);
		forge_record_event(&r->record, "runtime_warning", text);
	}
}

static int begin_slot(struct run *r, struct forge_error *err)
{
	struct forge_slot_run run = { .run_id = r->spec->run_id,
				      .store = r->store,
				      .executor = r->spec->executor->name,
				      .executor_kind = r->spec->executor->kind,
				      .keeps_workdir = r->keeps };

	fill_job(r);
	int rc = r->executor->plan(&r->job, &run.plan, err);
	/* Before it has a record: another head may have to find it by its key. */
	if (rc == 0 && r->req->step)
		json_object_set(run.plan, "step", (json_t *)r->req->step);
	if (rc == 0)
		rc = forge_slot_begin(&r->slot, &run, err);
	json_decref(run.plan);
	return rc;
}

/* From here on a crash leaves a slot that names everything the run is going to make. */
static int begin(struct run *r, struct forge_error *err)
{
	int rc = claim(r, err);

	if (rc == 0)
		rc = begin_slot(r, err);
	if (rc == 0)
		rc = forge_record_new(r->home, r->spec, &r->record, err);
	if (rc < 0)
		return rc;
	if (!r->req->is_probe && !r->req->parent_run)
		json_object_set_new(r->record.json, "asked",
				    forge_asked_json(r->spec, r->req));
	if (r->req->step)
		json_object_set(r->record.json, "step", (json_t *)r->req->step);
	if (r->req->rerun_of)
		json_object_set_new(r->record.json, "rerun_of",
				    json_string(r->req->rerun_of));
	forge_run_note_guard(r);
	char mark[FORGE_STORE_MARK_MAX];
	json_object_set_new(r->record.json, "store",
			    json_string(forge_store_mark(r->store, mark)));
	r->courier.url = r->store;
	/* Without one, or when it is gone, the run has a courier of its own. */
	if (r->req->courier_fd > 0)
		r->courier.fd = r->req->courier_fd;
	report_warnings(r);
	return forge_run_arm_retry(r, err);
}

/* The store has not confirmed: the run's directory alone has to be safe. */
static int record_here(struct run *r, struct forge_error *err)
{
	int rc = forge_record_write(&r->record, err);

	if (rc == 0)
		rc = forge_record_sync(&r->record, err);
	if (rc == 0 && fsync(r->home->runs_fd) < 0)
		rc = forge_fail_errno(err, errno, "write %s/runs", r->home->path);
	return rc;
}

/*
 * A run is confirmed to the caller when it is safe in the store or, without the store, on disk. record.json
 * is written here only in the second case: until the run is over no one reads it, and repair has the slot.
 */
int forge_run_record_durably(struct run *r, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	int rc = forge_run_make_files(r, err);

	if (rc < 0)
		return rc;
	if (!r->is_confirmed) {
		forge_run_report(r, true, false);
		if (forge_courier_wait(&r->courier, STORE_USEC, &why) < 0) {
			rc = record_here(r, err);
			if (rc < 0)
				return rc;
			forge_run_defer_delivery(r, &why);
		}
	}
	r->is_confirmed = true;
	forge_run_disarm_previous(r);
	if (r->req->on_recorded && !r->is_announced)
		r->req->on_recorded(r->req->arg, r->spec->run_id);
	r->is_announced = true;
	return 0;
}

/* The store decides which run has the key, before anything is made. 1: another run has it. */
static int claim_key(struct run *r, struct forge_error *err)
{
	if (!r->spec->idempotency_key)
		return 0;
	forge_run_report(r, true, false);
	int rc = forge_courier_wait(&r->courier, STORE_USEC, err);
	if (rc == -EEXIST && r->courier.other_run[0] && r->courier.is_same)
		return 1;
	if (rc == -EEXIST && r->courier.other_run[0]) {
		if (err)
			*err = FORGE_ERROR_INIT;
		rc = forge_fail(
			err, EEXIST,
			"--idempotency-key '%s' is that of run %s, which was asked "
			"for something else",
			r->spec->idempotency_key, r->courier.other_run);
		return forge_hint(err, rc,
				  "`forge show %s` shows it; use another key for another "
				  "command",
				  r->courier.other_run);
	}
	r->is_confirmed = rc == 0;
	return rc < 0 ? forge_wrap(err, rc, "--idempotency-key cannot be checked") : 0;
}

static int wait_for_room(struct run *r, const struct forge_need *need,
			 struct forge_error *err)
{
	char why[FORGE_WHY_MAX], text[FORGE_WHY_MAX + 16];
	/*
	 * The head of a pipeline is not told that a step is queued: a step whose supervisor dies now is begun again. It
	 * is reported without waiting for the disk; if it is queued for moments only, together with its end.
	 */
	bool is_told = !r->req->step || r->req->again;
	int rc = is_told ? forge_run_record_durably(r, err) : 0;

	if (rc < 0)
		return rc;
	if (!is_told)
		forge_run_report(r, false, false);
	(void)snprintf(text, sizeof(text), "queued: %s",
		       forge_admit_why(r->home, r->cfg, need, why));
	forge_run_note(r, text);
	forge_auto_close int signals = forge_signals_fd();
	rc = forge_admit_queue(r->home, r->cfg, need, signals, &r->ticket, err);
	if (rc < 0)
		forge_admit_leave(&r->ticket);
	return rc;
}

/* A post-process runs within the share of its run, a check beside all of them. On a cluster the cluster decides. */
static int take_share(struct run *r, const struct forge_need *need,
		      struct forge_error *err)
{
	return r->req->parent_run || r->req->is_check || is_remote(r)
		       ? 0
		       : forge_admit_try(r->home, r->cfg, need, &r->share, err);
}

/* 0: admitted, or *ret_verdict says why not. 1: another run has the key. */
static int admit(struct run *r, struct forge_verdict *ret_verdict,
		 struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	struct forge_need need = forge_admit_need(r->cfg, r->spec, r->slot.number);
	int rc = 0;

	/* The key is claimed before anything else is decided. */
	if (r->spec->idempotency_key) {
		forge_run_set_status(r, "queued", NULL);
		rc = claim_key(r, err);
		if (rc != 0)
			return rc;
	}
	rc = forge_run_check_before(r, ret_verdict, err);
	if (rc < 0 || ret_verdict->status)
		return rc;
	rc = take_share(r, &need, &why);
	if (rc == 0 && is_remote(r)) {
		if (!r->spec->idempotency_key)
			forge_run_set_status(r, "queued", NULL);
		return r->req->wait_durable || r->req->again
			       ? forge_run_record_durably(r, err)
			       : 0;
	}
	if (rc == 1) {
		if (!r->spec->idempotency_key)
			forge_run_set_status(r, "queued", NULL);
		rc = wait_for_room(r, &need, &why);
	} else if (rc == 0 && (r->req->wait_durable || r->req->again)) {
		forge_run_set_status(r, "preparing", NULL);
		return forge_run_record_durably(r, err);
	}
	if (rc == 0) {
		/* The first run in the queue prepares while it waits for its share. */
		if (r->ticket.fd < 0)
			forge_run_set_status(r, "preparing", NULL);
		return 0;
	}
	if (rc != -E2BIG && rc != -ECANCELED && rc != -ETIMEDOUT) {
		if (err)
			*err = why;
		return rc;
	}
	forge_judge_not_admitted(rc, &why, ret_verdict);
	return 0;
}

/*
 * The name of the workdir was taken after the spec was made, by another run of this analysis or by another
 * program. The run goes on in a workdir with the run id in its name; environment, slot and record follow.
 */
static int rename_workdir(struct run *r, struct forge_error *err)
{
	json_t *plan = NULL;
	int rc = forge_spec_rename_workdir(r->spec, err);

	if (rc == 0)
		rc = r->ready->remake_environment(r->ready, err);
	if (rc == 0) {
		fill_job(r);
		rc = r->executor->plan(&r->job, &plan, err);
	}
	if (rc == 0)
		rc = forge_slot_add(&r->slot, plan, err);
	if (rc == 0)
		json_object_set_new(r->record.json, "workdir",
				    forge_json_text(r->spec->workdir));
	return rc;
}

static int make_workdir(struct run *r, struct forge_error *err)
{
	struct forge_error taken = FORGE_ERROR_INIT;

	fill_job(r);
	int rc = r->executor->make_workdir(r->execution, &r->job, &taken);
	if (rc == -EEXIST && !r->spec->has_other_workdir) {
		taken = FORGE_ERROR_INIT;
		rc = rename_workdir(r, &taken);
		if (rc == 0)
			rc = r->executor->make_workdir(r->execution, &r->job, &taken);
	}
	if (rc < 0 && err)
		*err = taken;
	return rc;
}

/* A run that was queued needs its share now, when nothing but the command is left to start. */
static int take_queued_share(struct run *r, struct forge_error *err)
{
	struct forge_need need = forge_admit_need(r->cfg, r->spec, r->slot.number);
	int rc = 0;

	if (r->ticket.fd < 0)
		return 0;
	forge_auto_close int signals = forge_signals_fd();
	do {
		if (r->gave_share_back)
			rc = forge_admit_queue(r->home, r->cfg, &need, signals,
					       &r->ticket, err);
		r->gave_share_back = false;
		if (rc == 0)
			rc = forge_admit_take(&r->ticket, signals, &r->share, err);
		forge_admit_leave(&r->ticket);
		/* The host may have changed while the run waited. */
		if (rc == 0)
			rc = forge_run_check_before(r, &r->unhealthy, err);
	} while (rc == 0 && !r->unhealthy.status && r->gave_share_back);
	if (rc == 0 && r->unhealthy.status)
		rc = forge_fail(err, EHOSTDOWN, "%s", r->unhealthy.notes);
	if (rc == 0)
		forge_run_set_status(r, "preparing", NULL);
	else if (rc == -ECANCELED || rc == -ETIMEDOUT)
		r->admission_error = rc;
	return rc;
}

/* What another supervisor needs to go on with this run, should this one die. */
static int save(struct run *r, struct forge_error *err)
{
	/* Another supervisor would not have the rest of its standard input; a cluster has all of it. */
	if (!(r->executor->caps & FORGE_EXECUTOR_OUTLIVES) ||
	    (r->req->pass_stdin && !is_remote(r)))
		return 0;
	return forge_slot_add(
		&r->slot,
		json_pack("{s:o}", "saved", forge_saved_json(r->spec, r->req, r->cfg)),
		err);
}

/* A submitted run on a cluster has no supervisor while it goes on: a watcher attends all of them. */
static bool leaves(const struct run *r)
{
	return is_remote(r) && r->req->wait_durable;
}

/* A signal that came while the run was submitted: wait() answers it. */
static bool is_interrupted(void)
{
	forge_auto_close int signals = forge_signals_fd();
	struct pollfd p = { .fd = signals, .events = POLLIN };

	return signals >= 0 && poll(&p, 1, 0) > 0;
}

/*
 * The executor prepares in the background: meanwhile the run's files are made, the courier opens the store
 * and the run waits for its share. 1: it goes on without us. Negative: it did not run, or nothing watched it
 * (has_started).
 */
static int execute(struct run *r, struct forge_outcome *outcome, struct forge_error *err)
{
	int rc = r->executor->prepare(r->execution, outcome, err);

	if (rc == 0)
		rc = forge_run_make_files(r, err);
	if (rc == 0) {
		/* What there is to report goes with the next event. */
		forge_courier_start(&r->courier);
		rc = take_queued_share(r, err);
	}
	if (rc == 0) {
		rc = forge_run_guard(r, err);
		r->admission_error = rc == -ECANCELED ? rc : 0;
	}
	if (rc == 0)
		rc = save(r, err);
	if (rc == 0 && !leaves(r))
		forge_hasher_start(&r->hasher, r->home, &r->spec->inputs);
	if (rc == 0)
		rc = r->executor->start(r->execution, err);
	if (rc == 0)
		rc = leaves(r) && !is_interrupted()
			     ? 1
			     : r->executor->wait(r->execution, outcome, err);
	forge_admit_leave(&r->ticket);
	return rc;
}

/* refused: why it did not run, or was not watched any longer; no code: it ran. */
static void judge_and_collect(struct run *r, const struct forge_outcome *outcome,
			      const struct forge_error *refused, struct forge_verdict *v)
{
	if (r->unhealthy.status)
		*v = r->unhealthy;
	else if (r->admission_error)
		forge_judge_not_admitted(r->admission_error, refused, v);
	else if (refused->code == EHOSTDOWN && !r->has_started)
		forge_judge_unhealthy(refused->msg, v);
	else if (refused->code && r->has_started)
		forge_judge_unwatched(refused, v);
	else if (refused->code)
		forge_judge_refused(refused, v);
	else
		forge_judge(outcome, &r->spec->limits, v);
	forge_advise(r->spec, r->req, outcome, r->record.dir_fd, v);
	forge_run_take_results(r, outcome, v);
	forge_run_choose_retry(r, outcome, v);
	/* The end of init frees /dev/shm; the next run gets memory that is free. */
	if (outcome->memory_peak_bytes > LITTLE_MEMORY)
		(void)forge_run_end_execution(r); /* the record says so */
	forge_admit_release(&r->share);
}

/* The slot keeps what the run is, without a lock. 1: it goes on. */
static int leave(struct run *r, struct forge_error *err)
{
	int rc = r->only_looks && forge_run_status(r) == r->found_status
			 ? 0 /* a watcher looks often */
			 : forge_slot_add_record(&r->slot, r->record.json, err);

	/* The end of the run reports everything again, if need be. */
	forge_run_report(r, true, true);
	(void)!forge_courier_wait(&r->courier, STORE_USEC, NULL);
	r->needs_repair = true; /* the slot stays */
	r->has_left = true;
	return rc < 0 ? rc : 1;
}

static int execute_and_judge(struct run *r, struct forge_verdict *v,
			     struct forge_outcome *outcome, struct forge_error *err)
{
	struct forge_error refused = FORGE_ERROR_INIT;
	int rc = make_workdir(r, err);

	if (rc < 0) {
		forge_admit_leave(&r->ticket);
		return rc;
	}
	rc = execute(r, outcome, &refused);
	if (rc == 1)
		return leave(r, err);
	if (rc < 0 && !refused.code)
		refused.code = EIO;
	/* A refusal before there was a record is recorded too. */
	rc = forge_run_make_files(r, err);
	if (rc == 0)
		judge_and_collect(r, outcome, &refused, v);
	return rc;
}

/* From the slot to the verdict. */
static int carry_out(struct run *r, struct forge_run_result *ret, struct forge_error *err)
{
	struct forge_outcome outcome = { .wall_usec = UINT64_MAX };
	struct forge_verdict verdict = { .status = NULL };
	int rc = admit(r, &verdict, err);

	if (rc == 1) {
		memcpy(ret->existing_run, r->courier.other_run,
		       sizeof(ret->existing_run));
		return 0;
	}
	if (rc == 0 && !verdict.status) {
		struct forge_error why = FORGE_ERROR_INIT;
		rc = execute_and_judge(r, &verdict, &outcome, &why);
		if (rc == 1) {
			ret->record = json_incref(r->record.json);
			return 0;
		}
		/* A confirmed run has a verdict, also when it cannot be started. */
		if (rc < 0 && (r->is_confirmed || r->record.dir_fd >= 0) &&
		    !r->has_started) {
			forge_judge_refused(&why, &verdict);
			rc = 0;
		} else if (rc < 0 && err) {
			*err = why;
		}
	}
	if (rc < 0) {
		(void)forge_run_end_execution(r);
		/* The first error is reported. Repair completes a record that has no verdict. */
		r->needs_repair |= forge_run_clean(r, NULL) < 0 || r->record.dir_fd >= 0;
		return rc;
	}
	rc = forge_run_finish(r, &outcome, &verdict, err);
	if (rc == 0)
		forge_run_disarm_previous(r);
	ret->record = json_incref(r->record.json);
	ret->exit_status = verdict.exit_status;
	return rc;
}

static int fail_kind(const struct forge_ready_run *ready, struct forge_error *err)
{
	return forge_fail(err, EOPNOTSUPP,
			  "executor %s: this forge was built without kind %s",
			  ready->spec->executor->name, ready->spec->executor->kind);
}

int forge_carry_out(const struct forge_ready_run *ready, struct forge_run_result *ret,
		    struct forge_error *err)
{
	struct run r;
	struct forge_signals before;

	run_init(&r, ready);
	if (!r.executor)
		return fail_kind(ready, err);
	forge_signals_catch(&before);
	int rc = begin(&r, err);
	if (rc == 0)
		rc = carry_out(&r, ret, err);
	run_done(&r);
	/* The slot is free: a watcher can have it. Without one, the next command starts it. */
	if (r.has_left)
		(void)!forge_attendant_watch(ready->home, ready->spec->executor->name,
					     NULL);
	forge_signals_release(&before);
	return rc;
}

int forge_carry_out_explain(const struct forge_ready_run *ready, json_t **ret,
			    struct forge_error *err)
{
	struct run r;

	run_init(&r, ready);
	if (!r.executor)
		return fail_kind(ready, err);
	fill_job(&r);
	int rc = r.executor->explain(&r.job, ret, err);
	run_done(&r);
	return rc;
}

/* ---- a run whose supervisor died ---- */

static int reopen(struct run *r, const json_t *slot, struct forge_error *err)
{
	json_t *record = json_object_get(slot, "record"), *events = NULL;
	int rc = forge_load_events(r->home, r->spec->run_id, &events, err);

	if (rc == 0 && !json_is_object(record))
		rc = forge_fail(err, EINVAL, "the slot of run %s has no record",
				r->spec->run_id);
	if (rc == 0)
		rc = forge_record_reopen(r->home, record, events, forge_next_seq(events),
					 &r->record, err);
	json_decref(events);
	r->courier.url = r->store;
	forge_run_take_guard(r, slot);
	r->is_confirmed = true;
	r->found_status = rc == 0 ? forge_run_status(r) : FORGE_STATUS_NONE;
	/* Without the file, there is no attempt after this one. */
	(void)!forge_retry_file_claim(r->home, r->spec->run_id, CLAIM_MSEC, &r->retry);
	/* The supervisor before this one may have been collecting. */
	r->has_started = forge_run_status(r) == FORGE_STATUS_RUNNING ||
			 forge_run_status(r) == FORGE_STATUS_COLLECTING;
	return rc;
}

static int attach(struct run *r, const json_t *slot, struct forge_outcome *outcome,
		  struct forge_error *err)
{
	struct forge_need need = forge_admit_need(r->cfg, r->spec, r->slot.number);

	r->execution = forge_execution_new(r->executor);
	if (!r->execution)
		return forge_fail(err, ENOMEM, "out of memory");
	fill_job(r);
	int rc = r->executor->open(r->execution, r->spec->executor, r->cfg,
				   r->slot.number, err);
	if (rc == 0)
		rc = r->executor->attach(r->execution, &r->job, slot, outcome, err);
	if (rc < 0)
		return rc;
	/* It uses its part of the host, whether or not there is room. Without a share it goes on as well. */
	if (!is_remote(r))
		(void)!forge_admit_hold(r->home, r->cfg, &need, &r->share, NULL);
	if (!r->only_looks)
		forge_hasher_start(&r->hasher, r->home, &r->spec->inputs);
	return 0;
}

/* The slot stays as it is when the run cannot be reached now: the next command tries again. */
static int carry_on(struct run *r, const json_t *slot, struct forge_error *err)
{
	struct forge_outcome outcome = { .wall_usec = UINT64_MAX };
	struct forge_verdict verdict = { .status = NULL };
	struct forge_error refused = FORGE_ERROR_INIT;
	int rc = reopen(r, slot, err);

	if (rc == 0)
		rc = attach(r, slot, &outcome, err);
	if (rc < 0) {
		/* For the command that started this supervisor; a watcher looks again and again. */
		if (rc != -ESRCH && err && !r->only_looks)
			(void)!forge_slot_add(&r->slot,
					      json_pack("{s:o}", "attach_error",
							forge_json_text(err->msg)),
					      NULL);
		if (rc == -ESRCH)
			(void)!forge_slot_add(&r->slot, json_pack("{s:b}", "is_gone", 1),
					      NULL); /* or the next one finds it out */
		return rc;
	}
	/* It ended while no supervisor was there, and was never seen to start. */
	if (outcome.has_started && !r->has_started)
		on_event(r, "started", NULL);
	rc = r->executor->wait(r->execution, &outcome, &refused);
	if (rc == 1)
		return leave(r, err);
	if (rc < 0 && !refused.code)
		refused.code = EIO;
	if (r->only_looks)
		forge_hasher_start(&r->hasher, r->home, &r->spec->inputs);
	judge_and_collect(r, &outcome, &refused, &verdict);
	r->needs_repair = false;
	return forge_run_finish(r, &outcome, &verdict, err);
}

int forge_carry_on(const struct forge_ready_run *ready, struct forge_slot *slot,
		   const json_t *content, bool only_looks, struct forge_error *err)
{
	struct run r;
	struct forge_signals before;

	run_init(&r, ready);
	/* The configuration may say something else by now: the slot says where the run is. */
	r.executor = forge_executor_of_slot(content);
	r.needs_repair = true; /* until it has a verdict */
	r.only_looks = only_looks;
	r.slot = *slot;
	*slot = FORGE_SLOT_INIT;
	forge_signals_catch(&before);
	int rc = r.executor && r.executor->attach ? carry_on(&r, content, err)
						  : fail_kind(ready, err);
	run_done(&r);
	forge_signals_release(&before);
	return rc;
}
