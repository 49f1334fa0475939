/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of a watcher. */
#include "run/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/entries.h"
#include "base/json.h"
#include "executor/executor.h"
#include "record/attendant.h"
#include "record/reconcile.h"
#include "run/resume.h"
#include "state/home.h"
#include "state/slot.h"
#include "store/state.h"

/* So many runs are collected at once. */
#define CHILDREN_MAX 3
/* While children work, or wait for their turn. */
#define BUSY_MSEC 50
#define POLL_MSEC 5000
/* After a child could do nothing (a file system is away): again after this, and later each time. */
#define RETRY_USEC     (2 * 1000000ull)
#define RETRY_MAX_USEC (60 * 1000000ull)

/* A run, as its slot was when it was read last. */
struct entry {
	unsigned slot;
	struct timespec mtime;
	off_t size;
	json_t *plan; /* what look() needs */
	const struct forge_executor_ops *ops;
	bool is_running; /* and the record says so */
	bool is_seen;	 /* in this round */
	uint64_t since;	 /* when the slot began to say why, seconds of the epoch */
	char why[128];	 /* it is pending, as the slot says */
	pid_t child;	 /* 0: none */
	uint64_t not_before, pause;
	struct forge_remote found;
};

struct watch {
	const char *executor;
	struct forge_home home;
	struct entry *entries;
	size_t n;
	unsigned poll_msec;
	unsigned n_children;
	int lock;
};

static struct entry *entry_of(struct watch *w, unsigned slot)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->entries[i].slot == slot)
			return &w->entries[i];
	struct entry *grown = reallocarray(w->entries, w->n + 1, sizeof(*grown));
	if (!grown)
		return NULL;
	w->entries = grown;
	grown[w->n] = (struct entry){ .slot = slot };
	return &grown[w->n++];
}

static void entry_done(struct entry *e)
{
	json_decref(e->plan);
	e->plan = NULL;
}

/* Without what is large: the record, and the spec. */
static json_t *plan_of(json_t *slot)
{
	json_t *plan = json_copy(slot);

	json_object_del(plan, "record");
	json_object_del(plan, "saved");
	return plan;
}

/* The slot has changed since it was read. False: it is none of ours. */
static bool read_entry(struct watch *w, struct entry *e, int fd)
{
	json_t *slot = NULL;

	entry_done(e);
	e->why[0] = '\0';
	if (forge_slot_read(fd, &slot) < 0 || !slot)
		return false;
	e->ops = forge_executor_of_slot(slot);
	bool is_ours =
		e->ops && (e->ops->caps & FORGE_EXECUTOR_REMOTE) &&
		json_object_get(slot, "saved") && json_object_get(slot, "start_usec") &&
		!json_is_true(json_object_get(slot, "is_gone")) &&
		strcmp(forge_json_string_or(slot, "executor", ""), w->executor) == 0;
	if (is_ours) {
		const json_t *record = json_object_get(slot, "record");
		unsigned msec = (unsigned)(json_integer_value(
						   json_object_get(slot, "poll_usec")) /
					   1000);
		e->is_running = forge_status_of(forge_json_string(record, "status")) >=
				FORGE_STATUS_RUNNING;
		(void)snprintf(e->why, sizeof(e->why), "%s",
			       forge_json_string_or(slot, "pending", ""));
		e->since = (uint64_t)json_integer_value(
			json_object_get(slot, "pending_since"));
		e->plan = plan_of(slot);
		if (msec && msec < w->poll_msec)
			w->poll_msec = msec;
	}
	json_decref(slot);
	return e->plan != NULL;
}

