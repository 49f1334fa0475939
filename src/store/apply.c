/* SPDX-License-Identifier: Apache-2.0 */
/* Writes to the store: brings one run up to date in one transaction. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "store/backend.h"
#include "store/state.h"

/* These have names because forge_store_warm() compiles them ahead of need. */
static const char SQL_POSITION[] =
	"SELECT status, (SELECT max(seq) FROM run_events e WHERE "
	"e.run_id = r.run_id) FROM runs r WHERE run_id = $1";
static const char SQL_EVENT[] =
	"INSERT INTO run_events (run_id, seq, time, actor, event, status, "
	"detail) VALUES ($1, $2, $3, $4, $5, $6, $7)";
static const char SQL_ANALYSIS[] =
	"INSERT INTO analyses VALUES ($1, $2) ON CONFLICT DO NOTHING";
static const char SQL_NEW_RUN[] =
	"INSERT INTO runs (run_id, analysis_id, status, runtime, executor, host, "
	"username, created_at, pid, pid_start, boot_id, idempotency_key, runtime_digest, "
	"part_of, parent_run, attempt, step_key, pipeline, step, record) VALUES ($1, $2, "
	"'', $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, "
	"'{}') "
	"ON CONFLICT (run_id) DO NOTHING";
static const char SQL_UPDATE[] =
	"UPDATE runs SET status = $1, reason = $2, notes = $3, started_at = $4, "
	"ended_at = $5, exit_code = $6, wall_usec = $7, memory_peak = $8, "
	"record = $9 WHERE run_id = $10 AND status = $11";
static const char SQL_FREE_KEY[] = "UPDATE runs SET idempotency_key = NULL WHERE run_id "
				   "= $1";
static const char SQL_INPUT[] = "INSERT INTO inputs VALUES ($1, $2, $3, $4) ON CONFLICT "
				"DO NOTHING";
static const char SQL_OUTPUT[] = "INSERT INTO outputs VALUES ($1, $2, $3, $4, $5) ON "
				 "CONFLICT DO NOTHING";
static const char SQL_POST[] = "INSERT INTO post_process_records VALUES ($1, $2, $3) "
			       "ON CONFLICT DO NOTHING";
static const char SQL_POST_GONE[] = "DELETE FROM post_process_records WHERE run_id = $1";

void forge_store_warm(struct forge_store *st)
{
	static const char *const all[] = { SQL_POSITION,       SQL_EVENT,  SQL_ANALYSIS,
					   SQL_NEW_RUN,	       SQL_UPDATE, SQL_OUTPUT,
					   forge_total_sql_run };

	for (size_t i = 0; st->ops->prepare && i < FORGE_ARRAY_SIZE(all); i++)
		st->ops->prepare(st, all[i]);
}

/* The state of a run in the store, which the batch then advances. */
struct position {
	enum forge_status status;
	int64_t last_seq; /* -1: no event yet */
};

static struct forge_sql_value text_value(const json_t *o, const char *key)
{
	return SQL_TEXT(forge_json_string(o, key));
}

static struct forge_sql_value int_value(const json_t *o, const char *key)
{
	const json_t *j = json_object_get(o, key);

	return json_is_integer(j) ? SQL_INT(json_integer_value(j)) : SQL_TEXT(NULL);
}

static struct forge_sql_value usec_value(const json_t *o, const char *key)
{
	const json_t *j = json_object_get(o, key);

	/* Rounds to the nearest; none of these numbers is negative. */
	return json_is_number(j) ? SQL_INT((int64_t)(json_number_value(j) * 1e6 + 0.5))
				 : SQL_TEXT(NULL);
}

static int take_position(const char *const *columns, void *arg)
{
	struct position *p = arg;

	p->status = forge_status_of(columns[0]);
	p->last_seq = columns[1] ? strtoll(columns[1], NULL, 10) : -1;
	return 0;
}

static int read_position(struct forge_store *st, const char *run_id, struct position *ret,
			 struct forge_error *err)
{
	*ret = (struct position){ .last_seq = -1 };
	int rc = forge_sql(st, err, take_position, ret, SQL_POSITION, SQL_TEXT(run_id));
	return rc < 0 ? rc : 0;
}

/* An error that makes forge_store_transact() retry from the beginning. */
static int changed_meanwhile(const char *run_id, struct forge_error *err)
{
	return forge_fail(err, EBUSY, "run %s was changed at the same time", run_id);
}

