/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a run's directory to the store: for runs whose supervisor could not tell the store or died
 * before it did. The directory is the truth; telling twice changes nothing.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "config/config.h"
#include "state/home.h"
#include "store/store.h"

/* The store to use: explicit, $FORGE_STORE, the configuration, SQLite in FORGE_HOME. */
FORGE_MUST_CHECK int forge_store_choose(const char *explicit_url,
					const struct forge_config *cfg, char **ret_url,
					struct forge_error *err);

/*
 * record.json of a run. -ENOENT: there is none; -EBADMSG: it was torn by a power cut. Everything else
 * (EIO, EMFILE ...) says nothing about whether there is one, and is no reason to change or remove anything.
 */
FORGE_MUST_CHECK int forge_load_record(const struct forge_home *home, const char *run_id,
				       json_t **ret, struct forge_error *err);
/* Whether forge_load_record() said that there is nothing to be read. */
bool forge_is_no_record(int rc);
/* The record if it has a verdict, NULL in *ret if it certainly has none. */
FORGE_MUST_CHECK int forge_load_verdict(const struct forge_home *home, const char *run_id,
					json_t **ret, struct forge_error *err);
/* events.jsonl as an array, empty when there is none; lines that are not whole are left out. */
FORGE_MUST_CHECK int forge_load_events(const struct forge_home *home, const char *run_id,
				       json_t **ret, struct forge_error *err);
/* The number of the event that follows these. */
json_int_t forge_next_seq(const json_t *events);
/* Adds a line to events.jsonl; takes e. */
FORGE_MUST_CHECK int forge_add_event(const struct forge_home *home, const char *run_id,
				     json_t *e, struct forge_error *err);
/* Replaces record.json, durably. */
FORGE_MUST_CHECK int forge_write_record(const struct forge_home *home, const char *run_id,
					const json_t *record, struct forge_error *err);
/* Gives a record without a verdict the one that nobody knows how the run ended. */
FORGE_MUST_CHECK int forge_close_lost(const struct forge_home *home, const char *run_id,
				      json_t *record, struct forge_error *err);
/* Adds the line of the record's verdict to the events, if whoever died did not. */
FORGE_MUST_CHECK int forge_complete_events(const struct forge_home *home,
					   const char *run_id, const json_t *record,
					   struct forge_error *err);

/* Tells the store everything that the run's directory says. */
FORGE_MUST_CHECK int forge_deliver_run(const struct forge_home *home,
				       struct forge_store *st, const char *run_id,
				       struct forge_error *err);
/* Remembers that a store (url) has not heard of a run's end. */
FORGE_MUST_CHECK int forge_deliver_later(const struct forge_home *home,
					 const char *run_id, const char *url,
					 struct forge_error *err);
/* Whether anything waits to be told. */
bool forge_deliver_is_due(const struct forge_home *home);
/*
 * Delivers what waits for this store, and closes as lost what the store believes to be running
 * here and is not. Never fails the caller: the count of runs brought up to date. With say it waits
 * for another process that does so.
 */
int forge_deliver_pending(struct forge_store *st, const char *url, FILE *say);
/*
 * The same beside a run: not when somebody has just done it. It looks at every open run, and
 * hundreds that begin at once would all look at all.
 */
void forge_deliver_if_due(struct forge_store *st, const char *url);
