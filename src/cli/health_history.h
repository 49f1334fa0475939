/* SPDX-License-Identifier: Apache-2.0 */
/* `forge health history`: results of checks in the past, one line for each check. */
#pragma once

#include "base/error.h"
#include "store/store.h"

/*
 * Prints the results since this time (text as in records); name: NULL for all checks. How many checks were carried out
 * then: with 0, nothing is printed unless is_json.
 */
FORGE_MUST_CHECK int forge_health_history(struct forge_store *st, const char *name,
					  time_t since, bool is_json,
					  struct forge_error *err);
