/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repair: what a killed supervisor left (cgroups, workdir, an unfinished record) is found by
 * its lock being free, and cleaned. Every forge command does this first; it costs one readdir
 * when there is nothing to do.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/error.h"
#include "base/strv.h"

/*
 * Returns how many runs were repaired. With say, one line for each thing removed. Without, it
 * comes before something else that opens the state, and tells if that cannot be done.
 */
FORGE_MUST_CHECK int forge_reconcile(FILE *say, bool dry_run, struct forge_error *err);
/* The same for who can tell all that could not be repaired: a message each, and no error for that. */
FORGE_MUST_CHECK int forge_reconcile_all(FILE *say, bool dry_run,
					 struct forge_strv *failures,
					 struct forge_error *err);
/* The same before a new run: among hundreds, not more often than five times a second. */
FORGE_MUST_CHECK int forge_reconcile_cheaply(struct forge_error *err);
