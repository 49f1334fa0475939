/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Totals of ended runs and of checks, for metrics. They only grow: a run that is removed was there. With each run
 * that ends, one row of deltas is inserted in its transaction; nothing is updated, so that runs that end at the
 * same time do not wait for each other. From time to time forge_store_fold() adds the deltas to the totals. A
 * reader adds up both in one statement, so it never sees a row twice or not at all.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "store/backend.h"

/* Upper bounds of the buckets, in microseconds or millionths; FORGE_TOTAL_INF: the rest. */
#define S 1000000ll
static const int64_t wall_bounds[] = { S / 10,	       S,	  5 * S,     15 * S,
				       60 * S,	       300 * S,	  900 * S,   1800 * S,
				       3600 * S,       14400 * S, 43200 * S, 86400 * S,
				       FORGE_TOTAL_INF };
static const int64_t wait_bounds[] = { S / 10,	  S,	     5 * S,	     15 * S,
				       60 * S,	  300 * S,   900 * S,	     3600 * S,
				       14400 * S, 86400 * S, FORGE_TOTAL_INF };
static const int64_t share_bounds[] = { 100000, 250000, 500000,	 750000,
					900000, 950000, 1000000, FORGE_TOTAL_INF };

static const struct {
	const char *kind;
	const int64_t *bounds;
	size_t n;
} histograms[] = {
	{ "wall", wall_bounds, FORGE_ARRAY_SIZE(wall_bounds) },
	{ "wait", wait_bounds, FORGE_ARRAY_SIZE(wait_bounds) },
	{ "share", share_bounds, FORGE_ARRAY_SIZE(share_bounds) },
};

size_t forge_total_bounds(const char *kind, const int64_t **ret)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(histograms); i++) {
		if (strcmp(histograms[i].kind, kind) == 0) {
			*ret = histograms[i].bounds;
			return histograms[i].n;
		}
	}
	return 0;
}

static struct forge_sql_value bound_of(const char *kind, int64_t value)
{
	const int64_t *bounds;
	size_t n = forge_total_bounds(kind, &bounds), i = 0;

	if (value < 0 || n == 0)
		return SQL_TEXT(NULL);
	while (i + 1 < n && value > bounds[i])
		i++;
	return SQL_INT(bounds[i]);
}

static struct forge_sql_value known(int64_t value)
{
	return value < 0 ? SQL_TEXT(NULL) : SQL_INT(value);
}

/* A name is a label of a metric and part of a key, whose size is limited: 120 characters of it count. */
#define NAME_CHARACTERS 120
#define NAME_BYTES	(NAME_CHARACTERS * 4 + 1)
static const char *shorten(const char *name, char buf[NAME_BYTES])
{
	size_t len = 0, characters = 0;

	for (; name && name[len]; len++) {
		bool is_start = ((unsigned char)name[len] & 0xc0) != 0x80;
		if (is_start && ++characters > NAME_CHARACTERS)
			break;
		if (len + 1 >= NAME_BYTES)
			break;
		buf[len] = name[len];
	}
	buf[len] = '\0';
	return buf;
}

/* "2026-01-31T12:00:00.123Z" -> milliseconds of the epoch, -1: it is no time. */
static int64_t msec_of(const char *text)
{
	int msec = 0, n;
	struct tm tm = { 0 };

	if (!text)
		return -1;
	n = sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ", &tm.tm_year, &tm.tm_mon,
		   &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &msec);
	tm.tm_year -= 1900;
	tm.tm_mon -= 1;
	return n < 6 ? -1 : (int64_t)timegm(&tm) * 1000 + msec;
}

static int64_t wait_usec(const json_t *record)
{
	int64_t from = msec_of(forge_json_string(record, "created_at")),
		to = msec_of(forge_json_string(record, "started_at"));

	/* A clock that was set back makes no negative wait. */
	return from < 0 || to < 0 ? -1 : to < from ? 0 : (to - from) * 1000;
}

static int64_t wall_usec(const json_t *record)
{
	const json_t *j =
		json_object_get(json_object_get(record, "usage"), "wall_seconds");

	return json_is_number(j) && json_number_value(j) >= 0
		       ? (int64_t)(json_number_value(j) * 1e6)
		       : -1;
}

static int64_t memory_share(const json_t *record)
{
	const json_t *used = json_object_get(json_object_get(record, "usage"),
					     "memory_peak_bytes"),
		     *limit = json_object_get(json_object_get(record, "limits"),
					      "memory_bytes");
	double bytes = json_number_value(limit);

	return json_is_number(used) && bytes > 0
		       ? (int64_t)(json_number_value(used) / bytes * 1e6)
		       : -1;
}

const char forge_total_sql_run[] = "INSERT INTO run_deltas (kind, since, status, reason, "
				   "runtime, executor, wall_le, "
				   "wall, wait_le, wait, share_le, share) VALUES ('run', "
				   "$1, $2, $3, $4, $5, $6, $7, "
				   "$8, $9, $10, $11)";

int forge_store_count_run(struct forge_store *st, const json_t *record,
			  struct forge_error *err)
{
	char now[FORGE_TIME_MAX], runtime[NAME_BYTES], executor[NAME_BYTES];
	int64_t wall = wall_usec(record), wait = wait_usec(record),
		share = memory_share(record);

