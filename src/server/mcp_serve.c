/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop: reads messages, starts calls, polls what they have started, writes answers. One thread; nothing in it
 * waits but the poll.
 */
#include "server/mcp_state.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "config-build.h"
#include "server/mcp_content.h"

/* More requests at once are refused. */
#define CALLS_MAX 128
/* With so much to be written nothing more is read. */
#define PENDING_MAX (32u << 20)
/* How long the end may take, for runs that have to be ended. */
#define ENDING_USEC (30 * 1000000ull)

#define INSTRUCTIONS                                                                     \
	"Forge runs analyses in sandboxes under hard limits and records what happened. " \
	"run_analysis runs code and waits; the result says in one sentence how it "      \
	"ended, "                                                                        \
	"and what to change if it failed. The person who started this server fixed "     \
	"what "                                                                          \
	"a run may have: a request for more is refused, and says so."

/* ---- writing ---- */

void forge_mcp_send(struct forge_mcp *m, json_t *message)
{
	forge_auto_free char *line = message ? forge_json_line(message) : NULL;
	size_t len = line ? strlen(line) : 0;

	json_decref(message);
	if (!line || m->is_deaf)
		return;
	/* Moved here and not at each write, which takes only a small part. */
	if (m->pending_at > 0 && m->pending_at >= m->pending_len) {
		memmove(m->pending, m->pending + m->pending_at, m->pending_len);
		m->pending_at = 0;
	}
	if (m->pending_at + m->pending_len + len + 1 > m->pending_cap) {
		size_t cap = m->pending_cap ? m->pending_cap : 65536;
		while (cap < m->pending_at + m->pending_len + len + 1)
			cap *= 2;
		char *grown = realloc(m->pending, cap);
		if (!grown) {
			m->is_deaf = true; /* the other side cannot be kept informed */
			return;
		}
		m->pending = grown;
		m->pending_cap = cap;
	}
	memcpy(m->pending + m->pending_at + m->pending_len, line, len);
	m->pending[m->pending_at + m->pending_len + len] = '\n';
	m->pending_len += len + 1;
}

/* A list with no answers, of notifications only, is not answered. */
static void batch_done(struct forge_mcp *m, struct forge_mcp_batch *b)
{
	if (--b->left > 0)
		return;
	if (json_array_size(b->answers))
		forge_mcp_send(m, json_incref(b->answers));
	json_decref(b->answers);
	free(b);
}

void forge_mcp_send_answer(struct forge_mcp *m, struct forge_mcp_batch *batch, json_t *id,
			   json_t *result, json_t *error)
{
	json_t *message = NULL;

	if (result || error) {
		message = json_pack("{s:s}", "jsonrpc", "2.0");
		/* Without an id the oldest revisions want a null, the newest nothing. */
		if (id)
			json_object_set(message, "id", id);
		else if (m->version && strcmp(m->version, "2025-11-25") < 0)
			json_object_set_new(message, "id", json_null());
		json_object_set_new(message, result ? "result" : "error",
				    result ? result : error);
	}
	if (!batch) {
		if (message)
			forge_mcp_send(m, message);
		return;
	}
	if (message)
		json_array_append_new(batch->answers, message);
	batch_done(m, batch);
}

static void send_error(struct forge_mcp *m, struct forge_mcp_batch *batch, json_t *id,
		       int code, const char *message)
{
	forge_mcp_send_answer(m, batch, id, NULL,
			      json_pack("{s:i, s:s}", "code", code, "message", message));
}

static bool write_pending(struct forge_mcp *m)
{
	/*
	 * A pipe that is ready takes so much without blocking. Not made non-blocking: others may have the same
	 * open file.
	 */
	size_t n = m->pending_len < PIPE_BUF ? m->pending_len : PIPE_BUF;
	const char *data = m->pending + m->pending_at;
	ssize_t written = m->is_socket ? send(m->out, data, m->pending_len,
					      MSG_DONTWAIT | MSG_NOSIGNAL)
				       : write(m->out, data, n);

	if (written < 0 && (errno == EINTR || errno == EAGAIN))
		return true;
	if (written < 0)
		return false;
	m->pending_at += (size_t)written;
	m->pending_len -= (size_t)written;
	return true;
}

