/* SPDX-License-Identifier: Apache-2.0 */
/* The courier's side of the sockets: takes batches and stores them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/sys.h"
#include "record/courier.h"
#include "record/courier_wire.h"
#include "record/deliver.h"
#include "store/store.h"

/* How long an idle courier stays: shorter for a server, which has few connections. */
#define IDLE_MSEC      1000
#define IDLE_FILE_MSEC 5000
#define HOLD_MSEC      20
/* No work for so long: time to deliver for others. */
#define QUIET_MSEC	   2
#define DELIVER_AGAIN_USEC 1000000
#define BATCH_MAX	   (1u << 30)
#define READ_STEP	   65536

/* More than the rules of a chain allow: a store that others write may have a circle. */
#define ATTEMPTS_MAX 1000

/* The socket of one run. */
struct client {
	int fd;
	char *in; /* received, and not a whole batch yet */
	size_t len, cap;
	json_t *held; /* batches that are not applied yet, merged into one */
	unsigned n_held;
	uint64_t since;		 /* arrival of the first of them */
	bool is_due, is_durable; /* its supervisor waits for them; the disk too */
	bool is_last, is_gone;	 /* nothing more comes */
};

struct server {
	const char *url;
	int launcher; /* a shared courier: new sockets come on it; -1: none, or no more */
	bool is_shared;
	struct forge_store *store;
	bool has_repaired;
	uint64_t repaired_usec;
	struct client *clients;
	size_t n, cap;
};

/* ---- the store ---- */

static int connect_store(struct server *s, struct forge_error *err)
{
	return s->store ? 0 : forge_store_open(s->url, &s->store, err);
}

static void leave_store(struct server *s)
{
	if (s->store)
		forge_store_tidy(s->store);
	forge_store_close(forge_take_ptr(s->store));
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

static void find_other(struct server *s, const json_t *batch,
		       struct forge_courier_reply *r)
{
	const json_t *ours = json_object_get(batch, "record");
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

/* ---- batches ---- */

/* Merges a batch into the held one: the newest record, and the events of both. */
static void hold(struct client *c, json_t *batch)
{
	if (c->held) {
		json_t *events = json_object_get(c->held, "events");
		json_array_extend(events, json_object_get(batch, "events"));
		json_object_set(batch, "events", events);
		json_decref(c->held);
	} else {
		c->since = forge_now_usec();
	}
	c->held = batch;
	c->n_held++;
}

/* One reply for each batch that was merged. A socket that takes none has lost its reader. */
static void reply(struct client *c, const struct forge_courier_reply *r)
{
	json_decref(c->held);
	c->held = NULL;
	c->is_due = c->is_durable = false;
	for (; c->n_held > 0; c->n_held--)
		if (!c->is_gone &&
		    send(c->fd, r, sizeof(*r), MSG_NOSIGNAL | MSG_DONTWAIT) !=
			    (ssize_t)sizeof(*r))
			c->is_gone = true;
}

static void settle_each(struct server *s, struct client **due, size_t n)
{
	struct forge_courier_reply r = { 0 };

	for (size_t i = 0; i < n; i++) {
		/* A server that does not answer has cost time enough: what waits hears of it now. */
		if (r.rc != -ENOTCONN) {
			r = (struct forge_courier_reply){ 0 };
			r.rc = apply_batch(s, due[i]->held, due[i]->is_durable, &r.error);
		}
		if (r.rc == -EEXIST)
			find_other(s, due[i]->held, &r);
		reply(due[i], &r);
	}
}

/*
 * A batch for which the supervisor does not wait is held for a moment. So a short run is stored in one transaction.
 */
static bool is_due(const struct client *c, uint64_t now)
{
	return c->held &&
	       (c->is_due || c->is_gone || now - c->since >= HOLD_MSEC * 1000ull);
}

/* What several runs report at the same time is one transaction. If it fails, each has one of its own. */
static void settle_due(struct server *s)
{
	const json_t *batches[FORGE_STORE_BATCHES];
	struct client *due[FORGE_STORE_BATCHES];
	uint64_t now = forge_now_usec();
	bool durable = false;
	size_t n = 0;

	for (size_t i = 0; i < s->n && n < FORGE_STORE_BATCHES; i++) {
		struct client *c = &s->clients[i];
		if (!is_due(c, now))
			continue;
		c->is_durable |= c->is_gone; /* a killed supervisor may have sent it */
		durable |= c->is_durable;
		batches[n] = c->held;
		due[n++] = c;
	}
	if (n > 1 && connect_store(s, NULL) == 0 &&
	    forge_store_apply_all(s->store, batches, n, durable, NULL) == 0) {
		const struct forge_courier_reply done = { 0 };
		for (size_t i = 0; i < n; i++)
			reply(due[i], &done);
		return;
	}
	settle_each(s, due, n);
}

/* ---- the sockets ---- */

/* Takes the whole batches out of what was received. False: it is none. */
static bool take_batches(struct client *c)
{
	struct forge_courier_header h;
	size_t at = 0;

	while (c->len - at >= sizeof(h)) {
		memcpy(&h, c->in + at, sizeof(h));
		if (h.len > BATCH_MAX)
			return false;
		if (c->len - at - sizeof(h) < h.len)
			break;
		json_t *batch = json_loadb(c->in + at + sizeof(h), h.len, 0, NULL);
		if (!batch)
			return false;
		at += sizeof(h) + h.len;
		hold(c, batch);
		c->is_due |= h.durable || h.is_last;
		c->is_durable |= h.durable;
		c->is_last |= h.is_last;
	}
	memmove(c->in, c->in + at, c->len - at);
	c->len -= at;
	return true;
}

/* Reads what is there, and no more: a supervisor that was stopped must not stop the others. */
static void receive(struct client *c)
{
	for (;;) {
		if (c->cap - c->len < READ_STEP) {
			size_t cap = c->cap ? 2 * c->cap : 2 * READ_STEP;
			char *grown = realloc(c->in, cap);
			if (!grown) {
				c->is_gone = true;
				return;
			}
			c->in = grown;
			c->cap = cap;
		}
		ssize_t n = recv(c->fd, c->in + c->len, c->cap - c->len, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			c->is_gone = true;
			return;
		}
		c->len += (size_t)n;
		if (!take_batches(c)) {
			c->is_gone = true;
			return;
		}
	}
}

static bool add_client(struct server *s, int fd)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 8;
		struct client *grown = reallocarray(s->clients, cap, sizeof(*grown));
		if (!grown)
			return false;
		s->clients = grown;
		s->cap = cap;
	}
	s->clients[s->n++] = (struct client){ .fd = fd };
	return true;
}