/* seq was free when the run was read. */
static int insert_event(struct forge_store *st, const char *run_id, int64_t seq,
			const json_t *e, struct forge_error *err)
{
	int rc = forge_sql(st, err, NULL, NULL, SQL_EVENT, SQL_TEXT(run_id), SQL_INT(seq),
			   text_value(e, "time"), text_value(e, "actor"),
			   text_value(e, "event"), text_value(e, "status"),
			   text_value(e, "detail"));
	if (rc == -EEXIST)
		return changed_meanwhile(run_id, err);
	return rc < 0 ? rc : 0;
}

static int refuse(const char *run_id, enum forge_status from, enum forge_status to,
		  struct forge_error *err)
{
	return forge_fail(err, forge_status_is_terminal(from) ? EALREADY : EPROTO,
			  "run %s is %s and cannot become %s", run_id,
			  from ? forge_status_name(from) : "not known",
			  forge_status_name(to));
}

/* Adds an event that the batch lacks, for a state that the run must have passed. */
static int assume(struct forge_store *st, const char *run_id, struct position *at,
		  enum forge_status to, struct forge_error *err)
{
	char now[FORGE_TIME_MAX];
	json_t *e =
		json_pack("{s:s, s:s, s:s, s:s}", "time", forge_format_now(now), "actor",
			  "repair", "event", "assumed", "status", forge_status_name(to));
	int rc = e ? insert_event(st, run_id, at->last_seq + 1, e, err)
		   : forge_fail(err, ENOMEM, "out of memory");

	json_decref(e);
	at->last_seq++;
	at->status = to;
	return rc;
}

/*
 * A power loss may have destroyed the last events of a run but not its verdict. There is only
 * one way for it through the states between; this adds them, up to one that may become `to`.
 */
static int approach(struct forge_store *st, const char *run_id, struct position *at,
		    enum forge_status to, struct forge_error *err)
{
	int rc = 0;

	while (rc == 0 && !forge_status_may_follow(at->status, to)) {
		enum forge_status via = at->status < FORGE_STATUS_PREPARING
						? FORGE_STATUS_PREPARING
						: at->status + 1;
		if (via > FORGE_STATUS_COLLECTING)
			return refuse(run_id, at->status, to, err);
		rc = assume(st, run_id, at, via, err);
	}
	return rc;
}

static int walk_to(struct forge_store *st, const char *run_id, struct position *at,
		   enum forge_status to, struct forge_error *err)
{
	if (at->status == to)
		return 0;
	int rc = approach(st, run_id, at, to, err);
	return rc < 0 ? rc : assume(st, run_id, at, to, err);
}

/*
 * An event of repair follows the events that are left, and these may be none. So missing states
 * before it are filled in, and these may take its number.
 */
static int apply_event(struct forge_store *st, const char *run_id, const json_t *e,
		       struct position *at, struct forge_error *err)
{
	enum forge_status to = forge_status_of(forge_json_string(e, "status"));
	const char *actor = forge_json_string(e, "actor");
	int64_t seq = json_integer_value(json_object_get(e, "seq"));
	int rc = 0;

	/* A repair that was itself interrupted may report a state twice: that is one change. */
	if (to != FORGE_STATUS_NONE && to != at->status) {
		if (actor && strcmp(actor, "repair") == 0)
			rc = approach(st, run_id, at, to, err);
		else if (!forge_status_may_follow(at->status, to))
			rc = refuse(run_id, at->status, to, err);
		if (rc < 0)
			return rc;
		at->status = to;
	}
	at->last_seq = seq > at->last_seq ? seq : at->last_seq + 1;
	return insert_event(st, run_id, at->last_seq, e, err);
}

const char *forge_store_part_of(const json_t *record)
{
	if (json_is_true(json_object_get(record, "is_probe")))
		return "probe";
	return json_integer_value(json_object_get(record, "attempt")) > 1
		       ? NULL
		       : forge_json_string(record, "parent_run");
}

/*
 * A run that was refused for the host's health has not run, and may succeed when the host is healthy: the same
 * key starts another one. The record keeps the key. So it is with one that was stored again when its key was already that of
 * a later run.
 */
static bool frees_key(const json_t *record)
{
	if (json_is_true(json_object_get(record, "key_is_of_another")))
		return true;
	return strcmp(forge_json_string_or(record, "status", ""), "rejected") == 0 &&
	       strcmp(forge_json_string_or(record, "reason", ""), "health_pre") == 0;
}

