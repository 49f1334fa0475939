/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables, as forward-only migrations. A released one is never edited: a change is a new
 * entry at the end. Times are UTC text, which sorts; JSON is text, which both stores have.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/backend.h"

/*
 * A leading '+' marks a table that is stored as the index of its primary key, where the backend
 * has such tables. A leading '!' marks a statement only for backends that limit the size of a
 * row of an index.
 */
static const char *const v1[] = {
	"+CREATE TABLE analyses (analysis_id TEXT PRIMARY KEY, created_at TEXT NOT NULL)",
	/* record is the last column: a listing never has to read past it */
	"CREATE TABLE runs (run_id TEXT PRIMARY KEY,"
	" analysis_id TEXT NOT NULL REFERENCES analyses (analysis_id),"
	" status TEXT NOT NULL, reason TEXT, notes TEXT, runtime TEXT, executor TEXT,"
	" host TEXT, username TEXT, created_at TEXT NOT NULL, started_at TEXT,"
	" ended_at TEXT, exit_code BIGINT, wall_usec BIGINT, memory_peak BIGINT,"
	" pid BIGINT, pid_start BIGINT, boot_id TEXT, idempotency_key TEXT,"
	" record TEXT NOT NULL)",
	/*
	 * Each index costs every run one more page, so only the columns that people filter by
	 * have one.
	 */
	"CREATE INDEX runs_status ON runs (status, run_id)",
	"CREATE INDEX runs_analysis ON runs (analysis_id, run_id)",
	"CREATE INDEX runs_runtime ON runs (runtime, run_id) WHERE runtime IS NOT NULL",
	"CREATE UNIQUE INDEX runs_key ON runs (idempotency_key)"
	" WHERE idempotency_key IS NOT NULL",
	"+CREATE TABLE run_events (run_id TEXT NOT NULL REFERENCES runs (run_id),"
	" seq BIGINT NOT NULL, time TEXT NOT NULL, actor TEXT NOT NULL,"
	" event TEXT NOT NULL, status TEXT, detail TEXT, PRIMARY KEY (run_id, seq))",
	"+CREATE TABLE inputs (run_id TEXT NOT NULL REFERENCES runs (run_id),"
	" path TEXT NOT NULL, size BIGINT, sha256 TEXT, PRIMARY KEY (run_id, path))",
	"+CREATE TABLE outputs (run_id TEXT NOT NULL REFERENCES runs (run_id),"
	" path TEXT NOT NULL, size BIGINT, sha256 TEXT, stored_as TEXT,"
	" PRIMARY KEY (run_id, path))",
	NULL,
};

static const char *const v2[] = {
	"CREATE TABLE runtimes (digest TEXT PRIMARY KEY, name TEXT NOT NULL,"
	" kind TEXT NOT NULL, first_seen TEXT NOT NULL, details TEXT)",
	"CREATE INDEX runtimes_name ON runtimes (name, first_seen)",
	"CREATE TABLE health_checks (run_id TEXT NOT NULL, phase TEXT NOT NULL,"
	" time TEXT NOT NULL, name TEXT NOT NULL, verdict TEXT NOT NULL, details TEXT,"
	" PRIMARY KEY (run_id, phase, name))",
	"+CREATE TABLE post_process_records (run_id TEXT NOT NULL REFERENCES runs "
	"(run_id),"
	" seq BIGINT NOT NULL, data TEXT NOT NULL, PRIMARY KEY (run_id, seq))",
	NULL,
};

/* For finding the runs that made a file. */
static const char *const v3[] = {
	"CREATE INDEX outputs_sha256 ON outputs (sha256)",
	NULL,
};

/* For recording which content of a runtime a run used. */
static const char *const v4[] = {
	"ALTER TABLE runs ADD COLUMN runtime_digest TEXT",
	"CREATE INDEX runs_runtime_digest ON runs (runtime, runtime_digest)"
	" WHERE runtime_digest IS NOT NULL",
	NULL,
};

/*
 * For the results of probes. The two dropped tables were never used; several runtimes may have
 * the same content.
 */
