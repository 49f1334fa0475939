/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a call, its answer, its progress and its cancellation. */
#include "server/mcp_state.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "config-build.h"
#include "server/mcp_content.h"

/* From one look at the run of a call to the next. */
#define LOOK_USEC 1000000ull

int forge_mcp_argv(const struct forge_mcp *m, struct forge_strv *argv,
		   const char *command, const char *const *options)
{
	int rc = 0;

	/* "runtime list" are two words. */
	const char *space = strchr(command, ' ');
	rc = space ? forge_strv_addf(argv, "%.*s", (int)(space - command), command)
		   : forge_strv_add(argv, command);
	if (rc == 0 && space)
		rc = forge_strv_add(argv, space + 1);
	for (; options && *options && rc == 0; options++)
		rc = forge_strv_add(argv, *options);
	if (rc == 0 && m->o->config)
		rc = forge_strv_addf(argv, "--config=%s", m->o->config);
	/* forge config is about files, and takes no store. */
	if (rc == 0 && m->o->store && strncmp(command, "config", 6) != 0)
		rc = forge_strv_addf(argv, "--store=%s", m->o->store);
	return rc;
}

void forge_mcp_step(struct forge_mcp_call *c, const struct forge_strv *argv,
		    const struct forge_mcp_range *range,
		    void (*next)(struct forge_mcp_call *c))
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_mcp_child *child = NULL;

	if (forge_mcp_child_start(argv, range, false, &child, &err) < 0) {
		forge_mcp_refuse(c, &err);
		return;
	}
	forge_mcp_child_free(c->child, false);
	c->child = child;
	c->next = next;
}

void forge_mcp_ask(struct forge_mcp_call *c, const char *command,
		   const char *const *options, const char *word,
		   void (*next)(struct forge_mcp_call *c))
{
	forge_auto_strv struct forge_strv argv = { 0 };
	const struct forge_mcp_range whole = FORGE_MCP_WHOLE;
	int rc = forge_mcp_argv(c->m, &argv, command, options);

	if (rc == 0 && word)
		rc = forge_strv_add(&argv, "--");
	if (rc == 0 && word)
		rc = forge_strv_add(&argv, word);
	if (rc < 0)
		forge_mcp_refuse_text(c, "out of memory");
	else
		forge_mcp_step(c, &argv, &whole, next);
}

json_t *forge_mcp_answer_of(struct forge_mcp_call *c)
{
	json_t *j =
		c->child->text && !c->child->is_broken && c->child->total == c->child->len
			? json_loadb(c->child->text, c->child->len, 0, NULL)
			: NULL;

	if (j)
		return j;
	if (c->child->total > c->child->len) {
		forge_mcp_refuse_text(c, "the answer is too long for this server");
		return NULL;
	}
	forge_auto_free char *text = forge_mcp_child_problem(c->child);
	forge_mcp_refuse_text(c, text ? text : "out of memory");
	return NULL;
}

/* ---- answers ---- */

static json_t *server_info(void)
{
	return json_pack("{s:s, s:s, s:s}", "name", "forge", "title", "Forge", "version",
			 FORGE_VERSION);
}

static void finish(struct forge_mcp_call *c, json_t *result)
{
	if (c->is_modern) {
		json_object_set_new(result, "resultType", json_string("complete"));
		json_object_set_new(result, "_meta",
				    json_pack("{s:o}",
					      "io.modelcontextprotocol/serverInfo",
					      server_info()));
	}
	if (!c->is_cancelled && !c->is_over)
		forge_mcp_send_answer(c->m, c->batch, c->id, result, NULL);
	else
		json_decref(result);
	c->is_over = true;
}

void forge_mcp_reply(struct forge_mcp_call *c, const char *summary, json_t *result,
		     json_t *extra)
{
	json_t *whole =
		json_pack("{s:o}", "summary", forge_mcp_text(summary, strlen(summary)));
	json_t *content = json_array();

	json_object_update(whole, result);
	json_decref(result);
	json_array_append_new(content, forge_mcp_text_content(json_incref(
					       json_object_get(whole, "summary"))));
	if (extra) {
		json_array_extend(content, extra);
		json_decref(extra);
	} else {
		/* Clients that know no structured results read the same here. */
		char *text = forge_json_line(whole);
		json_array_append_new(
			content, forge_mcp_text_content(json_string(text ? text : "{}")));
		free(text);
	}
	finish(c, json_pack("{s:o, s:o, s:b}", "content", content, "structuredContent",
			    whole, "isError", 0));
}

void forge_mcp_reply_resource(struct forge_mcp_call *c, const char *uri, const char *type,
			      json_t *text)
{
	json_t *result = json_pack("{s:[{s:s, s:s, s:o}]}", "contents", "uri", uri,
				   "mimeType", type, "text", text);

	if (c->is_modern) {
		json_object_set_new(result, "ttlMs", json_integer(0));
		json_object_set_new(result, "cacheScope", json_string("private"));
	}
	finish(c, result);
}

