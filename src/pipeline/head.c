/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of the head: what is ready, what runs, what ended. */
#include "pipeline/head.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/sys.h"
#include "config/budget.h"
#include "pipeline/job.h"
#include "record/deliver.h"
#include "record/reconcile.h"
#include "state/slot.h"
#include "store/state.h"

#define TICK_MSEC 500
/* Tasks that wait for other processes, each with a process of its own. */
#define WAITERS_MAX 64

const char *const forge_task_state_names[FORGE_TASK_STATES] = {
	"waiting", "ready",  "running", "cached",  "done",
	"given",   "failed", "blocked", "skipped", "left",
};

/* ---- states and events ---- */

void forge_head_set_text(char **slot, const char *text)
{
	char *copy = text ? strdup(text) : NULL;

	free(*slot);
	*slot = copy;
}

void forge_head_set_state(struct forge_head *h, unsigned task, enum forge_task_state to)
{
	h->counts[h->tasks[task].state]--;
	h->counts[to]++;
	h->tasks[task].state = to;
}

void forge_head_event(struct forge_head *h, const char *event, int task, json_t *extra)
{
	char now[FORGE_TIME_MAX];
	json_t *e =
		json_pack("{s:s, s:s}", "time", forge_format_now(now), "event", event);

	if (task >= 0)
		json_object_set_new(e, "task", forge_json_text(h->g->tasks[task].name));
	json_object_update(e, extra);
	json_decref(extra);
	if (h->o->on_event)
		h->o->on_event(h->o->arg, e);
	json_decref(e);
}

/* Of a task that has a result, for those who show it; takes extra (may be NULL). */
static void result_event(struct forge_head *h, const char *event, unsigned task,
			 json_t *extra)
{
	const struct forge_head_task *t = &h->tasks[task];
	json_int_t bytes = 0;

	for (size_t i = 0; i < t->result.n; i++)
		bytes += t->result.v[i].size == UINT64_MAX
				 ? 0
				 : (json_int_t)t->result.v[i].size;
	/* Without a run: the files are the user's. */
	json_t *o = json_pack("{s:s?, s:o?, s:I, s:I}", "run_id",
			      t->run_id[0] ? t->run_id : NULL, "notes",
			      t->notes ? forge_json_text(t->notes) : NULL, "outputs",
			      (json_int_t)t->result.n, "output_bytes", bytes);
	json_object_update(o, extra);
	json_decref(extra);
	forge_head_event(h, event, (int)task, o);
}

static void cached_event(struct forge_head *h, unsigned task)
{
	result_event(h, "cached", task,
		     json_pack("{s:s?}", "from", h->tasks[task].result.from));
}

static bool is_finished(enum forge_task_state s)
{
	return s == FORGE_TASK_CACHED || s == FORGE_TASK_DONE || s == FORGE_TASK_GIVEN;
}

/* ---- the heap of tasks that are ready ---- */

static bool goes_first(const struct forge_head *h, unsigned a, unsigned b)
{
	unsigned x = h->g->tasks[a].length, y = h->g->tasks[b].length;

	return x != y ? x > y : a < b;
}

static void push(struct forge_head *h, unsigned task)
{
	size_t i = h->n_ready++;

	for (; i > 0 && goes_first(h, task, h->ready[(i - 1) / 2]); i = (i - 1) / 2)
		h->ready[i] = h->ready[(i - 1) / 2];
	h->ready[i] = task;
}

static unsigned pop(struct forge_head *h)
{
	unsigned top = h->ready[0], last = h->ready[--h->n_ready];
	size_t i = 0;

	for (;;) {
		size_t child = 2 * i + 1;
		if (child >= h->n_ready)
			break;
		if (child + 1 < h->n_ready &&
		    goes_first(h, h->ready[child + 1], h->ready[child]))
			child++;
		if (!goes_first(h, h->ready[child], last))
			break;
		h->ready[i] = h->ready[child];
		i = child;
	}
	h->ready[i] = last;
	return top;
}

/* ---- consequences of an end ---- */

static int evaluate(struct forge_head *h, unsigned task, struct forge_error *err);

