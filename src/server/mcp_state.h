/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server knows while it runs, and the life of a call.
 *
 * A call is a chain of steps. Each step executes forge once (c->child); when that is over, c->next is called,
 * which starts the next step or answers. Nothing waits: the loop polls the children of all calls. A second child,
 * c->look, asks now and then how the run of the call is doing, for its progress.
 */
#pragma once

#include "base/clock.h"
#include "base/json.h"
#include "server/mcp.h"
#include "server/mcp_child.h"
#include "server/mcp_message.h"

struct forge_mcp;
struct forge_mcp_call;

enum forge_mcp_type {
	FORGE_MCP_END,
	FORGE_MCP_STRING,
	FORGE_MCP_RUN,	   /* a string that names a run */
	FORGE_MCP_AMOUNT,  /* of a limit: a string or a number */
	FORGE_MCP_INTEGER, /* from low to high */
	FORGE_MCP_BOOLEAN,
	FORGE_MCP_STRINGS, /* a list */
	FORGE_MCP_MAP,	   /* names and strings */
	FORGE_MCP_PARAMS,  /* names and strings, numbers, true or false */
	FORGE_MCP_WORD,	   /* one of words, "a|b" */
};

/* An argument of a tool. */
struct forge_mcp_arg {
	enum forge_mcp_type type;
	const char *name, *about;
	bool is_required;
	long long low, high;
	const char *words;
};

enum forge_mcp_flags {
	FORGE_MCP_STARTS = 1 << 0,   /* not there when the server is read-only */
	FORGE_MCP_ENDS = 1 << 1,     /* destructive; the same */
	FORGE_MCP_PIPELINE = 1 << 2, /* only there when the server has pipelines */
};

struct forge_mcp_tool {
	const char *name, *title, *about;
	unsigned flags;
	const struct forge_mcp_arg *args;
	const char *results; /* of its structured result: "name:type ..." */
	void (*run)(struct forge_mcp_call *c);
};

extern const struct forge_mcp_tool forge_mcp_tools[]; /* ends with a row without a name */
/* NULL: there is none, or not on this server. */
const struct forge_mcp_tool *forge_mcp_tool_find(const struct forge_mcp_options *o,
						 const char *name);
bool forge_mcp_tool_is_there(const struct forge_mcp_options *o,
			     const struct forge_mcp_tool *t);
/* As tools/list shows it. New reference. */
json_t *forge_mcp_tool_json(const struct forge_mcp_tool *t);
/* Refuses what the schema does not allow, with a sentence. */
FORGE_MUST_CHECK int forge_mcp_check_args(const struct forge_mcp_tool *t,
					  const json_t *args, struct forge_error *err);

/* The answers to the messages of one list. */
struct forge_mcp_batch {
	json_t *answers;
	size_t left; /* that are not answered */
};

struct forge_mcp_call {
	struct forge_mcp *m;
	struct forge_mcp_call *other; /* the next one */
	json_t *id;
	json_t *token;			   /* of its progress; NULL: not wanted */
	const struct forge_mcp_tool *tool; /* NULL: it reads a resource */
	json_t *args;			   /* never NULL */
	bool is_modern;
	struct forge_mcp_batch *batch; /* NULL: none */
	struct forge_mcp_child *child;
	void (*next)(struct forge_mcp_call *c);
	struct forge_mcp_child *look;
	struct forge_mcp_head *head;	/* the pipeline that it waits for; NULL: none */
	uint64_t began_usec, look_usec; /* when to look next */
	uint64_t wait_usec;		/* how long to wait for the run */
	bool is_over;			/* answered, or never will be: to be freed */
	bool is_cancelled;		/* there is no answer */
	bool owns_run;			/* a cancelled call ends its run */
	bool is_counted;		/* it has one of the places of --max-runs */
	char *run_id;
	struct forge_strv options, command; /* of the run to start */
	struct forge_limits given;	    /* its limits as requested */
	json_t *record;			    /* of the run */
	json_t *result;			    /* the structured result as it grows */
};

