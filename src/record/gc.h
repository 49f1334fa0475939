/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thorough repair: everything reconcile.h does, then what time has made superfluous, by the
 * rules of retention.* in the configuration. Each thing removed is a line on say and in
 * $FORGE_HOME/gc.jsonl. What a record points to is never removed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "config/config.h"
#include "state/home.h"

/* The number of things done (or, in a dry run, that would be). Two at once take turns. */
FORGE_MUST_CHECK int forge_gc(const struct forge_config *cfg, const char *store_url,
			      FILE *say, bool dry_run, struct forge_error *err);

/* gc.jsonl, to append to; -1: it cannot be had, and nothing is noted. */
int forge_gc_open_log(const struct forge_home *home);
/* One line there: what was removed, and how much it was. */
void forge_gc_log(int log_fd, const char *what, const char *name, uint64_t bytes);
