/* SPDX-License-Identifier: Apache-2.0 */
/* Followers of logs, and the thread that wakes them. */
#include "server/follow.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/strv.h"
#include "record/record.h"
#include "server/utf8.h"

/* How often the state of a run is looked at when no event of its directory says that it changed. */
#define LOOK_USEC 3000000
/* A proxy, and the kernel, notice a dead reader only when something is sent. */
#define ALIVE_USEC 15000000
#define TICK_MSEC  1000
#define CHUNK	   8192

struct forge_follower {
	struct forge_follower *next;
	struct forge_follow *all;
	char run_id[FORGE_RUN_ID_MAX];
	char stream[8];
	int wd; /* -1: its directory is not watched */
	/* Set by the watcher, without the lock: look again before waiting. */
	atomic_bool is_poked, has_to_look;

	pthread_mutex_t lock; /* of what is below */
	int fd;		      /* -1: no log yet */
	uint64_t offset;
	char *text; /* events that are not read yet */
	size_t len, at;
	char status[16]; /* the last one that was told */
	uint64_t looked, sent;
	bool is_over, has_ended, is_waiting;
	void (*wait)(void *arg);
	void (*wake)(void *arg);
	void *arg;
};

struct forge_follow {
	const struct forge_follow_ops *ops;
	pthread_t thread;
	int inotify, stop_fd;
	atomic_bool is_ending;
	pthread_mutex_t lock; /* of the list */
	struct forge_follower *first;
	size_t n;
};

/* ---- the watcher ---- */

static void poke(struct forge_follower *r, bool has_to_look)
{
	if (has_to_look)
		atomic_store(&r->has_to_look, true);
	atomic_store(&r->is_poked, true);
	/*
	 * A reader that holds the lock sees is_poked before it waits, or is poked again by the next tick. After the last poke there
	 * is no tick.
	 */
	if (atomic_load(&r->all->is_ending))
		(void)pthread_mutex_lock(&r->lock);
	else if (pthread_mutex_trylock(&r->lock) != 0)
		return;
	bool was_waiting = r->is_waiting;
	r->is_waiting = false;
	if (was_waiting)
		r->wake(r->arg);
	pthread_mutex_unlock(&r->lock);
}

static void poke_directory(struct forge_follow *f, int wd, bool has_to_look)
{
	pthread_mutex_lock(&f->lock);
	for (struct forge_follower *r = f->first; r; r = r->next)
		if (wd < 0 || r->wd == wd)
			poke(r, has_to_look);
	pthread_mutex_unlock(&f->lock);
}

