/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections, by libmicrohttpd. A request goes through these steps, and the first that refuses it answers it:
 * its target is parsed, its Host and Origin are those of this server, its path has a route, its token may use that route, its
 * body is small and an object. Then the route's function answers.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mhd.h"
#include "base/strv.h"
#include "server/http.h"
#include "server/route.h"
#include "server/shared.h"

#define CONNECTION_MEMORY (32 * 1024) /* headers of a request fit in here */
/* A connection that sends nothing for so long is closed. */
#define IDLE_SECONDS 30
/* So long the first line of a request may take, after its connection or the request before it, and so long the rest of it. */
#define REQUEST_USEC 20000000ULL

#define PAGE_CSP                                                                         \
	"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: " \
	"data:; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action "     \
	"'none'; frame-ancestors 'none'"
/* sandbox gives the content an origin of its own and no scripts, also when it is opened by itself. */
#define PREVIEW_CSP                                                                      \
	"sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "        \
	"frame-ancestors 'self'"
#define DATA_CSP "sandbox; default-src 'none'; frame-ancestors 'none'"

/* Tokens of a bucket: so many requests at once, and so many a second. */
struct bucket {
	double tokens;
	uint64_t at;
};
/* How long the end of the server waits until answers are sent. */
#define UNSENT_SECONDS 2
#define BUCKET_SIZE    100.0
#define BUCKET_RATE    25.0

/* A connection, for as long as it is open. */
struct link {
	struct link *next, **place;
	int fd;
	uint64_t since;	   /* the connection was made, or its last request was answered */
	bool is_answering; /* a whole request is there */
	bool was_shut;
};

/* A listening socket with its threads. */
struct http_daemon {
	struct MHD_Daemon *mhd;
};

#define SOCKETS_MAX 8

struct forge_http {
	struct forge_server *sv;
	struct http_daemon daemons[SOCKETS_MAX];
	size_t n_daemons;

	pthread_mutex_t lock; /* of what is below */
	pthread_cond_t is_idle;
	struct link *links;
	struct bucket refused, posts, tickets;
	unsigned slow;	 /* requests that have a thread */
	unsigned unsent; /* ... whose answer the client has not got yet */
	bool is_ending;

	atomic_ullong n_answered, n_refused, n_open;
};

/* A request. */
struct request {
	struct forge_http *h;
	struct MHD_Connection *c;
	struct link *link;
	char *raw; /* NULL: out of memory */
	struct forge_ask ask;
	const struct forge_route *route;
	struct forge_answer answer;
	char *body;
	size_t len;
	bool was_checked, is_ready, is_early, is_slow;
};

/* ---- connections ---- */

static void on_connection(void *cls, struct MHD_Connection *c, void **socket_context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct forge_http *h = cls;
	struct link *link = *socket_context;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		const union MHD_ConnectionInfo *info =
			p_MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
		link = calloc(1, sizeof(*link));
		*socket_context = link;
		if (!link || !info)
			return;
		link->fd = info->connect_fd;
		link->since = forge_now_usec();
		pthread_mutex_lock(&h->lock);
		link->next = h->links;
		link->place = &h->links;
		if (link->next)
			link->next->place = &link->next;
		h->links = link;
		pthread_mutex_unlock(&h->lock);
		return;
	}
	*socket_context = NULL;
	if (!link)
		return;
	pthread_mutex_lock(&h->lock);
	if (link->place) {
		*link->place = link->next;
		if (link->next)
			link->next->place = link->place;
	}
	pthread_mutex_unlock(&h->lock);
	free(link);
}

static void mark(struct request *r, bool is_answering)
{
	if (!r->link)
		return;
	pthread_mutex_lock(&r->h->lock);
	r->link->is_answering = is_answering;
	r->link->since = forge_now_usec();
	pthread_mutex_unlock(&r->h->lock);
}

/* libmicrohttpd's own time-out begins anew with each byte, so a client can send one now and then for ever. */
void forge_http_tick(struct forge_http *h)
{
	uint64_t now = forge_now_usec();

	pthread_mutex_lock(&h->lock);
	for (struct link *l = h->links; l; l = l->next) {
		if (l->is_answering || l->was_shut || now - l->since < REQUEST_USEC)
			continue;
		(void)shutdown(l->fd, SHUT_RDWR); /* its thread closes it */
		l->was_shut = true;
	}
	pthread_mutex_unlock(&h->lock);
}