/* ---- methods ---- */

/* What a method gets. */
struct request {
	const struct forge_mcp_message *msg;
	struct forge_mcp_batch *batch;
};

static void answer(struct forge_mcp *m, const struct request *r, json_t *result,
		   bool is_cacheable)
{
	if (r->msg->version) {
		json_object_set_new(result, "resultType", json_string("complete"));
		json_object_set_new(result, "_meta",
				    json_pack("{s:{s:s, s:s, s:s}}",
					      "io.modelcontextprotocol/serverInfo",
					      "name", "forge", "title", "Forge",
					      "version", FORGE_VERSION));
		if (is_cacheable) {
			json_object_set_new(result, "ttlMs", json_integer(3600000));
			json_object_set_new(result, "cacheScope", json_string("private"));
		}
	}
	forge_mcp_send_answer(m, r->batch, r->msg->id, result, NULL);
}

static void refuse(struct forge_mcp *m, const struct request *r, int code,
		   const char *message)
{
	send_error(m, r->batch, r->msg->id, code, message);
}

static json_t *capabilities(void)
{
	return json_pack("{s:{s:b}, s:{s:b, s:b}}", "tools", "listChanged", 0,
			 "resources", "subscribe", 0, "listChanged", 0);
}

static void method_initialize(struct forge_mcp *m, const struct request *r)
{
	const char *version =
		forge_mcp_negotiate(forge_json_string(r->msg->params, "protocolVersion"));

	if (!version) {
		refuse(m, r, FORGE_MCP_INVALID_PARAMS, "protocolVersion is missing");
		return;
	}
	m->version = version;
	answer(m, r,
	       json_pack("{s:s, s:o, s:{s:s, s:s, s:s}, s:s}", "protocolVersion", version,
			 "capabilities", capabilities(), "serverInfo", "name", "forge",
			 "title", "Forge", "version", FORGE_VERSION, "instructions",
			 INSTRUCTIONS),
	       false);
}

static json_t *versions(void)
{
	json_t *list = json_pack("[s]", FORGE_MCP_MODERN_VERSION);

	for (size_t i = 0; forge_mcp_legacy_versions[i]; i++)
		json_array_append_new(list, json_string(forge_mcp_legacy_versions[i]));
	return list;
}

static void method_discover(struct forge_mcp *m, const struct request *r)
{
	answer(m, r,
	       json_pack("{s:o, s:o, s:{s:s, s:s, s:s}, s:s}", "supportedVersions",
			 versions(), "capabilities", capabilities(), "serverInfo", "name",
			 "forge", "title", "Forge", "version", FORGE_VERSION,
			 "instructions", INSTRUCTIONS),
	       true);
}

static void method_ping(struct forge_mcp *m, const struct request *r)
{
	answer(m, r, json_object(), false);
}

static void method_tools(struct forge_mcp *m, const struct request *r)
{
	json_t *list = json_array();

	for (const struct forge_mcp_tool *t = forge_mcp_tools; t->name; t++)
		if (forge_mcp_tool_is_there(m->o, t))
			json_array_append_new(list, forge_mcp_tool_json(t));
	answer(m, r, json_pack("{s:o}", "tools", list), true);
}

static void method_resources(struct forge_mcp *m, const struct request *r)
{
	answer(m, r, json_pack("{s:[]}", "resources"), true);
}

static void method_templates(struct forge_mcp *m, const struct request *r)
{
	static const char *const table[][4] = {
		{ "forge://runs/{run}/record", "record", "The record of a run",
		  "application/json" },
		{ "forge://runs/{run}/stdout", "stdout", "What a run printed",
		  "text/plain" },
		{ "forge://runs/{run}/stderr", "stderr", "Its errors and warnings",
		  "text/plain" },
	};
	json_t *list = json_array();

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(table); i++)
		json_array_append_new(
			list, json_pack("{s:s, s:s, s:s, s:s}", "uriTemplate",
					table[i][0], "name", table[i][1], "description",
					table[i][2], "mimeType", table[i][3]));
	answer(m, r, json_pack("{s:o}", "resourceTemplates", list), true);
}

