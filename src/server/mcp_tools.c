/* SPDX-License-Identifier: Apache-2.0 */
/* The tools: one row makes the schema, the check of the arguments and the call. */
#include "server/mcp_state.h"

#include <string.h>

#define END                                                                              \
	{                                                                                \
		.type = FORGE_MCP_END                                                    \
	}
#define ARG(t, n, a)                                                                     \
	{                                                                                \
		.type = (t), .name = (n), .about = (a)                                   \
	}
#define NEEDED(t, n, a)                                                                  \
	{                                                                                \
		.type = (t), .name = (n), .about = (a), .is_required = true              \
	}
#define NUMBER(n, l, h, a)                                                               \
	{                                                                                \
		.type = FORGE_MCP_INTEGER, .name = (n), .about = (a), .low = (l),        \
		.high = (h)                                                              \
	}
#define WORD(n, w, a)                                                                    \
	{                                                                                \
		.type = FORGE_MCP_WORD, .name = (n), .about = (a), .words = (w)          \
	}

#define RUN                                                                              \
	NEEDED(FORGE_MCP_RUN, "run",                                                     \
	       "A run id or its first letters, the name of an analysis (its newest "     \
	       "run), or 'last'")
#define LIMITS                                                                           \
	ARG(FORGE_MCP_AMOUNT, "memory", "Hard limit, e.g. 512M or 4G"),                  \
		ARG(FORGE_MCP_AMOUNT, "cpus", "CPUs it may use, e.g. 2 or 0.5"),         \
		ARG(FORGE_MCP_AMOUNT, "timeout", "Wall time, e.g. 90s, 30m, 2h"),        \
		ARG(FORGE_MCP_AMOUNT, "disk",                                            \
		    "What it may write in its working directory, e.g. 2G")
#define WAIT_MAX 86400
#define WAIT(d)                                                                          \
	NUMBER("wait_seconds", 0, WAIT_MAX,                                              \
	       "How long to wait for the end (" d                                        \
	       "). A run that takes longer goes on, and the result says so")

/* clang-format off: one a line */
#define REQUEST                                                                          \
	ARG(FORGE_MCP_STRING, "code", "The program as text; or give command"),           \
		WORD("language", "python|bash|R", "Of the code (python)"),               \
		ARG(FORGE_MCP_STRINGS, "command",                                        \
		    "A program and its arguments, instead of code; no shell reads "      \
		    "them"),                                                             \
		ARG(FORGE_MCP_STRING, "runtime",                                         \
		    "A named environment, see list_runtimes"),                           \
		ARG(FORGE_MCP_STRINGS, "inputs",                                         \
		    "Files and directories of the host that it may read, by the same "   \
		    "path"),                                                             \
		ARG(FORGE_MCP_STRINGS, "outputs",                                        \
		    "Patterns of files to keep, from its working directory, each must "  \
		    "match; ['none']: nothing is kept. Without it every file it leaves " \
		    "there is kept"),                                                    \
		ARG(FORGE_MCP_MAP, "env", "Environment variables"), LIMITS,              \
		WORD("network", "none|host", "Network it sees (none)"),                  \
		ARG(FORGE_MCP_STRING, "name",                                            \
		    "A name for the analysis: letters, digits, '.', '_' and '-'")

static const struct forge_mcp_arg run_args[] = { REQUEST, WAIT("45"), END };
static const struct forge_mcp_arg submit_args[] = { REQUEST, END };
static const struct forge_mcp_arg rerun_args[] = { RUN, LIMITS, WAIT("45"), END };
static const struct forge_mcp_arg wait_args[] = { RUN, WAIT("45"), END };
static const struct forge_mcp_arg show_args[] = {
	RUN, ARG(FORGE_MCP_BOOLEAN, "full", "The whole record as well"), END
};
static const struct forge_mcp_arg kill_args[] = {
	RUN, ARG(FORGE_MCP_BOOLEAN, "now", "At once, without the grace period"), END
};
static const struct forge_mcp_arg outputs_args[] = {
	RUN,
	NUMBER("offset", 0, 100000000, "The first one (0)"),
	NUMBER("limit", 1, 1000, "At most so many (200)"),
	END,
};
static const struct forge_mcp_arg list_args[] = {
	WORD("status",
	     "queued|preparing|running|collecting|succeeded|failed|killed|cancelled|"
	     "corrupted|lost|rejected",
	     "Only those with this status"),
	ARG(FORGE_MCP_BOOLEAN, "open", "Only those that are not over"),
	ARG(FORGE_MCP_STRING, "analysis",
	    "Only those of this analysis; * and ? stand for letters"),
	ARG(FORGE_MCP_STRING, "runtime", "Only those in this runtime"),
	ARG(FORGE_MCP_STRING, "since", "Not older than 2h, 3d or 2026-01-31"),
	NUMBER("limit", 1, 200, "At most so many (20)"),
	ARG(FORGE_MCP_RUN, "after", "The next page: those after this run"),
	END,
};
static const struct forge_mcp_arg log_args[] = {
	RUN,
	WORD("stream", "stdout|stderr|events",
	     "Which one (stdout); events: what forge did with the run"),
	NUMBER("offset", -1099511627776, 1099511627776,
	       "The first byte (0); below 0: counted from the end"),
	NUMBER("length", 1, 1048576, "Bytes at most (32768)"),
	END,
};
static const struct forge_mcp_arg output_args[] = {
	RUN,
	NEEDED(FORGE_MCP_STRING, "path", "As list_outputs shows it"),
	NUMBER("offset", 0, 1099511627776, "Of a text: the first byte (0)"),
	NUMBER("length", 1, 1048576, "Of a text: bytes at most (65536)"),
	END,
};
static const struct forge_mcp_arg runtime_args[] = {
	NEEDED(FORGE_MCP_STRING, "name", "As list_runtimes shows it"),
	ARG(FORGE_MCP_STRING, "package", "Only packages whose name has this in it"),
	END,
};
#define PIPELINE NEEDED(FORGE_MCP_STRING, "pipeline", "As list_pipelines shows it")
static const struct forge_mcp_arg pipeline_args[] = {
	PIPELINE,
	ARG(FORGE_MCP_PARAMS, "params", "Parameters of the pipeline"),
	WAIT("45"),
	END,
};
static const struct forge_mcp_arg status_args[] = {
	PIPELINE, ARG(FORGE_MCP_PARAMS, "params", "Parameters of the pipeline"), END
};
static const struct forge_mcp_arg no_args[] = { END };