static unsigned count_missing(const struct forge_head *h, unsigned task)
{
	const struct forge_task *t = &h->g->tasks[task];
	unsigned n = 0;

	for (size_t i = 0; i < t->n_deps; i++)
		n += !is_finished(h->tasks[t->deps[i]].state);
	return n;
}

/* The task has a result. *list gets the readers that wait for nothing else. */
static void release_readers(struct forge_head *h, unsigned task, unsigned *list,
			    size_t *n)
{
	const struct forge_task *t = &h->g->tasks[task];

	for (size_t i = 0; i < t->n_readers; i++) {
		unsigned reader = t->readers[i];
		struct forge_head_task *r = &h->tasks[reader];
		if (r->state != FORGE_TASK_WAITING)
			continue;
		r->missing = h->has_redone ? count_missing(h, reader) : r->missing - 1;
		if (r->missing == 0)
			list[(*n)++] = reader;
	}
}

static void block(struct forge_head *h, unsigned task, const char *needed)
{
	char text[200];

	(void)snprintf(text, sizeof(text), "needs %.150s", needed);
	forge_head_set_text(&h->tasks[task].notes, text);
	forge_head_set_state(h, task, FORGE_TASK_BLOCKED);
	forge_head_event(h, "blocked", (int)task,
			 json_pack("{s:o}", "why", forge_json_text(text)));
}

/* Those that cannot run any more: the readers of a task, and theirs. Recursion is as deep as the graph, so this is a list. */
static void block_readers(struct forge_head *h, unsigned task)
{
	forge_auto_free unsigned *list = calloc(h->g->n, sizeof(*list));
	size_t n = 0;

	if (!list)
		return; /* they stay in the state "waiting", and the pipeline has failed all the same */
	list[n++] = task;
	for (size_t at = 0; at < n; at++) {
		const struct forge_task *t = &h->g->tasks[list[at]];
		for (size_t i = 0; i < t->n_readers; i++)
			if (h->tasks[t->readers[i]].state == FORGE_TASK_WAITING) {
				block(h, t->readers[i], t->name);
				list[n++] = t->readers[i];
			}
	}
}

/* text may be the notes that the task has. */
static void fail(struct forge_head *h, unsigned task, const char *text)
{
	forge_head_set_text(&h->tasks[task].notes, text);
	const char *notes = h->tasks[task].notes ? h->tasks[task].notes : "";
	forge_head_set_state(h, task, FORGE_TASK_FAILED);
	forge_head_event(
		h, "failed", (int)task,
		json_pack(
			"{s:o, s:s?, s:O?, s:O?}", "notes", forge_json_text(notes),
			"run_id", h->tasks[task].run_id[0] ? h->tasks[task].run_id : NULL,
			"usage", h->tasks[task].usage, "limits", h->tasks[task].allowed));
	block_readers(h, task);
	h->is_stopping |= h->o->stops_at_failure;
}

/*
 * A task has a result; those that waited for it are evaluated, and those that wait for these. The list is as long as
 * there are tasks: each is added once, when its last dependency has a result.
 */
static int finish(struct forge_head *h, unsigned task, enum forge_task_state state,
		  struct forge_error *err)
{
	forge_auto_free unsigned *list = calloc(h->g->n, sizeof(*list));
	size_t n = 0;
	int rc = 0;

	if (!list)
		return forge_fail(err, ENOMEM, "out of memory");
	forge_head_set_state(h, task, state);
	release_readers(h, task, list, &n);
	if (!h->is_dry)
		rc = forge_head_drop_temp(h, task, err);
	for (size_t i = 0; i < n && rc == 0; i++) {
		rc = evaluate(h, list[i], err);
		if (rc != 0 || h->tasks[list[i]].state != FORGE_TASK_CACHED)
			continue;
		release_readers(h, list[i], list, &n);
		if (!h->is_dry)
			rc = forge_head_drop_temp(h, list[i], err);
	}
	return rc;
}