/* A call that is not started. NULL: the request is answered. */
static struct forge_mcp_call *new_call(struct forge_mcp *m, const struct request *r)
{
	if (m->n_calls >= CALLS_MAX) {
		refuse(m, r, FORGE_MCP_INTERNAL, "too many requests at once (128)");
		return NULL;
	}
	for (struct forge_mcp_call *c = m->calls; c; c = c->other)
		if (!c->is_over && json_equal(c->id, r->msg->id)) {
			refuse(m, r, FORGE_MCP_INVALID_REQUEST,
			       "a request with this id is not answered yet");
			return NULL;
		}
	struct forge_mcp_call *c = calloc(1, sizeof(*c));
	if (!c) {
		refuse(m, r, FORGE_MCP_INTERNAL, "out of memory");
		return NULL;
	}
	c->m = m;
	c->id = json_incref(r->msg->id);
	c->token = json_incref(r->msg->progress_token);
	c->is_modern = r->msg->version != NULL;
	c->batch = r->batch;
	c->began_usec = c->look_usec = forge_now_usec();
	c->other = m->calls;
	m->calls = c;
	m->n_calls++;
	return c;
}

static void method_call(struct forge_mcp *m, const struct request *r)
{
	struct forge_error err = FORGE_ERROR_INIT;
	const char *name = forge_json_string(r->msg->params, "name");
	json_t *args = json_object_get(r->msg->params, "arguments");
	const struct forge_mcp_tool *tool = forge_mcp_tool_find(m->o, name);
	char text[128];

	if (!tool || (args && !json_is_object(args))) {
		(void)snprintf(text, sizeof(text),
			       tool ? "the arguments of %.64s are not an object"
				    : "unknown tool '%.64s'",
			       name ? name : "");
		/* The name may be no UTF-8 after the cut. */
		forge_mcp_send_answer(m, r->batch, r->msg->id, NULL,
				      json_pack("{s:i, s:o}", "code",
						FORGE_MCP_INVALID_PARAMS, "message",
						forge_mcp_text(text, strlen(text))));
		return;
	}
	struct forge_mcp_call *c = new_call(m, r);
	if (!c)
		return;
	c->tool = tool;
	c->args = args ? json_incref(args) : json_object();
	if (forge_mcp_check_args(tool, c->args, &err) < 0)
		forge_mcp_refuse(c, &err);
	else
		tool->run(c);
}

static void method_read(struct forge_mcp *m, const struct request *r)
{
	const char *uri = forge_json_string(r->msg->params, "uri");
	struct forge_mcp_call *c = uri ? new_call(m, r) : NULL;

	if (!uri)
		refuse(m, r, FORGE_MCP_INVALID_PARAMS, "uri is missing");
	if (!c)
		return;
	c->args = json_pack("{s:s}", "uri", uri);
	if (!forge_mcp_read_resource(c, uri))
		forge_mcp_fail(c, FORGE_MCP_INVALID_PARAMS, "there is no such resource");
}

/* ---- messages ---- */

enum era { BOTH, LEGACY, MODERN };

static const struct {
	const char *name;
	void (*run)(struct forge_mcp *m, const struct request *r);
	enum era era;
	bool is_first; /* also before the handshake */
} methods[] = {
	{ "initialize", method_initialize, LEGACY, true },
	{ "ping", method_ping, LEGACY, true },
	{ "server/discover", method_discover, MODERN, false },
	{ "tools/list", method_tools, BOTH, false },
	{ "tools/call", method_call, BOTH, false },
	{ "resources/list", method_resources, BOTH, false },
	{ "resources/templates/list", method_templates, BOTH, false },
	{ "resources/read", method_read, BOTH, false },
};

static void refuse_version(struct forge_mcp *m, const struct request *r)
{
	forge_mcp_send_answer(m, r->batch, r->msg->id, NULL,
			      json_pack("{s:i, s:s, s:{s:o, s:s}}", "code",
					FORGE_MCP_UNSUPPORTED_VERSION, "message",
					"Unsupported protocol version", "data",
					"supported", versions(), "requested",
					r->msg->version));
}

