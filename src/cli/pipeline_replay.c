/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the state of a head again from its events. What they do not say stays as it was. */
#include "cli/pipeline_replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "record/view.h"

void forge_replay_done(struct forge_replay *r)
{
	for (size_t i = 0; r->h.tasks && i < r->g.n; i++) {
		struct forge_head_task *t = &r->h.tasks[i];
		forge_result_done(&t->result);
		free(t->why);
		free(t->notes);
		json_decref(t->usage);
		json_decref(t->allowed);
	}
	for (size_t i = 0; r->g.tasks && i < r->g.n; i++)
		free(r->g.tasks[i].deps);
	free(r->h.tasks);
	free(r->g.tasks);
	free(r->g.first);
	free(r->g.count);
	free(r->p.steps);
	json_decref(r->plan);
	json_decref(r->numbers);
	const struct forge_home *home = r->h.home;
	*r = FORGE_REPLAY_INIT;
	r->h.home = home;
}

/* ---- the plan ---- */

/* The number of a step; steps are numbered as their tasks come. */
static size_t step_number(struct forge_replay *r, const char *name)
{
	struct forge_pipeline *p = &r->p;
	size_t i = p->n_steps;

	/* The tasks of a step are neighbours. */
	if (i > 0 && strcmp(p->steps[i - 1].name, name) == 0)
		return i - 1;
	p->steps[i].name = (char *)name; /* of the plan */
	r->g.first[i] = (unsigned)r->g.n;
	p->n_steps++;
	return i;
}

static void add_deps(struct forge_replay *r, struct forge_task *t, size_t first, size_t n)
{
	unsigned *grown = reallocarray(t->deps, t->n_deps + n + 1, sizeof(*grown));

	if (!grown)
		return;
	t->deps = grown;
	for (size_t i = 0; i < n && first + i < r->g.n; i++)
		t->deps[t->n_deps++] = (unsigned)(first + i);
}

static void take_needs(struct forge_replay *r, struct forge_task *t, const json_t *needs)
{
	const json_t *need;
	size_t i;

	json_array_foreach (needs, i, need) {
		const char *name = json_is_string(need) ? json_string_value(need) : "";
		const char *step = forge_json_string_or(need, "step", "");
		const json_t *number = json_object_get(r->numbers, name);
		if (number)
			add_deps(r, t, (size_t)json_integer_value(number), 1);
		for (size_t k = 0; *step && k < r->p.n_steps; k++)
			if (strcmp(r->p.steps[k].name, step) == 0)
				add_deps(r, t, r->g.first[k], r->g.count[k]);
	}
}

static void add_task(struct forge_replay *r, const json_t *planned)
{
	const char *name = forge_json_string_or(planned, "task", "?");
	size_t step = step_number(r, forge_json_string_or(planned, "step", name));
	const char *skipped = forge_json_string(planned, "skipped");
	struct forge_task *t = &r->g.tasks[r->g.n];
	struct forge_head_task *state = &r->h.tasks[r->g.n];

	*t = (struct forge_task){ .step = &r->p.steps[step], .name = (char *)name };
	take_needs(r, t, json_object_get(planned, "needs"));
	/* A task of a foreach has its value in its name. */
	r->p.steps[step].n_loops = strcmp(name, t->step->name) != 0;
	r->g.count[step]++;
	state->attempt = 1;
	state->state = skipped				  ? FORGE_TASK_SKIPPED
		       : json_object_get(planned, "left") ? FORGE_TASK_LEFT
							  : FORGE_TASK_WAITING;
	forge_head_set_text(&state->notes, skipped);
	r->h.counts[state->state]++;
	(void)json_object_set_new(r->numbers, name, json_integer((json_int_t)r->g.n));
	r->g.n++;
}

/* Out of memory: nothing is shown. */
static void take_plan(struct forge_replay *r, const json_t *event)
{
	const json_t *tasks = json_object_get(event, "tasks"), *planned;
	size_t n = json_array_size(tasks), i;

	forge_replay_done(r);
	r->plan = json_incref((json_t *)event);
	r->numbers = json_object();
	r->h.tasks = calloc(n + 1, sizeof(*r->h.tasks));
	r->g.tasks = calloc(n + 1, sizeof(*r->g.tasks));
	r->g.first = calloc(n + 1, sizeof(*r->g.first));
	r->g.count = calloc(n + 1, sizeof(*r->g.count));
	r->p.steps = calloc(n + 1, sizeof(*r->p.steps));
	if (!r->numbers || !r->h.tasks || !r->g.tasks || !r->g.first || !r->g.count ||
	    !r->p.steps)
		return;
	json_array_foreach (tasks, i, planned)
		add_task(r, planned);
	r->g.p = &r->p;
	r->h.g = &r->g;
}

/* ---- a task ---- */

