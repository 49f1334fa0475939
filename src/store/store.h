/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: every run, its events, inputs, outputs and post-process records, in SQLite (one
 * file, the default) or PostgreSQL (a team's server). Same tables, same statements.
 *
 * A run's directory in FORGE_HOME is written first; the store is told from it and can
 * therefore always be told again: forge_store_apply() is idempotent.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"

struct forge_store;

/*
 * Opens "sqlite:/path/to/file", "postgresql://..." or "postgres://..." and brings its tables
 * to this program's version. -EPROTO: they are of a newer forge; -ENOTCONN: no server there.
 */
FORGE_MUST_CHECK int forge_store_open(const char *url, struct forge_store **ret,
				      struct forge_error *err);
void forge_store_close(struct forge_store *st);
FORGE_DEFINE_AUTO(store, struct forge_store *, forge_store_close)
#define forge_auto_store FORGE_CLEANUP(forge_auto_store_)

/* -EINVAL with the legal forms, when url is none that a store answers to. */
FORGE_MUST_CHECK int forge_store_check_url(const char *url, struct forge_error *err);
/* url without the password that may stand in it. NULL: out of memory. */
char *forge_store_display(const char *url);

/* Gets ready for forge_store_apply(), when there is time for it. */
void forge_store_warm(struct forge_store *st);
/* Housekeeping of the backend's, when nobody waits: for SQLite, a log that has grown long. */
void forge_store_tidy(struct forge_store *st);

/*
 * Brings one run up to date, in one transaction. batch is
 *   { "record": {...}, "events": [{seq, time, actor, event, status?, detail?}, ...],
 *     "post_process": [{...}, ...] }          the last two may be missing
 * Events whose seq the store has are skipped. Those with a status are transitions; one that
 * state.h forbids fails the whole batch with -EALREADY when the run has another verdict
 * already, -EPROTO otherwise. The record's status must be where the events lead; states between
 * that no event tells are filled in as "assumed", and a record that lags behind the run's state is
 * refused with -EPROTO. Otherwise the record replaces the one before, also when all events are
 * known: the last to tell is believed. Inputs and outputs are taken when the run ends, and rows of
 * post_process whose place is taken stay as they are. durable: on disk when this returns.
 * -EEXIST: another run of that user has the record's idempotency_key.
 */
FORGE_MUST_CHECK int forge_store_apply(struct forge_store *st, const json_t *batch,
				       bool durable, struct forge_error *err);
/*
 * The same for a run that is as it is: what the store would refuse for ever must not leave it open for ever. A
 * batch that is refused so (-EINVAL, -E2BIG) is told once more, with only what says how the run
 * stands, and the record then says why in "store_refused".
 */
FORGE_MUST_CHECK int forge_store_settle(struct forge_store *st, const json_t *batch,
					bool durable, struct forge_error *err);
/* Replaces the post-process result of a finished run: record's "post_process", and rows. */
FORGE_MUST_CHECK int forge_store_put_post_process(struct forge_store *st,
						  const char *run_id,
						  const json_t *result,
						  const json_t *rows, const json_t *event,
						  struct forge_error *err);

/* The run of this user with this idempotency key: -ENOENT when there is none. */
FORGE_MUST_CHECK int forge_store_find_key(struct forge_store *st, const char *user,
					  const char *key, char **ret_run_id,
					  struct forge_error *err);
/*
 * The full id of the run that a person means by word: "last", the newest that this user asked for; a run
 * id; an analysis id of this user's, of which it is the newest run; the beginning of one run id; or
 * somebody else's analysis id. -ENOENT none, -ENOTUNIQ several begin so.
 */
FORGE_MUST_CHECK int forge_store_find(struct forge_store *st, const char *word,
				      const char *user, char **ret_run_id,
				      struct forge_error *err);
/* The record of a run by its full id. */
FORGE_MUST_CHECK int forge_store_get(struct forge_store *st, const char *run_id,
				     json_t **ret, struct forge_error *err);
/* Arrays; empty when there is nothing. */
FORGE_MUST_CHECK int forge_store_events(struct forge_store *st, const char *run_id,
					json_t **ret, struct forge_error *err);
FORGE_MUST_CHECK int forge_store_post_records(struct forge_store *st, const char *run_id,
					      json_t **ret, struct forge_error *err);

/* What to list; NULL, 0 and false mean "do not care". */
struct forge_run_filter {
	const char *status, *reason, *runtime, *host, *user;
	const char *analysis;	   /* a name, or a pattern with * and ? */
	const char *since, *until; /* as the beginnings of run ids, which sort by time */
	const char *after;	   /* the last run id of the page before */
	const char *output;	   /* "sha256:...": they left a file with this content */
	const char *part_of;	   /* the post-processes of this run; wants with_parts */
	bool with_parts;	   /* also probes and post-processes */
	bool with_record;	   /* rows have the record's text */
	bool open_only;		   /* not yet ended */
	bool oldest_first;
	const char *sort; /* "created" (also NULL), "ended", "wall", "memory" */
	unsigned limit;	  /* 0: all */
};

/* One line of a listing. Strings are borrowed for the call, NULL where unknown. */
struct forge_run_row {
	const char *run_id, *analysis_id, *status, *reason, *runtime, *executor, *host,
		*user, *created_at, *started_at, *ended_at, *notes;
	int64_t wall_usec, memory_peak; /* -1: unknown */
	int64_t pid, pid_start;		/* of the supervisor */
	const char *boot_id;
	const char *record; /* JSON, when it was asked for */
};
typedef int forge_run_visitor(const struct forge_run_row *row, void *arg);

/* Stops at, and returns, visit's first non-zero. Otherwise the number of rows. */
FORGE_MUST_CHECK int forge_store_list(struct forge_store *st,
				      const struct forge_run_filter *filter,
				      forge_run_visitor *visit, void *arg,
				      struct forge_error *err);
/* One content of a runtime, and who used it. Strings are borrowed for the call. */
struct forge_runtime_use {
	const char *digest, *first, *last; /* of the runs and probes that saw it */
	int64_t runs;			   /* 0: it was only checked */
};
/* The newest first. */
FORGE_MUST_CHECK int forge_store_runtime_history(
	struct forge_store *st, const char *name,
	int (*visit)(const struct forge_runtime_use *use, void *arg), void *arg,
	struct forge_error *err);

/* What a probe of a runtime found. Strings are borrowed. */
struct forge_runtime_check {
	const char *name, *kind, *prefix, *digest; /* prefix: NULL none */
	const char *time;
	const char *run_id;   /* the probe, "" when it could not begin */
	const char *verdict;  /* "healthy" or "broken" */
	const char *problem;  /* "" none */
	const char *versions; /* JSON, NULL none */
};
/* Adds it; telling twice changes nothing. */
FORGE_MUST_CHECK int forge_store_put_check(struct forge_store *st,
					   const struct forge_runtime_check *check,
					   struct forge_error *err);
/* The checks of one content, the newest first. kind and prefix are NULL. */
FORGE_MUST_CHECK int forge_store_runtime_checks(
	struct forge_store *st, const char *name, const char *digest,
	int (*visit)(const struct forge_runtime_check *check, void *arg), void *arg,
	struct forge_error *err);
/* Forgets a run that is over, with all there is of it. Removing what is not there is no error. */
FORGE_MUST_CHECK int forge_store_remove(struct forge_store *st, const char *run_id,
					struct forge_error *err);
/* The run stays, its outputs do not; record is what it is from now on. */
FORGE_MUST_CHECK int forge_store_drop_outputs(struct forge_store *st, const char *run_id,
					      const json_t *record,
					      struct forge_error *err);
/* Whether a run has left a file with this content: 1, 0, or negative. */
FORGE_MUST_CHECK int forge_store_has_object(struct forge_store *st, const char *digest,
					    struct forge_error *err);
/* Every "sha256:..." that a record points to. */
FORGE_MUST_CHECK int forge_store_each_object(struct forge_store *st,
					     int (*visit)(const char *digest, void *arg),
					     void *arg, struct forge_error *err);
