/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of a run while it goes on: to who asked for it, to its record, to the store. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "record/deliver.h"
#include "run/run_state.h"
#include "store/store.h"

/* The same for what is told in passing, while the run's limits are to be watched. */
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
	/* First in the slot: a directory that no slot has a record for is none that repair may touch. */
	int rc = forge_slot_add_record(&r->slot, r->record.json, err);
	return rc < 0 ? rc : forge_record_make_files(&r->record, r->home, err);
}

/*
 * What is not waited for must not keep the supervisor from its work either: a batch with a long
 * command does not fit into the socket while the courier still connects. It is told at the end.
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

/* The run goes on without the store; the user should know, once. */
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

/* Marked anew each time: another command may have delivered what there was by then. */
void forge_run_defer_delivery(struct run *r, const struct forge_error *why)
{
	struct forge_error late = FORGE_ERROR_INIT;

	warn_of_store(r, why);
	/* The run's directory is all there is now; with a store that was told, it would do without. */
	if (fsync(r->home->runs_fd) < 0) {
		(void)forge_fail_errno(&late, errno, "write %s/runs", r->home->path);
		forge_run_warn(r, &late);
	}
	if (forge_deliver_later(r->home, r->spec->run_id, r->store, &late) < 0)
		forge_run_warn(r, &late);
}

/* What an earlier batch brought in vain is told again, from the run's directory: all of it. */
void forge_run_report_all(struct run *r)
{
	json_t *events = NULL;

	/* Unread, the courier's error stays: the record is kept for a later delivery. */
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
