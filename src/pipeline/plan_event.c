/* SPDX-License-Identifier: Apache-2.0 */
/* The event "plan": all tasks and what they wait for, for programs that draw the graph. */
#include <string.h>

#include "base/json.h"
#include "pipeline/head_state.h"

/*
 * A step that all tasks of a large scatter go into, or a product of two, would make the event as large as the square of
 * the number of tasks: beyond these, a step stands for its tasks.
 */
#define NAMED_MAX 200	/* for one task */
#define ALL_MAX	  50000 /* for all of them */

static json_t *needs_json(const struct forge_head *h, const struct forge_task *t,
			  size_t *named)
{
	json_t *needs = json_array();

	for (size_t i = 0, next; i < t->n_deps; i = next) {
		const struct forge_step *step = h->g->tasks[t->deps[i]].step;
		/* Ascending, and the tasks of a step are neighbours. */
		for (next = i + 1;
		     next < t->n_deps && h->g->tasks[t->deps[next]].step == step; next++)
			;
		if (next - i > NAMED_MAX || (next - i > 1 && *named > ALL_MAX)) {
			json_array_append_new(needs,
					      json_pack("{s:s, s:I}", "step", step->name,
							"tasks", (json_int_t)(next - i)));
			continue;
		}
		*named += next - i;
		for (size_t k = i; k < next; k++)
			json_array_append_new(
				needs, forge_json_text(h->g->tasks[t->deps[k]].name));
	}
	return needs;
}

void forge_head_plan_event(struct forge_head *h)
{
	json_t *tasks = json_array();
	size_t named = 0;

	for (unsigned i = 0; i < h->g->n; i++) {
		const struct forge_task *t = &h->g->tasks[i];
		json_t *task = json_pack("{s:o, s:s, s:o}", "task",
					 forge_json_text(t->name), "step", t->step->name,
					 "needs", needs_json(h, t, &named));
		if (t->is_skipped)
			json_object_set_new(task, "skipped",
					    forge_json_text(t->why_skipped));
		else if (!h->tasks[i].is_selected)
			json_object_set_new(task, "left", json_true());
		json_array_append_new(tasks, task);
	}
	forge_head_event(h, "plan", -1, json_pack("{s:o}", "tasks", tasks));
}