/* Events refer to the row of the run, so the row is inserted first; its state is set last. */
static int insert_run(struct forge_store *st, const json_t *record,
		      struct forge_error *err)
{
	int rc = forge_sql(st, err, NULL, NULL, SQL_ANALYSIS,
			   text_value(record, "analysis_id"),
			   text_value(record, "created_at"));

	if (rc < 0)
		return rc;
	const json_t *supervisor = json_object_get(record, "supervisor");
	const json_t *step = json_object_get(record, "step");
	json_int_t attempt = json_integer_value(json_object_get(record, "attempt"));
	rc = forge_sql(st, err, NULL, NULL, SQL_NEW_RUN, text_value(record, "run_id"),
		       text_value(record, "analysis_id"),
		       text_value(json_object_get(record, "runtime"), "name"),
		       text_value(record, "executor"), text_value(record, "host"),
		       text_value(record, "user"), text_value(record, "created_at"),
		       int_value(supervisor, "pid"), int_value(supervisor, "start_time"),
		       text_value(supervisor, "boot_id"),
		       frees_key(record) ? SQL_TEXT(NULL)
					 : text_value(record, "idempotency_key"),
		       text_value(json_object_get(record, "runtime"), "digest"),
		       SQL_TEXT(forge_store_part_of(record)),
		       text_value(record, "parent_run"),
		       SQL_INT(attempt > 1 ? attempt : 1), text_value(step, "key"),
		       text_value(step, "pipeline"), text_value(step, "task"));
	if (rc == 0)
		return changed_meanwhile(forge_json_string(record, "run_id"), err);
	return rc < 0 ? rc : 0;
}

/* was: the status that read_position() saw. If another writer changed it since, no row matches. */
static int update_run(struct forge_store *st, const json_t *record, const char *was,
		      enum forge_status status, struct forge_error *err)
{
	const json_t *usage = json_object_get(record, "usage");
	forge_auto_free char *text =
		json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(9));

	if (!text)
		return forge_fail(err, ENOMEM, "out of memory");
	int rc = forge_sql(
		st, err, NULL, NULL, SQL_UPDATE, SQL_TEXT(forge_status_name(status)),
		text_value(record, "reason"), text_value(record, "completion_notes"),
		text_value(record, "started_at"), text_value(record, "ended_at"),
		int_value(record, "exit_code"), usec_value(usage, "wall_seconds"),
		int_value(usage, "memory_peak_bytes"), SQL_TEXT(text),
		text_value(record, "run_id"), SQL_TEXT(was));
	if (rc < 0)
		return rc;
	return rc == 1 ? 0 : changed_meanwhile(forge_json_string(record, "run_id"), err);
}

int forge_store_insert_outputs(struct forge_store *st, const char *run_id,
			       const json_t *record, struct forge_error *err)
{
	size_t i;
	const json_t *f;
	int rc = 0;

	json_array_foreach (json_object_get(record, "outputs"), i, f) {
		if (rc >= 0)
			rc = forge_sql(st, err, NULL, NULL, SQL_OUTPUT, SQL_TEXT(run_id),
				       text_value(f, "path"), int_value(f, "size"),
				       text_value(f, "sha256"),
				       text_value(f, "stored_as"));
	}
	return rc < 0 ? rc : 0;
}

static int insert_files(struct forge_store *st, const json_t *record,
			struct forge_error *err)
{
	size_t i;
	const json_t *f;
	int rc = 0;

	json_array_foreach (json_object_get(record, "inputs"), i, f) {
		if (rc >= 0)
			rc = forge_sql(st, err, NULL, NULL, SQL_INPUT,
				       text_value(record, "run_id"),
				       text_value(f, "path"), int_value(f, "size"),
				       text_value(f, "sha256"));
	}
	return rc < 0 ? rc
		      : forge_store_insert_outputs(
				st, forge_json_string(record, "run_id"), record, err);
}

static int insert_post(struct forge_store *st, const char *run_id, const json_t *rows,
		       struct forge_error *err)
{
	size_t i;
	const json_t *row;
	int rc = 0;

	json_array_foreach (rows, i, row) {
		forge_auto_free char *text = forge_json_line(row);
		if (rc >= 0 && !text)
			rc = forge_fail(err, ENOMEM, "out of memory");
		if (rc >= 0)
			rc = forge_sql(st, err, NULL, NULL, SQL_POST, SQL_TEXT(run_id),
				       SQL_INT(i), SQL_TEXT(text));
	}
	return rc < 0 ? rc : 0;
}