/* A slot with a lock has a supervisor, maybe a child of ours; one without content is free. */
static void look_at_slot(struct watch *w, const char *name)
{
	forge_auto_close int fd = openat(w->home.active_fd, name,
					 O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size == 0)
		return;
	struct entry *e = entry_of(w, (unsigned)strtoul(name, NULL, 10));
	if (!e)
		return; /* out of memory: the next round may have some */
	if (e->child) {
		e->is_seen = true;
		return;
	}
	if (flock(fd, LOCK_SH | LOCK_NB) < 0)
		return;
	if (!e->plan || e->size != st.st_size || e->mtime.tv_sec != st.st_mtim.tv_sec ||
	    e->mtime.tv_nsec != st.st_mtim.tv_nsec) {
		e->size = st.st_size;
		e->mtime = st.st_mtim;
		if (!read_entry(w, e, fd))
			return;
	}
	e->is_seen = true;
}

/* The runs that have no supervisor. */
static void scan(struct watch *w)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	size_t kept = 0;

	w->poll_msec = POLL_MSEC;
	for (size_t i = 0; i < w->n; i++)
		w->entries[i].is_seen = false;
	(void)forge_entries_open(&d, w->home.active_fd,
				 "."); /* the next round looks again */
	for (const char *name; (name = forge_entries_next(&d));)
		if (name[strspn(name, "0123456789")] == '\0')
			look_at_slot(w, name);
	for (size_t i = 0; i < w->n; i++) {
		struct entry *e = &w->entries[i];
		if (!e->is_seen && !e->child) {
			entry_done(e);
			continue;
		}
		unsigned msec = (unsigned)(json_integer_value(json_object_get(
						   e->plan, "poll_usec")) /
					   1000);
		if (msec && msec < w->poll_msec)
			w->poll_msec = msec;
		w->entries[kept++] = *e;
	}
	w->n = kept;
}

/* All runs of one kind at once. */
static void ask(struct watch *w)
{
	forge_auto_free struct forge_remote *runs = calloc(w->n + 1, sizeof(*runs));
	struct forge_error err = FORGE_ERROR_INIT;

	if (!runs || w->n == 0)
		return;
	for (size_t i = 0; i < w->n; i++) {
		runs[i].plan = w->entries[i].plan;
		runs[i].since = w->entries[i].since;
		(void)snprintf(runs[i].why, sizeof(runs[i].why), "%s", w->entries[i].why);
	}
	/* Those of one executor are of one kind, unless the configuration has changed. */
	(void)!w->entries[0].ops->look(runs, w->n, &err); /* the next round asks again */
	for (size_t i = 0; i < w->n; i++)
		w->entries[i].found = runs[i];
}

