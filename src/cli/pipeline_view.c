/* SPDX-License-Identifier: Apache-2.0 */
/* Progress and results of a pipeline. */
#include "cli/pipeline_view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/parse.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "executor/executor.h"
#include "state/slot.h"

/* Of a pipeline with more tasks the table has one line a step. */
#define TASKS_LISTED 60

/* ---- the terminal ---- */

static unsigned terminal_rows(void)
{
	struct winsize w;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row > 3 ? w.ws_row : 24;
}

void forge_view_clear(struct forge_pipeline_view *v)
{
	if (v->drawn)
		fprintf(stderr, "\033[%uA\033[J", v->drawn);
	v->drawn = 0;
}

/* The state of a step: of its tasks, the one that matters most. */
static enum forge_task_state step_state(const struct forge_head *h, size_t step,
					size_t *ret_done)
{
	static const enum forge_task_state order[] = {
		FORGE_TASK_RUNNING, FORGE_TASK_FAILED,	FORGE_TASK_READY,
		FORGE_TASK_BLOCKED, FORGE_TASK_WAITING, FORGE_TASK_DONE,
		FORGE_TASK_CACHED,  FORGE_TASK_GIVEN,	FORGE_TASK_SKIPPED,
	};
	size_t counts[FORGE_TASK_STATES] = { 0 };

	for (unsigned i = 0; i < h->g->count[step]; i++)
		counts[h->tasks[h->g->first[step] + i].state]++;
	*ret_done = counts[FORGE_TASK_DONE] + counts[FORGE_TASK_CACHED] +
		    counts[FORGE_TASK_GIVEN] + counts[FORGE_TASK_SKIPPED];
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(order); i++)
		if (counts[order[i]])
			return order[i];
	return FORGE_TASK_LEFT;
}

static enum forge_colour state_colour(enum forge_task_state s)
{
	switch (s) {
	case FORGE_TASK_DONE:
	case FORGE_TASK_CACHED:
		return FORGE_GREEN;
	case FORGE_TASK_FAILED:
		return FORGE_RED;
	case FORGE_TASK_BLOCKED:
	case FORGE_TASK_RUNNING:
		return FORGE_YELLOW;
	case FORGE_TASK_WAITING:
	case FORGE_TASK_READY:
	case FORGE_TASK_GIVEN:
	case FORGE_TASK_SKIPPED:
	case FORGE_TASK_LEFT:
	case FORGE_TASK_STATES:
		break;
	}
	return FORGE_DIM;
}

/* "310 MiB of 1.00 GiB": what a running task uses now. */
static void live_memory(const struct forge_pipeline_view *v,
			const struct forge_step *step, const struct forge_head_task *t,
			char buf[80])
{
	char used[FORGE_FORMAT_MAX], most[FORGE_FORMAT_MAX];
	struct forge_usage_now u;

	buf[0] = '\0';
	if (!t->run_id[0])
		return;
	forge_run_usage(v->slots, t->run_id, &u);
	if (u.memory_bytes == UINT64_MAX)
		return;
	uint64_t limit = t->limits.memory_bytes ? t->limits.memory_bytes
						: step->limits.memory_bytes;
	(void)snprintf(buf, 80, "%s%s%s", forge_format_size(used, u.memory_bytes),
		       limit ? " of " : "", limit ? forge_format_size(most, limit) : "");
}

static void draw_step(struct forge_pipeline_view *v, size_t step)
{
	const struct forge_head *h = v->h;
	const struct forge_step *s = &h->g->p->steps[step];
	size_t done, width = forge_terminal_width(stderr);
	enum forge_task_state state = step_state(h, step, &done);
	char time[FORGE_FORMAT_MAX] = "", memory[80] = "", count[40] = "",
	     attempt[32] = "", line[400];
	const struct forge_head_task *t = &h->tasks[h->g->first[step]];

	for (unsigned i = 0; i < h->g->count[step] && state == FORGE_TASK_RUNNING; i++)
		if (h->tasks[h->g->first[step] + i].state == FORGE_TASK_RUNNING) {
			t = &h->tasks[h->g->first[step] + i];
			break;
		}
	if (s->n_loops)
		(void)snprintf(count, sizeof(count), " %zu/%u", done, h->g->count[step]);
	if (state == FORGE_TASK_RUNNING && t->began_usec) {
		(void)forge_format_duration(time, forge_now_usec() - t->began_usec);
		live_memory(v, s, t, memory);
	} else if (t->ended_usec) {
		(void)forge_format_duration(time, t->ended_usec - t->began_usec);
	}
	if (t->attempt > 1)
		(void)snprintf(attempt, sizeof(attempt), " attempt %u", t->attempt);
	(void)snprintf(line, sizeof(line), "  %-20s%-10s %-8s %-10s %s%s  %s", s->name,
		       count, forge_task_state_names[state], time, memory, attempt,
		       t->notes ? t->notes : "");
	if (width && strlen(line) >= width)
		line[width - 1] = '\0';
	bool has_colour = forge_has_colour(stderr);
	fprintf(stderr, "%s%s%s\n",
		has_colour ? forge_colour_code(state_colour(state)) : "", line,
		has_colour ? forge_colour_code(FORGE_PLAIN) : "");
	v->drawn++;
}

