/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one door. Every run, whoever asks for it, goes through forge_run(): resolve, prepare,
 * run, judge, record, clean.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/strv.h"
#include "config/config.h"

/* What the caller asks for. All pointers are borrowed for the duration of the call. */
struct forge_run_request {
	const char *analysis_id;      /* NULL: the run id */
	const char *profile;	      /* NULL: "default" */
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

/* How a run ended. */
struct forge_run_result {
	json_t *record;	       /* owned by the caller: json_decref() */
	int exit_status;       /* of `forge run`, see forge-run(1) */
	char existing_run[27]; /* set, and no record: this run has the idempotency key */
};

/*
 * Runs one analysis and waits. 0: there is a record, whatever the verdict says (also when the
 * sandbox could not start: status "rejected" or "failed", reason "sandbox"). Negative:
 * nothing was run and nothing was recorded (bad request, no state directory); or, with a record in
 * ret, it was run and judged, but neither disk nor store could keep the verdict.
 */
FORGE_MUST_CHECK int forge_run(const struct forge_config *cfg,
			       const struct forge_run_request *req,
			       struct forge_run_result *ret, struct forge_error *err);

/* The plan of such a run as JSON (`--dry-run`); creates nothing. */
FORGE_MUST_CHECK int forge_run_explain(const struct forge_config *cfg,
				       const struct forge_run_request *req, json_t **ret,
				       struct forge_error *err);
/* The limits of such a run and where each comes from: [{name, key, value, from}]. */
FORGE_MUST_CHECK int forge_run_explain_limits(const struct forge_config *cfg,
					      const struct forge_run_request *req,
					      json_t **ret, struct forge_error *err);
