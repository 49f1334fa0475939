/* SPDX-License-Identifier: Apache-2.0 */
/* A task that runs: what the launcher gets, and the messages of the supervisor. */
#include "pipeline/job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/json.h"
#include "base/sys.h"
#include "executor/executor.h"
#include "pipeline/keylock.h"
#include "record/attendant.h"
#include "state/slot.h"
#include "state/supervisor.h"
#include "store/state.h"

/* A record has at most a few megabytes. */
#define MESSAGE_MAX (64u << 20)
#define CHECKPOINTS 10 /* runs that are searched for a checkpoint */

struct forge_head_job {
	unsigned task;
	int fd;		/* of the pipe; -1: the run has no supervisor that we started */
	int pidfd;	/* of the supervisor; -1: not known yet */
	bool is_waiter; /* it runs no command, so it does not count against max_jobs */
	bool has_asked; /* the run that it waits for was asked to end */
	char *buf;
	size_t len, cap;
};

void forge_job_free(struct forge_head_job *j)
{
	if (j->fd >= 0)
		close(j->fd);
	if (j->pidfd >= 0)
		close(j->pidfd);
	free(j->buf);
	free(j);
}

void forge_job_poll(const struct forge_head_job *j, struct pollfd p[2])
{
	p[0] = (struct pollfd){ .fd = j->fd, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = j->pidfd, .events = POLLIN };
}

bool forge_job_is_watched(const struct forge_head_job *j)
{
	return j->fd < 0;
}

static struct forge_head_job *add_job(struct forge_head *h, unsigned task, int fd,
				      bool is_waiter)
{
	struct forge_head_job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	*j = (struct forge_head_job){
		.task = task, .fd = fd, .pidfd = -1, .is_waiter = is_waiter
	};
	h->n_waiters += is_waiter;
	h->jobs[h->n_jobs++] = j;
	h->tasks[task].job = j;
	return j;
}

static void remove_job(struct forge_head *h, size_t index)
{
	struct forge_head_job *j = h->jobs[index];

	h->tasks[j->task].job = NULL;
	h->n_waiters -= j->is_waiter;
	h->jobs[index] = h->jobs[--h->n_jobs];
	forge_job_free(j);
}

static void send_end(const struct forge_head_job *j)
{
	if (j->pidfd >= 0)
		(void)sys_pidfd_send_signal(j->pidfd, SIGTERM, NULL);
}

/* ---- starting ---- */

/* What the record of the run says of the step. */
static json_t *step_json(const struct forge_head *h, unsigned task, const char *key,
			 const json_t *parts, const struct forge_task_files *files)
{
	const struct forge_task *t = &h->g->tasks[task];
	json_t *expects = json_object();

	for (size_t i = 0; i < files->n; i++)
		if (files->v[i].path) {
			json_t *path = forge_json_text(files->v[i].path);
			json_object_set_new(expects, json_string_value(path),
					    json_string(files->v[i].digest));
			json_decref(path);
		}
	/* A notebook is read where it is. */
	const struct forge_script *script = &h->scripts[t->step - h->g->p->steps];
	if (script->real)
		json_object_set_new(expects, script->real, json_string(script->digest));
	return json_pack("{s:s, s:o, s:s, s:s, s:o, s:O, s:O?, s:o}", "pipeline",
			 h->g->p->name, "task", forge_json_text(t->name), "step",
			 t->step->name, "key", key, "file",
			 forge_json_text(h->g->p->path ? h->g->p->path : ""), "parts",
			 parts, "given", h->o->given_params, "expects", expects);
}

struct search {
	json_t *files;
	char kept_run[FORGE_RUN_ID_MAX];
};

static int take_checkpoint(const struct forge_run_row *row, void *arg)
{
	struct search *s = arg;
	forge_auto_json json_t *record =
		row->record ? json_loads(row->record, 0, NULL) : NULL;
	json_t *o;
	size_t i;

	/* A state from before a success is none to go on from. */
	if (strcmp(row->status ? row->status : "", "succeeded") == 0)
		return 1;
	json_array_foreach (json_object_get(record, "outputs"), i, o)
		if (json_is_true(json_object_get(o, "checkpoint"))) {
			if (!s->files)
				s->files = json_array();
			json_array_append(s->files, o);
		}
	/* What it left may be incomplete: then an older one counts. */
	if (!s->files && !s->kept_run[0] &&
	    json_is_true(json_object_get(record, "workdir_kept")))
		(void)snprintf(s->kept_run, sizeof(s->kept_run), "%s", row->run_id);
	return s->files != NULL;
}

