/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the runtime of a spec ready: checked, and described for the record. */
#pragma once

#include "base/error.h"
#include "spec/spec.h"
#include "state/home.h"

/*
 * Refuses a runtime that is not healthy; probes one that has not been checked. Sets
 * s->runtime_json, the description for the record. Does nothing without a runtime.
 */
FORGE_MUST_CHECK int forge_ready_runtime(const struct forge_config *cfg,
					 const struct forge_run_request *req,
					 const struct forge_home *home, const char *store,
					 struct forge_spec *s, struct forge_error *err);
