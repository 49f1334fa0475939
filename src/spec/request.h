/* SPDX-License-Identifier: Apache-2.0 */
/* The request of a caller of forge_run(), before any check. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/strv.h"
#include "config/config.h"

struct forge_retry_file;

/* A later attempt of a run: what is decided already. */
struct forge_again {
	char run_id[FORGE_RUN_ID_MAX];
	char previous[FORGE_RUN_ID_MAX]; /* the attempt before */
	struct forge_retry_chain chain;
	struct forge_limits
		limits; /* all of them, as the last attempt had them or raised */
	struct forge_retry_file
		*file; /* of the attempt before; removed when this one is recorded */
};

/* All pointers are borrowed for the duration of the call. */
struct forge_run_request {
	const char *run_id;	      /* of forge_make_run_id(); NULL: a new one */
	const char *analysis_id;      /* NULL: the run id */
	const char *profile;	      /* NULL: "default" */
	const char *executor;	      /* NULL: the runtime's, the configured, or local */
	const char *runtime;	      /* NULL: the script's, the configured, or none */
	struct forge_limits limits;   /* of the command line; 0 where not given */
	struct forge_strv inputs;     /* paths as typed */
	/* Every input is below one of these; "none": it has none; empty: any path. */
	struct forge_strv input_roots;
	struct forge_strv parameters; /* "NAME=VALUE", of a notebook */
	struct forge_strv env;	      /* "K=V", or "K" to pass the caller's value */
	const char *env_file;	      /* lines of "K=V" or "K"; NULL: none */
	struct forge_strv
		outputs; /* patterns below the workdir, or "none"; empty: as configured */
	const char *copy_to; /* a directory for the outputs of a success; NULL: none */
	bool copy_replaces;  /* replaces existing files */
	const char *network; /* "none" (also NULL) or "host" */
	const char *store;   /* URL, NULL: as configured */
	const char *idempotency_key;	 /* NULL: none */
	const char *post_process;	 /* a line for sh; NULL: as configured */
	struct forge_strv retry;	 /* rules as typed, see config/retry.h */
	const struct forge_again *again; /* NULL: the first attempt */
	int priority;			 /* higher goes first */
	bool wait_durable; /* record the run durably before it starts (forge submit) */
	/* Called once, when the run is recorded and will be carried out. May be NULL. */
	void (*on_recorded)(void *arg, const char *run_id);
	/* Called for a problem that did not stop the run. May be NULL. */
	void (*on_warning)(void *arg, const struct forge_error *warning);
	/* The same for news that are no problem: the run is queued, or is being ended. */
	void (*on_note)(void *arg, const char *text);
	void *arg;
	const char *rerun_of; /* the run that this one repeats; NULL: none */
	/*
	 * For a post-process: its run, the outputs of that run as a directory, and pairs
	 * of a name below the workdir and the input that it links to.
	 */
	const char *parent_run, *parent_outputs;
	struct forge_strv links;
	/*
	 * For a step of a pipeline: what the record says of it; a directory with its inputs, which the run sees as
	 * inputs/ in its workdir; and a directory of the workdir whose files are collected when it does not succeed.
	 */
	const json_t *step;
	const char *staged, *checkpoint;
	int courier_fd; /* of a courier that the steps share, given away; 0: none */
	/* The run checks a runtime, which need not be healthy, without user settings. */
	bool is_probe;
	bool is_check; /* of the host's health: it needs no share of the host's budget */
	const struct forge_strv
		*exact_env;	  /* replaces the whole environment; NULL: does not */
	bool keep;		  /* keep the workdir */
	bool pass_stdin;	  /* feed the caller's standard input to the command */
	int stdout_fd, stderr_fd; /* where output is also shown live, -1: nowhere */
	char **argv;		  /* the command, NULL-terminated, at least one word */
	/* An option of `forge run` after the command, and its value; NULL: none. */
	const char *late_option, *late_value;
};