/* The reason goes into the slot, for ps, unless a supervisor has it meanwhile. */
static void note_pending(struct watch *w, struct entry *e)
{
	char name[16];
	struct forge_slot slot = { .number = e->slot };
	struct forge_error err = FORGE_ERROR_INIT;

	(void)snprintf(e->why, sizeof(e->why), "%s", e->found.why);
	(void)snprintf(name, sizeof(name), "%u", e->slot);
	slot.fd = openat(w->home.active_fd, name,
			 O_RDWR | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	if (slot.fd < 0)
		return;
	struct stat st;
	if (flock(slot.fd, LOCK_EX | LOCK_NB) == 0 && fstat(slot.fd, &st) == 0 &&
	    st.st_size == e->size)
		(void)!forge_slot_add(&slot,
				      json_pack("{s:o, s:I}", "pending",
						forge_json_text(e->found.why),
						"pending_since", (json_int_t)time(NULL)),
				      &err); /* only for people to read */
	close(slot.fd);
}

static void nothing(void *arg)
{
	(void)arg; /* no other process waits until this one has the slot */
}

static void start_child(struct watch *w, struct entry *e)
{
	struct forge_error err = FORGE_ERROR_INIT;

	e->child = fork();
	if (e->child < 0)
		e->child = 0;
	if (e->child > 0)
		w->n_children++;
	if (e->child != 0)
		return;
	close(w->lock); /* the watcher alone has it */
	int rc = forge_resume(e->slot, true, nothing, NULL, &err);
	/* Gone, for certain, or only to be cleaned up after: the slot gets its end now. */
	if (rc == -ESRCH || rc == -EALREADY)
		(void)!forge_reconcile_slot(e->slot, NULL);
	/* The watcher may have been killed meanwhile, when this process had the slot. */
	if (rc == 1)
		(void)!forge_attendant_watch(&w->home, w->executor, NULL);
	/* There may be a next attempt. */
	if (rc == 0 || rc == -ESRCH || rc == -EALREADY)
		(void)!forge_reconcile(NULL, false, NULL);
	_exit(rc == 1 ? 1 : rc < 0 ? 2 : 0);
}

/* Something is to be recorded: it ended, or it started since the record was written. */
static bool needs_child(const struct entry *e)
{
	return e->found.state == FORGE_REMOTE_ENDED ||
	       (e->found.state == FORGE_REMOTE_RUNNING && !e->is_running);
}

/* 1 when there is more to do than children may be. */
static bool attend(struct watch *w)
{
	uint64_t now = forge_now_usec();
	bool has_more = false;

	for (size_t i = 0; i < w->n; i++) {
		struct entry *e = &w->entries[i];
		if (e->child || !e->plan || now < e->not_before)
			continue;
		if (e->found.state == FORGE_REMOTE_PENDING && e->found.why[0] &&
		    strcmp(e->why, e->found.why) != 0)
			note_pending(w, e);
		if (!needs_child(e))
			continue;
		if (w->n_children < CHILDREN_MAX)
			start_child(w, e);
		else
			has_more = true;
	}
	return has_more;
}

static void reap(struct watch *w)
{
	int status;

	for (size_t i = 0; i < w->n; i++) {
		struct entry *e = &w->entries[i];
		if (!e->child || waitpid(e->child, &status, WNOHANG) != e->child)
			continue;
		e->child = 0;
		w->n_children--;
		e->found.state = FORGE_REMOTE_UNKNOWN;
		bool has_failed = !WIFEXITED(status) || WEXITSTATUS(status) > 1;
		e->pause = !has_failed ? RETRY_USEC
			   : e->pause  ? 2 * e->pause
				       : RETRY_USEC;
		e->pause = e->pause > RETRY_MAX_USEC ? RETRY_MAX_USEC : e->pause;
		e->not_before = forge_now_usec() + e->pause;
	}
}

/* Until there is nothing left to watch. */
static void watch(struct watch *w)
{
	for (;;) {
		scan(w);
		if (w->n == 0)
			return;
		ask(w);
		uint64_t next = forge_now_usec() + w->poll_msec * 1000ull;
		while (forge_now_usec() < next) {
			bool is_busy = attend(w) || w->n_children > 0;
			uint64_t left = (next - forge_now_usec()) / 1000 + 1;
			(void)poll(NULL, 0, is_busy ? BUSY_MSEC : (int)left);
			reap(w);
		}
	}
}

/*
 * A supervisor may leave its run to the watcher at the moment when the watcher ends. The supervisor releases the slot
 * before it checks whether a watcher holds the lock, and the watcher releases the lock before it looks for runs once
 * more: one of them sees what the other has done.
 */
int forge_watch(const char *executor, void (*on_taken)(void *arg), void *arg,
		struct forge_error *err)
{
	struct watch w = { .executor = executor, .home = FORGE_HOME_INIT };
	int rc = forge_home_open(false, &w.home, err);

	do {
		w.lock = rc == 0 ? forge_attendant_lock(&w.home, executor) : rc;
		if (w.lock < 0) {
			rc = rc < 0 ? rc
				    : forge_fail_errno(err, -w.lock, "lock the watcher");
			break;
		}
		on_taken(arg);
		watch(&w);
		close(w.lock);
		scan(&w);
	} while (w.n > 0);
	for (size_t i = 0; i < w.n; i++)
		entry_done(&w.entries[i]);
	free(w.entries);
	forge_home_close(&w.home);
	return rc;
}
