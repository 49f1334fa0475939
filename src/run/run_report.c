/* SPDX-License-Identifier: Apache-2.0 */
/* Reports the progress of a run to the caller, to its record and to the store. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "record/deliver.h"
#include "run/run_state.h"
#include "store/store.h"

/* STORE_USEC for reports without waiting, while the limits are to be watched. */
#define PASSING_USEC 20000ull

void forge_run_warn(const struct run *r, const struct forge_error *warning)
{
	if (r->req->on_warning)
		r->req->on_warning(r->req->arg, warning);
}

void forge_run_note(const struct run *r, const char *text)
{
	if (r->req->on_note)
		r->req->on_note(r->req->arg, text);
}

/* ps shows what the slot says. */
void forge_run_note_pending(struct run *r, const char *why)
{
	char text[FORGE_WHY_MAX];

	(void)snprintf(text, sizeof(text), "queued: %s", why);
	forge_run_note(r, text);
	forge_record_event(&r->record, "pending", why);
	(void)!forge_slot_add(&r->slot,
			      json_pack("{s:o, s:I}", "pending", forge_json_text(why),
					"pending_since", (json_int_t)time(NULL)),
			      NULL); /* only for people to read */
}

void forge_run_set_status(struct run *r, const char *status, const char *detail)
{
	forge_record_status(&r->record, status, detail);
}

enum forge_status forge_run_status(const struct run *r)
{
	return forge_status_of(forge_json_string(r->record.json, "status"));
}

void forge_run_log_failed(struct run *r, const char *detail)
{
	struct forge_error e = FORGE_ERROR_INIT;

	(void)forge_fail(&e, EIO, "its log is not complete: %s", detail);
	forge_run_warn(r, &e);
	forge_record_event(&r->record, "log_failed", detail);
}

int forge_run_make_files(struct run *r, struct forge_error *err)
{
	if (r->record.dir_fd >= 0)
		return 0;
	/* The slot comes first: repair needs its record to touch the directory. */
	int rc = forge_slot_add_record(&r->slot, r->record.json, err);
	return rc < 0 ? rc : forge_record_make_files(&r->record, r->home, err);
}

/*
 * A report without waiting must not block the supervisor: a batch with a long command
 * does not fit into the socket while the courier still connects. It is reported again at
 * the end.
 */
void forge_run_report(struct run *r, bool durable, bool is_last)
{
	uint64_t most = durable || is_last ? STORE_USEC : PASSING_USEC;
	json_t *batch = forge_record_take_batch(&r->record);

	if (r->post_rows)
		json_object_set(batch, "post_process", r->post_rows);
	forge_courier_send(&r->courier, batch, durable, is_last, most);
	json_decref(batch);
}

/* The run continues without the store; the user is warned once. */
static void warn_of_store(struct run *r, const struct forge_error *why)
{
	struct forge_error e = *why;
	forge_auto_free char *url = forge_store_display(r->store);

	if (r->is_behind)
		return;
	r->is_behind = true;
	(void)forge_wrap(&e, 0, "store %s", url ? url : "");
	(void)forge_hint(&e, 0,
			 "The record is kept in %s and delivered by the next forge "
			 "command that reaches the store",
			 r->home->path);
	forge_run_warn(r, &e);
	forge_record_event(&r->record, "store_unreachable", why->msg);
}

/*
 * Marks the run each time: another command may have delivered an earlier state and
 * removed the mark.
 */
void forge_run_defer_delivery(struct run *r, const struct forge_error *why)
{
	struct forge_error late = FORGE_ERROR_INIT;

	warn_of_store(r, why);
	/*
	 * Only the run's directory has the verdict now, so it must be durable; with the
	 * store it need not be.
	 */
	if (fsync(r->home->runs_fd) < 0) {
		(void)forge_fail_errno(&late, errno, "write %s/runs", r->home->path);
		forge_run_warn(r, &late);
	}
	if (forge_deliver_later(r->home, r->spec->run_id, r->store, &late) < 0)
		forge_run_warn(r, &late);
}

/* Reports everything again, from the run's directory: an earlier batch failed. */
void forge_run_report_all(struct run *r)
{
	json_t *events = NULL;

	/* On failure the courier's error stays, and the delivery is deferred. */
	if (forge_load_events(r->home, r->spec->run_id, &events, NULL) < 0)
		return;
	json_t *batch =
		json_pack("{s:O, s:o}", "record", r->record.json, "events", events);
	if (r->post_rows)
		json_object_set(batch, "post_process", r->post_rows);
	r->courier.error = FORGE_ERROR_INIT;
	forge_courier_send(&r->courier, batch, true, true, STORE_USEC);
	json_decref(batch);
}
