/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one door. Every run, whoever asks for it, goes through forge_run(): resolve, prepare,
 * run, judge, record, clean.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "config/config.h"
#include "run/result.h"
#include "spec/request.h"

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
