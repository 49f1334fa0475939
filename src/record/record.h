/* SPDX-License-Identifier: Apache-2.0 */
/* record.json and events.jsonl of a run, in $FORGE_HOME/runs/<run_id>/. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "executor/executor.h"
#include "record/judge.h"
#include "spec/spec.h"
#include "state/home.h"

struct forge_record {
	json_t *json;
	json_t *unsent;	   /* events that are in no batch yet */
	json_t *unwritten; /* events without a file or a record so far */
	json_int_t seq;	   /* of the next event */
	int dir_fd;	   /* the run's directory */
	int events_fd;
	int log_fd[2];
};
#define FORGE_RECORD_INIT                                                                \
	((struct forge_record){ .dir_fd = -1, .events_fd = -1, .log_fd = { -1, -1 } })

/* Makes the record in memory only. forge_record_status() sets the status. */
FORGE_MUST_CHECK int forge_record_new(const struct forge_home *home,
				      const struct forge_spec *s,
				      struct forge_record *ret, struct forge_error *err);
/* Makes the run's directory and its files. */
FORGE_MUST_CHECK int forge_record_make_files(struct forge_record *r,
					     const struct forge_home *home,
					     struct forge_error *err);
/*
 * Opens the record of a run that another supervisor began: json as its slot has it, events as its file has
 * them. The files are appended to, and the store gets all events again.
 */
FORGE_MUST_CHECK int forge_record_reopen(const struct forge_home *home, json_t *json,
					 const json_t *events, json_int_t next_seq,
					 struct forge_record *ret,
					 struct forge_error *err);
/* One line in events.jsonl, with the time. detail may be NULL. */
void forge_record_event(struct forge_record *r, const char *event, const char *detail);
/* The same for a change of status; store/state.h has the possible ones. */
void forge_record_status(struct forge_record *r, const char *status, const char *detail);
void forge_record_set_outcome(struct forge_record *r, const struct forge_outcome *o,
			      const struct forge_verdict *v);
/* Everything that has not been reported to the store yet, for forge_store_apply(). */
json_t *forge_record_take_batch(struct forge_record *r);
/*
 * Writes record.json. Other processes can read it when this returns; it is safe on disk
 * after forge_record_sync().
 */
FORGE_MUST_CHECK int forge_record_write(struct forge_record *r, struct forge_error *err);
FORGE_MUST_CHECK int forge_record_sync(struct forge_record *r, struct forge_error *err);
/* Syncs the logs of the run. To be called before its verdict is reported. */
FORGE_MUST_CHECK int forge_record_sync_logs(struct forge_record *r,
					    const struct forge_home *home,
					    struct forge_error *err);
/* Closes the files; json stays if it was taken. */
void forge_record_close(struct forge_record *r);

/* The user in records: a name, or the uid as a number; in buf if need be. */
/* Which store a record is for: letters and digits that say nothing of its URL. "": out of memory. */
#define FORGE_STORE_MARK_MAX 17
const char *forge_store_mark(const char *url, char buf[FORGE_STORE_MARK_MAX]);
#define FORGE_USER_MAX 64
const char *forge_user_name(char buf[FORGE_USER_MAX]);
/* Sets the verdict of a run whose end no supervisor saw. */
void forge_record_set_lost(json_t *record);
/* An event as events.jsonl and the store have it; status and detail may be NULL. */
json_t *forge_event_json(json_int_t seq, const char *actor, const char *event,
			 const char *status, const char *detail);
/* Adds a sentence to the notes of a record. */
void forge_record_add_notes(json_t *record, const char *sentence);
/* The same: where its workdir is kept. */
void forge_record_note_kept(json_t *record);
/* Whether the record has a verdict. Accepts NULL, which has none. */
bool forge_record_is_over(const json_t *record);