#define OF_RUN "run_id:string status:string completion_notes:string?"

const struct forge_mcp_tool forge_mcp_tools[] = {
	{ "run_analysis", "Run an analysis",
	  "Runs code or a command in a sandbox, under limits, and waits for it. It sees "
	  "the system's programs, its runtime and its inputs, all read-only, and has no "
	  "network. What it writes in its working directory is kept as outputs. The "
	  "result has the verdict, the ends of both logs and the outputs.",
	  FORGE_MCP_STARTS, run_args, OF_RUN, forge_mcp_run_analysis },
	{ "submit_analysis", "Submit an analysis",
	  "The same without waiting: returns the run id. The run goes on whatever "
	  "happens to this connection.",
	  FORGE_MCP_STARTS, submit_args, "run_id:string", forge_mcp_submit_analysis },
	{ "show_run", "Show a run",
	  "How a run ended or what it is doing, what it used of its limits, and what it "
	  "left.",
	  0, show_args, OF_RUN, forge_mcp_show_run },
	{ "wait_run", "Wait for a run",
	  "Waits until a run is over. The result is that of run_analysis.", 0, wait_args,
	  OF_RUN, forge_mcp_wait_run },
	{ "list_runs", "List runs", "Runs, the newest first, each with its verdict.", 0,
	  list_args, "runs:array next:string?", forge_mcp_list_runs },
	{ "read_log", "Read a log", "A range of what a run printed, also while it runs.",
	  0, log_args,
	  "run_id:string text:string offset:integer next_offset:integer total:integer",
	  forge_mcp_read_log },
	{ "list_outputs", "List outputs",
	  "The files that a run left, with sizes and digests.", 0, outputs_args,
	  "run_id:string outputs:array output_count:integer", forge_mcp_list_outputs },
	{ "read_output", "Read an output",
	  "A file that a run left, checked against its digest: an image as an image, "
	  "text as text, other bytes as base64.",
	  0, output_args, "path:string size:integer sha256:string",
	  forge_mcp_read_output },
	{ "kill_run", "Kill a run",
	  "Ends a run and waits until all its processes are gone.", FORGE_MCP_ENDS,
	  kill_args, OF_RUN, forge_mcp_kill_run },
	{ "rerun", "Run again",
	  "Repeats a run that is over, with more memory, CPUs, time or disk, and waits "
	  "for it as run_analysis does.",
	  FORGE_MCP_STARTS, rerun_args, OF_RUN, forge_mcp_rerun },
	{ "list_runtimes", "List runtimes", "The named environments that runs can have.",
	  0, no_args, "runtimes:array", forge_mcp_list_runtimes },
	{ "show_runtime", "Show a runtime",
	  "What a runtime has: programs, packages and their versions.", 0, runtime_args,
	  "name:string packages:array", forge_mcp_show_runtime },
	{ "list_pipelines", "List pipelines", "The pipelines that can be run here.",
	  FORGE_MCP_PIPELINE, no_args, "pipelines:array", forge_mcp_list_pipelines },
	{ "run_pipeline", "Run a pipeline",
	  "Runs every step of a pipeline that is not up to date, and waits.",
	  FORGE_MCP_PIPELINE | FORGE_MCP_STARTS, pipeline_args,
	  "pipeline:string state:string", forge_mcp_run_pipeline },
	{ "pipeline_status", "Status of a pipeline",
	  "Which steps are up to date, and why the others are not.", FORGE_MCP_PIPELINE,
	  status_args, "pipeline:string tasks:array", forge_mcp_pipeline_status },
	{ "host_status", "Status of the host",
	  "What all runs together may use, what runs now, what waits and why.", 0,
	  no_args, "budget:object running:array queued:array", forge_mcp_host_status },
	{ .name = NULL },
};
/* clang-format on */

bool forge_mcp_tool_is_there(const struct forge_mcp_options *o,
			     const struct forge_mcp_tool *t)
{
	if (o->read_only && (t->flags & (FORGE_MCP_STARTS | FORGE_MCP_ENDS)))
		return false;
	return !(t->flags & FORGE_MCP_PIPELINE) || o->pipelines.n > 0;
}

const struct forge_mcp_tool *forge_mcp_tool_find(const struct forge_mcp_options *o,
						 const char *name)
{
	for (const struct forge_mcp_tool *t = forge_mcp_tools; name && t->name; t++)
		if (strcmp(t->name, name) == 0)
			return forge_mcp_tool_is_there(o, t) ? t : NULL;
	return NULL;
}