/* ---- requests ---- */

static void *on_target(void *cls, const char *uri, struct MHD_Connection *c)
{
	struct request *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	const union MHD_ConnectionInfo *info =
		p_MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	r->h = cls;
	r->c = c;
	r->link = info ? info->socket_context : NULL;
	r->raw = strdup(uri);
	r->answer = FORGE_ANSWER_INIT;
	mark(r, false);
	atomic_fetch_add(&r->h->n_open, 1);
	return r;
}

static void on_completed(void *cls, struct MHD_Connection *c, void **con_cls,
			 enum MHD_RequestTerminationCode code)
{
	struct request *r = *con_cls;

	(void)cls;
	(void)c;
	*con_cls = NULL;
	if (!r)
		return;
	/* The connection of a request that was cut off may be gone before its request. */
	if (code == MHD_REQUEST_TERMINATED_COMPLETED_OK)
		mark(r, false);
	if (r->is_slow) {
		pthread_mutex_lock(&r->h->lock);
		r->h->unsent--;
		pthread_cond_broadcast(&r->h->is_idle);
		pthread_mutex_unlock(&r->h->lock);
	}
	atomic_fetch_sub(&r->h->n_open, 1);
	json_decref(r->ask.body);
	forge_answer_done(&r->answer);
	free(r->body);
	free(r->raw);
	free(r);
}

static bool take_token(struct forge_http *h, struct bucket *b)
{
	uint64_t now = forge_now_usec();

	pthread_mutex_lock(&h->lock);
	b->tokens += (double)(now - b->at) / 1e6 * BUCKET_RATE;
	b->at = now;
	if (b->tokens > BUCKET_SIZE)
		b->tokens = BUCKET_SIZE;
	bool has_one = b->tokens >= 1;
	if (has_one)
		b->tokens -= 1;
	pthread_mutex_unlock(&h->lock);
	return has_one;
}

static const char *header(const struct request *r, const char *name)
{
	return p_MHD_lookup_connection_value(r->c, MHD_HEADER_KIND, name);
}

static bool refuse(struct request *r, unsigned status, const char *code,
		   const char *message, const char *hint)
{
	forge_answer_error(&r->answer, status, code, message, hint);
	atomic_fetch_add(&r->h->n_refused, 1);
	return false;
}

/* A ticket is for exactly this target, without the ticket itself, which is last. */
static bool has_ticket(const struct request *r)
{
	const char *ticket = forge_target_get(&r->ask.target, "ticket");
	const char *at = ticket ? strstr(r->raw, "ticket=") : NULL;

	if (!at || at == r->raw || strcmp(at + strlen("ticket="), ticket) != 0 ||
	    strcmp(r->ask.method, "GET") != 0)
		return false;
	forge_auto_free char *path =
		forge_asprintf("%.*s", (int)(at - r->raw - 1), r->raw);
	return path && forge_ticket_is_valid(r->h->sv->ticket_key, path, ticket,
					     (int64_t)time(NULL));
}

static int find_access(struct request *r, struct forge_error *err)
{
	const char *auth = header(r, "Authorization");

	if (auth && strncasecmp(auth, "Bearer ", 7) == 0)
		return forge_server_check(r->h->sv, auth + 7 + strspn(auth + 7, " "),
					  &r->ask.access, err);
	r->ask.access = has_ticket(r) ? FORGE_ACCESS_READ : FORGE_ACCESS_NONE;
	return 0;
}

static bool check_access(struct request *r)
{
	enum forge_access needed = r->route->access;
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = 0;

	if (header(r, "Authorization") || needed != FORGE_ACCESS_NONE)
		rc = find_access(r, &err);
	if (r->ask.access >= needed)
		return true;
	if (rc < 0)
		return refuse(r, 503, "tokens", err.msg, err.hint);
	if (!take_token(r->h, &r->h->refused))
		return refuse(r, 429, "too_many",
			      "too many requests without a valid token", NULL);
	if (r->ask.access != FORGE_ACCESS_NONE)
		return refuse(r, 403, "forbidden", "this token may only read",
			      "`forge token new --operator` makes one that may start and "
			      "end runs");
	return refuse(r, 401, "unauthorized",
		      header(r, "Authorization")
			      ? "the token is unknown, revoked or expired"
			      : "a token is needed",
		      "Send `Authorization: Bearer TOKEN`; `forge token new` makes one");
}

