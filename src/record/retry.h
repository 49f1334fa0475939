/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whether a run that ended is tried again, and which limits the next attempt has. state/retry_file.h says which
 * process may start that attempt, retry_due.h finds attempts that no process has started.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "config/retry.h"
#include "state/home.h"

/* The facts of a run that ended. All pointers are borrowed. */
struct forge_retry_case {
	const char *status, *reason; /* of its verdict */
	const struct forge_retry_chain *chain;
	const struct forge_limits *limits; /* that it had */
	const struct forge_limits *most;   /* that a run may have here; 0: no bound */
	bool is_inodes;	   /* disk: it made too many files, not too many bytes */
	bool is_host_full; /* memory: the host's ran out, not the run's */
	bool is_hopeless;  /* more of the limit would not help */
};

struct forge_retry_choice {
	bool is_retried;
	enum forge_retry_reason reason;
	struct forge_limits limits;	      /* of the next attempt */
	const struct forge_limit_row *raised; /* NULL: they are the same */
	char why_not[160]; /* there is a rule, but it does not apply: a clause; or "" */
};

/* Decides. Depends on nothing but its argument. */
void forge_retry_choose(const struct forge_retry_case *c, struct forge_retry_choice *ret);
/* The most attempts that the chain can have. */
unsigned forge_retry_attempts_max(const struct forge_retry_policy *p);
/* "--memory 512M", or "" when nothing was raised. Returns buf. */
#define FORGE_RETRY_WITH_MAX 64
const char *forge_retry_describe(char buf[FORGE_RETRY_WITH_MAX],
				 const struct forge_limit_row *raised,
				 const struct forge_limits *limits);

/* Writes the decision into the record of the run, before that has its verdict. */
void forge_retry_note(json_t *record, const char *next,
		      const struct forge_retry_choice *choice);
/*
 * Decides for a run that repair closes as lost; adds the decision to the record. has_record: the record is
 * written to this FORGE_HOME; otherwise only the store has one.
 */
void forge_retry_after_loss(const struct forge_home *home, const char *run_id,
			    bool has_record, json_t *record);
