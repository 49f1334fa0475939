/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tools that start runs, wait for them and end them.
 *
 *   run_analysis     [ps] [submit --explain-limits] submit wait [show] logs logs
 *   rerun            [ps] show rerun --detach wait [show] logs logs
 *   wait_run         wait [show] logs logs
 *
 * ps: only when the places of --max-runs are taken, as far as is known. show: the run is not over yet.
 */
#include "server/mcp_state.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "server/mcp_content.h"

/* Of each log, with the result of a run. */
#define TAIL_BYTES 8192u
/* Clients give up after a minute if nobody tells them otherwise, and that cancels the run. */
#define WAIT_DEFAULT 45

static const char *const json_only[] = { "--json", NULL };

/* ---- the places of --max-runs ---- */

static unsigned heads_running(const struct forge_mcp *m)
{
	unsigned n = 0;

	for (const struct forge_mcp_head *h = m->heads; h; h = h->other)
		n += !h->child->is_over;
	return n;
}

bool forge_mcp_take_place(struct forge_mcp_call *c)
{
	struct forge_mcp *m = c->m;

	if (c->is_counted)
		return true;
	if (m->o->max_runs &&
	    m->runs.n + m->n_starting + heads_running(m) >= m->o->max_runs)
		return false;
	c->is_counted = true;
	m->n_starting++;
	return true;
}

void forge_mcp_forget_run(struct forge_mcp *m, const char *run_id)
{
	for (size_t i = 0; i < m->runs.n; i++) {
		if (strcmp(m->runs.v[i], run_id) != 0)
			continue;
		free(m->runs.v[i]);
		m->runs.v[i] = m->runs.v[--m->runs.n];
		m->runs.v[m->runs.n] = NULL;
		return;
	}
}

/* The list has the open runs of all, one a line. */
static bool is_listed(const char *list, const char *run_id)
{
	return list && strstr(list, run_id);
}

static void start(struct forge_mcp_call *c);

static void after_ps(struct forge_mcp_call *c)
{
	struct forge_mcp *m = c->m;
	char text[200];

	if (c->child->status != 0) {
		forge_auto_free char *problem = forge_mcp_child_problem(c->child);
		forge_mcp_refuse_text(c, problem ? problem : "out of memory");
		return;
	}
	for (size_t i = m->runs.n; i-- > 0;)
		if (!is_listed(c->child->text, m->runs.v[i]))
			forge_mcp_forget_run(m, m->runs.v[i]);
	if (forge_mcp_take_place(c)) {
		start(c);
		return;
	}
	(void)snprintf(text, sizeof(text),
		       "%u runs of this server are not over, and it may have %u at once "
		       "(--max-runs)\nhint: wait_run waits for one, kill_run ends one",
		       m->o->max_runs, m->o->max_runs);
	forge_mcp_refuse_text(c, text);
}

/* Calls start() when there is a place. */
static void begin(struct forge_mcp_call *c)
{
	static const char *const open[] = { "--running", "--all", "--quiet", NULL };

	if (forge_mcp_take_place(c))
		start(c);
	else
		forge_mcp_ask(c, "ps", open, NULL, after_ps);
}

/* ---- the result of a run ---- */

static void reply(struct forge_mcp_call *c)
{
	char sentence[FORGE_MCP_SENTENCE_MAX];

	if (forge_mcp_run_is_over(c->record))
		forge_mcp_forget_run(c->m, forge_json_string_or(c->record, "run_id", ""));
	forge_mcp_reply(c, forge_mcp_run_sentence(c->m->o, c->record, sentence),
			c->result, NULL);
	c->result = NULL;
}

/* A run that never began has no log. One that cannot be read is null, with the reason: it is no empty one. */
static void add_tail(struct forge_mcp_call *c, const char *key, const char *cut,
		     const char *problem)
{
	const struct forge_mcp_child *log = c->child;

	if (log->status == 0 || !forge_json_string(c->record, "started_at")) {
		json_object_set_new(
			c->result, key,
			forge_mcp_text(log->text, log->status == 0 ? log->len : 0));
	} else {
		forge_auto_free char *why = forge_mcp_child_problem(log);
		json_object_set_new(c->result, key, json_null());
		json_object_set_new(c->result, problem,
				    forge_mcp_text(why, why ? strlen(why) : 0));
	}
	json_object_set_new(c->result, cut, json_boolean(log->total > log->len));
}