/* Headers that may come once: two of them mean two things to a proxy and to us. */
static const char *const single[] = { "Host", "Origin", "Authorization", "Content-Length",
				      "Transfer-Encoding" };

static enum MHD_Result count_header(void *cls, enum MHD_ValueKind kind, const char *name,
				    const char *value)
{
	unsigned *counts = cls;

	(void)kind;
	(void)value;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(single); i++)
		counts[i] += strcasecmp(single[i], name) == 0;
	return MHD_YES;
}

/* A body has one length, and only a POST has one. */
static bool check_headers(struct request *r)
{
	unsigned counts[FORGE_ARRAY_SIZE(single)] = { 0 };
	const char *length = header(r, "Content-Length");
	bool is_chunked = header(r, "Transfer-Encoding") != NULL;

	(void)p_MHD_get_connection_values(r->c, MHD_HEADER_KIND, count_header, counts);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(single); i++)
		if (counts[i] > 1)
			return refuse(r, 400, "bad_request", "a header is there twice",
				      single[i]);
	if (length && is_chunked)
		return refuse(r, 400, "bad_request", "the body has two lengths", NULL);
	if (strcmp(r->ask.method, "POST") != 0 &&
	    (is_chunked || (length && strcmp(length, "0") != 0)))
		return refuse(r, 400, "bad_request", "this method has no body", NULL);
	if (length && strtoull(length, NULL, 10) > FORGE_BODY_MAX)
		return refuse(r, 413, "too_large", "the body is larger than 1 MiB", NULL);
	return true;
}

/* Everything that is known before the body. */
static bool check(struct request *r, const char *method)
{
	struct forge_server *sv = r->h->sv;
	struct forge_error err = FORGE_ERROR_INIT;
	const char *host = header(r, "Host"), *allowed = NULL;
	char sentence[128];

	r->ask.method = strcmp(method, "HEAD") == 0   ? "GET"
			: strcmp(method, "POST") == 0 ? "POST"
			: strcmp(method, "GET") == 0  ? "GET"
						      : "";
	if (!r->raw)
		return refuse(r, 503, "busy", "out of memory", NULL);
	if (!check_headers(r))
		return false;
	/* A page of another name must not read answers by making its name resolve to this address. */
	if (!forge_host_is_ours(host, (const char *const *)sv->names, sv->n_names))
		return refuse(r, 403, "forbidden", "this server has another name",
			      "Behind a proxy: forge serve --name NAME");
	if (!forge_origin_is_ours(header(r, "Origin"), host))
		return refuse(r, 403, "forbidden",
			      "the request comes from a page of another site", NULL);
	int rc = forge_target_parse(r->raw, &r->ask.target, &err);
	if (rc < 0)
		return refuse(r, rc == -E2BIG ? 414 : 400, "bad_request", err.msg, NULL);
	r->route =
		forge_route_find(r->ask.method, &r->ask.target, r->ask.params, &allowed);
	if (!r->route && allowed) {
		(void)snprintf(sentence, sizeof(sentence),
			       "this path has no method %.16s (have: %s)", method,
			       allowed);
		refuse(r, 405, "method", sentence, NULL);
		r->answer.allowed = allowed;
		return false;
	}
	if (!r->route)
		return refuse(r, 404, "not_found", "there is no such path",
			      "/api/v1/openapi.json lists them");
	if (!check_access(r))
		return false;
	rc = r->route->query ? forge_target_check(&r->ask.target, r->route->query, &err)
			     : 0;
	if (rc < 0)
		return refuse(r, 400, "bad_request", err.msg,
			      "/api/v1/openapi.json describes them");
	/* Those who may only read must not keep others from ending a run. */
	if (strcmp(r->ask.method, "POST") == 0 &&
	    !take_token(r->h, r->route->access == FORGE_ACCESS_OPERATOR ? &r->h->posts
									: &r->h->tickets))
		return refuse(r, 429, "too_many",
			      "too many requests that change something", NULL);
	r->ask.range = header(r, "Range");
	r->ask.last_event = header(r, "Last-Event-ID");
	r->ask.takes_gzip = forge_takes_gzip(header(r, "Accept-Encoding"));
	return true;
}

