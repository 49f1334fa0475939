/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: every run, its events, inputs, outputs and post-process records, in SQLite (one
 * file, the default) or PostgreSQL (a team's server). Same tables, same statements.
 *
 * A run's directory in FORGE_HOME is written first, and the store is updated from it. The
 * update can therefore always be repeated: forge_store_apply() is idempotent.
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
 * Opens "sqlite:/path/to/file", "postgresql://..." or "postgres://..." and migrates its tables
 * to this program's version. -EPROTO: the tables are of a newer forge; -ENOTCONN: no server
 * answers.
 */
FORGE_MUST_CHECK int forge_store_open(const char *url, struct forge_store **ret,
				      struct forge_error *err);
void forge_store_close(struct forge_store *st);
FORGE_DEFINE_AUTO(store, struct forge_store *, forge_store_close)
#define forge_auto_store FORGE_CLEANUP(forge_auto_store_)

/* -EINVAL, with the legal forms in err, when url fits no backend. */
FORGE_MUST_CHECK int forge_store_check_url(const char *url, struct forge_error *err);
/* A copy of url without its password. NULL: out of memory. */
char *forge_store_display(const char *url);

/* Prepares forge_store_apply() ahead, when there is time for it. */
void forge_store_warm(struct forge_store *st);
/*
 * Housekeeping of the backend, to be called when no user waits: for SQLite, shortening a long
 * log.
 */
void forge_store_tidy(struct forge_store *st);
/*
 * Its file was removed or replaced, by a backup for instance: other processes use another store by now. For those
 * that keep a store open for long.
 */
bool forge_store_has_moved(struct forge_store *st);

/*
 * Brings one run up to date, in one transaction. batch is
 *   { "record": {...}, "events": [{seq, time, actor, event, status?, detail?}, ...],
 *     "post_process": [{...}, ...] }          the last two may be missing
 * Events whose seq the store has are skipped. An event with a status is a transition. A
 * transition that state.h forbids fails the whole batch: with -EALREADY when the run has
 * another verdict already, with -EPROTO otherwise. The events must lead to the record's status:
 * missing states on the way are filled in as "assumed", and a record that lags behind the run's
 * state is refused with -EPROTO. Otherwise the record replaces the stored one, also when all
 * events are known: the last writer wins. Inputs and outputs are stored when the run ends;
 * existing rows of post_process are not changed. durable: on disk when this returns. -EEXIST:
 * another run of that user has the record's idempotency_key.
 */
FORGE_MUST_CHECK int forge_store_apply(struct forge_store *st, const json_t *batch,
				       bool durable, struct forge_error *err);
/* Several batches, of different runs, in one transaction: all of them are stored, or none. */
#define FORGE_STORE_BATCHES 64
FORGE_MUST_CHECK int forge_store_apply_all(struct forge_store *st,
					   const json_t *const *batches, size_t n,
					   bool durable, struct forge_error *err);
/*
 * The same as forge_store_apply(), but a batch that the store can never accept does not leave the run open forever.
 * When the batch is refused with -EINVAL or -E2BIG, a reduced batch that only tells the state
 * of the run is stored instead, and its record says why in "store_refused".
 */
FORGE_MUST_CHECK int forge_store_settle(struct forge_store *st, const json_t *batch,
					bool durable, struct forge_error *err);
/* Replaces the post-process result of a finished run: the record's "post_process", and rows. */
FORGE_MUST_CHECK int forge_store_put_post_process(struct forge_store *st,
						  const char *run_id,
						  const json_t *result,
						  const json_t *rows, const json_t *event,
						  struct forge_error *err);

/*
 * The run of this user with this idempotency key: -ENOENT when there is none. A run that was rejected for the
 * host's health (health_pre) has none any more.
 */
FORGE_MUST_CHECK int forge_store_find_key(struct forge_store *st, const char *user,
					  const char *key, char **ret_run_id,
					  struct forge_error *err);
/*
 * Finds the run that a person means by word: "last", the newest run of this user; a run id; an
 * analysis id of this user (its newest run); the beginning of one run id; or an analysis id of
 * another user. -ENOENT: none; -ENOTUNIQ: several ids begin with word.
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

/* What to list; NULL, 0 and false select everything. */
struct forge_run_filter {
	const char *status, *reason, *runtime, *executor, *host, *user;
	const char *analysis;	   /* a name, or a pattern with * and ? */
	const char *since, *until; /* as the beginnings of run ids, which sort by time */
	const char *after;	   /* the last run id of the page before */
	const char *output;  /* "sha256:...": runs that left a file with this content */
	const char *part_of; /* the post-processes of this run; needs with_parts */
	const char *pipeline, *step; /* runs of a pipeline, of a task of it */
	const char *step_key;	     /* runs of any step with this key */
	bool with_parts;     /* also probes and post-processes */
	bool with_record;    /* rows have the record's text */
	bool open_only;	     /* not yet ended */
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
	const char *parent_run; /* the attempt before, or the run of a post-process */
	int64_t attempt;	/* 1: the first; -1: unknown */
	const char *boot_id;
	const char *record; /* JSON, when it was asked for */
};
typedef int forge_run_visitor(const struct forge_run_row *row, void *arg);

/*
 * What a run is part of, which hides it in listings: a post-process of its run, a probe of "probe". NULL: a
 * user asked for this run. A run that was tried again has a parent_run too, but is a later attempt.
 */
const char *forge_store_part_of(const json_t *record);

/* How many runs have which status, of those whose ids are not below since (NULL: of all). Without probes and post-processes. */
FORGE_MUST_CHECK int forge_store_count_status(struct forge_store *st, const char *since,
					      int (*visit)(const char *status, int64_t n,
							   void *arg),
					      void *arg, struct forge_error *err);
/* Stops at and returns visit's first non-zero result; otherwise returns the number of rows. */
FORGE_MUST_CHECK int forge_store_list(struct forge_store *st,
				      const struct forge_run_filter *filter,
				      forge_run_visitor *visit, void *arg,
				      struct forge_error *err);
/* A file that a run left. Strings are borrowed for the call. */
struct forge_output_row {
	const char *run_id, *analysis_id, *path, *digest;
	int64_t size; /* -1: unknown */
};
/*
 * The files that the newest successful run of this user with this key left. visit is called for each; for a run without files it
 * is called once, with path NULL. Returns 0 when there is no such run.
 */
FORGE_MUST_CHECK int forge_store_find_result(
	struct forge_store *st, const char *step_key, const char *user,
	int (*visit)(const struct forge_output_row *row, void *arg), void *arg,
	struct forge_error *err);
/* One content of a runtime, and the runs that used it. Strings are borrowed for the call. */
struct forge_runtime_use {
	const char *digest, *first, *last; /* of the runs and probes that saw it */
	int64_t runs;			   /* 0: only probes saw it */
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
/* Adds the check; adding it twice changes nothing. */
FORGE_MUST_CHECK int forge_store_put_check(struct forge_store *st,
					   const struct forge_runtime_check *check,
					   struct forge_error *err);
/* The checks of one content, the newest first. kind and prefix are NULL. */
FORGE_MUST_CHECK int forge_store_runtime_checks(
	struct forge_store *st, const char *name, const char *digest,
	int (*visit)(const struct forge_runtime_check *check, void *arg), void *arg,
	struct forge_error *err);

/* Results of checks of the host's health, as forge_check_json() makes them, that no run needed. */
FORGE_MUST_CHECK int forge_store_put_checks(struct forge_store *st, const json_t *checks,
					    const char *host, struct forge_error *err);
/* One result. Strings are borrowed for the call, "" where unknown. */
struct forge_check_row {
	const char *name, *kind, *phase, *time, *run_id, *host, *problem;
	bool is_ok;
	int64_t duration_usec;
};
/* Those at or after this time (NULL: all), of this check (NULL: of all), the oldest first. */
FORGE_MUST_CHECK int forge_store_checks(
	struct forge_store *st, const char *name, const char *since,
	int (*visit)(const struct forge_check_row *row, void *arg), void *arg,
	struct forge_error *err);
/* Counts and deletes the results of this host from before this time. */
FORGE_MUST_CHECK int forge_store_count_checks(struct forge_store *st, const char *before,
					      const char *host, struct forge_error *err);
FORGE_MUST_CHECK int forge_store_drop_checks(struct forge_store *st, const char *before,
					     const char *host, struct forge_error *err);
/* Replaces the record of a finished run, and adds an event. The status stays. */
FORGE_MUST_CHECK int forge_store_replace_record(struct forge_store *st,
						const char *run_id, const json_t *record,
						const json_t *event,
						struct forge_error *err);
/*
 * Deletes a finished run with everything that belongs to it. A run that is not there is no
 * error.
 */
FORGE_MUST_CHECK int forge_store_remove(struct forge_store *st, const char *run_id,
					struct forge_error *err);
/* Replaces the record of a run, and its outputs by those that this record has. */
FORGE_MUST_CHECK int forge_store_drop_outputs(struct forge_store *st, const char *run_id,
					      const json_t *record,
					      struct forge_error *err);
/* Has any run left a file with this content? 1, 0, or negative. */
FORGE_MUST_CHECK int forge_store_has_object(struct forge_store *st, const char *digest,
					    struct forge_error *err);
/* Visits every "sha256:..." that a record points to. */
FORGE_MUST_CHECK int forge_store_each_object(struct forge_store *st,
					     int (*visit)(const char *digest, void *arg),
					     void *arg, struct forge_error *err);
/*
 * Visits the files that runs of this user on this host left; digest ("sha256:...", NULL: all):
 * those with this content. Stops at and returns visit's first non-zero result.
 */
FORGE_MUST_CHECK int forge_store_each_output(
	struct forge_store *st, const char *user, const char *host, const char *digest,
	int (*visit)(const struct forge_output_row *row, void *arg), void *arg,
	struct forge_error *err);

/* ---- totals.c: of ended runs and of checks; they do not shrink when runs are removed ---- */

/* The bound of the last bucket of a histogram. */
#define FORGE_TOTAL_INF INT64_MAX

/*
 * One total. Strings are borrowed for the call, "" where they do not apply.
 *
 *   kind     what n counts, and what total sums up
 *   "run"    ended runs by status, reason, runtime and executor
 *   "wall"   ended runs by status, with a wall time up to le microseconds and above the bound before; microseconds
 *   "wait"   the same by the time from the request to the start of the command
 *   "share"  the same by the memory used of the memory allowed, in millionths
 *   "check"  checks of a host by status ("pass", "fail") and reason (their name); microseconds
 *   "probe"  probes of runtimes by status ("healthy", "broken") and reason (the runtime's name)
 */
struct forge_total_row {
	const char *kind, *status, *reason, *runtime, *executor;
	int64_t le, n, total;
	const char *since; /* when the first of them was counted */
};
/* In the order of the columns. */
FORGE_MUST_CHECK int forge_store_totals(struct forge_store *st,
					int (*visit)(const struct forge_total_row *row,
						     void *arg),
					void *arg, struct forge_error *err);
/* The upper bounds of a histogram ("wall", "wait", "share"), the last is FORGE_TOTAL_INF. Returns their number. */
size_t forge_total_bounds(const char *kind, const int64_t **ret);
/* Adds what was counted one by one to the totals. Changes no total. */
FORGE_MUST_CHECK int forge_store_fold(struct forge_store *st, struct forge_error *err);
/* Whether so much was counted one by one that reading it takes time. */
int forge_store_wants_fold(struct forge_store *st);
