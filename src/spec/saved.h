/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A spec as text, for the slot of a run that outlives its supervisor: enough for another supervisor to watch
 * the run to its end and to collect, judge and record it. What was only needed to start it is left out.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "spec/spec.h"

/* NULL: out of memory. */
json_t *forge_saved_json(const struct forge_spec *s, const struct forge_run_request *req,
			 const struct forge_config *cfg);
/*
 * The other way. What *ret_req points to afterwards belongs to saved and to *ret_spec, which must outlive it.
 * *ret_spec is to be released with forge_spec_done() in any case.
 */
FORGE_MUST_CHECK int forge_saved_restore(const json_t *saved,
					 const struct forge_config *cfg,
					 struct forge_spec *ret_spec,
					 struct forge_run_request *ret_req,
					 struct forge_error *err);
/* Limits alone. NULL: out of memory. */
json_t *forge_saved_limits(const struct forge_limits *l);
/* A limit that is not there has its built-in value. */
void forge_saved_restore_limits(const json_t *saved, struct forge_limits *ret);
