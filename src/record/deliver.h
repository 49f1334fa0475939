/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Delivers a run from its directory to the store, if its supervisor could not report to
 * the store or died before it did. The directory is authoritative; delivering twice
 * changes nothing.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "config/config.h"
#include "state/home.h"
#include "store/store.h"

/* The store: explicit, else $FORGE_STORE, the configuration, SQLite in FORGE_HOME. */
FORGE_MUST_CHECK int forge_store_choose(const char *explicit_url,
					const struct forge_config *cfg, char **ret_url,
					struct forge_error *err);

/*
 * Loads record.json of a run. -ENOENT: there is none; -EBADMSG: a power cut damaged it.
 * Any other error (EIO, EMFILE ...) does not say whether there is one, and must not lead
 * to a change or removal.
 */
FORGE_MUST_CHECK int forge_load_record(const struct forge_home *home, const char *run_id,
				       json_t **ret, struct forge_error *err);
/* Whether this result of forge_load_record() means that there is no readable record. */
bool forge_is_no_record(int rc);
/* Loads the record if it has a verdict; NULL in *ret if it certainly has none. */
FORGE_MUST_CHECK int forge_load_verdict(const struct forge_home *home, const char *run_id,
					json_t **ret, struct forge_error *err);
/* Loads events.jsonl as an array, empty if there is none. Skips incomplete lines. */
FORGE_MUST_CHECK int forge_load_events(const struct forge_home *home, const char *run_id,
				       json_t **ret, struct forge_error *err);
/* The sequence number for the event after these. */
json_int_t forge_next_seq(const json_t *events);
/* Adds a line to events.jsonl; takes e. */
FORGE_MUST_CHECK int forge_add_event(const struct forge_home *home, const char *run_id,
				     json_t *e, struct forge_error *err);
/* Replaces record.json, durably. */
FORGE_MUST_CHECK int forge_write_record(const struct forge_home *home, const char *run_id,
					const json_t *record, struct forge_error *err);
/*
 * Gives a record without a verdict the verdict "lost": how the run ended is unknown. slot: what its slot had,
 * NULL: it has none.
 */
FORGE_MUST_CHECK int forge_close_lost(const struct forge_home *home, const char *run_id,
				      const json_t *slot, json_t *record,
				      struct forge_error *err);
/* Adds the event of the record's verdict, if the supervisor died before it wrote that. */
FORGE_MUST_CHECK int forge_complete_events(const struct forge_home *home,
					   const char *run_id, const json_t *record,
					   struct forge_error *err);

/* Stores everything that the run's directory has. */
FORGE_MUST_CHECK int forge_deliver_run(const struct forge_home *home,
				       struct forge_store *st, const char *run_id,
				       struct forge_error *err);
/* Marks a run whose end the store (url) does not have yet. */
FORGE_MUST_CHECK int forge_deliver_later(const struct forge_home *home,
					 const char *run_id, const char *url,
					 struct forge_error *err);
/*
 * Delivers the runs that are marked for this store. Then closes as lost the runs that are
 * open in the store, belong to this host and are dead. Never fails: returns the number of
 * runs brought up to date. With say it waits for another process that is doing the same;
 * without, it returns 0 then.
 */
int forge_deliver_pending(struct forge_store *st, const char *url, FILE *say);
/*
 * The same for the courier of a run: does nothing if another process did it within the
 * last second. It checks every open run, and hundreds of runs that begin at once would
 * each check all of them.
 */
void forge_deliver_if_due(struct forge_store *st, const char *url);