/* The files that the last run with this key left in its checkpoint directory. */
static int find_checkpoint(struct forge_head *h, const char *key, struct search *ret,
			   struct forge_error *err)
{
	const struct forge_run_filter filter = { .step_key = key,
						 .with_record = true,
						 .limit = CHECKPOINTS };
	int rc = forge_store_list(h->store, &filter, take_checkpoint, ret, err);

	return rc < 0 ? rc : 0;
}

int forge_job_follow(struct forge_head *h, unsigned task, const char *notes,
		     struct forge_error *err)
{
	forge_head_set_text(&h->tasks[task].notes, notes);
	return add_job(h, task, -1, true) ? 0 : forge_fail(err, ENOMEM, "out of memory");
}

static int take_open(const struct forge_run_row *row, void *arg)
{
	(void)snprintf(arg, FORGE_RUN_ID_MAX, "%s", row->run_id);
	return 1;
}

/* A run whose slot names the key: its supervisor was killed, perhaps, before the run was in the store. */
static int find_slot(const struct forge_home *home, const char *key,
		     char run_id[FORGE_RUN_ID_MAX], struct forge_error *err)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	(void)forge_entries_open(&d, home->fd, "active"); /* d keeps the error */
	for (const char *name; !run_id[0] && (name = forge_entries_next(&d));) {
		forge_auto_json json_t *first = NULL;
		forge_auto_close int fd = openat(forge_entries_fd(&d), name,
						 O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0 && forge_slot_read_first(fd, key, &first) == 0)
			(void)snprintf(run_id, FORGE_RUN_ID_MAX, "%s",
				       forge_json_string_or(first, "run_id", ""));
	}
	return d.error ? forge_fail_errno(err, -d.error, "read %s/active", home->path)
		       : 0;
}

/*
 * A run on a cluster or in a container goes on without its supervisor. If one with this key does, its id is the task's,
 * and it is followed instead of starting another one. 1: there is one.
 */
static int find_open(struct forge_head *h, unsigned task, struct forge_error *err)
{
	struct forge_head_task *t = &h->tasks[task];
	const struct forge_run_filter filter = { .step_key = t->key,
						 .open_only = true,
						 .limit = 1 };
	char run_id[FORGE_RUN_ID_MAX] = "";

	if (!h->is_remote[h->g->tasks[task].step - h->g->p->steps])
		return 0;
	int rc = h->has_strangers ? find_slot(h->home, t->key, run_id, err) : 0;
	if (rc == 0 && !run_id[0])
		rc = forge_store_list(h->store, &filter, take_open, run_id, err);
	/* A row of a shared store is not trusted: only a run with a slot in this FORGE_HOME is followed. */
	if (rc < 0 || !run_id[0] || !forge_slot_exists(h->home, run_id))
		return rc < 0 ? rc : 0;
	memcpy(t->run_id, run_id, sizeof(t->run_id));
	return 1;
}

/* Hands the task over to the launcher. Takes lock. */
static int launch(struct forge_head *h, unsigned task, int lock,
		  const struct forge_task_files *files, const json_t *parts,
		  struct forge_error *err)
{
	struct forge_head_task *t = &h->tasks[task];
	forge_auto_close int held = lock;
	struct search found = { .files = NULL };
	forge_auto_json json_t *step = step_json(h, task, t->key, parts, files);
	char previous[FORGE_RUN_ID_MAX];
	int fd = -1;
	int rc = step ? 0 : forge_fail(err, ENOMEM, "out of memory");

