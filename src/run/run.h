/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry point of all runs that a user starts: resolve, prepare, run, judge, record,
 * clean up. The runs that forge starts for its own purposes are in carry_out.h.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "config/config.h"
#include "run/result.h"
#include "spec/request.h"

/*
 * Runs one analysis and waits. 0: there is a record, whatever its verdict (also when the
 * sandbox could not start: status "rejected" or "failed", reason "sandbox"). Negative:
 * nothing was run and nothing was recorded (bad request, no state directory); or, with a
 * record in ret, the run ended, but its verdict could be written neither to disk nor to
 * the store.
 */
FORGE_MUST_CHECK int forge_run(const struct forge_config *cfg,
			       const struct forge_run_request *req,
			       struct forge_run_result *ret, struct forge_error *err);

/*
 * Goes on with the attempts after a run that is over: *file, which this takes, is the run's and locked, and
 * record is the run's, NULL: only the store has it. Returns as forge_run() does, for the last attempt.
 * -ECANCELED: no attempt could be started; the record of the run says why.
 */
FORGE_MUST_CHECK int forge_run_again(const struct forge_config *cfg,
				     const struct forge_run_request *req,
				     struct forge_retry_file *file, const json_t *record,
				     struct forge_run_result *ret,
				     struct forge_error *err);

/*
 * The plan of such a run as JSON (`--dry-run`). Without a runtime it makes nothing; the
 * scripts of a runtime may have to be sourced.
 */
FORGE_MUST_CHECK int forge_run_explain(const struct forge_config *cfg,
				       const struct forge_run_request *req, json_t **ret,
				       struct forge_error *err);