static const char *const v5[] = {
	"DROP TABLE runtimes",
	"DROP TABLE health_checks",
	"+CREATE TABLE runtimes (name TEXT NOT NULL, digest TEXT NOT NULL,"
	" kind TEXT NOT NULL, prefix TEXT, first_seen TEXT NOT NULL,"
	" last_seen TEXT NOT NULL, PRIMARY KEY (name, digest))",
	"+CREATE TABLE health_checks (name TEXT NOT NULL, time TEXT NOT NULL,"
	" phase TEXT NOT NULL, run_id TEXT NOT NULL, digest TEXT, verdict TEXT NOT NULL,"
	" problem TEXT, details TEXT, PRIMARY KEY (name, time, phase, run_id))",
	NULL,
};

/*
 * An idempotency key belongs to one user: others of a team may choose the same. A path can be
 * longer than a row of an index may be (2.7 KB), and a run with such an output could never be
 * stored. Files are inserted once, with the verdict, so they need no key.
 */
static const char *const v6[] = {
	"DROP INDEX runs_key",
	"CREATE UNIQUE INDEX runs_key ON runs (username, idempotency_key)"
	" WHERE idempotency_key IS NOT NULL",
	"!ALTER TABLE inputs DROP CONSTRAINT inputs_pkey",
	"!ALTER TABLE outputs DROP CONSTRAINT outputs_pkey",
	"!CREATE INDEX inputs_run ON inputs (run_id)",
	"!CREATE INDEX outputs_run ON outputs (run_id)",
	NULL,
};

/*
 * A run that a user did not ask for is part of something: a post-process has the id of its run
 * here, a probe of a runtime has "probe".
 */
static const char *const v7[] = {
	"ALTER TABLE runs ADD COLUMN part_of TEXT",
	"CREATE INDEX runs_part_of ON runs (part_of) WHERE part_of IS NOT NULL",
	NULL,
};

/*
 * A run that was tried again: parent_run is the attempt before this one. A post-process has its run there,
 * as in part_of, and is always a first attempt.
 */
static const char *const v8[] = {
	"ALTER TABLE runs ADD COLUMN parent_run TEXT",
	"ALTER TABLE runs ADD COLUMN attempt BIGINT NOT NULL DEFAULT 1",
	"UPDATE runs SET parent_run = part_of WHERE part_of IS NOT NULL AND part_of <> "
	"'probe'",
	"CREATE INDEX runs_parent_run ON runs (parent_run) WHERE parent_run IS NOT NULL",
	NULL,
};

/* For the checks of a host's health before and after runs. */
static const char *const v9[] = {
	"ALTER TABLE health_checks ADD COLUMN kind TEXT",
	"ALTER TABLE health_checks ADD COLUMN severity TEXT",
	"ALTER TABLE health_checks ADD COLUMN host TEXT",
	"ALTER TABLE health_checks ADD COLUMN duration_usec BIGINT",
	"CREATE INDEX health_checks_time ON health_checks (time)",
	"CREATE INDEX health_checks_run ON health_checks (run_id) WHERE run_id <> ''",
	NULL,
};

/* For steps of pipelines: a result is found by its key, and the runs of a step by its name. */
static const char *const v10[] = {
	"ALTER TABLE runs ADD COLUMN step_key TEXT",
	"ALTER TABLE runs ADD COLUMN pipeline TEXT",
	"ALTER TABLE runs ADD COLUMN step TEXT",
	"CREATE INDEX runs_step_key ON runs (step_key, status, run_id)"
	" WHERE step_key IS NOT NULL",
	"CREATE INDEX runs_step ON runs (pipeline, step, run_id)"
	" WHERE pipeline IS NOT NULL",
	NULL,
};

/*
 * Totals for metrics, see totals.c. The runs of before are counted; what their records have besides
 * their columns (the wait, the share of the memory) is not.
 */
#define ENDED                                                                            \
	"part_of IS NULL AND status IN ('succeeded', 'failed', 'killed', 'cancelled', "  \
	"'corrupted', 'lost', 'rejected')"
