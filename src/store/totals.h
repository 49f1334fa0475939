/* SPDX-License-Identifier: Apache-2.0 */
/* Totals of ended runs and of checks: they grow with each of them and do not shrink when runs are removed. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct forge_store;

/* The bound of the last bucket of a histogram. */
#define FORGE_TOTAL_INF INT64_MAX

/*
 * One total. Strings are borrowed for the call, "" where they do not apply.
 *
 *   kind     what n counts, and what total sums up
 *   "run"    ended runs by status, reason, runtime and executor
 *   "wall"   ended runs by status, with a wall time up to le microseconds and above the bound before; microseconds
 *   "wait"   the same by the time from the request to the start of the command
 *   "share"  the same by the memory used of the memory allowed, in millionths
 *   "check"  checks of a host by status ("pass", "fail") and reason (their name); microseconds
 *   "probe"  probes of runtimes by status ("healthy", "broken") and reason (the runtime's name)
 */
struct forge_total_row {
	const char *kind, *status, *reason, *runtime, *executor;
	int64_t le, n, total;
	const char *since; /* when the first of them was counted */
};
/* In the order of the columns. */
FORGE_MUST_CHECK int forge_store_totals(struct forge_store *st,
					int (*visit)(const struct forge_total_row *row,
						     void *arg),
					void *arg, struct forge_error *err);
/* The upper bounds of a histogram ("wall", "wait", "share"), the last is FORGE_TOTAL_INF. Returns their number. */
size_t forge_total_bounds(const char *kind, const int64_t **ret);
/* Adds what was counted one by one to the totals. Changes no total. */
FORGE_MUST_CHECK int forge_store_fold(struct forge_store *st, struct forge_error *err);
/* Whether so much was counted one by one that reading it takes time. */
int forge_store_wants_fold(struct forge_store *st);

/* ---- for the files of src/store that make the rows, inside of their transactions ---- */

/* The statement of forge_store_count_run(), for forge_store_warm(). */
extern const char forge_total_sql_run[];
/* A run has ended. Probes and post-processes do not count. */
FORGE_MUST_CHECK int forge_store_count_run(struct forge_store *st, const json_t *record,
					   struct forge_error *err);
FORGE_MUST_CHECK int forge_store_count_check_result(struct forge_store *st,
						    const char *kind, const char *name,
						    const char *verdict, int64_t usec,
						    struct forge_error *err);