static void handle_request(struct forge_mcp *m, const struct request *r)
{
	const struct forge_mcp_message *msg = r->msg;
	bool is_modern = msg->version != NULL;

	if (is_modern && strcmp(msg->version, FORGE_MCP_MODERN_VERSION) != 0) {
		refuse_version(m, r);
		return;
	}
	if (is_modern && !msg->has_capabilities) {
		refuse(m, r, FORGE_MCP_INVALID_PARAMS,
		       "_meta has no io.modelcontextprotocol/clientCapabilities");
		return;
	}
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(methods); i++) {
		if (strcmp(methods[i].name, msg->method) != 0)
			continue;
		if (!is_modern && methods[i].era == MODERN)
			refuse(m, r, FORGE_MCP_INVALID_PARAMS,
			       "_meta has no io.modelcontextprotocol/protocolVersion");
		else if (is_modern && methods[i].era == LEGACY)
			break;
		else if (!is_modern && !methods[i].is_first && !m->version)
			refuse(m, r, FORGE_MCP_INVALID_REQUEST,
			       "initialize comes first; or _meta carries the protocol "
			       "version (" FORGE_MCP_MODERN_VERSION ")");
		else
			methods[i].run(m, r);
		return;
	}
	refuse(m, r, FORGE_MCP_NO_METHOD, "there is no such method");
}

static void handle_cancelled(struct forge_mcp *m, const json_t *params)
{
	const json_t *id = json_object_get(params, "requestId");

	for (struct forge_mcp_call *c = m->calls; id && c; c = c->other)
		if (!c->is_over && !c->is_cancelled && json_equal(c->id, id)) {
			forge_mcp_call_cancel(c, false);
			return;
		}
}

static void handle_message(struct forge_mcp *m, json_t *value,
			   struct forge_mcp_batch *batch)
{
	struct forge_mcp_message msg;
	const struct request r = { &msg, batch };

	forge_mcp_classify(value, &msg);
	switch (msg.kind) {
	case FORGE_MCP_REQUEST:
		handle_request(m, &r);
		return;
	case FORGE_MCP_INVALID:
		send_error(m, batch, msg.id, FORGE_MCP_INVALID_REQUEST, msg.problem);
		return;
	case FORGE_MCP_NOTIFICATION:
		if (strcmp(msg.method, "notifications/cancelled") == 0)
			handle_cancelled(m, msg.params);
		break;
	case FORGE_MCP_RESPONSE:
		break;
	}
	if (batch)
		batch_done(m, batch);
}

static void handle_list(struct forge_mcp *m, json_t *list)
{
	struct forge_mcp_batch *b;
	json_t *value;
	size_t i;

	if (!forge_mcp_has_batches(m->version) || !json_array_size(list)) {
		send_error(m, NULL, NULL, FORGE_MCP_INVALID_REQUEST,
			   json_array_size(list)
				   ? "this protocol version has no lists of messages"
				   : "the list is empty");
		return;
	}
	b = calloc(1, sizeof(*b));
	if (!b) {
		send_error(m, NULL, NULL, FORGE_MCP_INTERNAL, "out of memory");
		return;
	}
	b->answers = json_array();
	/* One more than there are, so that it lasts until all are handled. */
	b->left = json_array_size(list) + 1;
	json_array_foreach (list, i, value)
		handle_message(m, value, b);
	batch_done(m, b);
}

static void handle_line(struct forge_mcp *m, const char *line, size_t len)
{
	size_t blank = 0;

	while (blank < len && strchr(" \t\r", line[blank]) && line[blank])
		blank++;
	if (blank == len)
		return;
	forge_auto_json json_t *value = forge_mcp_parse(line, len);
	if (!value)
		send_error(m, NULL, NULL, FORGE_MCP_PARSE_ERROR, "this is no JSON text");
	else if (json_is_array(value))
		handle_list(m, value);
	else
		handle_message(m, value, NULL);
}

/* ---- the end ---- */