/* A pipeline that was started and not seen to end. */
struct forge_mcp_head {
	struct forge_mcp_head *other;
	struct forge_mcp_child *child;
	char *pipeline;
	bool is_followed; /* a call waits for it */
};

struct forge_mcp {
	const struct forge_mcp_options *o;
	int in, out;
	struct forge_mcp_lines lines;
	char *pending; /* to be written */
	size_t pending_at, pending_len,
		pending_cap; /* its next byte, how many there are */
	const char *version; /* of the handshake, NULL: there was none */
	bool is_ready;
	bool is_ending; /* no more is read */
	bool is_deaf;	/* out is closed */
	bool is_socket; /* out: a write of any size can be made without blocking */
	unsigned n_calls;
	struct forge_mcp_call *calls;
	struct forge_mcp_head *heads;
	struct forge_strv runs; /* started here, and not known to be over */
	unsigned n_starting;	/* calls that are about to start a run */
};

/* ---- mcp_call.c: steps and answers ---- */

/* Begins the arguments of an execution of forge; --config and --store are added as fixed. */
FORGE_MUST_CHECK int forge_mcp_argv(const struct forge_mcp *m, struct forge_strv *argv,
				    const char *command, const char *const *options);
/* Executes forge; next is called at its end. Answers with an error when it cannot be started. */
void forge_mcp_step(struct forge_mcp_call *c, const struct forge_strv *argv,
		    const struct forge_mcp_range *range,
		    void (*next)(struct forge_mcp_call *c));
/* The same for "forge COMMAND OPTIONS... [-- WORD]", whose answer is JSON. */
void forge_mcp_ask(struct forge_mcp_call *c, const char *command,
		   const char *const *options, const char *word,
		   void (*next)(struct forge_mcp_call *c));
/* What the step printed: new reference. NULL: it failed, and the call is answered. */
json_t *forge_mcp_answer_of(struct forge_mcp_call *c);
/* Answers: summary is the first key of the result, and a text of its own; takes extra (content) and result. */
void forge_mcp_reply(struct forge_mcp_call *c, const char *summary, json_t *result,
		     json_t *extra);
/* Answers a resource with its content. */
void forge_mcp_reply_resource(struct forge_mcp_call *c, const char *uri, const char *type,
			      json_t *text);
/* Answers with an error of the tool. */
void forge_mcp_refuse(struct forge_mcp_call *c, const struct forge_error *err);
void forge_mcp_refuse_text(struct forge_mcp_call *c, const char *text);
/* Answers with the error of the protocol. */
void forge_mcp_fail(struct forge_mcp_call *c, int code, const char *message);
/* Stops a call whose request was cancelled; now: without the grace period. */
void forge_mcp_call_cancel(struct forge_mcp_call *c, bool now);
void forge_mcp_call_free(struct forge_mcp_call *c);
/* Sends progress with this message, and notes when to do that again. */
void forge_mcp_tell(struct forge_mcp_call *c, const char *message);
/* Sends the progress of the call's run if it is time to. */
void forge_mcp_call_progress(struct forge_mcp_call *c);

/* ---- mcp_serve.c ---- */

/* Queues a message for out; takes the reference. */
void forge_mcp_send(struct forge_mcp *m, json_t *message);
/* Queues the answer to a request: result or error, takes both. batch may be NULL. */
void forge_mcp_send_answer(struct forge_mcp *m, struct forge_mcp_batch *batch, json_t *id,
			   json_t *result, json_t *error);

/* ---- mcp_argv.c: what a request may ask for ---- */

/* Fills options, command and given from the arguments of the call. */
FORGE_MUST_CHECK int forge_mcp_build_run(struct forge_mcp_call *c,
					 struct forge_error *err);
