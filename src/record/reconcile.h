/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repair: finds the slots of killed supervisors, whose locks are free, and cleans up
 * (cgroups, workdir, an unfinished record). Every forge command does this first. It costs
 * one readdir when there is nothing to repair.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/error.h"
#include "base/strv.h"

/*
 * Returns the number of repaired runs. With say, prints one line for each removal.
 * Without say, a FORGE_HOME that cannot be opened is no error: the caller opens it next
 * and reports that.
 */
FORGE_MUST_CHECK int forge_reconcile(FILE *say, bool dry_run, struct forge_error *err);
/* The same for a caller that reports each failed repair: messages instead of an error. */
FORGE_MUST_CHECK int forge_reconcile_all(FILE *say, bool dry_run,
					 struct forge_strv *failures,
					 struct forge_error *err);
/* The same before a new run: with many runs active, at most five times a second. */
FORGE_MUST_CHECK int forge_reconcile_cheaply(struct forge_error *err);
/* Repairs this slot alone, also when a watcher would attend it: for the watcher itself. */
FORGE_MUST_CHECK int forge_reconcile_slot(unsigned slot, struct forge_error *err);
