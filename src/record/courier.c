/* SPDX-License-Identifier: Apache-2.0 */
/* Both sides of the courier's socket. */
#include "record/courier.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/sys.h"
#include "record/deliver.h"
#include "store/store.h"

/* How long an idle courier stays: shorter for a server, which has few connections. */
#define IDLE_MSEC      1000
#define IDLE_FILE_MSEC 5000
#define HOLD_MSEC      20
#define BATCH_MAX      (1u << 30)

struct header {
	uint32_t len;
	bool durable, is_last;
};

/* More than the rules of a chain allow: a store that others write may have a circle. */
#define ATTEMPTS_MAX 1000

struct reply {
	int rc;
	struct forge_error error;
	char other_run[FORGE_RUN_ID_MAX];
	bool is_same; /* other_run has the same request */
};

/* ---- the courier's side ---- */

struct server {
	const char *url;
	int fd;
	struct forge_store *store;
	bool has_repaired;
	json_t *held; /* batches that are not applied yet, merged into one */
	unsigned n_held;
	uint64_t since; /* arrival of the first of them */
};

/* 0: read, 1: the supervisor is gone, negative: failed. */
static int read_all(int fd, void *data, size_t len)
{
	char *p = data;

	while (len > 0) {
		ssize_t n = read(fd, p, len);
		if (n == 0)
			return 1;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			p += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

static int connect_store(struct server *s, struct forge_error *err)
{
	return s->store ? 0 : forge_store_open(s->url, &s->store, err);
}

/* Retries with a new connection if the old one broke since the last batch. */
static int apply_batch(struct server *s, const json_t *batch, bool durable,
		       struct forge_error *err)
{
	bool was_open = s->store != NULL;
	int rc = connect_store(s, err);

	if (rc == 0)
		rc = forge_store_settle(s->store, batch, durable, err);
	if (rc != -ENOTCONN || !was_open)
		return rc;
	forge_store_close(forge_take_ptr(s->store));
	*err = FORGE_ERROR_INIT;
	rc = connect_store(s, err);
	return rc < 0 ? rc : forge_store_settle(s->store, batch, durable, err);
}

/* Rows of an older forge have no digest of the request; then the command is compared. */
static bool is_same_request(const json_t *ours, const json_t *theirs)
{
	const json_t *request = json_object_get(theirs, "request");

	return request ? json_equal(request, json_object_get(ours, "request"))
		       : json_equal(json_object_get(ours, "command"),
				    json_object_get(theirs, "command"));
}

/* The key is that of the first attempt; the run that it stands for by now is the last one. */
static void find_last(struct server *s, json_t *record, char run_id[FORGE_RUN_ID_MAX])
{
	json_t *at = json_incref(record);

	for (unsigned i = 0; at && i < ATTEMPTS_MAX; i++) {
		const char *next = forge_json_string(at, "retried_by");
		json_t *later = NULL;
		if (forge_run_id_is_valid(next) &&
		    forge_store_get(s->store, next, &later, NULL) == 0)
			(void)snprintf(run_id, FORGE_RUN_ID_MAX, "%s", next);
		json_decref(at);
		at = later;
	}
	json_decref(at);
}

static void find_other(struct server *s, struct reply *r)
{
	const json_t *ours = json_object_get(s->held, "record");
	const char *key = forge_json_string(ours, "idempotency_key");
	const char *user = forge_json_string(ours, "user");
	forge_auto_free char *other = NULL;
	json_t *theirs = NULL;

	if (!key || forge_store_find_key(s->store, user, key, &other, NULL) < 0 ||
	    forge_store_get(s->store, other, &theirs, NULL) < 0)
		return;
	r->is_same = is_same_request(ours, theirs);
	(void)snprintf(r->other_run, sizeof(r->other_run), "%s", other);
	find_last(s, theirs, r->other_run);
	json_decref(theirs);
}

/* Applies the held batches as one transaction and replies to each. False: exit. */
static bool flush(struct server *s, bool durable)
{
	struct reply r = { 0 };
	bool is_alive = true;

	if (!s->held)
		return true;
	r.rc = apply_batch(s, s->held, durable, &r.error);
	if (r.rc == -EEXIST)
		find_other(s, &r);
	json_decref(s->held);
	s->held = NULL;
	for (; s->n_held > 0; s->n_held--)
		is_alive = is_alive && forge_write_all(s->fd, &r, sizeof(r)) == 0;
	return is_alive;
}

/* Merges a batch into the held one: the newest record, and the events of both. */
static void hold(struct server *s, json_t *batch)
{
	if (s->held) {
		json_t *events = json_object_get(s->held, "events");
		json_array_extend(events, json_object_get(batch, "events"));
		json_object_set(batch, "events", events);
		json_decref(s->held);
	} else {
		s->since = forge_now_usec();
	}
	s->held = batch;
	s->n_held++;
}

/* Serves one batch. False: exit. */
static bool serve_one(struct server *s)
{
	struct header h;

	if (read_all(s->fd, &h, sizeof(h)) != 0 || h.len > BATCH_MAX)
		return false;
	forge_auto_free char *text = malloc(h.len);
	if (!text || read_all(s->fd, text, h.len) != 0)
		return false;
	json_t *batch = json_loadb(text, h.len, 0, NULL);
	if (!batch)
		return false;
	hold(s, batch);
	/*
	 * A batch for which the supervisor does not wait is held for a moment. So a short
	 * run is stored in one transaction.
	 */
	if (h.durable || h.is_last)
		return flush(s, h.durable) && !h.is_last;
	return true;
}

/* How long to wait for the next batch before on_idle() has work. */
static int poll_msec(const struct server *s)
{
	if (s->held) {
		uint64_t held = (forge_now_usec() - s->since) / 1000;
		return held >= HOLD_MSEC ? 0 : (int)(HOLD_MSEC - held);
	}
	if (!s->has_repaired)
		return 2;
	return strncmp(s->url, "sqlite:", 7) == 0 ? IDLE_FILE_MSEC : IDLE_MSEC;
}

/* No batch came: apply the held ones, then deliver for crashed runs. False: exit. */
static bool on_idle(struct server *s)
{
	if (s->held)
		return flush(s, false);
	if (s->has_repaired)
		return false; /* the next event starts another courier */
	s->has_repaired = true;
	if (s->store)
		forge_deliver_if_due(s->store, s->url);
	return true;
}

static void serve(struct server *s)
{
	/* Connects before the first batch comes; the first batch retries a failure. */
	if (connect_store(s, NULL) == 0)
		forge_store_warm(s->store);
	for (bool goes_on = true; goes_on;) {
		struct pollfd p = { .fd = s->fd, .events = POLLIN };
		int n = poll(&p, 1, poll_msec(s));
		if (n < 0)
			goes_on = errno == EINTR;
		else
			goes_on = n == 0 ? on_idle(s) : serve_one(s);
	}
	(void)flush(s, true); /* a killed supervisor may have sent it */
}

/*
 * The courier must not keep descriptors of the supervisor open: its pipes must end when
 * it does, and so must its locks. Ctrl-C is handled by the supervisor.
 */
static void be_courier(int fd, const char *url)
{
	static const int quiet[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP };

	(void)prctl(PR_SET_NAME, "forge-courier"); /* for ps(1) */
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(quiet); i++)
		(void)signal(quiet[i], SIG_IGN);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = 0; i < 3 && null >= 0; i++)
		(void)dup2(null, i);
	/* A clash is impossible: descriptors 0 to 2 are always open in forge. */
	if (fd != 3)
		(void)dup2(fd, 3);
	(void)sys_close_range(4, ~0u, 0);
	struct server s = { .url = url, .fd = 3 };
	serve(&s);
	if (s.store)
		forge_store_tidy(s.store);
	_exit(0); /* without closing the store: everything in it is committed */
}