static void take_events(struct forge_follow *f)
{
	char buf[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n;

	while ((n = read(f->inotify, buf, sizeof(buf))) > 0)
		for (char *p = buf; p < buf + n;) {
			const struct inotify_event *e = (void *)p;
			/* After an overflow anything may have changed. */
			if (e->mask & IN_Q_OVERFLOW)
				poke_directory(f, -1, true);
			else
				poke_directory(f, e->wd, !(e->mask & IN_MODIFY));
			p += sizeof(*e) + e->len;
		}
}

static void *watch(void *arg)
{
	struct forge_follow *f = arg;
	struct pollfd p[] = { { .fd = f->inotify, .events = POLLIN },
			      { .fd = f->stop_fd, .events = POLLIN } };
	uint64_t ticked = forge_now_usec();

	for (;;) {
		int n = poll(p, 2, TICK_MSEC);
		if (p[1].revents)
			return NULL;
		if (n > 0)
			take_events(f);
		/* However busy one of the logs is. */
		if (forge_now_usec() - ticked < TICK_MSEC * 1000)
			continue;
		poke_directory(f, -1, false);
		ticked = forge_now_usec();
	}
}

int forge_follow_start(const struct forge_follow_ops *ops, struct forge_follow **ret,
		       struct forge_error *err)
{
	struct forge_follow *f = calloc(1, sizeof(*f));

	if (!f)
		return forge_fail(err, ENOMEM, "out of memory");
	f->ops = ops;
	f->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	f->stop_fd = eventfd(0, EFD_CLOEXEC);
	(void)pthread_mutex_init(&f->lock, NULL); /* never fails on Linux */
	int code = f->inotify < 0 || f->stop_fd < 0
			   ? errno
			   : pthread_create(&f->thread, NULL, watch, f);
	if (code) {
		if (f->inotify >= 0)
			close(f->inotify);
		if (f->stop_fd >= 0)
			close(f->stop_fd);
		free(f);
		return forge_fail_errno(err, code, "watch logs");
	}
	*ret = f;
	return 0;
}

void forge_follow_end_all(struct forge_follow *f)
{
	atomic_store(&f->is_ending, true);
	poke_directory(f, -1, true);
}

void forge_follow_stop(struct forge_follow *f)
{
	if (!f)
		return;
	(void)eventfd_write(f->stop_fd, 1); /* cannot block: it is written once */
	(void)pthread_join(f->thread, NULL);
	close(f->inotify);
	close(f->stop_fd);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

/* ---- a follower ---- */

int forge_follower_new(struct forge_follow *f, const char *run_id, const char *stream,
		       uint64_t offset, struct forge_follower **ret,
		       struct forge_error *err)
{
	struct forge_follower *r = calloc(1, sizeof(*r));
	forge_auto_free char *dir =
		forge_asprintf("%s/runs/%s", f->ops->home->path, run_id);

	if (!r || !dir) {
		free(r);
		return forge_fail(err, ENOMEM, "out of memory");
	}
	(void)snprintf(r->run_id, sizeof(r->run_id), "%s", run_id);
	(void)snprintf(r->stream, sizeof(r->stream), "%s", stream);
	r->all = f;
	r->offset = offset;
	r->fd = -1;
	r->sent = forge_now_usec();
	(void)pthread_mutex_init(&r->lock, NULL);
	atomic_store(&r->has_to_look, true);
	pthread_mutex_lock(&f->lock);
	bool has_room = f->n < FORGE_FOLLOWERS_MAX;
	if (has_room) {
		/* Without a watch, the ticks are enough. The verdict is moved to its name. */
		r->wd = inotify_add_watch(f->inotify, dir,
					  IN_MODIFY | IN_MOVED_TO | IN_CREATE);
		r->next = f->first;
		f->first = r;
		f->n++;
	}
	pthread_mutex_unlock(&f->lock);
	if (!has_room) {
		pthread_mutex_destroy(&r->lock);
		free(r);
		return forge_fail(err, EMFILE, "%d logs are followed already",
				  FORGE_FOLLOWERS_MAX);
	}
	*ret = r;
	return 0;
}

void forge_follower_attach(struct forge_follower *r, void (*wait)(void *arg),
			   void (*wake)(void *arg), void *arg)
{
	r->wait = wait;
	r->wake = wake;
	r->arg = arg;
}

void forge_follower_free(struct forge_follower *r)
{
	if (!r)
		return;
	struct forge_follow *f = r->all;
	bool is_last = true;

	pthread_mutex_lock(&f->lock);
	for (struct forge_follower **p = &f->first; *p; p = &(*p)->next)
		if (*p == r) {
			*p = r->next;
			break;
		}
	f->n--;
	for (const struct forge_follower *other = f->first; other; other = other->next)
		is_last = is_last && other->wd != r->wd;
	if (is_last && r->wd >= 0)
		(void)inotify_rm_watch(f->inotify, r->wd);
	pthread_mutex_unlock(&f->lock);
	if (r->fd >= 0)
		close(r->fd);
	pthread_mutex_destroy(&r->lock);
	free(r->text);
	free(r);
}

/*
 * Takes j. The id is how far the reader has got: a browser sends it as Last-Event-ID when it comes again. Without memory the
 * stream ends, and its reader asks again.
 */
static void put_event(struct forge_follower *r, const char *name, json_t *j)
{
	forge_auto_free char *data = j ? json_dumps(j, JSON_COMPACT) : NULL;

	json_decref(j);
	free(r->text);
	r->text = data ? forge_asprintf("event: %s\nid: %llu\ndata: %s\n\n", name,
					(unsigned long long)r->offset, data)
		       : NULL;
	r->len = r->text ? strlen(r->text) : 0;
	r->at = 0;
	r->has_ended = r->has_ended || !r->text;
}

/* 1: there is an event now. */
static int take_log(struct forge_follower *r)
{
	unsigned char bytes[CHUNK];
	char text[3 * CHUNK];
	size_t len;

	if (r->fd < 0)
		return 0;
	ssize_t n = pread(r->fd, bytes, sizeof(bytes), (off_t)r->offset);
	if (n <= 0)
		return 0;
	/* More may follow a full chunk; what is left of it is read again as a chunk of its own. */
	bool is_end = r->is_over && (size_t)n < sizeof(bytes);
	size_t taken = forge_utf8_copy(bytes, (size_t)n, is_end, text, &len);
	if (taken == 0)
		return 0;
	r->offset += taken;
	put_event(r, "log",
		  json_pack("{s:I, s:o}", "offset", (json_int_t)r->offset, "text",
			    json_stringn_nocheck(text, len)));
	return 1;
}

static json_t *summary(const json_t *record)
{
	return json_pack("{s:O?, s:O?, s:O?}", "status",
			 json_object_get(record, "status"), "reason",
			 json_object_get(record, "reason"), "completion_notes",
			 json_object_get(record, "completion_notes"));
}

static void open_log(struct forge_follower *r)
{
	int fd = r->all->ops->open_log(r->all->ops->arg, r->run_id, r->stream);

	if (fd < 0)
		return;
	if (r->fd >= 0)
		close(r->fd);
	r->fd = fd;
}

/* 1: there is an event now, or more of the log may be there. */
static int look(struct forge_follower *r)
{
	forge_auto_json json_t *record = NULL;

	r->looked = forge_now_usec();
	if (r->fd < 0)
		open_log(r);
	record = r->all->ops->record(r->all->ops->arg, r->run_id);
	const char *status = forge_json_string(record, "status");
	if (!status)
		return 0;
	/* The log of a run on a cluster comes here with its verdict. */
	if (forge_record_is_over(record)) {
		r->is_over = true;
		open_log(r);
	}
	if (strcmp(status, r->status) == 0)
		return 0;
	(void)snprintf(r->status, sizeof(r->status), "%s", status);
	put_event(r, "status", summary(record));
	return 1;
}

static void put_end(struct forge_follower *r)
{
	forge_auto_json json_t *record = r->all->ops->record(r->all->ops->arg, r->run_id);

	put_event(r, "end", summary(record));
	r->has_ended = true;
}

/* Makes the next event; false: there is none now. */
static bool advance(struct forge_follower *r)
{
	uint64_t now = forge_now_usec();

	if (atomic_load(&r->all->is_ending)) {
		r->has_ended = true;
		return true;
	}
	/* What was written before the verdict is read after it was seen. */
	bool was_over = r->is_over;
	if (!was_over &&
	    (atomic_exchange(&r->has_to_look, false) || now - r->looked > LOOK_USEC) &&
	    look(r))
		return true;
	if (take_log(r))
		return true;
	if (was_over) {
		put_end(r);
		return true;
	}
	if (r->is_over)
		return true;
	if (now - r->sent > ALIVE_USEC) {
		free(r->text);
		r->text = strdup(":\n\n");
		r->len = r->text ? 3 : 0;
		r->at = 0;
		return true;
	}
	/* Something happened while we looked. */
	return atomic_exchange(&r->is_poked, false);
}

ssize_t forge_follower_read(struct forge_follower *r, char *buf, size_t max)
{
	ssize_t n = 0;

	pthread_mutex_lock(&r->lock);
	atomic_store(&r->is_poked, false);
	while (r->at == r->len && !r->has_ended && advance(r))
		;
	if (r->at < r->len) {
		n = (ssize_t)(r->len - r->at < max ? r->len - r->at : max);
		memcpy(buf, r->text + r->at, (size_t)n);
		r->at += (size_t)n;
		r->sent = forge_now_usec();
	} else if (r->has_ended) {
		n = -1;
	} else {
		r->is_waiting = true;
		r->wait(r->arg);
	}
	pthread_mutex_unlock(&r->lock);
	return n;
}