	if (rc == 0 && h->g->tasks[task].step->checkpoint)
		rc = find_checkpoint(h, t->key, &found, err);
	memcpy(previous, t->run_id, sizeof(previous));
	if (rc == 0) {
		const struct forge_launch job = {
			.task = task,
			.key = t->key,
			.files = files,
			.step = step,
			.limits = t->limits,
			.attempt = t->attempt,
			.previous = t->attempt > 1 && previous[0] ? previous : NULL,
			.checkpoint = found.files,
			.kept_run = found.kept_run[0] ? found.kept_run : NULL,
			.lock_fd = held,
		};
		if (held >= 0)
			t->run_id[0] = '\0';
		forge_head_set_text(&t->notes, NULL);
		rc = forge_launcher_run(&h->launcher, &job, &fd, err);
	}
	if (rc == 0 && !add_job(h, task, fd, held < 0)) {
		close(fd);
		rc = forge_fail(err, ENOMEM, "out of memory");
	}
	json_decref(found.files);
	return rc;
}

int forge_job_start(struct forge_head *h, unsigned task, struct forge_error *err)
{
	struct forge_head_task *t = &h->tasks[task];
	struct forge_task_files files = { 0 };
	forge_auto_json json_t *parts = NULL;
	forge_auto_close int lock = -1;
	bool is_there = false;

	/* Again: a file of the host may have changed since the task was evaluated. */
	int rc = forge_head_task_facts(h, task, &files, &parts, t->key, err);
	if (rc == 0)
		rc = forge_key_lock(h->home, t->key, false, &lock, err);
	if (rc >= 0)
		rc = h->has_strangers ? forge_head_catch_up(h, err) : 0;
	if (rc == 0) {
		rc = find_open(h, task, err);
		is_there = rc == 1;
	}
	/*
	 * The process that held the lock before may have stored the result since the task was evaluated. Open runs are
	 * looked for before results: a run that is not open any more has its result in the store.
	 */
	char key[FORGE_DIGEST_MAX];
	memcpy(key, t->key, sizeof(key));
	if (rc == 0 && lock >= 0 && !t->is_forced)
		rc = forge_head_evaluate_task(h, task, err);
	/* An input changed at this moment: from the beginning. */
	if (rc >= 0 && strcmp(key, t->key) != 0)
		rc = 2;
	if (rc == 0 || is_there)
		rc = forge_head_explain(h, task, parts, err);
	if (rc == 0)
		rc = is_there ? forge_job_follow(h, task,
						 "follows a run that was there already",
						 err)
			      : launch(h, task, forge_take_fd(lock), &files, parts, err);
	forge_task_files_done(&files);
	return rc;
}

/* ---- cancelling ---- */

/*
 * As forge kill does. A run on a cluster may have no supervisor: it gets one. *ret_pidfd is that of the process that was
 * asked, -1: none was. It may be one that only looks at the run, and then has to be followed by another.
 */
static int stop_followed(const struct forge_head *h, const char *run_id, int *ret_pidfd,
			 struct forge_error *err)
{
	struct forge_supervisor_ref live = FORGE_SUPERVISOR_REF_INIT;
	forge_auto_json json_t *slot = NULL;
	int rc = forge_supervisor_find(h->home, run_id, &live, NULL);

	if (rc < 0) {
		int number = forge_slot_number(h->home, run_id);
		char name[16];
		(void)!forge_slot_find(h->home, run_id, &slot); /* NULL: none */
		if (number < 0 || !forge_slot_is_remote(slot))
			return 0; /* it has just ended: the store will say so */
		(void)snprintf(name, sizeof(name), "%d", number);
		rc = forge_attendant_start(h->home, name, err);
		if (rc == 0)
			rc = forge_supervisor_find(h->home, run_id, &live, err);
	}
	if (rc == 0)
		rc = forge_supervisor_stop(&live, false, err);
	if (rc == 0)
		*ret_pidfd = forge_take_fd(live.pidfd);
	forge_supervisor_close(&live);
	return rc;
}

/* Whether a head of this pipeline started the run. There is no other one: this head has the lock. */
static bool is_own(const struct forge_head *h, const json_t *record)
{
	const json_t *step = json_object_get(record, "step");
	json_t *path = forge_json_text(h->g->p->path ? h->g->p->path : "");
	bool is_it =
		strcmp(forge_json_string_or(step, "pipeline", ""), h->g->p->name) == 0 &&
		json_equal(json_object_get(step, "file"), path);

	json_decref(path);
	return is_it;
}