/* Evaluates one task, and changes its state alone. */
static int evaluate(struct forge_head *h, unsigned task, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	struct forge_head_task *t = &h->tasks[task];

	if (!t->is_selected) {
		int given = forge_head_give(h, task, err);
		if (given < 0)
			return given;
		forge_head_set_state(h, task, FORGE_TASK_GIVEN);
		result_event(h, "given", task, NULL);
		return 0;
	}
	int rc = forge_head_evaluate_task(h, task, &why);
	if (rc == -ENOMEM || rc == -ENOTCONN) { /* the store is away */
		*err = why;
		return rc;
	}
	if (rc < 0) {
		fail(h, task, why.msg);
	} else if (rc == 1) {
		forge_head_set_state(h, task, FORGE_TASK_CACHED);
		cached_event(h, task);
	} else {
		forge_head_set_state(h, task, FORGE_TASK_READY);
		push(h, task);
	}
	return 0;
}

/* ---- starting a task ---- */

/* The task that made a temporary output runs again. */
static void redo(struct forge_head *h, unsigned task, const char *missing,
		 const char *reader)
{
	struct forge_head_task *t = &h->tasks[task];

	forge_head_demand(h, task, missing, reader);
	t->is_forced = h->has_redone = true;
	forge_result_done(&t->result); /* missing was a part of it */
	push(h, task);
}

/*
 * Inputs of a task that has to run may be temporary outputs that were dropped. The tasks that made them run again, and
 * this one waits, as others may already do. 1: it cannot start now.
 */
static int demand_inputs(struct forge_head *h, unsigned task)
{
	const struct forge_task *t = &h->g->tasks[task];
	bool waits = false;

	for (size_t i = 0; i < t->n_sources; i++) {
		const struct forge_source *s = &t->sources[i];
		if (s->task < 0 || h->g->tasks[s->task].is_skipped)
			continue;
		const struct forge_head_task *dep = &h->tasks[s->task];
		const char *missing =
			is_finished(dep->state) ? forge_head_missing_input(h, s) : NULL;
		if (dep->state == FORGE_TASK_FAILED || dep->state == FORGE_TASK_BLOCKED) {
			block(h, task, h->g->tasks[s->task].name);
			return 1;
		}
		waits |= !is_finished(dep->state) || missing;
		if (missing)
			redo(h, (unsigned)s->task, missing, t->name);
	}
	if (!waits)
		return 0;
	forge_head_set_state(h, task, FORGE_TASK_WAITING);
	h->tasks[task].missing = count_missing(h, task);
	return 1;
}

static int start(struct forge_head *h, unsigned task, struct forge_error *err)
{
	struct forge_head_task *t = &h->tasks[task];
	struct forge_error why = FORGE_ERROR_INIT;

	if (demand_inputs(h, task))
		return 0;
	int rc = forge_job_start(h, task, &why);
	if (rc == 2) {
		push(h, task);
		return 0;
	}
	if (rc == 1) {
		cached_event(h, task);
		return finish(h, task, FORGE_TASK_CACHED, err);
	}
	if (rc == 0) {
		t->began_usec = t->began_usec ? t->began_usec : forge_now_usec();
		forge_head_set_state(h, task, FORGE_TASK_RUNNING);
		forge_head_event(h, "started", (int)task,
				 json_pack("{s:s, s:i, s:s}", "why", t->why ? t->why : "",
					   "attempt", (int)t->attempt, "key", t->key));
		/* A run that was there already has an id now, others report theirs. */
		if (t->job && forge_job_is_watched(t->job))
			forge_head_event(h, "run", (int)task,
					 json_pack("{s:s}", "run_id", t->run_id));
		return 0;
	}
	if (rc == -ENOMEM || rc == -ENOTCONN || rc == -EPIPE) {
		*err = why;
		return rc;
	}
	fail(h, task, why.msg);
	return 0;
}

/* ---- the end of a run ---- */

static void set_usage(struct forge_head_task *t, const json_t *record)
{
	json_decref(t->usage);
	json_decref(t->allowed);
	t->usage = json_incref(json_object_get(record, "usage"));
	t->allowed = json_incref(json_object_get(record, "limits"));
	t->ended_usec = forge_now_usec();
	(void)snprintf(t->run_id, sizeof(t->run_id), "%s",
		       forge_json_string_or(record, "run_id", ""));
}

