/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a request: the same for `forge run` and `forge submit`. */
#pragma once

#include "cli/cli.h"
#include "run/run.h"

/* One per process: a command line requests one run. */
extern struct forge_run_request forge_request;
extern const char *forge_request_config;

/* The rows of the limits, of the request, then own (which ends with FORGE_OPTS_END). */
const struct forge_opt *forge_request_opts(const struct forge_opt *own);
/* Checks the options and reads the configuration. */
FORGE_MUST_CHECK int forge_request_prepare(struct forge_config **ret_cfg,
					   struct forge_error *err);
/* --explain-limits, of `forge run` and `forge submit`. */
extern bool forge_request_wants_limits;
#define FORGE_EXPLAIN_LIMITS_ROW                                                         \
	FORGE_FLAG(0, "explain-limits", &forge_request_wants_limits,                     \
		   "Print each limit and where it comes from, and run nothing")
/*
 * Prints the limits that the run would have: profile < runtime < script < command line.
 * Returns the exit status, or a negative error.
 */
FORGE_MUST_CHECK int forge_request_explain_limits(const struct forge_config *cfg,
						  bool is_json, struct forge_error *err);
/* --until-closed, of `forge run`, `forge rerun` and `forge resume`. */
extern bool forge_request_until_closed;
#define FORGE_UNTIL_CLOSED_ROW                                                           \
	FORGE_FLAG(0, "until-closed", &forge_request_until_closed,                       \
		   "Cancel it when the reader of our standard output is gone")
/* The name of an option that was given and is no limit, nor says where runs are recorded. NULL: there is none. */
const char *forge_request_beside_limits(void);
/* Makes typed relative paths absolute, for a caller that changes the directory. */
FORGE_MUST_CHECK int forge_request_absolute(struct forge_error *err);
/* Runs the request and prints the result. The exit status; negative: nothing was run. */
FORGE_MUST_CHECK int forge_request_run(const struct forge_config *cfg, bool is_json,
				       bool quiet, struct forge_error *err);
/* Starts it in a supervisor of its own and prints the run's id; the same otherwise. */
FORGE_MUST_CHECK int forge_request_submit(const struct forge_config *cfg, bool is_json,
					  struct forge_error *err);
void forge_request_done(void);
/* Prints how a run ended and where its outputs are, on stderr. */
void forge_print_verdict(const json_t *record);