/* The whole request is there. No body at all is an empty object. */
static bool check_body(struct request *r)
{
	json_error_t why;
	char sentence[256];

	if (strcmp(r->ask.method, "POST") != 0)
		return true;
	if (r->len == 0) {
		r->ask.body = json_object();
		return r->ask.body ? true : refuse(r, 503, "busy", "out of memory", NULL);
	}
	/* A form, which any page can send, has another type. */
	const char *type = header(r, "Content-Type");
	if (!type || strncasecmp(type, "application/json", 16) != 0)
		return refuse(r, 400, "bad_request", "the body must be application/json",
			      "Send `Content-Type: application/json`");
	r->ask.body = json_loadb(r->body, r->len,
				 JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
	if (json_is_object(r->ask.body))
		return true;
	(void)snprintf(sentence, sizeof(sentence),
		       "the body is no valid JSON: line %d, column %d: %s", why.line,
		       why.column, why.text);
	return refuse(r, 400, "bad_request",
		      r->ask.body ? "the body must be a JSON object" : sentence,
		      "An empty one is {}");
}

/* ---- answers ---- */

static void on_wait(void *arg)
{
	p_MHD_suspend_connection(arg);
}

static void on_wake(void *arg)
{
	p_MHD_resume_connection(arg);
}

static ssize_t read_follower(void *cls, uint64_t pos, char *buf, size_t max)
{
	(void)pos;
	ssize_t n = forge_follower_read(cls, buf, max);

	return n < 0 ? MHD_CONTENT_READER_END_OF_STREAM : n;
}

static void free_follower(void *cls)
{
	forge_follower_free(cls);
}

static struct MHD_Response *make_response(struct request *r)
{
	struct forge_answer *a = &r->answer;

	if (a->follower) {
		struct forge_follower *f = forge_take_ptr(a->follower);
		forge_follower_attach(f, on_wait, on_wake, r->c);
		return p_MHD_create_response_from_callback(
			MHD_SIZE_UNKNOWN, 16384, read_follower, f, free_follower);
	}
	if (a->fd >= 0) /* it is closed with the response */
		return p_MHD_create_response_from_fd_at_offset64(
			a->size, forge_take_fd(a->fd), a->offset);
	if (a->text) {
		struct MHD_Response *response = p_MHD_create_response_from_buffer(
			a->len, a->text, MHD_RESPMEM_MUST_FREE);
		if (response)
			a->text = NULL;
		return response;
	}
	return p_MHD_create_response_from_buffer(a->len, (void *)(uintptr_t)a->data,
						 MHD_RESPMEM_PERSISTENT);
}

static void add(struct MHD_Response *response, const char *name, const char *value)
{
	if (value)
		(void)p_MHD_add_response_header(response, name, value);
}

static void add_headers(const struct request *r, struct MHD_Response *response)
{
	const struct forge_answer *a = &r->answer;
	char text[96];

	add(response, "Content-Type", a->type);
	add(response, "X-Content-Type-Options", "nosniff");
	add(response, "Referrer-Policy", "no-referrer");
	add(response, "Cross-Origin-Resource-Policy", "same-origin");
	add(response, "Cross-Origin-Opener-Policy", "same-origin");
	add(response, "Content-Security-Policy",
	    a->is_page	    ? PAGE_CSP
	    : a->is_preview ? PREVIEW_CSP
			    : DATA_CSP);
	if (!a->is_preview)
		add(response, "X-Frame-Options", "DENY");
	add(response, "Cache-Control", a->etag ? "no-cache" : "no-store");
	add(response, "ETag", a->etag);
	if (a->is_gzip)
		add(response, "Content-Encoding", "gzip");
	if (a->is_page) /* with and without gzip */
		add(response, "Vary", "Accept-Encoding");
	add(response, "Allow", a->allowed);
	add(response, "Content-Disposition", a->attachment);
	if (a->status == 206 || a->status == 200)
		add(response, "Accept-Ranges", a->total ? "bytes" : NULL);
	if (a->is_part) {
		(void)snprintf(text, sizeof(text), "bytes %llu-%llu/%llu",
			       (unsigned long long)a->offset,
			       (unsigned long long)(a->offset + a->size - 1),
			       (unsigned long long)a->total);
		add(response, "Content-Range", text);
	}
	if (a->status == 416) {
		(void)snprintf(text, sizeof(text), "bytes */%llu",
			       (unsigned long long)a->total);
		add(response, "Content-Range", text);
	}
	if (a->has_total) {
		(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)a->total);
		add(response, "X-Log-Size", text);
	}
	if (a->retry_seconds) {
		(void)snprintf(text, sizeof(text), "%u", a->retry_seconds);
		add(response, "Retry-After", text);
	}
	if (a->status == 401)
		add(response, "WWW-Authenticate", "Bearer");
	/* Of a request whose body was not read, the rest must not be taken for the next one. */
	if (r->is_early)
		add(response, "Connection", "close");
}

