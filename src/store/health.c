/* SPDX-License-Identifier: Apache-2.0 */
/* Results of checks of a host's health, and records that a person changed after the end of a run. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/strv.h"
#include "store/backend.h"

static int insert_check(struct forge_store *st, const json_t *c, const char *phase,
			const char *run_id, const char *host, struct forge_error *err)
{
	bool is_ok = json_is_true(json_object_get(c, "ok"));
	const json_t *numbers = json_object_get(c, "numbers");
	forge_auto_free char *details = numbers ? forge_json_line(numbers) : NULL;
	double seconds = json_number_value(json_object_get(c, "duration_seconds"));

	int rc = forge_sql(
		st, err, NULL, NULL,
		"INSERT INTO health_checks (name, time, phase, run_id, verdict, problem, "
		"details, kind, severity, host, duration_usec) VALUES ($1, $2, $3, $4, "
		"$5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING",
		SQL_TEXT(forge_json_string_or(c, "name", "")),
		SQL_TEXT(forge_json_string_or(c, "time", "")), SQL_TEXT(phase),
		SQL_TEXT(run_id), SQL_TEXT(is_ok ? "pass" : "fail"),
		SQL_TEXT(is_ok ? NULL : forge_json_string_or(c, "text", "")),
		SQL_TEXT(details), SQL_TEXT(forge_json_string(c, "kind")),
		SQL_TEXT(forge_json_string(c, "severity")), SQL_TEXT(host),
		SQL_INT(seconds * 1e6));
	/* 0: the store has the result already. */
	return rc <= 0 ? rc
		       : forge_store_count_check_result(
				 st, "check", forge_json_string_or(c, "name", ""),
				 is_ok ? "pass" : "fail", (int64_t)(seconds * 1e6), err);
}

/* A result that was used again is a row already. */
static int insert_phase(struct forge_store *st, const json_t *health, const char *phase,
			const char *run_id, struct forge_error *err)
{
	const json_t *part = json_object_get(health, phase), *c;
	const char *host = forge_json_string_or(part, "host", "");
	size_t i;
	int rc = 0;

	json_array_foreach (json_object_get(part, "checks"), i, c)
		if (rc >= 0 && !json_is_true(json_object_get(c, "reused")))
			rc = insert_check(st, c, phase, run_id, host, err);
	return rc < 0 ? rc : 0;
}

int forge_store_insert_health(struct forge_store *st, const json_t *record,
			      struct forge_error *err)
{
	const json_t *health = json_object_get(record, "health");
	const char *run_id = forge_json_string_or(record, "run_id", "");
	int rc = insert_phase(st, health, "pre", run_id, err);

	return rc < 0 ? rc : insert_phase(st, health, "post", run_id, err);
}

static int demand_work(struct forge_store *st, const void *arg, struct forge_error *err)
{
	return insert_phase(st, arg, "demand", "", err);
}

int forge_store_put_checks(struct forge_store *st, const json_t *checks, const char *host,
			   struct forge_error *err)
{
	forge_auto_json json_t *health = json_pack("{s:{s:s, s:O}}", "demand", "host",
						   host, "checks", (json_t *)checks);

	return health ? forge_store_transact(st, false, demand_work, health, err)
		      : forge_fail(err, ENOMEM, "out of memory");
}

struct visit {
	int (*visit)(const struct forge_check_row *row, void *arg);
	void *arg;
};

static int visit_row(const char *const *c, void *arg)
{
	const struct visit *v = arg;
	const struct forge_check_row row = {
		.name = c[0],
		.kind = c[1] ? c[1] : "",
		.phase = c[2],
		.time = c[3],
		.run_id = c[4],
		.host = c[5] ? c[5] : "",
		.is_ok = strcmp(c[6], "pass") == 0,
		.problem = c[7] ? c[7] : "",
		.duration_usec = c[8] ? strtoll(c[8], NULL, 10) : 0,
	};

	return v->visit(&row, v->arg);
}

int forge_store_checks(struct forge_store *st, const char *name, const char *since,
		       int (*visit)(const struct forge_check_row *row, void *arg),
		       void *arg, struct forge_error *err)
{
	struct visit v = { visit, arg };

	return forge_sql(
		st, err, visit_row, &v,
		"SELECT name, kind, phase, time, run_id, host, verdict, problem, "
		"duration_usec FROM health_checks WHERE phase <> 'runtime' AND "
		"($1 = '' OR name = $1) AND time >= $2 ORDER BY time, name",
		SQL_TEXT(name ? name : ""), SQL_TEXT(since ? since : ""));
}

struct old {
	const char *before, *host;
};

/* Each host removes its own: another one may keep them longer. */
static int drop_work(struct forge_store *st, const void *arg, struct forge_error *err)
{
	const struct old *o = arg;
	int rc =
		forge_sql(st, err, NULL, NULL,
			  "DELETE FROM health_checks WHERE phase <> 'runtime' AND time < "
			  "$1 AND host = $2",
			  SQL_TEXT(o->before), SQL_TEXT(o->host));

	return rc < 0 ? rc : 0;
}

static int take_count(const char *const *columns, void *arg)
{
	*(int *)arg = (int)strtol(columns[0] ? columns[0] : "0", NULL, 10);
	return 0;
}

int forge_store_count_checks(struct forge_store *st, const char *before, const char *host,
			     struct forge_error *err)
{
	int n = 0;
	int rc = forge_sql(st, err, take_count, &n,
			   "SELECT count(*) FROM health_checks WHERE phase <> 'runtime' "
			   "AND time < $1 AND host = $2",
			   SQL_TEXT(before), SQL_TEXT(host));

	return rc < 0 ? rc : n;
}

int forge_store_drop_checks(struct forge_store *st, const char *before, const char *host,
			    struct forge_error *err)
{
	const struct old o = { before, host };

	return forge_store_transact(st, true, drop_work, &o, err);
}

/* ---- records ---- */

struct replaced {
	const char *run_id, *record;
	const json_t *event;
};

static int replace_work(struct forge_store *st, const void *arg, struct forge_error *err)
{
	const struct replaced *w = arg;
	int rc = forge_sql(st, err, NULL, NULL,
			   "UPDATE runs SET record = $1 WHERE run_id = $2",
			   SQL_TEXT(w->record), SQL_TEXT(w->run_id));

	if (rc == 0)
		return forge_fail(err, ENOENT, "the store has no run %s", w->run_id);
	if (rc > 0)
		rc = forge_sql(
			st, err, NULL, NULL,
			"INSERT INTO run_events (run_id, seq, time, actor, event, "
			"detail) "
			"SELECT $1, COALESCE(MAX(seq), 0) + 1, $2, $3, $4, $5 FROM "
			"run_events WHERE run_id = $1",
			SQL_TEXT(w->run_id),
			SQL_TEXT(forge_json_string_or(w->event, "time", "")),
			SQL_TEXT(forge_json_string_or(w->event, "actor", "")),
			SQL_TEXT(forge_json_string_or(w->event, "event", "")),
			SQL_TEXT(forge_json_string(w->event, "detail")));
	return rc < 0 ? rc : 0;
}

int forge_store_replace_record(struct forge_store *st, const char *run_id,
			       const json_t *record, const json_t *event,
			       struct forge_error *err)
{
	forge_auto_free char *text =
		json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(9));
	const struct replaced w = { run_id, text, event };

	return text ? forge_store_transact(st, true, replace_work, &w, err)
		    : forge_fail(err, ENOMEM, "out of memory");
}