/* Whether the call waits for something that may take long, so that the end does not wait for it. */
static bool takes_long(const struct forge_mcp_call *c)
{
	return c->tool &&
	       (c->tool->run == forge_mcp_run_analysis ||
		c->tool->run == forge_mcp_rerun || c->tool->run == forge_mcp_wait_run ||
		c->tool->run == forge_mcp_run_pipeline);
}

static void begin_end(struct forge_mcp *m)
{
	if (m->is_ending)
		return;
	m->is_ending = true;
	for (struct forge_mcp_call *c = m->calls; c; c = c->other)
		if (!c->is_over && !c->is_cancelled && takes_long(c))
			forge_mcp_call_cancel(c, true);
}

/* ---- the loop ---- */

static void read_input(struct forge_mcp *m)
{
	char buf[65536];
	const char *line;
	size_t len;
	ssize_t n = read(m->in, buf, sizeof(buf));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		begin_end(m);
		return;
	}
	int rc = forge_mcp_lines_add(&m->lines, buf, (size_t)n);
	if (rc < 0) {
		begin_end(m);
		return;
	}
	while ((rc = forge_mcp_lines_next(&m->lines, &line, &len)) != 0) {
		if (rc > 0)
			handle_line(m, line, len);
		else
			send_error(m, NULL, NULL, FORGE_MCP_PARSE_ERROR,
				   "the line is longer than 16 MiB");
	}
}

static void look_at_call(struct forge_mcp_call *c)
{
	if (c->child && !c->child->is_over)
		forge_mcp_child_look(c->child);
	if (c->look && !c->look->is_over)
		forge_mcp_child_look(c->look);
	if (!c->is_over && c->child && c->child->is_over && c->next) {
		void (*next)(struct forge_mcp_call *) = c->next;
		c->next = NULL;
		next(c);
	}
	forge_mcp_follow_pipeline(c);
	forge_mcp_call_progress(c);
}

static void look_at_all(struct forge_mcp *m)
{
	for (struct forge_mcp_head *h = m->heads; h; h = h->other)
		if (!h->child->is_over)
			forge_mcp_child_look(h->child);
	for (struct forge_mcp_call *c = m->calls; c; c = c->other)
		look_at_call(c);
	for (struct forge_mcp_call **at = &m->calls; *at;) {
		struct forge_mcp_call *c = *at;
		if (!c->is_over) {
			at = &c->other;
			continue;
		}
		*at = c->other;
		m->n_calls--;
		forge_mcp_call_free(c);
	}
	for (struct forge_mcp_head **at = &m->heads; *at;) {
		struct forge_mcp_head *h = *at;
		if (!h->child->is_over || h->is_followed) {
			at = &h->other;
			continue;
		}
		*at = h->other;
		forge_mcp_child_free(h->child, true);
		free(h->pipeline);
		free(h);
	}
}

static void add_child(struct pollfd *fds, size_t *n, const struct forge_mcp_child *c,
		      bool has_pipes)
{
	if (!c || c->is_over)
		return;
	fds[(*n)++] = (struct pollfd){ .fd = c->pidfd, .events = POLLIN };
	if (!has_pipes)
		return;
	fds[(*n)++] = (struct pollfd){ .fd = c->out, .events = POLLIN };
	fds[(*n)++] = (struct pollfd){ .fd = c->err, .events = POLLIN };
}

static int until(uint64_t usec, int most)
{
	uint64_t now = forge_now_usec();
	uint64_t left = usec > now ? (usec - now) / 1000 + 1 : 0;

	return most < 0 || left < (uint64_t)most ? (int)(left < 60000 ? left : 60000)
						 : most;
}

/* -1: nothing is due. */
static int next_timeout(const struct forge_mcp *m, uint64_t ending_usec)
{
	int msec = m->is_ending ? until(ending_usec, -1) : -1;

	for (const struct forge_mcp_call *c = m->calls; c; c = c->other) {
		if (c->token && (c->run_id || c->head) && !c->look && !c->is_cancelled)
			msec = until(c->look_usec, msec);
		if (c->head && !c->is_cancelled)
			msec = until(c->began_usec + c->wait_usec, msec);
	}
	return msec;
}