static enum MHD_Result send_answer(struct request *r)
{
	const char *known = r->answer.etag ? header(r, "If-None-Match") : NULL;
	bool is_same = known && strcmp(known, r->answer.etag) == 0;
	unsigned status = is_same ? 304 : r->answer.status;

	if (is_same)
		r->answer.len = 0;
	struct MHD_Response *response = make_response(r);

	if (!response)
		return MHD_NO;
	add_headers(r, response);
	atomic_fetch_add(&r->h->n_answered, 1);
	enum MHD_Result result = p_MHD_queue_response(r->c, status, response);
	p_MHD_destroy_response(response);
	return result;
}

/* ---- slow requests ---- */

static void *answer_slowly(void *arg)
{
	struct request *r = arg;
	struct forge_http *h = r->h;

	r->route->answer(h->sv, &r->ask, &r->answer);
	r->is_ready = true;
	/* After this the request may be gone at any time. */
	p_MHD_resume_connection(r->c);
	pthread_mutex_lock(&h->lock);
	h->slow--;
	pthread_cond_broadcast(&h->is_idle);
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

static bool start_slowly(struct request *r)
{
	struct forge_http *h = r->h;
	pthread_attr_t attr;
	pthread_t thread;

	pthread_mutex_lock(&h->lock);
	/* Those who read leave some of them for those who start and end runs. */
	unsigned most = r->route->access == FORGE_ACCESS_OPERATOR
				? FORGE_SLOW_MAX
				: FORGE_SLOW_MAX - FORGE_SLOW_KEPT;
	bool has_room = h->slow < most && !h->is_ending;
	h->slow += has_room;
	h->unsent += has_room;
	pthread_mutex_unlock(&h->lock);
	if (!has_room)
		return false;
	r->is_slow = true;
	p_MHD_suspend_connection(r->c);
	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	int code = pthread_create(&thread, &attr, answer_slowly, r);
	(void)pthread_attr_destroy(&attr);
	if (code == 0)
		return true;
	p_MHD_resume_connection(r->c);
	pthread_mutex_lock(&h->lock);
	h->slow--;
	pthread_mutex_unlock(&h->lock);
	return false;
}

static enum MHD_Result answer(struct request *r)
{
	mark(r, true);
	if (!check_body(r))
		return send_answer(r);
	if (!r->route->is_slow && !(r->route->may_wait && r->route->may_wait(&r->ask))) {
		r->route->answer(r->h->sv, &r->ask, &r->answer);
		return send_answer(r);
	}
	if (start_slowly(r))
		return MHD_YES;
	(void)refuse(r, 503, "busy", "too many slow requests at once", NULL);
	return send_answer(r);
}

/* More of the body. */
static enum MHD_Result take_body(struct request *r, const char *data, size_t *size)
{
	if (r->len + *size > FORGE_BODY_MAX) {
		r->is_early = true;
		(void)refuse(r, 413, "too_large", "the body is larger than 1 MiB", NULL);
		*size = 0;
		r->is_ready = true; /* answered when libmicrohttpd accepts an answer */
		return MHD_YES;
	}
	char *grown = realloc(r->body, r->len + *size + 1);
	if (!grown)
		return MHD_NO;
	r->body = grown;
	memcpy(grown + r->len, data, *size);
	r->len += *size;
	*size = 0;
	return MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url,
				  const char *method, const char *version,
				  const char *data, size_t *size, void **con_cls)
{
	struct request *r = *con_cls;

	(void)cls;
	(void)c;
	(void)url;
	(void)version;
	if (!r)
		return MHD_NO;
	if (r->is_ready) {
		if (*size) {
			*size = 0; /* the rest of a body that is too large */
			return MHD_YES;
		}
		return send_answer(r);
	}
	if (!r->was_checked) {
		r->was_checked = true;
		if (!check(r, method)) {
			/* A body that was not read must not be taken for the next request. */
			r->is_early = (strcmp(method, "GET") != 0 &&
				       strcmp(method, "HEAD") != 0) ||
				      header(r, "Content-Length") ||
				      header(r, "Transfer-Encoding");
			return send_answer(r);
		}
		/* An answer that is given at this point ends the connection; the next call comes after the body. */
		return MHD_YES;
	}
	return *size ? take_body(r, data, size) : answer(r);
}

/* ---- start and stop ---- */

static int start_daemon(struct forge_http *h, int fd, struct forge_error *err)
{
	/* A connection limit is for each thread of a pool together. */
	struct MHD_Daemon *d = p_MHD_start_daemon(
		MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
		on_request, h, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_THREAD_POOL_SIZE,
		(unsigned)FORGE_THREADS, MHD_OPTION_CONNECTION_LIMIT,
		h->sv->connections_max, MHD_OPTION_CONNECTION_TIMEOUT,
		(unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)CONNECTION_MEMORY, MHD_OPTION_STRICT_FOR_CLIENT, 1,
		MHD_OPTION_URI_LOG_CALLBACK, on_target, h, MHD_OPTION_NOTIFY_COMPLETED,
		on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
		MHD_OPTION_END);

	if (!d)
		return forge_fail_errno(err, errno ? errno : EIO,
					"start the HTTP server");
	h->daemons[h->n_daemons++] = (struct http_daemon){ d };
	return 0;
}

int forge_http_start(struct forge_server *sv, const int *listen_fds, size_t n,
		     struct forge_http **ret, struct forge_error *err)
{
	struct forge_http *h = calloc(1, sizeof(*h));
	int rc = h ? forge_mhd_load(err) : forge_fail(err, ENOMEM, "out of memory");

	if (rc < 0) {
		free(h);
		return rc;
	}
	h->sv = sv;
	(void)pthread_mutex_init(&h->lock, NULL); /* never fails on Linux */
	(void)pthread_cond_init(&h->is_idle, NULL);
	h->refused = h->posts = h->tickets =
		(struct bucket){ BUCKET_SIZE, forge_now_usec() };
	if (n > SOCKETS_MAX)
		rc = forge_fail(err, E2BIG, "more than %d sockets to listen on",
				SOCKETS_MAX);
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = start_daemon(h, listen_fds[i], err);
	if (rc < 0) {
		forge_http_stop(h);
		return rc;
	}
	*ret = h;
	return 0;
}

void forge_http_stop(struct forge_http *h)
{
	if (!h)
		return;
	pthread_mutex_lock(&h->lock);
	h->is_ending = true;
	/* What was accepted is carried out: a run may be about to start. */
	while (h->slow > 0)
		(void)pthread_cond_wait(&h->is_idle, &h->lock);
	/* And is told to its client, if that one reads. */
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += UNSENT_SECONDS;
	while (h->unsent > 0 &&
	       pthread_cond_timedwait(&h->is_idle, &h->lock, &until) == 0)
		;
	pthread_mutex_unlock(&h->lock);
	if (h->sv->follow)
		forge_follow_end_all(h->sv->follow);
	for (size_t i = 0; i < h->n_daemons; i++)
		p_MHD_stop_daemon(h->daemons[i].mhd);
	pthread_cond_destroy(&h->is_idle);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

void forge_http_counts(struct forge_http *h, struct forge_http_counts *ret)
{
	*ret = (struct forge_http_counts){ atomic_load(&h->n_answered),
					   atomic_load(&h->n_refused),
					   atomic_load(&h->n_open) };
}
