/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary outputs: dropped when the last task that reads them is done. */
#include <stdio.h>
#include <string.h>

#include "base/glob.h"
#include "base/json.h"
#include "pipeline/head_state.h"
#include "record/deliver.h"
#include "record/remove.h"

/* Looking for other runs with the same objects reads every record, so it is done for many at once. */
#define FLUSH_BYTES (1ull << 30)

static bool is_over(enum forge_task_state s)
{
	return s != FORGE_TASK_WAITING && s != FORGE_TASK_READY &&
	       s != FORGE_TASK_RUNNING && s != FORGE_TASK_FAILED &&
	       s != FORGE_TASK_BLOCKED;
}

static bool is_chosen(void *arg, const char *path)
{
	return forge_task_is_temp(arg, path);
}

/* Whether the task has temporary outputs and every task that reads them is over. *ret_bytes: their size. */
static bool is_droppable(const struct forge_head *h, unsigned task, uint64_t *ret_bytes)
{
	const struct forge_task *t = &h->g->tasks[task];
	const struct forge_head_task *state = &h->tasks[task];
	bool has_any = false;

	/* The same result may be that of another task, which needs it. */
	for (size_t i = 0; i < h->g->n; i++)
		if (i != task && strcmp(h->tasks[i].key, state->key) == 0)
			return false;
	if (t->n_readers == 0 ||
	    (state->state != FORGE_TASK_DONE && state->state != FORGE_TASK_CACHED))
		return false;
	for (size_t i = 0; i < t->n_readers; i++)
		if (!is_over(h->tasks[t->readers[i]].state))
			return false;
	*ret_bytes = 0;
	for (size_t i = 0; i < state->result.n; i++) {
		const struct forge_result_file *f = &state->result.v[i];
		if (f->is_missing || !forge_task_is_temp(t, f->path))
			continue;
		has_any = true;
		*ret_bytes += f->size;
	}
	return has_any;
}

/* Whether this task of this file made the result: what another pipeline made may be permanent there. */
static bool is_ours(const struct forge_head *h, unsigned task)
{
	forge_auto_json json_t *record = NULL;

	if (forge_load_record(h->home, h->tasks[task].result.run_id, &record, NULL) < 0)
		return false;
	const json_t *step = json_object_get(record, "step");
	return strcmp(forge_json_string_or(step, "file", ""), h->g->p->path) == 0 &&
	       strcmp(forge_json_string_or(step, "task", ""), h->g->tasks[task].name) ==
		       0;
}

int forge_head_flush_temp(struct forge_head *h, struct forge_error *err)
{
	int rc = forge_remove_objects(h->home, h->store, &h->removal, err);

	forge_removal_done(&h->removal);
	h->removal.digests = (struct forge_strv){ 0 };
	h->temp_bytes = 0;
	return rc;
}

int forge_head_drop_temp(struct forge_head *h, unsigned task, struct forge_error *err)
{
	const struct forge_task *t = &h->g->tasks[task];
	int rc = 0;

	for (size_t i = 0; i < t->n_deps && rc == 0; i++) {
		unsigned dep = t->deps[i];
		struct forge_head_task *state = &h->tasks[dep];
		uint64_t bytes;
		if (!is_droppable(h, dep, &bytes) || !is_ours(h, dep))
			continue;
		rc = forge_remove_outputs(h->home, h->store, state->result.run_id,
					  is_chosen, (void *)&h->g->tasks[dep],
					  &h->removal, err);
		for (size_t k = 0; k < state->result.n; k++)
			state->result.v[k].is_missing |= forge_task_is_temp(
				&h->g->tasks[dep], state->result.v[k].path);
		h->temp_bytes += bytes;
		forge_head_event(h, "dropped", (int)dep,
				 json_pack("{s:I}", "bytes", (json_int_t)bytes));
	}
	if (rc == 0 && h->temp_bytes >= FLUSH_BYTES)
		rc = forge_head_flush_temp(h, err);
	return rc;
}

/* ---- made again ---- */

const char *forge_head_missing_input(const struct forge_head *h,
				     const struct forge_source *s)
{
	const struct forge_result *r = &h->tasks[s->task].result;

	for (size_t i = 0; i < r->n; i++)
		if (r->v[i].is_missing && forge_glob_match(s->pattern, r->v[i].path))
			return r->v[i].path;
	return NULL;
}

void forge_head_demand(struct forge_head *h, unsigned task, const char *missing,
		       const char *reader)
{
	char text[300];

	(void)snprintf(text, sizeof(text),
		       "its temporary output %.100s is needed by %.100s", missing,
		       reader);
	forge_head_set_text(&h->tasks[task].why, text);
	forge_head_set_state(h, task, FORGE_TASK_READY);
}
