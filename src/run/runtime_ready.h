/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the runtime of a spec ready: known to be healthy, described for the record. */
#pragma once

#include "base/error.h"
#include "spec/spec.h"
#include "state/home.h"

/*
 * Refuses a runtime that is not healthy; probes one that has not been checked. s->runtime_json is then what
 * the record says about it. Without a runtime there is nothing to do.
 */
FORGE_MUST_CHECK int forge_ready_runtime(const struct forge_config *cfg,
					 const struct forge_run_request *req,
					 const struct forge_home *home, const char *store,
					 struct forge_spec *s, struct forge_error *err);
