/* SPDX-License-Identifier: Apache-2.0 */
/* The results of checks of a time, summed up for each check. */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "store/store.h"

/* Parts of the time that a chart shows. */
#define FORGE_HEALTH_PARTS 24

/* One check. */
struct forge_health_sum {
	char *name, *kind;
	int64_t n, n_failed, total_usec, slowest_usec;
	int64_t parts[FORGE_HEALTH_PARTS], failed_parts[FORGE_HEALTH_PARTS];
	char last_failed[FORGE_TIME_MAX], problem[200];
	char last_run[FORGE_RUN_ID_MAX];
};

struct forge_health_sums {
	struct forge_health_sum *v; /* sorted by name */
	size_t n;
	time_t since, until;
};

/* The results since this time; name: NULL for all checks. */
FORGE_MUST_CHECK int forge_health_sum_up(struct forge_store *st, const char *name,
					 time_t since, struct forge_health_sums *ret,
					 struct forge_error *err);
void forge_health_sums_done(struct forge_health_sums *s);
/* As `forge health history --json` prints them. NULL: out of memory. */
json_t *forge_health_sums_json(const struct forge_health_sums *s);