/* Steps that run or failed come first when there is no room for all. */
void forge_view_draw(struct forge_pipeline_view *v)
{
	unsigned room = terminal_rows() - 2;

	if (!v->is_live || !v->h)
		return;
	forge_view_clear(v);
	v->slots = forge_slot_all(v->h->home);
	bool fits = v->h->g->p->n_steps <= room;
	for (size_t i = 0; i < v->h->g->p->n_steps && v->drawn < room; i++) {
		size_t done;
		enum forge_task_state s = step_state(v->h, i, &done);
		if (fits || s == FORGE_TASK_RUNNING || s == FORGE_TASK_FAILED)
			draw_step(v, i);
	}
	fprintf(stderr, "  %zu of %zu tasks done, %zu running\n",
		v->h->counts[FORGE_TASK_DONE] + v->h->counts[FORGE_TASK_CACHED] +
			v->h->counts[FORGE_TASK_GIVEN],
		v->h->g->n, v->h->n_jobs);
	v->drawn++;
	json_decref(v->slots);
	v->slots = NULL;
}

/* ---- events ---- */

void forge_view_event(struct forge_pipeline_view *v, const json_t *event)
{
	const char *what = forge_json_string_or(event, "event", "");
	const char *task = forge_json_string_or(event, "task", "");

	if (v->is_json) {
		forge_auto_free char *text = forge_json_line(event);
		if (text)
			puts(text);
		fflush(stdout);
		return;
	}
	bool has_failed = strcmp(what, "failed") == 0;
	bool is_problem =
		has_failed || strcmp(what, "warning") == 0 || strcmp(what, "retry") == 0;
	/* The others are in the table, and for programs. */
	if (v->is_quiet ? !has_failed : !is_problem)
		return;
	forge_view_clear(v);
	const char *text = forge_json_string(event, "notes");
	if (!text)
		text = forge_json_string(event, "text");
	if (!text)
		text = forge_json_string_or(event, "why", "");
	fprintf(stderr, "forge: %s%s%s", what, *task ? " " : "", task);
	if (strcmp(what, "retry") == 0)
		fprintf(stderr, ": %s; again %s",
			forge_json_string_or(event, "reason", ""),
			forge_json_string_or(event, "with", ""));
	if (*text)
		fputs(": ", stderr);
	forge_print_clean(stderr, text, strlen(text));
	putc('\n', stderr);
}

/* ---- tables ---- */

struct table {
	struct forge_cell *cells;
	size_t columns, rows;
	struct forge_strv texts; /* what the cells point to */
};

static void table_done(struct table *t)
{
	free(t->cells);
	forge_strv_done(&t->texts);
}

static int add_cell(struct table *t, const char *text, enum forge_colour colour)
{
	size_t n = t->texts.n;

	if (n % 64 == 0) {
		struct forge_cell *grown = reallocarray(t->cells, n + 64, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		t->cells = grown;
	}
	if (forge_strv_add(&t->texts, text && *text ? text : "-") < 0)
		return -ENOMEM;
	t->cells[n] = (struct forge_cell){ t->texts.v[n], colour };
	return 0;
}

static int add_heading(struct table *t, const char *const *words, size_t n)
{
	int rc = 0;

	t->columns = n;
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = add_cell(t, words[i], FORGE_BOLD);
	return rc;
}

static void print_table(FILE *f, struct table *t)
{
	/* The texts may have moved while the list grew. */
	for (size_t i = 0; i < t->texts.n; i++)
		t->cells[i].text = t->texts.v[i];
	forge_table_print_lines(f, t->cells, t->columns, t->texts.n / t->columns);
}

static void memory_text(const struct forge_head_task *t, char buf[80])
{
	const json_t *used = json_object_get(t->usage, "memory_peak_bytes");
	const json_t *most = json_object_get(t->allowed, "memory_bytes");
	char a[FORGE_FORMAT_MAX], b[FORGE_FORMAT_MAX];

	buf[0] = '\0';
	if (!json_is_integer(used))
		return;
	(void)snprintf(buf, 80, "%s of %s",
		       forge_format_size(a, (uint64_t)json_integer_value(used)),
		       json_is_integer(most)
			       ? forge_format_size(b, (uint64_t)json_integer_value(most))
			       : "any");
}

static uint64_t wall_usec(const struct forge_head_task *t)
{
	const json_t *wall = json_object_get(t->usage, "wall_seconds");

	return json_is_number(wall) ? (uint64_t)(json_number_value(wall) * 1e6) : 0;
}

static uint64_t result_bytes(const struct forge_head_task *t)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < t->result.n; i++)
		sum += t->result.v[i].size == UINT64_MAX ? 0 : t->result.v[i].size;
	return sum;
}