/* Inside the transaction. */
static int apply(struct forge_store *st, const json_t *batch, struct forge_error *err)
{
	const json_t *record = json_object_get(batch, "record"), *e;
	const char *run_id = forge_json_string(record, "run_id");
	enum forge_status to = forge_status_of(forge_json_string(record, "status"));
	struct position was, at;
	size_t i;

	if (!run_id || to == FORGE_STATUS_NONE)
		return forge_fail(err, EINVAL, "a record without run_id or status");
	int rc = read_position(st, run_id, &was, err);
	at = was;
	if (rc == 0 && was.status == FORGE_STATUS_NONE)
		rc = insert_run(st, record, err);
	json_array_foreach (json_object_get(batch, "events"), i, e)
		if (rc == 0 &&
		    json_integer_value(json_object_get(e, "seq")) > at.last_seq)
			rc = apply_event(st, run_id, e, &at, err);
	if (rc == 0)
		rc = walk_to(st, run_id, &at, to, err);
	if (rc == 0)
		rc = update_run(st, record, forge_status_name(was.status), at.status,
				err);
	if (rc == 0 && frees_key(record) && json_object_get(record, "idempotency_key"))
		rc = forge_sql(st, err, NULL, NULL, SQL_FREE_KEY, SQL_TEXT(run_id));
	rc = rc > 0 ? 0 : rc;
	if (rc == 0 && forge_status_is_terminal(at.status) &&
	    !forge_status_is_terminal(was.status)) {
		rc = insert_files(st, record, err);
		if (rc == 0)
			rc = forge_store_insert_health(st, record, err);
		if (rc == 0)
			rc = forge_store_count_run(st, record, err);
	}
	if (rc == 0)
		rc = insert_post(st, run_id, json_object_get(batch, "post_process"), err);
	return rc;
}

int forge_store_transact(struct forge_store *st, bool durable, forge_store_work *work,
			 const void *arg, struct forge_error *err)
{
	struct forge_error e = FORGE_ERROR_INIT;
	int rc = -EBUSY;

	for (int tries = 0; tries < 5 && rc == -EBUSY; tries++) {
		rc = st->ops->begin(st, durable, &e);
		if (rc < 0)
			break; /* begin has waited already */
		rc = work(st, arg, &e);
		if (rc == 0)
			rc = st->ops->commit(st, &e);
		else
			st->ops->rollback(st);
	}
	if (rc < 0 && err)
		*err = e;
	return rc;
}

static int apply_work(struct forge_store *st, const void *arg, struct forge_error *err)
{
	return apply(st, arg, err);
}

/* Keeps the fields that a listing shows or that repair needs; all of them are short. */
static json_t *reduce_record(const json_t *record, const char *why)
{
	static const char *const keys[] = {
		"run_id",     "analysis_id", "status",	      "reason",
		"exit_code",  "signal",	     "exit_status",   "executor",
		"host",	      "user",	     "created_at",    "started_at",
		"ended_at",   "usage",	     "supervisor",    "logs",
		"parent_run", "attempt",     "priority",      "idempotency_key",
		"request",    "workdir",     "forge_version", "retried_by",
	};
	json_t *r = json_object();

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(keys); i++)
		if (json_object_get(record, keys[i]))
			json_object_set(r, keys[i], json_object_get(record, keys[i]));
	json_object_set_new(r, "completion_notes",
			    json_string("The store refused the whole record, which is in "
					"the run's own directory."));
	json_object_set_new(r, "store_refused", json_string(why));
	return r;
}

static json_t *reduce(const json_t *batch, const char *why)
{
	json_t *events = json_array(), *e;
	size_t i;

	json_array_foreach (json_object_get(batch, "events"), i, e) {
		json_t *less = json_object_get(e, "status") ? json_copy(e) : NULL;
		json_object_del(less, "detail");
		if (less)
			json_array_append_new(events, less);
	}
	return json_pack("{s:o, s:o}", "record",
			 reduce_record(json_object_get(batch, "record"), why), "events",
			 events);
}

int forge_store_apply(struct forge_store *st, const json_t *batch, bool durable,
		      struct forge_error *err)
{
	return forge_store_transact(st, durable, apply_work, batch, err);
}

struct many {
	const json_t *const *batches;
	size_t n;
};

static int apply_many(struct forge_store *st, const void *arg, struct forge_error *err)
{
	const struct many *m = arg;
	int rc = 0;

	for (size_t i = 0; i < m->n && rc == 0; i++)
		rc = apply(st, m->batches[i], err);
	return rc;
}