int forge_head_record(struct forge_head *h, unsigned task, const json_t *record,
		      struct forge_error *err)
{
	struct forge_head_task *t = &h->tasks[task];
	const char *status = forge_json_string_or(record, "status", "lost");

	set_usage(t, record);
	forge_head_set_text(&t->notes, forge_json_string(record, "completion_notes"));
	if (strcmp(status, "succeeded") == 0) {
		forge_result_done(&t->result);
		if (forge_result_of_record(record, &t->result) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
		result_event(h, "done", task,
			     json_pack("{s:O?, s:O?}", "usage", t->usage, "limits",
				       t->allowed));
		return finish(h, task, FORGE_TASK_DONE, err);
	}
	if (forge_head_choose_retry(h, task, record)) {
		t->attempt++;
		forge_head_set_state(h, task, FORGE_TASK_READY);
		push(h, task);
		return 0;
	}
	fail(h, task, t->notes ? t->notes : "it ended without a verdict");
	return 0;
}

int forge_head_lost(struct forge_head *h, unsigned task, struct forge_error *err)
{
	struct forge_head_task *t = &h->tasks[task];
	forge_auto_json json_t *record = NULL;

	/* Repair closes its record and keeps its workdir, for the checkpoint. */
	int caught = forge_head_catch_up(h, err);
	bool is_remote = h->is_remote[h->g->tasks[task].step - h->g->p->steps];
	if (caught < 0 &&
	    !is_remote) /* else it is tried again while the run is followed */
		return caught;
	if (t->run_id[0] && forge_store_get(h->store, t->run_id, &record, NULL) < 0)
		record = NULL;
	/* A run on a cluster or in a container goes on, and repair has found another supervisor for it. */
	if (record && is_remote &&
	    !forge_status_is_terminal(
		    forge_status_of(forge_json_string(record, "status")))) {
		static const char notes[] =
			"its supervisor was killed, and another one goes on";
		forge_head_event(h, "note", (int)task, json_pack("{s:s}", "text", notes));
		return forge_job_follow(h, task, notes, err);
	}
	if (!record)
		record = json_pack("{s:s, s:s, s:s, s:s}", "run_id", t->run_id, "status",
				   "lost", "reason", "host_lost", "completion_notes",
				   "Lost: the supervisor of the run was killed.");
	return record ? forge_head_record(h, task, record, err)
		      : forge_fail(err, ENOMEM, "out of memory");
}

int forge_head_catch_up(struct forge_head *h, struct forge_error *err)
{
	int rc = forge_reconcile(NULL, false, err);

	if (rc >= 0)
		(void)forge_deliver_pending(h->store, h->store_url, NULL); /* a count */
	return rc < 0 ? rc : 0;
}

int forge_head_again(struct forge_head *h, unsigned task, struct forge_error *err)
{
	int caught = forge_head_catch_up(h, err);

	if (caught < 0)
		return caught;
	/* The other pipeline has made the result, or its run failed and this one tries. */
	h->tasks[task].is_forced = false;
	forge_head_set_text(&h->tasks[task].why, NULL);
	forge_head_set_text(&h->tasks[task].notes, "it was running already");
	forge_head_set_state(h, task, FORGE_TASK_WAITING);
	int rc = evaluate(h, task, err);
	if (rc == 0 && h->tasks[task].state == FORGE_TASK_CACHED)
		return finish(h, task, FORGE_TASK_CACHED, err);
	if (rc == 0 && h->tasks[task].state == FORGE_TASK_READY)
		forge_head_set_text(&h->tasks[task].notes, NULL);
	return rc;
}

/* ---- the loop ---- */

/* Whether another process carries out a run, in this FORGE_HOME. */
static bool has_runs(const struct forge_head *h)
{
	json_t *slots = forge_slot_all(h->home);
	bool has_any = !slots || json_object_size(slots) > 0;

	json_decref(slots);
	return has_any;
}

static int begin(struct forge_head *h, struct forge_error *err)
{
	int rc = 0;

	/*
	 * In this order: a run that is not active any more has reported, or left its record for the next process to
	 * deliver.
	 */
	h->has_strangers = has_runs(h);
	if (!h->is_dry)
		rc = forge_head_catch_up(h, err);

	for (unsigned i = 0; i < h->g->n && rc == 0; i++) {
		const struct forge_task *t = &h->g->tasks[i];
		bool is_needed = h->tasks[i].is_selected;
		for (size_t k = 0; k < t->n_readers && !is_needed; k++)
			is_needed = h->tasks[t->readers[k]].is_selected;
		h->tasks[i].missing = h->tasks[i].is_selected ? (unsigned)t->n_deps : 0;
		if (t->is_skipped) {
			forge_head_set_state(h, i, FORGE_TASK_SKIPPED);
			forge_head_set_text(&h->tasks[i].notes, t->why_skipped);
		} else if (!is_needed) {
			forge_head_set_state(h, i, FORGE_TASK_LEFT);
		}
	}
	for (unsigned i = 0; i < h->g->n && rc == 0; i++) {
		if (h->tasks[i].state != FORGE_TASK_WAITING || h->tasks[i].missing)
			continue;
		rc = evaluate(h, i, err);
		if (rc == 0 && is_finished(h->tasks[i].state))
			rc = finish(h, i, h->tasks[i].state, err);
	}
	return rc;
}

int forge_head_evaluate(struct forge_head *h, struct forge_error *err)
{
	return begin(h, err);
}

/* Asks all running tasks to end; the second time at once. */
static int cancel(struct forge_head *h, struct forge_error *err)
{
	int rc = 0;

	if (!h->is_stopping)
		forge_head_event(h, "stopping", -1, NULL);
	h->is_stopping = true;
	/* A job that is given up leaves the list: from the last to the first. */
	for (size_t i = h->n_jobs; i-- > 0 && rc == 0;)
		rc = forge_job_cancel(h, i, err);
	return rc;
}

static int wait_for_events(struct forge_head *h, int signals, struct forge_error *err)
{
	size_t n = h->n_jobs;
	struct pollfd *p = calloc(2 * n + 1, sizeof(*p));
	bool needs_clock = h->o->on_tick != NULL, has_watched = false;

	if (!p)
		return forge_fail(err, ENOMEM, "out of memory");
	p[0] = (struct pollfd){ .fd = signals, .events = POLLIN };
	for (size_t i = 0; i < n; i++) {
		forge_job_poll(h->jobs[i], &p[2 * i + 1]);
		has_watched |= forge_job_is_watched(h->jobs[i]);
	}
	int ready = poll(p, 2 * n + 1, needs_clock || has_watched ? TICK_MSEC : -1);
	int rc = ready < 0 && errno != EINTR ? forge_fail_errno(err, errno, "poll") : 0;
	if (rc == 0 && p[0].revents) {
		struct signalfd_siginfo info;
		if (read(signals, &info, sizeof(info)) == sizeof(info)) {
			free(p);
			return cancel(h, err);
		}
	}
	/* Also while other tasks keep the loop busy. */
	uint64_t now = forge_now_usec();
	bool is_due = now - h->looked_usec >= TICK_MSEC * 1000ull;
	if (is_due)
		h->looked_usec = now;
	/* The process that attends a followed run may die, too: repair starts another one. If it cannot, the next one may. */
	if (rc == 0 && is_due && has_watched)
		(void)!forge_head_catch_up(h, NULL);
	/* A job that ends leaves the list: from the last to the first. */
	for (size_t i = h->n_jobs < n ? h->n_jobs : n; i-- > 0 && rc == 0;)
		if (p[2 * i + 1].revents || p[2 * i + 2].revents ||
		    (is_due && forge_job_is_watched(h->jobs[i])))
			rc = forge_job_look(h, i, err);
	free(p);
	return rc;
}

/* ---- a store that is away ---- */

/* How long the head waits for it. What runs goes on meanwhile, and reports when it ends. */
#define STORE_WAIT_USEC (120ull * 1000000)
#define STORE_TRY_MSEC	1000

/* What an error left undone: tasks that are ready but in no list, and those that were not evaluated. */
static int take_up(struct forge_head *h, struct forge_error *err)
{
	int rc = forge_head_catch_up(h, err);

	h->n_ready = 0;
	for (unsigned i = 0; i < h->g->n; i++)
		if (h->tasks[i].state == FORGE_TASK_READY)
			push(h, i);
	for (unsigned i = 0; i < h->g->n && rc == 0; i++) {
		if (h->tasks[i].state != FORGE_TASK_WAITING || count_missing(h, i))
			continue;
		rc = evaluate(h, i, err);
		if (rc == 0 && is_finished(h->tasks[i].state))
			rc = finish(h, i, h->tasks[i].state, err);
	}
	for (unsigned i = 0; i < h->g->n && rc == 0; i++)
		if (h->tasks[i].state == FORGE_TASK_WAITING)
			h->tasks[i].missing = count_missing(h, i);
	return rc;
}

/* The store does not answer, as err says. 0: it does again. */
static int reconnect(struct forge_head *h, int signals, struct forge_error *err)
{
	uint64_t deadline = forge_now_usec() + STORE_WAIT_USEC;
	int rc = -ENOTCONN;

	forge_head_event(h, "warning", -1,
			 json_pack("{s:o}", "text", forge_json_text(err->msg)));
	forge_store_close(forge_take_ptr(h->store));
	while (rc == -ENOTCONN && forge_now_usec() < deadline) {
		struct pollfd p = { .fd = signals, .events = POLLIN };
		if (poll(&p, 1, STORE_TRY_MSEC) > 0)
			return -ENOTCONN; /* the user does not want to wait */
		rc = forge_store_open(h->store_url, &h->store, err);
		if (rc == 0)
			rc = take_up(h, err);
		if (rc == -ENOTCONN)
			forge_store_close(forge_take_ptr(h->store));
	}
	return rc;
}

static int loop(struct forge_head *h, int signals, struct forge_error *err)
{
	int rc = 0;

	while (rc == 0) {
		while (rc == 0 && h->n_ready && h->n_jobs - h->n_waiters < h->max_jobs &&
		       h->n_waiters < WAITERS_MAX && !h->is_stopping)
			rc = start(h, pop(h), err);
		if (rc == 0 && h->n_jobs == 0)
			break;
		if (rc == 0 && h->o->on_tick)
			h->o->on_tick(h->o->arg);
		if (rc == 0)
			rc = wait_for_events(h, signals, err);
		if (rc == -ENOTCONN)
			rc = reconnect(h, signals, err);
	}
	return rc;
}

int forge_head_run(struct forge_head *h, struct forge_error *err)
{
	sigset_t ours, before;

	sigemptyset(&ours);
	sigaddset(&ours, SIGINT);
	sigaddset(&ours, SIGTERM);
	(void)sigprocmask(SIG_BLOCK, &ours, &before);
	forge_auto_close int signals = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
	h->stop_fd = signals;
	int rc = signals < 0 ? forge_fail_errno(err, errno, "signalfd") : begin(h, err);
	if (rc == 0)
		rc = loop(h, signals, err);
	if (rc == 0)
		rc = forge_head_flush_temp(h, err);
	if (rc == -ENOTCONN && !h->store)
		forge_head_event(h, "note", -1,
				 json_pack("{s:s}", "text", "the store is still away"));
	h->stop_fd = -1;
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	if (rc < 0)
		return rc;
	return h->counts[FORGE_TASK_FAILED] || h->counts[FORGE_TASK_BLOCKED] ||
	       h->counts[FORGE_TASK_READY] || h->counts[FORGE_TASK_WAITING];
}

/* ---- open and close ---- */

/* As many as can run, and two more that are being prepared. */
static size_t default_jobs(const struct forge_head *h)
{
	struct forge_budget b;
	bool has_remote = false;

	forge_budget_of(h->cfg, &b);
	for (size_t i = 0; i < h->g->p->n_steps; i++)
		has_remote |= h->is_remote[i];
	size_t cpus =
		b.cpus_milli == FORGE_UNLIMITED ? 64 : (size_t)(b.cpus_milli / 1000);
	return has_remote ? 500 : 2 * cpus + 2;
}

/* The embedded SQLite store in this FORGE_HOME has the same owner and mode as the records, so it is trusted like them. */
static bool is_own_store(const struct forge_home *home, const char *url)
{
	return strncmp(url, "sqlite:", 7) == 0 &&
	       forge_path_is_below(url + 7, home->path);
}

/* A job has two descriptors here, and the launcher three. */
static size_t cap_jobs(size_t wanted)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		return wanted;
	l.rlim_cur = l.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &l); /* else the old limit is what there is */
	if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur == RLIM_INFINITY)
		return wanted;
	size_t most = l.rlim_cur > 400 ? (l.rlim_cur - 200) / 3 : l.rlim_cur / 8 + 1;
	return wanted < most ? wanted : most;
}