static int add_task_row(struct table *table, const struct forge_head *h, size_t i)
{
	const struct forge_head_task *t = &h->tasks[i];
	char time[FORGE_FORMAT_MAX] = "", memory[80], size[FORGE_FORMAT_MAX] = "";
	const char *text = t->state == FORGE_TASK_DONE ? t->why : t->notes;

	if (wall_usec(t))
		(void)forge_format_duration(time, wall_usec(t));
	memory_text(t, memory);
	if (t->result.n)
		(void)forge_format_size(size, result_bytes(t));
	int rc = add_cell(table, h->g->tasks[i].name, FORGE_PLAIN);
	if (rc == 0)
		rc = add_cell(table, forge_task_state_names[t->state],
			      state_colour(t->state));
	if (rc == 0)
		rc = add_cell(table, time, FORGE_PLAIN);
	if (rc == 0)
		rc = add_cell(table, memory, FORGE_PLAIN);
	if (rc == 0)
		rc = add_cell(table, size, FORGE_PLAIN);
	if (rc == 0)
		rc = add_cell(table, t->run_id, FORGE_DIM);
	return rc < 0 ? rc : add_cell(table, text, FORGE_PLAIN);
}

/* A step with many tasks: how many of them are in which state. */
static int add_step_row(struct table *table, const struct forge_head *h, size_t step)
{
	size_t counts[FORGE_TASK_STATES] = { 0 }, len = 0, done;
	uint64_t wall = 0, bytes = 0;
	char text[160] = "", time[FORGE_FORMAT_MAX] = "", size[FORGE_FORMAT_MAX] = "";
	enum forge_task_state state = step_state(h, step, &done);

	for (unsigned i = 0; i < h->g->count[step]; i++) {
		const struct forge_head_task *t = &h->tasks[h->g->first[step] + i];
		counts[t->state]++;
		wall += wall_usec(t);
		bytes += result_bytes(t);
	}
	for (size_t i = 0; i < FORGE_TASK_STATES; i++)
		if (counts[i] && len < sizeof(text))
			len += (size_t)snprintf(text + len, sizeof(text) - len,
						"%s%zu %s", len ? ", " : "", counts[i],
						forge_task_state_names[i]);
	if (wall)
		(void)forge_format_duration(time, wall);
	if (bytes)
		(void)forge_format_size(size, bytes);
	int rc = add_cell(table, h->g->p->steps[step].name, FORGE_PLAIN);
	if (rc == 0)
		rc = add_cell(table, forge_task_state_names[state], state_colour(state));
	if (rc == 0)
		rc = add_cell(table, time, FORGE_PLAIN);
	if (rc == 0)
		rc = add_cell(table, "", FORGE_PLAIN);
	if (rc == 0)
		rc = add_cell(table, size, FORGE_PLAIN);
	if (rc == 0)
		rc = add_cell(table, "", FORGE_PLAIN);
	return rc < 0 ? rc : add_cell(table, text, FORGE_PLAIN);
}

static int print_tasks(const struct forge_head *h)
{
	static const char *const words[] = { "STEP",   "STATE", "TIME", "MEMORY",
					     "OUTPUT", "RUN",	"WHY" };
	FORGE_CLEANUP(table_done) struct table t = { .cells = NULL };
	int rc = add_heading(&t, words, FORGE_ARRAY_SIZE(words));
	bool is_short = h->g->n <= TASKS_LISTED;

	for (size_t i = 0; rc == 0 && is_short && i < h->g->n; i++)
		if (h->tasks[i].state != FORGE_TASK_LEFT)
			rc = add_task_row(&t, h, i);
	for (size_t i = 0;
	     rc == 0 && !is_short && i < h->g->p->n_steps && i < TASKS_LISTED; i++)
		rc = add_step_row(&t, h, i);
	if (rc == 0)
		print_table(stdout, &t);
	return rc;
}

int forge_view_end(struct forge_pipeline_view *v, const char *resume,
		   struct forge_error *err)
{
	const struct forge_head *h = v->h;
	const size_t *n = h->counts;
	char time[FORGE_FORMAT_MAX];
	size_t left = n[FORGE_TASK_FAILED] + n[FORGE_TASK_BLOCKED] + n[FORGE_TASK_READY] +
		      n[FORGE_TASK_WAITING];

