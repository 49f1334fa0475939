/* SPDX-License-Identifier: Apache-2.0 */
/* The options that say what to run: the same for `forge run` and `forge submit`. */
#pragma once

#include "cli/cli.h"
#include "run/run.h"

/* One set a process: a command line asks for one run. */
extern struct forge_run_request forge_request;
extern const char *forge_request_config;

/* The limits' rows, the request's, then own (which ends with FORGE_OPTS_END). */
const struct forge_opt *forge_request_opts(const struct forge_opt *own);
/* Checks what was typed and reads the configuration. */
FORGE_MUST_CHECK int forge_request_prepare(struct forge_config **ret_cfg,
					   struct forge_error *err);
/* --explain-limits, of `forge run` and `forge submit`. */
extern bool forge_request_wants_limits;
#define FORGE_EXPLAIN_LIMITS_ROW                                                         \
	FORGE_FLAG(0, "explain-limits", &forge_request_wants_limits,                     \
		   "Print each limit and where it comes from, and run nothing")
/*
 * Prints the limits that the run would have: profile < runtime < script < command line. The exit status,
 * or negative.
 */
FORGE_MUST_CHECK int forge_request_explain_limits(const struct forge_config *cfg,
						  bool is_json, struct forge_error *err);
/* Relative paths that were typed are meant from here, also when we then go elsewhere. */
FORGE_MUST_CHECK int forge_request_absolute(struct forge_error *err);
/* Runs it and prints what comes of it. The exit status, or negative when nothing was run. */
FORGE_MUST_CHECK int forge_request_run(const struct forge_config *cfg, bool is_json,
				       bool quiet, struct forge_error *err);
void forge_request_done(void);
/* How a run ended, where its outputs are: for people, on stderr. */
void forge_print_verdict(const json_t *record);