int forge_head_open(struct forge_head *h, const struct forge_graph *g,
		    const struct forge_config *cfg, const struct forge_home *home,
		    const char *store_url, const struct forge_head_options *o,
		    bool is_dry, struct forge_error *err)
{
	*h = FORGE_HEAD_INIT;
	h->g = g;
	h->cfg = cfg;
	h->home = home;
	h->o = o;
	h->is_dry = is_dry;
	h->began_usec = forge_now_usec();
	char user[FORGE_USER_MAX];
	(void)snprintf(h->user, sizeof(h->user), "%s", forge_user_name(user));
	h->is_shared = !is_own_store(home, store_url);
	h->store_url = strdup(store_url);
	h->tasks = calloc(g->n, sizeof(*h->tasks));
	h->ready = calloc(g->n + 1, sizeof(*h->ready));
	h->digests = forge_digests_new(home);
	if (!h->store_url || !h->tasks || !h->ready || !h->digests)
		return forge_fail(err, ENOMEM, "out of memory");
	h->counts[FORGE_TASK_WAITING] = g->n;
	for (size_t i = 0; i < g->n; i++)
		h->tasks[i].attempt = 1;
	int rc = forge_head_prepare(h, err);
	if (rc == 0)
		rc = forge_head_select(h, err);
	if (rc < 0)
		return rc;
	h->max_jobs = cap_jobs(o->jobs ? o->jobs : default_jobs(h));
	h->jobs = calloc(g->n + 1, sizeof(struct forge_head_job *));
	if (!h->jobs)
		return forge_fail(err, ENOMEM, "out of memory");
	h->env = (struct forge_launch_env){ g, cfg, home, h->store_url, h->scripts };
	if (!is_dry)
		rc = forge_launcher_start(&h->env, &h->launcher, err);
	/* After the launcher, whose children need none of these descriptors. */
	if (rc == 0)
		rc = forge_reuse_open(h, err);
	return rc < 0 ? rc : forge_store_open(h->store_url, &h->store, err);
}

void forge_head_close(struct forge_head *h)
{
	for (size_t i = h->n_jobs; i-- > 0;)
		forge_job_free(h->jobs[i]);
	for (size_t i = 0; h->tasks && i < h->g->n; i++) {
		struct forge_head_task *t = &h->tasks[i];
		forge_result_done(&t->result);
		free(t->why);
		free(t->notes);
		json_decref(t->usage);
		json_decref(t->allowed);
	}
	for (size_t i = 0; h->scripts && i < h->g->p->n_steps; i++) {
		free(h->scripts[i].text);
		free(h->scripts[i].real);
	}
	forge_removal_done(&h->removal);
	forge_reuse_close(h);
	forge_launcher_stop(&h->launcher);
	forge_store_close(h->store);
	forge_digests_free(h->digests);
	free(h->store_url);
	free(h->tasks);
	free(h->ready);
	free(h->jobs);
	free(h->scripts);
	free(h->runtimes);
	free(h->is_remote);
	*h = FORGE_HEAD_INIT;
}