void forge_mcp_refuse_text(struct forge_mcp_call *c, const char *text)
{
	if (!c->tool) {
		forge_mcp_fail(c, FORGE_MCP_INVALID_PARAMS, text);
		return;
	}
	finish(c, json_pack("{s:[o], s:b}", "content",
			    forge_mcp_text_content(forge_mcp_text(text, strlen(text))),
			    "isError", 1));
}

void forge_mcp_refuse(struct forge_mcp_call *c, const struct forge_error *err)
{
	char text[sizeof(err->msg) + sizeof(err->hint) + 16];

	(void)snprintf(text, sizeof(text), "%s%s%s",
		       err->msg[0] ? err->msg : strerror(err->code),
		       err->hint[0] ? "\nhint: " : "", err->hint);
	forge_mcp_refuse_text(c, text);
}

void forge_mcp_fail(struct forge_mcp_call *c, int code, const char *message)
{
	if (!c->is_cancelled && !c->is_over)
		forge_mcp_send_answer(
			c->m, c->batch, c->id, NULL,
			json_pack("{s:i, s:o}", "code", code, "message",
				  forge_mcp_text(message, strlen(message))));
	c->is_over = true;
}

/* ---- cancellation ---- */

static void after_kill(struct forge_mcp_call *c)
{
	if (c->run_id)
		forge_mcp_forget_run(c->m, c->run_id);
	c->is_over = true;
}

static bool is_killing(const struct forge_mcp_call *c)
{
	return c->next == after_kill;
}

void forge_mcp_call_cancel(struct forge_mcp_call *c, bool now)
{
	const char *const gently[] = { "--force", "--json", NULL };
	const char *const at_once[] = { "--force", "--json", "--now", NULL };

	c->is_cancelled = true;
	if (c->is_over || is_killing(c))
		return;
	if (c->head) {
		/* As ^C: what runs is ended. The call is over when the process is. */
		forge_mcp_child_signal(c->head->child, SIGINT);
		return;
	}
	/* The request to start a run was made: its id follows in a moment, and then it is ended. */
	if (c->owns_run && !c->run_id)
		return;
	if (!c->owns_run) {
		c->is_over = true;
		return;
	}
	forge_mcp_ask(c, "kill", now ? at_once : gently, c->run_id, after_kill);
}

void forge_mcp_call_free(struct forge_mcp_call *c)
{
	if (!c)
		return;
	/* A request that is cancelled in a batch has no answer, but the others have one. */
	if (c->is_cancelled && c->batch)
		forge_mcp_send_answer(c->m, c->batch, NULL, NULL, NULL);
	if (c->is_counted)
		c->m->n_starting--;
	forge_mcp_child_free(c->child, false);
	forge_mcp_child_free(c->look, false);
	json_decref(c->id);
	json_decref(c->token);
	json_decref(c->args);
	json_decref(c->record);
	json_decref(c->result);
	forge_strv_done(&c->options);
	forge_strv_done(&c->command);
	free(c->run_id);
	free(c);
}

/* ---- progress ---- */

void forge_mcp_tell(struct forge_mcp_call *c, const char *message)
{
	double seconds = (double)(forge_now_usec() - c->began_usec) / 1e6;

	forge_mcp_send(c->m,
		       json_pack("{s:s, s:s, s:{s:O, s:f, s:o}}", "jsonrpc", "2.0",
				 "method", "notifications/progress", "params",
				 "progressToken", c->token, "progress", seconds,
				 "message", forge_mcp_text(message, strlen(message))));
	c->look_usec = forge_now_usec() + LOOK_USEC;
}

static void tell(struct forge_mcp_call *c)
{
	char sentence[FORGE_MCP_SENTENCE_MAX], text[FORGE_MCP_SENTENCE_MAX + 64];
	forge_auto_json json_t *record =
		c->look->text ? json_loadb(c->look->text, c->look->len, 0, NULL) : NULL;

	forge_mcp_child_free(c->look, false);
	c->look = NULL;
	c->look_usec = forge_now_usec() + LOOK_USEC;
	if (!record)
		return;
	(void)snprintf(
		text, sizeof(text), "%s %llu s since the request.",
		forge_mcp_run_sentence(c->m->o, record, sentence),
		(unsigned long long)((forge_now_usec() - c->began_usec) / 1000000));
	forge_mcp_tell(c, text);
}

void forge_mcp_call_progress(struct forge_mcp_call *c)
{
	static const char *const options[] = { "--json", NULL };
	forge_auto_strv struct forge_strv argv = { 0 };
	const struct forge_mcp_range whole = FORGE_MCP_WHOLE;

	if (c->look && c->look->is_over)
		tell(c);
	if (c->look || !c->token || !c->run_id || c->is_cancelled || c->is_over ||
	    forge_now_usec() < c->look_usec)
		return;
	/* Progress is a courtesy: without memory there is none. */
	if (forge_mcp_argv(c->m, &argv, "show", options) < 0 ||
	    forge_strv_add(&argv, c->run_id) < 0 ||
	    forge_mcp_child_start(&argv, &whole, false, &c->look, NULL) < 0)
		c->look_usec = forge_now_usec() + LOOK_USEC;
}