/* The process that was asked to end the run; it may have been one that only looked at it. */
static bool is_alive(const struct forge_head_job *j)
{
	struct pollfd p = { .fd = j->pidfd, .events = POLLIN };

	return j->pidfd >= 0 && poll(&p, 1, 0) == 0;
}

static int cancel_followed(struct forge_head *h, size_t index, struct forge_error *err)
{
	unsigned task = h->jobs[index]->task;
	const char *run_id = h->tasks[task].run_id;
	forge_auto_json json_t *record = NULL;
	struct forge_error why = FORGE_ERROR_INIT;
	char text[FORGE_RUN_ID_MAX + sizeof(why.msg) + 32];
	int rc = forge_store_get(h->store, run_id, &record, err);

	if (rc == -ENOENT) /* not in the store yet */
		record = forge_slot_record(h->home, run_id);
	else if (rc < 0)
		return rc;
	int pidfd = -1;
	if (is_own(h, record) && stop_followed(h, run_id, &pidfd, &why) == 0) {
		struct forge_head_job *j = h->jobs[index];
		if (j->pidfd >= 0)
			close(j->pidfd);
		j->pidfd = pidfd;
		return 0;
	}
	(void)snprintf(text, sizeof(text), "run %s goes on%s%s", run_id,
		       why.msg[0] ? ": " : "", why.msg);
	forge_auto_json json_t *left =
		json_pack("{s:s, s:s, s:o}", "run_id", run_id, "status", "cancelled",
			  "completion_notes", forge_json_text(text));
	remove_job(h, index);
	return left ? forge_head_record(h, task, left, err)
		    : forge_fail(err, ENOMEM, "out of memory");
}

/*
 * The run that a waiter waits for has a supervisor of a head that was killed, and nobody else would end it. One of another
 * pipeline goes on. Whether it was asked to end: then the waiter hears of its end.
 */
static bool stop_awaited(const struct forge_head *h, const struct forge_head_job *j)
{
	struct forge_supervisor_ref live = FORGE_SUPERVISOR_REF_INIT;
	char run_id[FORGE_RUN_ID_MAX] = "";
	forge_auto_json json_t *slot = NULL;

	if (find_slot(h->home, h->tasks[j->task].key, run_id, NULL) < 0 || !run_id[0] ||
	    forge_slot_find(h->home, run_id, &slot) < 0 || !is_own(h, slot))
		return false;
	bool is_asked = forge_supervisor_find(h->home, run_id, &live, NULL) == 0 &&
			forge_supervisor_stop(&live, false, NULL) == 0;
	forge_supervisor_close(&live);
	return is_asked;
}

int forge_job_cancel(struct forge_head *h, size_t index, struct forge_error *err)
{
	struct forge_head_job *j = h->jobs[index];

	if (j->fd < 0)
		return cancel_followed(h, index, err);
	/* The second time, it is asked to end at once, and the head does not wait for it. */
	if (j->is_waiter && stop_awaited(h, j) && !j->has_asked) {
		j->has_asked = true;
		return 0;
	}
	send_end(j); /* if it is not known yet, when it is */
	return 0;
}

/* ---- messages ---- */

enum verdict { GOES_ON, RECORD, ERROR, AGAIN };

/* One message. *ret is its object when it is the last one. */
static enum verdict read_message(struct forge_head *h, struct forge_head_job *j,
				 const char *line, size_t len, json_t **ret)
{
	json_t *m = json_loadb(line, len, 0, NULL);
	struct forge_head_task *t = &h->tasks[j->task];
	const char *text;
	enum verdict v = GOES_ON;

	if (json_object_get(m, "pid")) {
		j->pidfd = sys_pidfd_open(
			(pid_t)json_integer_value(json_object_get(m, "pid")), 0);
		if (h->is_stopping)
			send_end(j);
	}
	if ((text = forge_json_string(m, "run_id"))) {
		(void)snprintf(t->run_id, sizeof(t->run_id), "%s", text);
		forge_head_event(h, "run", (int)j->task,
				 json_pack("{s:s}", "run_id", text));
	}
	if ((text = forge_json_string(m, "note"))) {
		forge_head_set_text(&t->notes, text);
		forge_head_event(h, "note", (int)j->task,
				 json_pack("{s:s}", "text", text));
	}
	if ((text = forge_json_string(m, "warning")))
		forge_head_event(h, "warning", (int)j->task,
				 json_pack("{s:s}", "text", text));
	if (json_object_get(m, "record"))
		v = RECORD;
	else if (json_object_get(m, "error"))
		v = ERROR;
	else if (json_object_get(m, "again"))
		v = AGAIN;
	if (v == GOES_ON)
		json_decref(m);
	else
		*ret = m;
	return v;
}

