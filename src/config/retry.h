/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which runs are tried again: rules by the reason of their verdict. A rule says how often and, where a limit
 * belongs to the reason, by which factor that limit grows and up to which value.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "config/limits.h"

/* The reasons that another attempt can cure. */
enum forge_retry_reason {
	FORGE_RETRY_HOST_LOST,
	FORGE_RETRY_MEMORY,
	FORGE_RETRY_WALL_TIME,
	FORGE_RETRY_CPU_TIME,
	FORGE_RETRY_DISK,
	FORGE_RETRY_OUTPUT,
	FORGE_RETRY_PIDS,
	FORGE_RETRY_EXIT,
	FORGE_RETRY_SIGNAL,
	FORGE_RETRY_COUNT,
};
extern const char *const forge_retry_names[FORGE_RETRY_COUNT];

#define FORGE_RETRY_TIMES_MAX 100
#define FORGE_RETRY_FACTOR    2000 /* when the rule does not say: twice the limit */

struct forge_retry_rule {
	unsigned times;	       /* 0: not retried */
	unsigned factor_milli; /* of the limit, at least 1000; 0: FORGE_RETRY_FACTOR */
	uint64_t max;	       /* of the limit, in its unit; 0: what the host allows */
};

struct forge_retry_policy {
	struct forge_retry_rule rules[FORGE_RETRY_COUNT];
};

/* What an attempt knows of the attempts before it. All zero: a run that is not retried. */
struct forge_retry_chain {
	struct forge_retry_policy policy;
	unsigned used[FORGE_RETRY_COUNT]; /* further attempts that each reason has had */
	unsigned attempt;		  /* 1: the first */
};

/* The index of a reason, -1: another attempt cannot cure it, or there is no such reason. */
int forge_retry_find(const char *reason);
/* The limit that belongs to a reason, NULL: none does. */
const struct forge_limit_row *forge_retry_limit(enum forge_retry_reason reason);
bool forge_retry_is_empty(const struct forge_retry_policy *p);
/* Why there can be no rule for this reason, with the reasons that there are. Returns buf. */
#define FORGE_RETRY_REFUSAL_MAX 384
const char *forge_retry_refuse(char buf[FORGE_RETRY_REFUSAL_MAX], const char *reason);
/* Sets one value of a rule; key is an index in forge_retry_keys. */
#define FORGE_RETRY_KEYS 3
extern const char *const forge_retry_keys[FORGE_RETRY_KEYS];
FORGE_MUST_CHECK int forge_retry_set(struct forge_retry_rule *rule,
				     enum forge_retry_reason reason, size_t key,
				     const char *text, struct forge_error *err);
/* Adds a rule as it is typed: "memory=2,factor=1.5,max=64G"; "none" removes all rules. */
FORGE_MUST_CHECK int forge_retry_parse(const char *text, struct forge_retry_policy *p,
				       struct forge_error *err);
/* The other way. Returns buf. */
#define FORGE_RETRY_TEXT_MAX 96
const char *forge_retry_format(char buf[FORGE_RETRY_TEXT_MAX],
			       enum forge_retry_reason reason,
			       const struct forge_retry_rule *rule);