static void read_tail(struct forge_mcp_call *c, const char *option,
		      void (*next)(struct forge_mcp_call *c))
{
	const char *const options[] = { option, NULL };
	forge_auto_strv struct forge_strv argv = { 0 };
	const struct forge_mcp_range tail = { .length = TAIL_BYTES, .from_end = true };
	const char *run_id = forge_json_string_or(c->record, "run_id", "");

	if (forge_mcp_argv(c->m, &argv, "logs", options) < 0 ||
	    forge_strv_add(&argv, run_id) < 0)
		forge_mcp_refuse_text(c, "out of memory");
	else
		forge_mcp_step(c, &argv, &tail, next);
}

static void after_stderr(struct forge_mcp_call *c)
{
	add_tail(c, "stderr", "stderr_is_cut", "stderr_problem");
	reply(c);
}

static void after_stdout(struct forge_mcp_call *c)
{
	add_tail(c, "stdout", "stdout_is_cut", "stdout_problem");
	read_tail(c, "--stderr", after_stderr);
}

static void report(struct forge_mcp_call *c)
{
	c->result = forge_mcp_run_json(c->m->o, c->record);
	read_tail(c, "--stdout", after_stdout);
}

static void after_show(struct forge_mcp_call *c)
{
	c->record = forge_mcp_answer_of(c);
	if (c->record)
		report(c);
}

static void after_wait(struct forge_mcp_call *c)
{
	if (c->child->len == 0 && c->child->status == 124) {
		forge_mcp_ask(c, "show", json_only, c->run_id, after_show);
		return;
	}
	json_decref(c->record);
	c->record = forge_mcp_answer_of(c);
	if (c->record)
		report(c);
}

static void wait_for_it(struct forge_mcp_call *c)
{
	const json_t *asked = json_object_get(c->args, "wait_seconds");
	long long seconds =
		json_is_integer(asked) ? json_integer_value(asked) : WAIT_DEFAULT;
	char timeout[64];
	const char *const options[] = { "--json", "--quiet", timeout, NULL };

	json_decref(c->record);
	c->record = NULL;
	(void)snprintf(timeout, sizeof(timeout), "--timeout=%llds", seconds);
	if (seconds == 0)
		forge_mcp_ask(c, "show", json_only, c->run_id, after_show);
	else
		forge_mcp_ask(c, "wait", options, c->run_id, after_wait);
}

/* ---- starting ---- */

static bool is_submit(const struct forge_mcp_call *c)
{
	return c->tool->run == forge_mcp_submit_analysis;
}

/* forge has answered with the id of the new run. */
static void after_start(struct forge_mcp_call *c)
{
	char text[128];
	forge_auto_json json_t *answer = forge_mcp_answer_of(c);
	const char *run_id = forge_json_string(answer, "run_id");

	if (!answer)
		return;
	c->run_id = run_id ? strdup(run_id) : NULL;
	if (!c->run_id) {
		forge_mcp_refuse_text(c, "forge named no run");
		return;
	}
	/* From here on the run itself has the place. Without memory the call keeps it. */
	if (forge_strv_add(&c->m->runs, c->run_id) == 0 && c->is_counted) {
		c->is_counted = false;
		c->m->n_starting--;
	}
	if (c->is_cancelled) {
		forge_mcp_call_cancel(c, c->m->is_ending);
		return;
	}
	if (!is_submit(c)) {
		wait_for_it(c);
		return;
	}
	(void)snprintf(text, sizeof(text), "Run %s is submitted.", c->run_id);
	forge_mcp_reply(c, text, json_pack("{s:s}", "run_id", c->run_id), NULL);
}