/* Reads what is there. 1: the pipe has ended. */
static int fill(struct forge_head_job *j)
{
	for (;;) {
		if (j->cap - j->len < 4096) {
			size_t cap = j->cap ? 2 * j->cap : 16384;
			char *grown = cap <= MESSAGE_MAX ? realloc(j->buf, cap) : NULL;
			if (!grown)
				return 1;
			j->buf = grown;
			j->cap = cap;
		}
		struct pollfd p = { .fd = j->fd, .events = POLLIN };
		if (poll(&p, 1, 0) <= 0)
			return 0;
		ssize_t n = read(j->fd, j->buf + j->len, j->cap - j->len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return 1;
		j->len += (size_t)n;
	}
}

/* A run that was there already: asks the store. */
static int look_at_store(struct forge_head *h, size_t index, struct forge_error *err)
{
	unsigned task = h->jobs[index]->task;
	forge_auto_json json_t *record = NULL;
	int rc = forge_store_get(h->store, h->tasks[task].run_id, &record, err);

	if (rc == -ENOENT && forge_slot_exists(h->home, h->tasks[task].run_id))
		return 0; /* not in the store yet */
	if (rc < 0)
		return rc;
	if (!forge_status_is_terminal(
		    forge_status_of(forge_json_string(record, "status"))))
		return h->is_stopping && !is_alive(h->jobs[index])
			       ? cancel_followed(h, index, err)
			       : 0;
	remove_job(h, index);
	return forge_head_record(h, task, record, err);
}

static int end_with_error(struct forge_head *h, unsigned task, const json_t *m,
			  struct forge_error *err)
{
	const char *why = forge_json_string_or(m, "error", "it could not be started");
	const char *hint = forge_json_string_or(m, "hint", "");
	char text[1100];

	(void)snprintf(text, sizeof(text), "%s%s%s", why, *hint ? ". " : "", hint);
	forge_auto_json json_t *record = json_pack(
		"{s:s, s:s, s:s, s:o}", "run_id", h->tasks[task].run_id, "status",
		"rejected", "reason", "input", "completion_notes", forge_json_text(text));
	return record ? forge_head_record(h, task, record, err)
		      : forge_fail(err, ENOMEM, "out of memory");
}

int forge_job_look(struct forge_head *h, size_t index, struct forge_error *err)
{
	struct forge_head_job *j = h->jobs[index];
	unsigned task = j->task;
	struct pollfd dead = { .fd = j->pidfd, .events = POLLIN };
	forge_auto_json json_t *last = NULL;
	enum verdict v = GOES_ON;
	size_t at = 0;

	if (j->fd < 0)
		return look_at_store(h, index, err);
	/* First: what a supervisor wrote before it died is in the pipe. */
	bool is_dead = j->pidfd >= 0 && poll(&dead, 1, 0) > 0;
	bool has_ended = fill(j) == 1 || is_dead;
	for (const char *end; v == GOES_ON && at < j->len &&
			      (end = memchr(j->buf + at, '\n', j->len - at));
	     at = (size_t)(end - j->buf) + 1)
		v = read_message(h, j, j->buf + at, (size_t)(end - j->buf) - at, &last);
	if (v == GOES_ON && !has_ended) {
		memmove(j->buf, j->buf + at, j->len - at);
		j->len -= at;
		return 0;
	}
	bool is_waiter = j->is_waiter;
	remove_job(h, index);
	switch (v) {
	case RECORD:
		return forge_head_record(h, task, json_object_get(last, "record"), err);
	case ERROR:
		return end_with_error(h, task, last, err);
	case AGAIN:
		return forge_head_again(h, task, err);
	case GOES_ON:
		break;
	}
	/* It ran nothing, and what it waited for goes on. */
	if (is_waiter)
		return forge_head_again(h, task, err);
	return forge_head_lost(h, task, err);
}
