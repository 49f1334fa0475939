/* SPDX-License-Identifier: Apache-2.0 */
/* Attempts that were decided on: which are due, how they begin, and how the decision is taken back. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "spec/request.h"
#include "state/home.h"
#include "state/retry_file.h"
#include "store/store.h"

/* The next attempt by record and file of the run before it. -ENODATA: the record has none. */
FORGE_MUST_CHECK int forge_retry_again(const json_t *record,
				       struct forge_retry_file *file,
				       struct forge_again *ret, struct forge_error *err);
/* Whether the attempt with this id was recorded. True also when that is unknown. */
bool forge_retry_has_begun(const struct forge_home *home, const char *run_id);
/* Whether an error that kept an attempt from starting may be gone when the next command tries. */
bool forge_retry_may_pass(int rc);
/* Replaces the decision in a record by the reason why there is no attempt after all. */
void forge_retry_take_back(json_t *record, const char *why);
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