	forge_view_clear(v);
	if (v->is_json || v->is_quiet)
		return 0;
	bool is_noop = n[FORGE_TASK_DONE] == 0 && left == 0;
	if (!is_noop && print_tasks(h) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	if (is_noop) {
		printf("%zu step%s up to date", n[FORGE_TASK_CACHED],
		       n[FORGE_TASK_CACHED] == 1 ? "" : "s");
	} else {
		printf("%zu ran, %zu up to date", n[FORGE_TASK_DONE],
		       n[FORGE_TASK_CACHED]);
		if (n[FORGE_TASK_FAILED])
			printf(", %zu failed", n[FORGE_TASK_FAILED]);
		if (left > n[FORGE_TASK_FAILED])
			printf(", %zu not run", left - n[FORGE_TASK_FAILED]);
	}
	if (n[FORGE_TASK_GIVEN])
		printf(", %zu given", n[FORGE_TASK_GIVEN]);
	if (n[FORGE_TASK_SKIPPED])
		printf(", %zu skipped", n[FORGE_TASK_SKIPPED]);
	printf(", %s\n", forge_format_duration(time, forge_now_usec() - h->began_usec));
	if (left && resume)
		printf("to go on: %s\n", resume);
	return 0;
}

/* ---- plans ---- */

static const char *plan_word(const struct forge_head_task *t)
{
	switch (t->state) {
	case FORGE_TASK_CACHED:
		return "up to date";
	case FORGE_TASK_READY:
		return t->why && strncmp(t->why, FORGE_NOT_RUN_YET,
					 strlen(FORGE_NOT_RUN_YET)) == 0
			       ? "run"
			       : "rerun";
	case FORGE_TASK_FAILED:
		return "cannot run";
	case FORGE_TASK_WAITING:
	case FORGE_TASK_RUNNING:
	case FORGE_TASK_DONE:
	case FORGE_TASK_GIVEN:
	case FORGE_TASK_BLOCKED:
	case FORGE_TASK_SKIPPED:
	case FORGE_TASK_LEFT:
	case FORGE_TASK_STATES:
		break;
	}
	return forge_task_state_names[t->state];
}

/* Why a task waits: a task before it runs again. */
static void waits_for(const struct forge_head *h, size_t i, char *buf, size_t size)
{
	const struct forge_task *t = &h->g->tasks[i];

	buf[0] = '\0';
	if (h->tasks[i].state != FORGE_TASK_WAITING)
		return;
	for (size_t k = 0; k < t->n_deps && !*buf; k++)
		if (h->tasks[t->deps[k]].state == FORGE_TASK_READY ||
		    h->tasks[t->deps[k]].state == FORGE_TASK_RUNNING ||
		    h->tasks[t->deps[k]].state == FORGE_TASK_WAITING)
			(void)snprintf(buf, size, "after %.150s has run",
				       h->g->tasks[t->deps[k]].name);
}

int forge_view_plan(const struct forge_head *h, int only_task, size_t n, bool is_json,
		    struct forge_error *err)
{
	size_t first = only_task < 0 ? 0 : (size_t)only_task;
	size_t end = only_task < 0 ? h->g->n : first + n;
	forge_auto_json json_t *all = json_array();

	for (size_t i = first; i < end; i++) {
		const struct forge_head_task *t = &h->tasks[i];
		char text[400];
		waits_for(h, i, text, sizeof(text));
		const char *why = t->why ? t->why : t->notes ? t->notes : text;
		if (is_json) {
			json_array_append_new(
				all, json_pack("{s:o, s:s, s:o, s:s?, s:s?}", "task",
					       forge_json_text(h->g->tasks[i].name),
					       "state", forge_task_state_names[t->state],
					       "why", forge_json_text(why), "run_id",
					       t->run_id[0] ? t->run_id : NULL, "key",
					       t->key[0] ? t->key : NULL));
			continue;
		}
		forge_print_clean(stdout, h->g->tasks[i].name,
				  strlen(h->g->tasks[i].name));
		printf(": %s", plan_word(t));
		/* Without a run: the files are the user's. */
		if (t->run_id[0] && !t->why) {
			printf(" (run %s%s", t->run_id, t->notes ? ": " : "");
			forge_print_clean(stdout, t->notes ? t->notes : "",
					  t->notes ? strlen(t->notes) : 0);
			putchar(')');
		} else if (*why) {
			fputs(": ", stdout);
			forge_print_clean(stdout, why, strlen(why));
		}
		putchar('\n');
	}
	if (is_json && !all)
		return forge_fail(err, ENOMEM, "out of memory");
	if (is_json)
		forge_print_json(all);
	return 0;
}