static size_t count_fds(const struct forge_mcp *m)
{
	size_t n = 3 + 6 * (size_t)m->n_calls;

	for (const struct forge_mcp_head *h = m->heads; h; h = h->other)
		n++;
	return n;
}

/* One turn. False: everything is done. */
static bool turn(struct forge_mcp *m, int signals, struct pollfd *fds, uint64_t ending)
{
	bool reads = !m->is_ending && m->pending_len < PENDING_MAX;
	size_t n = 0;

	/* Always polled, because the end of its reader has to be noticed: POLLERR. */
	fds[n++] = (struct pollfd){ .fd = m->is_deaf ? -1 : m->out,
				    .events = m->pending_len ? POLLOUT : 0 };
	fds[n++] = (struct pollfd){ .fd = reads ? m->in : -1, .events = POLLIN };
	fds[n++] = (struct pollfd){ .fd = signals, .events = POLLIN };
	for (const struct forge_mcp_call *c = m->calls; c; c = c->other) {
		add_child(fds, &n, c->child, true);
		add_child(fds, &n, c->look, true);
	}
	for (const struct forge_mcp_head *h = m->heads; h; h = h->other)
		add_child(fds, &n, h->child, false);
	if (poll(fds, n, next_timeout(m, ending)) < 0 && errno != EINTR)
		return false;
	if ((fds[0].revents & (POLLERR | POLLNVAL)) ||
	    ((fds[0].revents & POLLOUT) && !write_pending(m))) {
		m->is_deaf = true;
		m->pending_len = m->pending_at = 0;
		begin_end(m);
	}
	if (fds[1].revents)
		read_input(m);
	if (fds[2].revents) {
		struct signalfd_siginfo info;
		(void)!read(signals, &info, sizeof(info));
		begin_end(m);
	}
	look_at_all(m);
	return !m->is_ending || m->n_calls > 0 || (m->pending_len && !m->is_deaf);
}

static int loop(struct forge_mcp *m, int signals, struct forge_error *err)
{
	struct pollfd *fds = NULL;
	uint64_t ending = 0;
	bool goes_on = true;
	int rc = 0;

	while (goes_on) {
		struct pollfd *grown = reallocarray(fds, count_fds(m), sizeof(*fds));
		if (!grown) {
			rc = forge_fail(err, ENOMEM, "out of memory");
			break;
		}
		fds = grown;
		if (m->is_ending && !ending)
			ending = forge_now_usec() + ENDING_USEC;
		goes_on = turn(m, signals, fds, ending) &&
			  !(ending && forge_now_usec() > ending);
	}
	free(fds);
	return rc;
}

static void done(struct forge_mcp *m)
{
	while (m->calls) {
		struct forge_mcp_call *c = m->calls;
		m->calls = c->other;
		c->is_over = true;
		forge_mcp_call_free(c);
	}
	while (m->heads) {
		struct forge_mcp_head *h = m->heads;
		m->heads = h->other;
		forge_mcp_child_free(h->child, true);
		free(h->pipeline);
		free(h);
	}
	forge_mcp_lines_done(&m->lines);
	forge_strv_done(&m->runs);
	free(m->pending);
}

int forge_mcp_serve(const struct forge_mcp_options *o, int in, int out,
		    struct forge_error *err)
{
	struct forge_mcp m = { .o = o, .in = in, .out = out };
	sigset_t ours, before;
	struct stat st;

	m.is_socket = fstat(out, &st) == 0 && S_ISSOCK(st.st_mode);

	sigemptyset(&ours);
	sigaddset(&ours, SIGTERM);
	sigaddset(&ours, SIGINT);
	sigaddset(&ours, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &ours, &before) < 0)
		return forge_fail_errno(err, errno, "block signals");
	(void)signal(SIGPIPE, SIG_IGN);
	forge_auto_close int signals = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
	int rc = signals < 0 ? forge_fail_errno(err, errno, "watch signals")
			     : loop(&m, signals, err);
	done(&m);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	return rc;
}
