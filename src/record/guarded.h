/* SPDX-License-Identifier: Apache-2.0 */
/* What changes of guarded files mean for a run, also for one that was lost. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "config/health.h"
#include "state/home.h"

/* Was no other run of this FORGE_HOME there while this one was? Not known counts as no. */
bool forge_run_was_alone(const struct forge_home *home, const char *run_id);
/* Does a change by an unknown author make this run corrupted? */
bool forge_guard_blames(const struct forge_home *home, const char *run_id,
			enum forge_unattributed unattributed);

#define FORGE_GUARD_TEXT 640
enum forge_guard_verdict {
	FORGE_GUARD_SILENT,    /* nothing is to be told */
	FORGE_GUARD_NOTED,     /* text is to be told, and no more */
	FORGE_GUARD_CORRUPTED, /* text says why */
};
/* report: of forge_guard_end() or forge_guard_since(). */
enum forge_guard_verdict forge_guard_judge(const struct forge_home *home,
					   const char *run_id,
					   enum forge_unattributed unattributed,
					   const json_t *report,
					   char text[FORGE_GUARD_TEXT]);
/* The same when nothing is known of the files. */
enum forge_guard_verdict forge_guard_judge_unknown(enum forge_unattributed unattributed,
						   const char *why,
						   char text[FORGE_GUARD_TEXT]);

/*
 * What the slot of a run keeps of its guard: {unattributed, files?}. Takes files, of forge_guard_saved(); NULL:
 * nothing is guarded.
 */
json_t *forge_guard_slot_json(enum forge_unattributed unattributed, json_t *files);
/* Of a slot; as configured now when the slot says nothing. */
enum forge_unattributed forge_guard_slot_unattributed(const json_t *slot,
						      enum forge_unattributed now);
const json_t *forge_guard_slot_files(const json_t *slot);

/*
 * For a run that is lost, and whose processes are gone: what became of guarded files since it began, by their
 * times. Notes it in the record, and puts the run in quarantine where another one would be corrupted.
 */
FORGE_MUST_CHECK int forge_guard_judge_lost(const struct forge_home *home,
					    const char *run_id, const json_t *slot,
					    json_t *record, struct forge_error *err);
