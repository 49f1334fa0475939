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
	json_t *unsent;	   /* events that no batch had yet */
	json_t *unwritten; /* events for which there is no file yet, or no record */
	json_int_t seq;	   /* of the next event */
	int dir_fd;	   /* the run's directory */
	int events_fd;
	int log_fd[2];
};
#define FORGE_RECORD_INIT                                                                \
	((struct forge_record){ .dir_fd = -1, .events_fd = -1, .log_fd = { -1, -1 } })

/* The record in memory; nothing is made on disk. The status is set by forge_record_status(). */
FORGE_MUST_CHECK int forge_record_new(const struct forge_home *home,
				      const struct forge_spec *s,
				      struct forge_record *ret, struct forge_error *err);
/* Makes the run's directory with its files. */
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
/* The same for a change of status; see store/state.h for which there can be. */
void forge_record_status(struct forge_record *r, const char *status, const char *detail);
void forge_record_set_outcome(struct forge_record *r, const struct forge_outcome *o,
			      const struct forge_verdict *v);
/* What the store has not been told yet, for forge_store_apply(). */
json_t *forge_record_take_batch(struct forge_record *r);
/*
 * Writes record.json. It is there for others when this returns, and safe on disk after
 * forge_record_sync().
 */
FORGE_MUST_CHECK int forge_record_write(struct forge_record *r, struct forge_error *err);
FORGE_MUST_CHECK int forge_record_sync(struct forge_record *r, struct forge_error *err);
/* What the run said, safe on disk; to be called before its verdict is told. */
FORGE_MUST_CHECK int forge_record_sync_logs(struct forge_record *r,
					    const struct forge_home *home,
					    struct forge_error *err);
/* Closes the files; json stays if it was taken. */
void forge_record_close(struct forge_record *r);

/* Who we are in records: a name or a number; into buf if need be. */
#define FORGE_USER_MAX 64
const char *forge_user_name(char buf[FORGE_USER_MAX]);
/* Sets the verdict of a run that nobody saw end. */
void forge_record_set_lost(json_t *record);
/* An event as events.jsonl and the store have it; status and detail may be NULL. */
json_t *forge_event_json(json_int_t seq, const char *actor, const char *event,
			 const char *status, const char *detail);
/* Whether the record has a verdict. Accepts NULL, which has none. */
bool forge_record_is_over(const json_t *record);
