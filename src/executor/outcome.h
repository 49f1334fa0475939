/* SPDX-License-Identifier: Apache-2.0 */
/* An outcome as JSON, for a run that was carried out on another machine. */
#pragma once

#include <jansson.h>

#include "executor/executor.h"

/* NULL: out of memory. */
json_t *forge_outcome_json(const struct forge_outcome *o);
/* The other way. -EINVAL: it is none, or one of a version that this one cannot read. */
FORGE_MUST_CHECK int forge_outcome_restore(const json_t *j, struct forge_outcome *ret);
/* An error with its hint, and the other way. */
json_t *forge_error_json(const struct forge_error *e);
void forge_error_restore(const json_t *j, struct forge_error *ret);
