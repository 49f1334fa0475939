/* SPDX-License-Identifier: Apache-2.0 */
/* The results of checks. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "config/health.h"

/* What a check found. */
struct forge_check_report {
	bool is_ok;
	char text[384];	 /* one line with numbers, for people; never a secret */
	json_t *numbers; /* an object for programs, or NULL */
};
/* Sets is_ok and the text. */
FORGE_PRINTF(3, 4)
void forge_check_say(struct forge_check_report *ret, bool is_ok, const char *fmt, ...);

enum forge_phase { FORGE_PHASE_PRE, FORGE_PHASE_POST, FORGE_PHASE_DEMAND };
extern const char *const forge_phase_names[3];

/* One result. */
struct forge_check_result {
	const struct forge_check_decl *decl;
	struct forge_check_report report;
	char time[FORGE_TIME_MAX]; /* when the check began */
	uint64_t duration_usec;
	uint64_t age_usec;
	bool is_reused; /* another run's, or an earlier one */
};

struct forge_check_results {
	struct forge_check_result *v;
	size_t n;
};
void forge_check_results_done(struct forge_check_results *r);
#define forge_auto_check_results FORGE_CLEANUP(forge_check_results_done)

/* For the record: {name, kind, ok, severity, text, time, duration_seconds, reused, age_seconds, numbers}. */
json_t *forge_check_json(const struct forge_check_result *r);
/* {ok, host, checks}: the results of a phase, for the record. */
json_t *forge_checks_json(const struct forge_check_results *r);
/* The first failed check with this severity, or NULL. */
const struct forge_check_result *forge_checks_failed(const struct forge_check_results *r,
						     const char *severity);
