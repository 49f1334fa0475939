/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts the processes that look after runs without a supervisor. They are this program itself, as
 * `forge __attend`, `forge __retry` and `forge __watch`, and go on in the background.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "state/home.h"

/* A new supervisor for the run in this slot. Returns when it has the slot, or has given up. */
FORGE_MUST_CHECK int forge_attendant_start(const struct forge_home *home,
					   const char *slot, struct forge_error *err);
/* The supervisor of the attempt after this run. Returns when it has begun, or has given up. */
FORGE_MUST_CHECK int forge_attendant_retry(const struct forge_home *home,
					   const char *run_id, struct forge_error *err);
/* The watcher of all runs on this executor, if there is none. */
FORGE_MUST_CHECK int forge_attendant_watch(const struct forge_home *home,
					   const char *executor, struct forge_error *err);
/* The process that watches guarded files. Returns when it can be asked, or cannot be started. */
FORGE_MUST_CHECK int forge_attendant_guard(const struct forge_home *home,
					   struct forge_error *err);
/* Whether there is one. Not known counts as no. */
bool forge_attendant_has_watcher(const struct forge_home *home, const char *executor);
/*
 * The lock of the watcher of this executor, as a descriptor. -EWOULDBLOCK: another process has it. The name
 * is one from a configuration.
 */
FORGE_MUST_CHECK int forge_attendant_lock(const struct forge_home *home,
					  const char *executor);
