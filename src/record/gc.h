/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Garbage collection: everything reconcile.h does, then removes what is too old by the
 * rules of retention.* in the configuration. Each removal is a line on say and in
 * $FORGE_HOME/gc.jsonl. An object that a record points to is never removed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "config/config.h"
#include "state/home.h"

/* Returns the number of changes, in a dry run of possible ones. Calls take turns. */
FORGE_MUST_CHECK int forge_gc(const struct forge_config *cfg, const char *store_url,
			      FILE *say, bool dry_run, struct forge_error *err);

/* Opens gc.jsonl for appending. -1: it cannot be opened, and removals are not logged. */
int forge_gc_open_log(const struct forge_home *home);
/* Adds one line to it: what was removed, and its size. */
void forge_gc_log(int log_fd, const char *what, const char *name, uint64_t bytes);
