/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Retries: whether a run that ended is tried again, what the next attempt may use, and which attempts are due
 * that no process has started. state/retry_file.h says who may start one.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "config/retry.h"
#include "spec/request.h"
#include "state/home.h"
#include "state/retry_file.h"
#include "store/store.h"

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
/* The next attempt by record and file of the run before it. -ENODATA: the record has none. */
FORGE_MUST_CHECK int forge_retry_again(const json_t *record,
				       struct forge_retry_file *file,
				       struct forge_again *ret, struct forge_error *err);
/*
 * Decides for a run that repair closes as lost; adds the decision to the record. has_record: the record is
 * written to this FORGE_HOME; otherwise only the store has one.
 */
void forge_retry_after_loss(const struct forge_home *home, const char *run_id,
			    bool has_record, json_t *record);
/* Whether the attempt with this id was recorded. True also when that is unknown. */
bool forge_retry_has_begun(const struct forge_home *home, const char *run_id);
/*
 * The attempt that was decided on is not started: the record of the run says why. Removes and releases the
 * file.
 */
FORGE_MUST_CHECK int forge_retry_give_up(const struct forge_home *home,
					 struct forge_retry_file *file, const char *why,
					 struct forge_error *err);
/*
 * Ends the chain after this run if no process is starting the next attempt. -EWOULDBLOCK: one does; -ENOENT:
 * one did, or there is none.
 */
FORGE_MUST_CHECK int forge_retry_cancel(const struct forge_home *home, const char *run_id,
					struct forge_error *err);
/* Calls start for every run whose next attempt is due and not started; removes files of no use. */
typedef int forge_retry_starter(const struct forge_home *home, const char *run_id,
				void *arg, struct forge_error *err);
FORGE_MUST_CHECK int forge_retry_each_due(const struct forge_home *home, bool dry_run,
					  forge_retry_starter *start, void *arg,
					  struct forge_error *err);
/* Runs of which only the store has a record, after a power cut: makes their next attempts due. */
void forge_retry_ask_store(const struct forge_home *home, struct forge_store *st);
