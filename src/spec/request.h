/* SPDX-License-Identifier: Apache-2.0 */
/* What a caller asks of forge_run(), before anything is checked. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/strv.h"
#include "config/config.h"

/* What the caller asks for. All pointers are borrowed for the duration of the call. */
struct forge_run_request {
	const char *analysis_id;      /* NULL: the run id */
	const char *profile;	      /* NULL: "default" */
	const char *executor;	      /* NULL: the runtime's, the configured, or local */
	const char *runtime;	      /* NULL: the script's, the configured, or none */
	struct forge_limits limits;   /* of the command line; 0 where not given */
	struct forge_strv inputs;     /* paths as typed */
	struct forge_strv parameters; /* "NAME=VALUE", of a notebook */
	struct forge_strv env;	      /* "K=V", or "K" to pass the caller's value */
	const char *env_file;	      /* lines of "K=V" or "K"; NULL: none */
	struct forge_strv
		outputs; /* patterns below the workdir, or "none"; empty: as configured */
	const char *copy_to; /* a directory for the outputs of a success; NULL: none */
	bool copy_replaces;  /* what is there already */
	const char *network; /* "none" (also NULL) or "host" */
	const char *store;   /* URL, NULL: as configured */
	const char *idempotency_key; /* NULL: none */
	const char *post_process;    /* a line for sh; NULL: as configured */
	int priority;		     /* higher goes first */
	bool wait_durable; /* record the run durably before it starts (forge submit) */
	/* Called once, when the run is recorded and will happen. NULL: not wanted. */
	void (*on_recorded)(void *arg, const char *run_id);
	/* Called when something went on but the user should know. NULL: not wanted. */
	void (*on_warning)(void *arg, const struct forge_error *warning);
	/* The same for what is no reason to worry: the run is queued, or being ended. */
	void (*on_note)(void *arg, const char *text);
	void *arg;
	/* Of a post-process: the run it belongs to, its outputs as a directory, and pairs of
	 * names below the workdir and inputs that they lead to. */
	const char *rerun_of; /* the run that this one repeats; NULL: none */
	const char *parent_run, *parent_outputs;
	struct forge_strv links;
	/* Finding out about a runtime: it need not be healthy, nothing of the caller's counts. */
	bool is_probe;
	const struct forge_strv *exact_env; /* instead of the environment; NULL: not */
	bool keep;			    /* keep the workdir */
	bool pass_stdin;	  /* feed the caller's standard input to the command */
	int stdout_fd, stderr_fd; /* where output is also shown live, -1: nowhere */
	char **argv;		  /* the command, NULL-terminated, at least one word */
	/* A word behind the first that is an option of `forge run`, and its value; NULL: none. */
	const char *late_option, *late_value;
};