static const char *const v11[] = {
	"+CREATE TABLE run_totals (kind TEXT NOT NULL, status TEXT NOT NULL,"
	" reason TEXT NOT NULL, runtime TEXT NOT NULL, executor TEXT NOT NULL,"
	" le BIGINT NOT NULL, since TEXT NOT NULL, n BIGINT NOT NULL,"
	" total BIGINT NOT NULL,"
	" PRIMARY KEY (kind, status, reason, runtime, executor, le))",
	"CREATE TABLE run_deltas (batch TEXT, kind TEXT NOT NULL, since TEXT NOT NULL,"
	" status TEXT NOT NULL, reason TEXT NOT NULL, runtime TEXT NOT NULL,"
	" executor TEXT NOT NULL, wall_le BIGINT, wall BIGINT, wait_le BIGINT,"
	" wait BIGINT, share_le BIGINT, share BIGINT)",
	"INSERT INTO run_totals SELECT 'run', status, COALESCE(reason, ''),"
	" COALESCE(substr(runtime, 1, 120), ''),"
	" COALESCE(substr(executor, 1, 120), ''), 0, min(created_at), count(*), 0"
	" FROM runs WHERE " ENDED " GROUP BY 2, 3, 4, 5",
	"INSERT INTO run_totals SELECT 'wall', status, '', '', '',"
	" CASE WHEN wall_usec <= 100000 THEN 100000"
	" WHEN wall_usec <= 1000000 THEN 1000000 WHEN wall_usec <= 5000000 THEN 5000000"
	" WHEN wall_usec <= 15000000 THEN 15000000"
	" WHEN wall_usec <= 60000000 THEN 60000000"
	" WHEN wall_usec <= 300000000 THEN 300000000"
	" WHEN wall_usec <= 900000000 THEN 900000000"
	" WHEN wall_usec <= 1800000000 THEN 1800000000"
	" WHEN wall_usec <= 3600000000 THEN 3600000000"
	" WHEN wall_usec <= 14400000000 THEN 14400000000"
	" WHEN wall_usec <= 43200000000 THEN 43200000000"
	" WHEN wall_usec <= 86400000000 THEN 86400000000"
	" ELSE 9223372036854775807 END, min(created_at), count(*), sum(wall_usec)"
	" FROM runs WHERE wall_usec >= 0 AND " ENDED " GROUP BY 2, 6",
	"INSERT INTO run_totals SELECT 'check', verdict, substr(name, 1, 120), '', '',"
	" 0, min(time), count(*), COALESCE(sum(duration_usec), 0) FROM health_checks"
	" WHERE phase <> 'runtime' GROUP BY 2, 3",
	"INSERT INTO run_totals SELECT 'probe', verdict, substr(name, 1, 120), '', '',"
	" 0, min(time), count(*), 0 FROM health_checks WHERE phase = 'runtime'"
	" GROUP BY 2, 3",
	NULL,
};

/*
 * For listings of many runs, see list.c: by what else people filter, and in what else they order. Nearly all
 * runs end by themselves and are local, and cost nothing in these two indexes.
 */
static const char *const v12[] = {
	"CREATE INDEX runs_reason ON runs (reason, run_id) WHERE reason <> 'exit'",
	"CREATE INDEX runs_executor ON runs (executor, run_id) WHERE executor <> 'local'",
	"CREATE INDEX runs_host ON runs (host, run_id)",
	"CREATE INDEX runs_username ON runs (username, run_id)",
	"CREATE INDEX runs_ended ON runs (ended_at, run_id) WHERE ended_at IS NOT NULL",
	"CREATE INDEX runs_wall ON runs (wall_usec, run_id) WHERE wall_usec IS NOT NULL",
	"CREATE INDEX runs_memory ON runs (memory_peak, run_id)"
	" WHERE memory_peak IS NOT NULL",
	NULL,
};

static const char *const *const migrations[] = { v1, v2, v3, v4,  v5,  v6,
						 v7, v8, v9, v10, v11, v12 };

