/* SPDX-License-Identifier: Apache-2.0 */
/* Why does a task have to run? For the events of a head, and for what a dry one would do. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "pipeline/head_state.h"
#include "record/foreign.h"
#include "state/slot.h"
#include "store/state.h"

/* ---- the last run ---- */

/* Runs that are looked at: pipelines of other directories may have the same name. */
#define CANDIDATES 50

struct last {
	const struct forge_home *home;
	const json_t *path;	   /* of this pipeline file */
	json_t *record, *foreign; /* of this FORGE_HOME, and of another one that has this store */
};

static int take_last(const struct forge_run_row *row, void *arg)
{
	struct last *l = arg;
	json_t *record = row->record ? json_loads(row->record, 0, NULL) : NULL;
	const json_t *step = json_object_get(record, "step");

	if (!step || !json_equal(json_object_get(step, "file"), l->path)) {
		json_decref(record);
		return 0;
	}
	if (!forge_foreign_is(l->home, record)) {
		l->record = record;
		return 1;
	}
	if (l->foreign)
		json_decref(record);
	else
		l->foreign = record;
	return 0;
}

/* *ret_foreign, which may be NULL: if there is no run of this FORGE_HOME, the newest of another one. */
static int find_last(struct forge_head *h, unsigned task, json_t **ret,
		     json_t **ret_foreign, struct forge_error *err)
{
	forge_auto_json json_t *path =
		forge_json_text(h->g->p->path ? h->g->p->path : "");
	const struct forge_run_filter filter = { .pipeline = h->g->p->name,
						 .step = h->g->tasks[task].name,
						 .with_record = true,
						 .limit = CANDIDATES };
	struct last last = { .home = h->home, .path = path };

	if (!path)
		return forge_fail(err, ENOMEM, "out of memory");
	int rc = forge_store_list(h->store, &filter, take_last, &last, err);
	if (rc >= 0 && !last.record && ret_foreign)
		*ret_foreign = last.foreign;
	else
		json_decref(last.foreign);
	if (rc < 0)
		return rc;
	*ret = last.record;
	return 0;
}

int forge_head_last_run(struct forge_head *h, unsigned task, json_t **ret,
			struct forge_error *err)
{
	return find_last(h, task, ret, NULL, err);
}

int forge_head_explain(struct forge_head *h, unsigned task, const json_t *parts,
		       struct forge_error *err)
{
	struct forge_head_task *state = &h->tasks[task];
	forge_auto_json json_t *record = NULL, *foreign = NULL;
	char change[FORGE_CHANGE_MAX], text[FORGE_CHANGE_MAX + 64];

	if (state->why)
		return 0;
	int rc = find_last(h, task, &record, &foreign, err);
	if (rc < 0)
		return rc;
	const json_t *step = json_object_get(record, "step");
	const char *status = forge_json_string_or(record, "status", "lost");
	const char *reason = forge_json_string(record, "reason");
	if (!step && foreign)
		(void)snprintf(text, sizeof(text),
			       FORGE_NOT_RUN_YET " in this FORGE_HOME (run %.32s is %.32s's)",
			       forge_json_string_or(foreign, "run_id", "?"),
			       forge_json_string_or(foreign, "user", "?"));
	else if (!step)
		(void)snprintf(text, sizeof(text), FORGE_NOT_RUN_YET);
	else if (*forge_parts_change(json_object_get(step, "parts"), parts, change))
		(void)snprintf(text, sizeof(text), "%s", change);
	else if (strcmp(status, "succeeded") == 0)
		(void)snprintf(text, sizeof(text), "its result is not in the store");
	else {
		bool has_reason = reason && strcmp(reason, status) != 0;
		(void)snprintf(text, sizeof(text), FORGE_LAST_RUN "%s%.20s%s%.40s",
			       strcmp(status, "failed") == 0 ? "" : "was ", status,
			       has_reason ? ": " : "", has_reason ? reason : "");
	}
	forge_head_set_text(&state->why, text);
	return 0;
}

/* ---- of a head that only evaluates ---- */

static int take_open(const struct forge_run_row *row, void *arg)
{
	(void)snprintf(arg, FORGE_RUN_ID_MAX, "%s", row->run_id);
	return 1;
}

/*
 * Whether a run with the key of the task is carried out here: a head that runs follows it, or waits for it. A row
 * without a slot is that of another FORGE_HOME, and nothing waits for that.
 */
static int find_running(struct forge_head *h, unsigned task, struct forge_error *err)
{
	struct forge_head_task *state = &h->tasks[task];
	const struct forge_run_filter filter = {
		.step_key = state->key, .open_only = true, .user = h->user, .limit = 1
	};
	char run_id[FORGE_RUN_ID_MAX] = "";

	if (!h->has_strangers || state->is_forced)
		return 0;
	int rc = forge_store_list(h->store, &filter, take_open, run_id, err);
	if (rc < 0 || !run_id[0] || !forge_slot_exists(h->home, run_id))
		return rc < 0 ? rc : 0;
	memcpy(state->run_id, run_id, sizeof(state->run_id));
	forge_head_set_state(h, task, FORGE_TASK_RUNNING);
	return 0;
}

/* A task that runs needs the dropped outputs that it reads; one that waits may turn out to be up to date. */
static void demand_inputs(struct forge_head *h, unsigned task)
{
	const struct forge_task *t = &h->g->tasks[task];
	const struct forge_head_task *state = &h->tasks[task];
	bool runs = state->state == FORGE_TASK_READY || state->is_forced;

	for (size_t i = 0; i < t->n_sources; i++) {
		const struct forge_source *s = &t->sources[i];
		struct forge_head_task *dep = s->task < 0 ? NULL : &h->tasks[s->task];
		if (!dep || dep->state != FORGE_TASK_CACHED)
			continue;
		const char *missing = forge_head_missing_input(h, s);
		char text[300];
		if (missing && runs) {
			forge_head_demand(h, (unsigned)s->task, missing, t->name);
			dep->run_id[0] = '\0';
		} else if (missing && !dep->notes) {
			(void)snprintf(text, sizeof(text),
				       "its temporary output %.100s is made again if "
				       "%.100s runs",
				       missing, t->name);
			forge_head_set_text(&dep->notes, text);
		}
	}
}

int forge_head_explain_all(struct forge_head *h, struct forge_error *err)
{
	int rc = 0;

	/* From the last one: a task that has to run for another one needs its own inputs, too. */
	for (unsigned i = (unsigned)h->g->n; i-- > 0 && rc == 0;) {
		if (h->tasks[i].state == FORGE_TASK_READY)
			rc = find_running(h, i, err);
		if (h->tasks[i].state == FORGE_TASK_READY ||
		    h->tasks[i].state == FORGE_TASK_WAITING)
			demand_inputs(h, i);
	}
	for (unsigned i = 0; i < h->g->n && rc == 0; i++) {
		struct forge_task_files files = { 0 };
		forge_auto_json json_t *parts = NULL;
		char key[FORGE_DIGEST_MAX];
		if (h->tasks[i].state != FORGE_TASK_READY)
			continue;
		rc = forge_head_task_facts(h, i, &files, &parts, key, err);
		if (rc == 0)
			rc = forge_head_explain(h, i, parts, err);
		forge_task_files_done(&files);
	}
	return rc;
}