/* ---- the supervisor's side ---- */

void forge_courier_start(struct forge_courier *c)
{
	int fds[2];

	if (c->pid || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return;
	pid_t pid = fork();
	if (pid == 0) {
		close(fds[0]);
		be_courier(fds[1], c->url);
	}
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return;
	}
	c->pid = pid;
	c->fd = fds[0];
	(void)fcntl(c->fd, F_SETFL, O_NONBLOCK);
}

/* Waits until fd is ready for events. False: not before the deadline. */
static bool ready_by(int fd, short events, uint64_t deadline)
{
	for (;;) {
		uint64_t now = forge_now_usec();
		struct pollfd p = { .fd = fd, .events = events };
		struct timespec ts = { .tv_sec = 0 };
		if (deadline > now) {
			ts.tv_sec = (time_t)((deadline - now) / 1000000);
			ts.tv_nsec = (long)((deadline - now) % 1000000) * 1000;
		}
		int n = ppoll(&p, 1, &ts, NULL);
		if (n > 0)
			return true;
		if (n == 0 || errno != EINTR)
			return false;
	}
}

static void note_failure(struct forge_courier *c, int code, const char *what)
{
	if (!c->error.code)
		(void)forge_fail_errno(&c->error, code, "%s", what);
}

void forge_courier_stop(struct forge_courier *c)
{
	if (c->fd >= 0)
		close(c->fd);
	if (c->pid > 0) {
		/*
		 * After its last reply the courier may still tidy the store; there is no
		 * need to wait for that.
		 */
		if (c->in_flight)
			(void)kill(c->pid, SIGKILL); /* transactions are atomic */
		while (waitpid(c->pid, NULL, c->in_flight ? 0 : WNOHANG) < 0 &&
		       errno == EINTR)
			;
	}
	c->fd = -1;
	c->pid = 0;
	c->in_flight = 0;
}