/* The launcher sends the socket of a new run. */
static void accept_client(struct server *s)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { .buf = "" };
	char byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.buf,
			    .msg_controllen = sizeof(control.buf) };
	ssize_t n = recvmsg(s->launcher, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
	int fd;

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		close(s->launcher);
		s->launcher = -1;
		return;
	}
	if (!c || c->cmsg_type != SCM_RIGHTS)
		return;
	memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	if (!add_client(s, fd))
		close(fd); /* its supervisor starts a courier of its own */
	s->has_repaired = forge_now_usec() - s->repaired_usec < DELIVER_AGAIN_USEC;
}

/* Those whose supervisor is gone, and whose batches are stored. */
static void drop_clients(struct server *s)
{
	for (size_t i = s->n; i-- > 0;) {
		struct client *c = &s->clients[i];
		/* A courier of one run exits after its last batch. */
		if (!(c->is_gone || (c->is_last && !s->is_shared)) || c->held)
			continue;
		close(c->fd);
		free(c->in);
		*c = s->clients[--s->n];
	}
}

/* ---- the loop ---- */

/* How long to wait for the next batch before on_idle() has work. */
static int poll_msec(const struct server *s)
{
	uint64_t now = forge_now_usec(), least = UINT64_MAX;

	for (size_t i = 0; i < s->n; i++)
		if (s->clients[i].held) {
			uint64_t held = (now - s->clients[i].since) / 1000;
			uint64_t left =
				is_due(&s->clients[i], now) ? 0 : HOLD_MSEC - held;
			least = left < least ? left : least;
		}
	if (least != UINT64_MAX)
		return (int)least;
	if (!s->has_repaired)
		return QUIET_MSEC;
	if (s->is_shared && !s->store)
		return -1;
	return strncmp(s->url, "sqlite:", 7) == 0 ? IDLE_FILE_MSEC : IDLE_MSEC;
}

/* No batch came: delivers for crashed runs, then closes the store. False: exit. */
static bool on_idle(struct server *s)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->clients[i].held)
			return true;
	if (s->has_repaired && !s->is_shared)
		return false; /* the next event starts another courier */
	if (s->has_repaired) {
		leave_store(s); /* runs may take hours */
		return true;
	}
	s->has_repaired = true;
	s->repaired_usec = forge_now_usec();
	if (s->store)
		forge_deliver_if_due(s->store, s->url);
	return true;
}

/* False: exit. */
static bool serve_once(struct server *s)
{
	size_t n = s->n;
	forge_auto_free struct pollfd *p = calloc(n + 1, sizeof(*p));

	if (!p)
		return false;
	for (size_t i = 0; i < n; i++)
		p[i] = (struct pollfd){ .fd = s->clients[i].fd, .events = POLLIN };
	p[n] = (struct pollfd){ .fd = s->launcher, .events = POLLIN };
	int ready = poll(p, n + 1, poll_msec(s));
	if (ready < 0)
		return errno == EINTR;
	for (size_t i = 0; i < n; i++)
		if (p[i].revents)
			receive(&s->clients[i]);
	if (p[n].revents)
		accept_client(s);
	bool goes_on = ready > 0 || on_idle(s);
	settle_due(s);
	drop_clients(s);
	return goes_on && (s->n > 0 || s->launcher >= 0);
}

/*
 * The courier must not keep descriptors of the supervisor open: its pipes must end when
 * it does, and so must its locks. Ctrl-C is handled by the supervisor.
 */
static void detach(int fd)
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
}

void forge_courier_serve(int fd, bool is_shared, const char *url)
{
	struct server s = { .url = url, .launcher = -1, .is_shared = is_shared };

	detach(fd);
	if (is_shared) {
		(void)setsid(); /* not of the head's terminal */
		s.launcher = 3;
	} else if (!add_client(&s, 3)) {
		_exit(1);
	}
	/* Connects before the first batch comes; the first batch retries a failure. */
	if (connect_store(&s, NULL) == 0)
		forge_store_warm(s.store);
	while (serve_once(&s))
		;
	for (size_t i = 0; i < s.n; i++)
		s.clients[i].is_gone = true;
	settle_due(&s);
	if (s.store)
		forge_store_tidy(s.store);
	_exit(0); /* without closing the store: everything in it is committed */
}