/* After forge has explained the limits: those that are capped become options. */
FORGE_MUST_CHECK int forge_mcp_build_limits(struct forge_mcp_call *c,
					    const json_t *explained,
					    struct forge_error *err);
/* The same for a run that is repeated, by its record. */
FORGE_MUST_CHECK int forge_mcp_build_rerun(struct forge_mcp_call *c,
					   struct forge_error *err);
bool forge_mcp_has_caps(const struct forge_mcp_options *o);
/* Refuses a runtime that the server does not have. */
FORGE_MUST_CHECK int forge_mcp_check_runtime(const struct forge_mcp_options *o,
					     const char *name, struct forge_error *err);
/* The pipeline of this name. NULL: refused. */
const char *forge_mcp_find_pipeline(const struct forge_mcp_options *o, const char *name,
				    struct forge_error *err);
/* Adds "-p NAME=VALUE" of each parameter; numbers, true and false as a pipeline's file has them. */
FORGE_MUST_CHECK int forge_mcp_add_params(const struct forge_mcp_options *o,
					  const json_t *params, struct forge_strv *argv,
					  struct forge_error *err);

/* ---- mcp_result.c ---- */

/*
 * The sentence of a verdict for an agent: advice to use an option becomes advice to use an argument of a tool, or says that what was
 * fixed allows no more. o: NULL for a step of a pipeline, whose limits are in its file. Returns buf.
 */
#define FORGE_MCP_NOTES_MAX 1400
const char *forge_mcp_notes(const struct forge_mcp_options *o, const char *notes,
			    char buf[FORGE_MCP_NOTES_MAX]);
/* The same for this key of each object of a list. */
void forge_mcp_reword(const struct forge_mcp_options *o, json_t *list, const char *key);
/* What an agent wants to know of a run. New reference. */
json_t *forge_mcp_run_json(const struct forge_mcp_options *o, const json_t *record);
/* The sentence about it: its verdict, or what it does now. Returns buf. */
#define FORGE_MCP_SENTENCE_MAX FORGE_MCP_NOTES_MAX
const char *forge_mcp_run_sentence(const struct forge_mcp_options *o,
				   const json_t *record,
				   char buf[FORGE_MCP_SENTENCE_MAX]);
/* Whether nothing more happens to it. */
bool forge_mcp_run_is_over(const json_t *record);

/* ---- the tools ---- */

void forge_mcp_run_analysis(struct forge_mcp_call *c);
void forge_mcp_submit_analysis(struct forge_mcp_call *c);
void forge_mcp_rerun(struct forge_mcp_call *c);
void forge_mcp_wait_run(struct forge_mcp_call *c);
void forge_mcp_kill_run(struct forge_mcp_call *c);
void forge_mcp_run_pipeline(struct forge_mcp_call *c);
void forge_mcp_show_run(struct forge_mcp_call *c);
void forge_mcp_list_runs(struct forge_mcp_call *c);
void forge_mcp_read_log(struct forge_mcp_call *c);
void forge_mcp_list_outputs(struct forge_mcp_call *c);
void forge_mcp_read_output(struct forge_mcp_call *c);
void forge_mcp_list_runtimes(struct forge_mcp_call *c);
void forge_mcp_show_runtime(struct forge_mcp_call *c);
void forge_mcp_list_pipelines(struct forge_mcp_call *c);
void forge_mcp_pipeline_status(struct forge_mcp_call *c);
void forge_mcp_host_status(struct forge_mcp_call *c);
/* Answers a call that waits for a pipeline, when that is over or the time is. */
void forge_mcp_follow_pipeline(struct forge_mcp_call *c);
/* resources/read; uri is in args. False: there is no such resource. */
bool forge_mcp_read_resource(struct forge_mcp_call *c, const char *uri);

/* The places of --max-runs: true, and the call has one; false: there is none, as far as is known. */
bool forge_mcp_take_place(struct forge_mcp_call *c);
void forge_mcp_forget_run(struct forge_mcp *m, const char *run_id);