unsigned forge_store_schema_version(void)
{
	return FORGE_ARRAY_SIZE(migrations);
}

static int take_number(const char *const *columns, void *arg)
{
	*(unsigned *)arg = columns[0] ? (unsigned)strtoul(columns[0], NULL, 10) : 0;
	return 0;
}

static int read_version(struct forge_store *st, unsigned *ret, struct forge_error *err)
{
	struct forge_error e = FORGE_ERROR_INIT;

	*ret = 0;
	int rc = st->ops->exec(st, "SELECT version FROM forge_schema", NULL, 0,
			       take_number, ret, &e);
	if (rc >= 0 || rc == -ENOENT)
		return 0;
	if (err)
		*err = e;
	return rc;
}

static int refuse_newer(unsigned version, struct forge_error *err)
{
	int rc = forge_fail(err, EPROTO,
			    "its tables are of version %u, this forge knows %u", version,
			    forge_store_schema_version());

	return forge_hint(err, rc, "Use the newer forge that made them");
}

static int change_schema(struct forge_store *st, const char *sql, struct forge_error *err)
{
	char text[2048];

	if (*sql == '!' && !st->ops->has_small_keys)
		return 0;
	(void)snprintf(text, sizeof(text), "%s%s", sql + (*sql == '+' || *sql == '!'),
		       *sql == '+' ? st->ops->keyed_table : "");
	return st->ops->exec(st, text, NULL, 0, NULL, NULL, err);
}

static int step(struct forge_store *st, unsigned version, struct forge_error *err)
{
	int rc = 0;

	if (version == 1) {
		rc = st->ops->exec(st,
				   "CREATE TABLE forge_schema (version BIGINT NOT NULL)",
				   NULL, 0, NULL, NULL, err);
		if (rc >= 0)
			rc = st->ops->exec(st, "INSERT INTO forge_schema VALUES (0)",
					   NULL, 0, NULL, NULL, err);
	}
	for (const char *const *sql = migrations[version - 1]; *sql && rc >= 0; sql++)
		rc = change_schema(st, *sql, err);
	if (rc >= 0)
		rc = forge_sql(st, err, NULL, NULL,
			       "UPDATE forge_schema SET version = $1", SQL_INT(version));
	return rc < 0 ? forge_wrap(err, rc, "migrate to version %u", version) : 0;
}

/*
 * Each migration is one transaction. Another process may have migrated since the version was
 * read, so it is read again under the lock, except in a fresh database, which has no table for
 * it yet.
 */
static int migrate_one(struct forge_store *st, unsigned *version, struct forge_error *err)
{
	int rc = st->ops->begin(st, true, err);

	if (rc == 0 && st->ops->lock_schema)
		rc = st->ops->lock_schema(st, err);
	unsigned now = 0;
	if (rc >= 0 && *version > 0)
		rc = read_version(st, &now, err);
	bool has_moved = *version > 0 && now != *version;
	if (rc >= 0 && !has_moved)
		rc = step(st, *version + 1, err);
	if (rc < 0 || has_moved) {
		st->ops->rollback(st);
		*version = has_moved ? now : *version;
		return rc < 0 ? rc : 0;
	}
	rc = st->ops->commit(st, err);
	*version += rc == 0;
	return rc;
}

int forge_store_migrate(struct forge_store *st, unsigned up_to, struct forge_error *err)
{
	unsigned version, wanted = up_to ? up_to : forge_store_schema_version();
	int rc = read_version(st, &version, err);

	while (rc == 0 && version < wanted) {
		struct forge_error e = FORGE_ERROR_INIT;
		unsigned before = version;
		rc = migrate_one(st, &version, &e);
		/* In the first migration, a process that lost the race finds the tables made. */
		if (rc < 0 && before == 0 && read_version(st, &version, NULL) == 0 &&
		    version > 0)
			rc = 0;
		if (rc < 0 && err)
			*err = e;
	}
	if (rc == 0 && version > forge_store_schema_version())
		return refuse_newer(version, err);
	return rc;
}