/* "submit OPTIONS... -- COMMAND": the words of the command are never options. */
static void submit(struct forge_mcp_call *c, const char *first,
		   void (*next)(struct forge_mcp_call *c))
{
	const char *const options[] = { "--json", first, NULL };
	const struct forge_mcp_range whole = FORGE_MCP_WHOLE;
	forge_auto_strv struct forge_strv argv = { 0 };
	int rc = forge_mcp_argv(c->m, &argv, "submit", options);

	forge_strv_foreach (word, &c->options)
		if (rc == 0)
			rc = forge_strv_add(&argv, word);
	if (rc == 0)
		rc = forge_strv_add(&argv, "--");
	forge_strv_foreach (word, &c->command)
		if (rc == 0)
			rc = forge_strv_add(&argv, word);
	if (rc < 0)
		forge_mcp_refuse_text(c, "out of memory");
	else
		forge_mcp_step(c, &argv, &whole, next);
}

static void submit_now(struct forge_mcp_call *c)
{
	c->owns_run = true;
	submit(c, NULL, after_start);
}

static void after_explain(struct forge_mcp_call *c)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_json json_t *limits = forge_mcp_answer_of(c);

	if (!limits)
		return;
	if (forge_mcp_build_limits(c, limits, &err) < 0)
		forge_mcp_refuse(c, &err);
	else
		submit_now(c);
}

static void after_shown(struct forge_mcp_call *c)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_strv struct forge_strv argv = { 0 };
	const char *const options[] = { "--detach", "--json", NULL };
	const struct forge_mcp_range whole = FORGE_MCP_WHOLE;

	c->record = forge_mcp_answer_of(c);
	if (!c->record)
		return;
	const char *run_id = forge_json_string_or(c->record, "run_id", "");
	if (!forge_mcp_run_is_over(c->record)) {
		forge_mcp_refuse_text(c, "the run is not over\nhint: wait_run waits for "
					 "it, kill_run ends it");
		return;
	}
	int rc = forge_mcp_build_rerun(c, &err);
	if (rc == 0)
		rc = forge_mcp_argv(c->m, &argv, "rerun", options);
	forge_strv_foreach (word, &c->options)
		if (rc == 0)
			rc = forge_strv_add(&argv, word);
	if (rc == 0)
		rc = forge_strv_add(&argv, run_id);
	if (rc < 0) {
		if (!err.code)
			(void)forge_fail(&err, ENOMEM, "out of memory");
		forge_mcp_refuse(c, &err);
		return;
	}
	c->owns_run = true;
	forge_mcp_step(c, &argv, &whole, after_start);
}

/* There is a place. */
static void start(struct forge_mcp_call *c)
{
	if (c->tool->run == forge_mcp_rerun)
		forge_mcp_ask(c, "show", json_only, forge_json_string(c->args, "run"),
			      after_shown);
	else if (forge_mcp_has_caps(c->m->o))
		submit(c, "--explain-limits", after_explain);
	else
		submit_now(c);
}

void forge_mcp_run_analysis(struct forge_mcp_call *c)
{
	struct forge_error err = FORGE_ERROR_INIT;

	if (forge_mcp_build_run(c, &err) < 0)
		forge_mcp_refuse(c, &err);
	else
		begin(c);
}

/* A function of its own: the row of the table tells the two apart. */
void forge_mcp_submit_analysis(struct forge_mcp_call *c)
{
	struct forge_error err = FORGE_ERROR_INIT;

	if (forge_mcp_build_run(c, &err) < 0)
		forge_mcp_refuse(c, &err);
	else
		begin(c);
}

void forge_mcp_rerun(struct forge_mcp_call *c)
{
	begin(c);
}

void forge_mcp_wait_run(struct forge_mcp_call *c)
{
	c->run_id = strdup(forge_json_string(c->args, "run"));
	if (!c->run_id)
		forge_mcp_refuse_text(c, "out of memory");
	else
		wait_for_it(c);
}

/* ---- kill_run ---- */

static void after_killed(struct forge_mcp_call *c)
{
	c->record = forge_mcp_answer_of(c);
	if (c->record)
		report(c);
}

void forge_mcp_kill_run(struct forge_mcp_call *c)
{
	static const char *const gently[] = { "--json", "--force", NULL };
	static const char *const now[] = { "--json", "--force", "--now", NULL };

	forge_mcp_ask(c, "kill",
		      json_is_true(json_object_get(c->args, "now")) ? now : gently,
		      forge_json_string(c->args, "run"), after_killed);
}