static int take_reply(struct forge_courier *c, uint64_t deadline)
{
	struct reply r;
	size_t have = 0;

	while (have < sizeof(r)) {
		if (!ready_by(c->fd, POLLIN, deadline))
			return -ETIMEDOUT;
		ssize_t n = read(c->fd, (char *)&r + have, sizeof(r) - have);
		if (n == 0)
			return -EPIPE;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		have += n > 0 ? (size_t)n : 0;
	}
	c->in_flight--;
	if (r.rc < 0 && !c->error.code) {
		c->error = r.error;
		memcpy(c->other_run, r.other_run, sizeof(c->other_run));
		c->is_same = r.is_same;
	}
	return 0;
}

static int write_by(int fd, const void *data, size_t len, uint64_t deadline)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN && !ready_by(fd, POLLOUT, deadline))
			return -ETIMEDOUT;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n > 0) {
			p += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

/* Reads the replies that have arrived. True: the courier has exited, as when idle. */
static bool is_gone(struct forge_courier *c)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };

	while (poll(&p, 1, 0) > 0) {
		if (!c->in_flight)
			return true;
		int rc = take_reply(c, forge_now_usec() + 1000000);
		if (rc < 0) {
			note_failure(c, -rc, "the store's courier");
			return true;
		}
	}
	return false;
}

static int write_batch(const struct forge_courier *c, const struct header *h,
		       const char *text, uint64_t deadline)
{
	int rc = c->pid ? write_by(c->fd, h, sizeof(*h), deadline) : -EAGAIN;

	return rc < 0 ? rc : write_by(c->fd, text, h->len, deadline);
}

void forge_courier_send(struct forge_courier *c, const json_t *batch, bool durable,
			bool is_last, uint64_t timeout_usec)
{
	forge_auto_free char *text =
		json_dumps(batch, JSON_COMPACT); /* post-process needs all digits */
	uint64_t deadline = forge_now_usec() + timeout_usec;

	if (c->pid && is_gone(c))
		forge_courier_stop(c);
	if (!text)
		note_failure(c, ENOMEM, "report to the store");
	if (c->error.code)
		return; /* after a failure the whole run is reported again later */
	struct header h = { (uint32_t)strlen(text), durable, is_last };
	forge_courier_start(c);
	int rc = write_batch(c, &h, text, deadline);
	if (rc == -EPIPE && !c->in_flight) {
		forge_courier_stop(c); /* it has just exited */
		forge_courier_start(c);
		rc = write_batch(c, &h, text, deadline);
	}
	c->in_flight++;
	if (rc < 0) {
		note_failure(c, -rc, "report to the store");
		forge_courier_stop(c); /* it may have received half of the batch */
	}
}

int forge_courier_wait(struct forge_courier *c, uint64_t timeout_usec,
		       struct forge_error *err)
{
	uint64_t deadline = forge_now_usec() + timeout_usec;
	int rc = 0;

	while (c->in_flight && rc == 0)
		rc = take_reply(c, deadline);
	if (rc < 0)
		note_failure(c, -rc,
			     rc == -ETIMEDOUT ? "the store does not answer"
					      : "the store's courier");
	if (!c->error.code)
		return 0;
	forge_courier_stop(c);
	if (err)
		*err = c->error;
	return -c->error.code;
}