	if (forge_store_part_of(record))
		return 0;
	int rc = forge_sql(
		st, err, NULL, NULL, forge_total_sql_run, SQL_TEXT(forge_format_now(now)),
		SQL_TEXT(forge_json_string_or(record, "status", "")),
		SQL_TEXT(forge_json_string_or(record, "reason", "")),
		SQL_TEXT(shorten(
			forge_json_string(json_object_get(record, "runtime"), "name"),
			runtime)),
		SQL_TEXT(shorten(forge_json_string(record, "executor"), executor)),
		bound_of("wall", wall), known(wall), bound_of("wait", wait), known(wait),
		bound_of("share", share), known(share));
	return rc < 0 ? rc : 0;
}

int forge_store_count_check_result(struct forge_store *st, const char *kind,
				   const char *name, const char *verdict, int64_t usec,
				   struct forge_error *err)
{
	char now[FORGE_TIME_MAX], text[NAME_BYTES];
	int rc = forge_sql(st, err, NULL, NULL,
			   "INSERT INTO run_deltas (kind, since, status, reason, "
			   "runtime, executor, wall) VALUES ($1, $2, $3, $4, '', '', $5)",
			   SQL_TEXT(kind), SQL_TEXT(forge_format_now(now)),
			   SQL_TEXT(verdict), SQL_TEXT(shorten(name, text)),
			   SQL_INT(usec));

	return rc < 0 ? rc : 0;
}

/* ---- folding ---- */

/* A histogram from the deltas; "%s" is the condition on rows. */
#define HISTOGRAM(kind, status)                                                          \
	"SELECT '" kind "' AS kind, " status " AS status, '' AS reason, '' AS runtime, " \
	"'' AS executor, " kind "_le AS le, since, 1 AS n, " kind " AS total FROM "      \
	"run_deltas WHERE " kind "_le IS NOT NULL"
#define COUNTS                                                                           \
	"SELECT kind, status, reason, runtime, executor, 0 AS le, since, 1 AS n, CASE "  \
	"WHEN kind = 'run' THEN 0 ELSE COALESCE(wall, 0) END AS total FROM run_deltas "  \
	"WHERE 1 = 1"
#define ADDED	" AND batch = $1"
#define GROUPS	"kind, status, reason, runtime, executor, le"
#define COLUMNS "kind, status, reason, runtime, executor, le, since, n, total"

static const char SQL_FOLD[] =
	"INSERT INTO run_totals (" COLUMNS ") SELECT " GROUPS ", min(since), sum(n), "
	"sum(total) FROM (" COUNTS ADDED " UNION ALL " HISTOGRAM("wall", "status") ADDED
	" UNION ALL " HISTOGRAM("wait", "''") ADDED " UNION ALL " HISTOGRAM("share", "''")
		ADDED ") AS d WHERE true GROUP BY " GROUPS " ON CONFLICT (" GROUPS
		      ") DO UPDATE SET n = run_totals.n + excluded.n, total = "
		      "run_totals.total + excluded.total";

static const char SQL_TOTALS[] =
	"SELECT " GROUPS ", sum(n), sum(total), min(since) FROM (SELECT " COLUMNS
	" FROM run_totals UNION ALL " COUNTS
	" UNION ALL " HISTOGRAM("wall", "status") " UNION ALL " HISTOGRAM(
		"wait", "''") " UNION ALL " HISTOGRAM("share",
						      "''") ") AS t GROUP BY " GROUPS
							    " ORDER BY " GROUPS;

/*
 * The first statement decides which rows are folded; those that are inserted meanwhile have no batch. Another
 * process that folds waits for these rows, and finds that they have one.
 */
static int fold_work(struct forge_store *st, const void *arg, struct forge_error *err)
{
	const char *batch = arg;
	int rc = forge_sql(st, err, NULL, NULL,
			   "UPDATE run_deltas SET batch = $1 WHERE batch IS NULL",
			   SQL_TEXT(batch));

	if (rc > 0)
		rc = forge_sql(st, err, NULL, NULL, SQL_FOLD, SQL_TEXT(batch));
	if (rc > 0)
		rc = forge_sql(st, err, NULL, NULL,
			       "DELETE FROM run_deltas WHERE batch = $1",
			       SQL_TEXT(batch));
	return rc < 0 ? rc : 0;
}

int forge_store_fold(struct forge_store *st, struct forge_error *err)
{
	char batch[FORGE_RUN_ID_MAX];
	int rc = forge_make_run_id(batch);

	return rc < 0 ? forge_fail_errno(err, -rc, "make an id")
		      : forge_store_transact(st, false, fold_work, batch, err);
}

static int note_row(const char *const *columns, void *arg)
{
	(void)columns;
	(void)arg;
	return 0;
}

int forge_store_wants_fold(struct forge_store *st)
{
	return st->ops->exec(st, "SELECT 1 FROM run_deltas LIMIT 256", NULL, 0, note_row,
			     NULL, NULL) >= 256;
}

/* ---- reading ---- */

struct visit {
	int (*visit)(const struct forge_total_row *row, void *arg);
	void *arg;
};

static int64_t number(const char *text)
{
	return text ? strtoll(text, NULL, 10) : 0;
}

static int visit_total(const char *const *c, void *arg)
{
	const struct visit *v = arg;
	const struct forge_total_row row = { .kind = c[0],
					     .status = c[1],
					     .reason = c[2],
					     .runtime = c[3],
					     .executor = c[4],
					     .le = number(c[5]),
					     .n = number(c[6]),
					     .total = number(c[7]),
					     .since = c[8] };

	return v->visit(&row, v->arg);
}

int forge_store_totals(struct forge_store *st,
		       int (*visit)(const struct forge_total_row *row, void *arg),
		       void *arg, struct forge_error *err)
{
	struct visit v = { visit, arg };

	return st->ops->exec(st, SQL_TOTALS, NULL, 0, visit_total, &v, err);
}