int forge_store_apply_all(struct forge_store *st, const json_t *const *batches, size_t n,
			  bool durable, struct forge_error *err)
{
	const struct many m = { batches, n };

	return forge_store_transact(st, durable, apply_many, &m, err);
}

int forge_store_settle(struct forge_store *st, const json_t *batch, bool durable,
		       struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	int rc = forge_store_transact(st, durable, apply_work, batch, &why);

	if (rc == -EINVAL || rc == -E2BIG) {
		json_t *less = reduce(batch, why.msg);
		if (less &&
		    forge_store_transact(st, durable, apply_work, less, NULL) == 0)
			rc = 0;
		json_decref(less);
	}
	if (rc < 0 && err)
		*err = why;
	return rc;
}

struct post_work {
	const char *run_id;
	const json_t *result, *rows, *event;
};

/* The verdict stays; only the results of the post-process are replaced. */
static int post_work(struct forge_store *st, const void *arg, struct forge_error *err)
{
	const struct post_work *w = arg;
	struct position at;
	json_t *record = NULL;
	int rc = read_position(st, w->run_id, &at, err);

	if (rc == 0 && !forge_status_is_terminal(at.status))
		rc = refuse(w->run_id, at.status, FORGE_STATUS_SUCCEEDED, err);
	if (rc == 0)
		rc = forge_store_get(st, w->run_id, &record, err);
	if (rc == 0)
		rc = forge_sql(st, err, NULL, NULL, SQL_POST_GONE, SQL_TEXT(w->run_id));
	if (rc >= 0)
		rc = insert_post(st, w->run_id, w->rows, err);
	if (rc == 0) {
		json_object_set(record, "post_process", (json_t *)w->result);
		rc = update_run(st, record, forge_status_name(at.status), at.status, err);
	}
	if (rc == 0) {
		rc = insert_event(st, w->run_id, at.last_seq + 1, w->event, err);
	}
	json_decref(record);
	return rc;
}

int forge_store_put_post_process(struct forge_store *st, const char *run_id,
				 const json_t *result, const json_t *rows,
				 const json_t *event, struct forge_error *err)
{
	struct post_work w = { run_id, result, rows, event };

	return forge_store_transact(st, true, post_work, &w, err);
}

/* ---- runtimes ---- */

/* Times are text that sorts. A check that is stored late may be the earliest one. */
static int check_work(struct forge_store *st, const void *arg, struct forge_error *err)
{
	const struct forge_runtime_check *c = arg;
	int rc = forge_sql(
		st, err, NULL, NULL,
		"INSERT INTO runtimes (name, digest, kind, prefix, first_seen, "
		"last_seen) VALUES ($1, $2, $3, $4, $5, $5) ON CONFLICT (name, "
		"digest) DO UPDATE SET kind = excluded.kind, prefix = "
		"excluded.prefix, first_seen = CASE WHEN excluded.first_seen < "
		"runtimes.first_seen THEN excluded.first_seen ELSE "
		"runtimes.first_seen END, last_seen = CASE WHEN "
		"excluded.last_seen > runtimes.last_seen THEN excluded.last_seen "
		"ELSE runtimes.last_seen END",
		SQL_TEXT(c->name), SQL_TEXT(c->digest), SQL_TEXT(c->kind),
		SQL_TEXT(c->prefix), SQL_TEXT(c->time));

	if (rc >= 0)
		rc = forge_sql(
			st, err, NULL, NULL,
			"INSERT INTO health_checks (name, time, phase, run_id, digest, "
			"verdict, problem, details) VALUES ($1, $2, 'runtime', $3, $4, "
			"$5, $6, $7) ON CONFLICT DO NOTHING",
			SQL_TEXT(c->name), SQL_TEXT(c->time), SQL_TEXT(c->run_id),
			SQL_TEXT(c->digest), SQL_TEXT(c->verdict),
			SQL_TEXT(*c->problem ? c->problem : NULL), SQL_TEXT(c->versions));
	/* 0: the store has the check already. */
	if (rc > 0)
		rc = forge_store_count_check_result(st, "probe", c->name, c->verdict, 0,
						    err);
	return rc < 0 ? rc : 0;
}

/* Not durable: the state file has the check too. */
int forge_store_put_check(struct forge_store *st, const struct forge_runtime_check *check,
			  struct forge_error *err)
{
	return forge_store_transact(st, false, check_work, check, err);
}