/* When the event was, by the clock of this process. */
static uint64_t usec_of(const json_t *event)
{
	const char *text = forge_json_string_or(event, "time", "");
	const char *dot = strchr(text, '.');
	struct timespec now;
	uint64_t mono = forge_now_usec();

	clock_gettime(CLOCK_REALTIME, &now);
	double ago = (double)(now.tv_sec - forge_record_time(text)) +
		     (double)now.tv_nsec / 1e9 - (dot ? strtod(dot, NULL) : 0);
	return ago > 0 && ago * 1e6 < (double)mono ? mono - (uint64_t)(ago * 1e6) : mono;
}

static void take_json(json_t **slot, const json_t *event, const char *key)
{
	json_t *value = json_object_get(event, key);

	if (!json_is_object(value))
		return;
	json_decref(*slot);
	*slot = json_incref(value);
}

/* The size of the result is all that is shown of it. */
static void take_result(struct forge_head_task *t, const json_t *event)
{
	json_int_t bytes = json_integer_value(json_object_get(event, "output_bytes"));

	forge_result_done(&t->result);
	if (json_integer_value(json_object_get(event, "outputs")) > 0)
		(void)!forge_result_add(&t->result, strdup(""), (uint64_t)bytes, "");
}

static void take_started(struct forge_head_task *t, const json_t *event)
{
	const json_t *attempt = json_object_get(event, "attempt");

	t->attempt = attempt ? (unsigned)json_integer_value(attempt) : 1;
	t->began_usec = t->began_usec ? t->began_usec : usec_of(event);
	t->run_id[0] = '\0';
	forge_result_done(&t->result);
	forge_head_set_text(&t->why, forge_json_string(event, "why"));
	forge_head_set_text(&t->notes, NULL);
}

static void take_task(struct forge_replay *r, unsigned task, const char *what,
		      const json_t *event)
{
	static const struct {
		const char *event;
		enum forge_task_state state;
	} ends[] = { { "cached", FORGE_TASK_CACHED },	{ "given", FORGE_TASK_GIVEN },
		     { "started", FORGE_TASK_RUNNING }, { "done", FORGE_TASK_DONE },
		     { "failed", FORGE_TASK_FAILED },	{ "blocked", FORGE_TASK_BLOCKED },
		     { "retry", FORGE_TASK_READY } };
	struct forge_head_task *t = &r->h.tasks[task];
	const char *run_id = forge_json_string(event, "run_id");

	if (strcmp(what, "started") == 0)
		take_started(t, event);
	else if (strcmp(what, "note") == 0)
		forge_head_set_text(&t->notes, forge_json_string(event, "text"));
	else if (strcmp(what, "blocked") == 0)
		forge_head_set_text(&t->notes, forge_json_string(event, "why"));
	if (json_object_get(event, "notes"))
		forge_head_set_text(&t->notes, forge_json_string(event, "notes"));
	if (json_object_get(event, "output_bytes"))
		take_result(t, event);
	if (run_id)
		(void)snprintf(t->run_id, sizeof(t->run_id), "%s", run_id);
	take_json(&t->usage, event, "usage");
	take_json(&t->allowed, event, "limits");
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(ends); i++)
		if (strcmp(ends[i].event, what) == 0)
			forge_head_set_state(&r->h, task, ends[i].state);
	if (t->state == FORGE_TASK_DONE || t->state == FORGE_TASK_FAILED)
		t->ended_usec = usec_of(event);
}

/* ---- the end ---- */

/* No event says that a task is ready: all that it waits for has a result. */
static bool is_ready(const struct forge_replay *r, size_t task)
{
	const struct forge_task *t = &r->g.tasks[task];
	bool is_it = r->h.tasks[task].state == FORGE_TASK_WAITING;

	for (size_t i = 0; i < t->n_deps && is_it; i++) {
		enum forge_task_state s = r->h.tasks[t->deps[i]].state;
		is_it = s == FORGE_TASK_CACHED || s == FORGE_TASK_DONE ||
			s == FORGE_TASK_GIVEN;
	}
	return is_it;
}

static void take_end(struct forge_replay *r, const json_t *event)
{
	const json_t *counts = json_object_get(event, "tasks");
	double seconds = json_number_value(json_object_get(event, "seconds"));

	for (unsigned i = 0; i < r->g.n; i++)
		if (is_ready(r, i))
			forge_head_set_state(&r->h, i, FORGE_TASK_READY);
	for (size_t i = 0; i < FORGE_TASK_STATES; i++)
		r->h.counts[i] = (size_t)json_integer_value(
			json_object_get(counts, forge_task_state_names[i]));
	r->h.began_usec = forge_now_usec() - (uint64_t)(seconds * 1e6);
}

void forge_replay_event(struct forge_replay *r, const json_t *event)
{
	const char *what = forge_json_string_or(event, "event", "");
	const char *name = forge_json_string(event, "task");

	if (strcmp(what, "plan") == 0)
		take_plan(r, event);
	if (!r->h.g)
		return;
	const json_t *number = name ? json_object_get(r->numbers, name) : NULL;
	if (number)
		take_task(r, (unsigned)json_integer_value(number), what, event);
	if (strcmp(what, "end") == 0)
		take_end(r, event);
	r->h.n_jobs = r->h.counts[FORGE_TASK_RUNNING];
}
