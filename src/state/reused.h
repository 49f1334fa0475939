/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FORGE_HOME/reused/: results of steps that were taken from the FORGE_HOME of another user. A file for each key of a
 * step: {"home", "taken_at", "result"}. The result is as in a record: run_id, analysis_id, user, host, key, ended_at,
 * outputs, and outputs_removed, which were not taken. The objects of its outputs are in this FORGE_HOME,
 * and the file is what points to them: the run is the other user's, and may be removed there.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <time.h>

#include "base/error.h"
#include "state/home.h"

/* 1: *ret is set; 0: there is none. A damaged one counts as none. */
FORGE_MUST_CHECK int forge_reused_read(const struct forge_home *home, const char *key,
				       json_t **ret, struct forge_error *err);
/* Safe on disk when this returns. The caller holds the lock of the objects since before it made them. */
FORGE_MUST_CHECK int forge_reused_write(const struct forge_home *home, const char *key,
					const json_t *entry, struct forge_error *err);
/*
 * Notes that it is used now: its age counts from here. False: it is not there. While the caller holds the lock of the
 * objects, neither it nor its objects go.
 */
bool forge_reused_touch(const struct forge_home *home, const char *key);
FORGE_MUST_CHECK int forge_reused_remove(const struct forge_home *home, const char *name,
					 struct forge_error *err);
/*
 * Visits all of them; stops at, and returns, the first non-zero result of visit. name is for forge_reused_remove();
 * entry is NULL for a file that is damaged.
 */
FORGE_MUST_CHECK int forge_reused_each(const struct forge_home *home,
				       int (*visit)(void *arg, const char *name,
						    time_t used, const json_t *entry),
				       void *arg, struct forge_error *err);
