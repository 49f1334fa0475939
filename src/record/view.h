/* SPDX-License-Identifier: Apache-2.0 */
/* What is shown of a run: the newest record there is of it, and single values of a record. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "state/home.h"
#include "store/store.h"

/*
 * The record of the run with this id. Its directory here is newest while the run is live; the store (NULL: it cannot
 * be reached) has all runs. *ret_is_unconfirmed: the verdict is not from the store.
 */
FORGE_MUST_CHECK int forge_record_find(const struct forge_home *home,
				       struct forge_store *st, const char *run_id,
				       json_t **ret, bool *ret_is_unconfirmed,
				       struct forge_error *err);
/* Whether the run was on this host. */
bool forge_record_is_here(const json_t *record);
/* Parses "2026-01-31T12:00:00.123Z" of a record; 0: it is not a time. */
time_t forge_record_time(const char *text);
/*
 * "2h" (ago), or a time in UTC as in records: the beginning of the ids that runs of that time have, for filters. Returns
 * 0 or -EINVAL.
 */
FORGE_MUST_CHECK int forge_record_time_to_id(const char *text, char buf[FORGE_RUN_ID_MAX],
					     struct forge_error *err);
/* A limit of a record, times scale; FORGE_UNLIMITED where there is none. */
uint64_t forge_record_limit(const json_t *record, const char *key, double scale);
/* The words of the command, quoted for a shell. NULL: out of memory. */
char *forge_record_command(const json_t *record);
