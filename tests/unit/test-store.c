/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of a store, for every backend alike:
 *   test-store             SQLite, in a temporary file
 *   test-store postgres    the server of $FORGE_TEST_PG (tests/tools/with-postgres.sh), a database a test
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/strv.h"
#include "config-build.h"
#include "store/backend.h"
#include "store/state.h"

static const char *server; /* NULL: SQLite */

struct fixture {
	char dir[32];  /* SQLite's */
	char name[64]; /* PostgreSQL's database */
	char url[256];
	struct forge_store *st;
};

/* ---- stores ---- */

/* A store whose tables are not made or brought up to date. */
static struct forge_store *open_raw(const char *url)
{
	struct forge_error err = FORGE_ERROR_INIT;
	const struct forge_store_ops *ops = &forge_store_sqlite;
#if HAVE_POSTGRES
	ops = server ? &forge_store_postgres : ops;
#endif
	struct forge_store *st = calloc(1, ops->size);

	st->ops = ops;
	if (ops->open(st, url, &err) < 0)
		fail_msg("%s: %s", url, err.msg);
	return st;
}

static void run_sql(struct forge_store *st, const char *sql)
{
	struct forge_error err = FORGE_ERROR_INIT;

	if (st->ops->exec(st, sql, NULL, 0, NULL, NULL, &err) < 0)
		fail_msg("%s: %s", sql, err.msg);
}

static int take_number(const char *const *columns, void *arg)
{
	*(long long *)arg = columns[0] ? strtoll(columns[0], NULL, 10) : -1;
	return 0;
}

/* The one number that sql answers. */
static long long number(struct forge_store *st, const char *sql)
{
	struct forge_error err = FORGE_ERROR_INIT;
	long long n = -1;

	if (st->ops->exec(st, sql, NULL, 0, take_number, &n, &err) < 0)
		fail_msg("%s: %s", sql, err.msg);
	return n;
}

static void on_server(const char *what, const char *name, const char *how)
{
	struct forge_store *admin = open_raw(server);
	char sql[128];

	(void)snprintf(sql, sizeof(sql), "%s DATABASE %s%s", what, name, how);
	run_sql(admin, sql);
	forge_store_close(admin);
}

/* A place for a store, with nothing in it. */
static int make_empty(void **state)
{
	static unsigned n;
	struct fixture *f = calloc(1, sizeof(*f));

	*state = f;
	if (!server) {
		(void)snprintf(f->dir, sizeof(f->dir), "/tmp/forge-unit-XXXXXX");
		assert_non_null(mkdtemp(f->dir));
		(void)snprintf(f->url, sizeof(f->url), "sqlite:%s/forge.db", f->dir);
		return 0;
	}
	(void)snprintf(f->name, sizeof(f->name), "unit_%d_%u", (int)getpid(), n++);
	on_server("CREATE", f->name, "");
	/* postgresql://user@/DATABASE?host=... */
	const char *name = strrchr(server, '@') + 2;
	(void)snprintf(f->url, sizeof(f->url), "%.*s%s%s", (int)(name - server), server,
		       f->name, strchr(name, '?'));
	return 0;
}

static int make_store(void **state)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	struct fixture *f;

	(void)make_empty(state);
	f = *state;
	if (forge_store_open(f->url, &f->st, &err) < 0)
		fail_msg("%s", err.msg);
	assert_untouched(err);
	return 0;
}

static void unlink_in(const char *dir, const char *name)
{
	char path[96];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	(void)unlink(path);
}

static int unmake(void **state)
{
	struct fixture *f = *state;

	forge_store_close(f->st);
	if (server) {
		on_server("DROP", f->name, " WITH (FORCE)");
	} else {
		unlink_in(f->dir, "forge.db");
		unlink_in(f->dir, "forge.db-wal");
		unlink_in(f->dir, "forge.db-shm");
		assert_int_equal(rmdir(f->dir), 0);
	}
	free(f);
	return 0;
}

static struct forge_store *reopen(struct fixture *f)
{
	struct forge_error err = FORGE_ERROR_INIT;

	forge_store_close(f->st);
	f->st = NULL;
	if (forge_store_open(f->url, &f->st, &err) < 0)
		fail_msg("%s", err.msg);
	return f->st;
}

/* ---- runs ---- */

static json_t *record_of(const char *id, const char *status)
{
	json_t *r = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "run_id", id,
			      "analysis_id", id, "status", status, "executor", "local",
			      "host", "here", "user", "me", "created_at",
			      "2026-01-01T00:00:00.000Z");

	assert_non_null(r);
	return r;
}

static json_t *event_of(int seq, const char *event, const char *status)
{
	json_t *e = json_pack("{s:i, s:s, s:s, s:s, s:s*}", "seq", seq, "time",
			      "2026-01-01T00:00:00.000Z", "actor", "test", "event", event,
			      "status", status);

	assert_non_null(e);
	return e;
}

/* All three are taken; events and rows may be NULL. */
static int tell(struct forge_store *st, json_t *record, json_t *events, json_t *rows,
		struct forge_error *err)
{
	json_t *batch = json_pack("{s:o, s:o*, s:o*}", "record", record, "events", events,
				  "post_process", rows);

	assert_non_null(batch);
	int rc = forge_store_apply(st, batch, false, err);
	json_decref(batch);
	return rc;
}

static void told(struct forge_store *st, json_t *record, json_t *events, json_t *rows)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;

	if (tell(st, record, events, rows, &err) < 0)
		fail_msg("%s", err.msg);
	assert_untouched(err);
}

/* The run is new, and goes through these statuses. */
static void went(struct forge_store *st, const char *id, const char *const *path)
{
	json_t *events = json_array();
	const char *last = NULL;

	for (int i = 0; path[i]; i++) {
		last = path[i];
		json_array_append_new(events, event_of(i, "status", last));
	}
	told(st, record_of(id, last), events, NULL);
}
#define WENT(st, id, ...) went((st), (id), (const char *const[]){ __VA_ARGS__, NULL })
#define SUCCEEDED	  "preparing", "running", "collecting", "succeeded"

static size_t events_of(struct forge_store *st, const char *id)
{
	json_t *a;

	assert_int_equal(forge_store_events(st, id, &a, NULL), 0);
	size_t n = json_array_size(a);
	json_decref(a);
	return n;
}

static void assert_status(struct forge_store *st, const char *id, const char *status)
{
	json_t *r;

	assert_int_equal(forge_store_get(st, id, &r, NULL), 0);
	assert_string_equal(forge_json_string(r, "status"), status);
	json_decref(r);
}

/* ---- opening ---- */

static const char *const tables[] = { "analyses",      "runs",
				      "run_events",    "outputs",
				      "inputs",	       "runtimes",
				      "health_checks", "post_process_records" };

static void a_fresh_store_has_its_tables(void **state)
{
	struct fixture *f = *state;
	char sql[96];

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(tables); i++) {
		(void)snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s", tables[i]);
		assert_int_equal(number(f->st, sql), 0);
	}
	assert_int_equal(number(f->st, "SELECT version FROM forge_schema"),
			 forge_store_schema_version());
	assert_int_equal(number(f->st, "SELECT count(*) FROM forge_schema"), 1);
}

static void a_file_is_the_owners_alone(void **state)
{
	struct fixture *f = *state;
	struct stat st;

	if (server)
		return;
	WENT(f->st, "a", "queued");
	assert_int_equal(stat(f->url + strlen("sqlite:"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void opened_again_it_has_what_it_had(void **state)
{
	struct fixture *f = *state;

	WENT(f->st, "a", SUCCEEDED);
	for (int i = 0; i < 3; i++) {
		assert_status(reopen(f), "a", "succeeded");
		assert_int_equal(events_of(f->st, "a"), 4);
	}
	assert_int_equal(number(f->st, "SELECT count(*) FROM forge_schema"), 1);
}

/* What version 1 could hold already. */
/* By the statements that a forge of version 1 would have used: today's know newer columns. */
static void put_old_rows(struct forge_store *st)
{
	static const char *const statements[] = {
		"INSERT INTO analyses VALUES ('old', '2026-01-01T00:00:00.000Z'), "
		"('open', '2026-01-01T00:00:00.000Z')",
		"INSERT INTO runs (run_id, analysis_id, status, created_at, idempotency_key, "
		"record) VALUES ('old', 'old', 'succeeded', '2026-01-01T00:00:00.000Z', 'key', "
		"'{\"run_id\": \"old\", \"status\": \"succeeded\"}')",
		"INSERT INTO runs (run_id, analysis_id, status, created_at, record) VALUES "
		"('open', 'open', 'running', '2026-01-01T00:00:00.000Z', "
		"'{\"run_id\": \"open\", \"status\": \"running\"}')",
		"INSERT INTO run_events (run_id, seq, time, actor, event, status) VALUES "
		"('old', 0, 't', 'a', 'e', 'preparing'), ('old', 1, 't', 'a', 'e', 'running'), "
		"('old', 2, 't', 'a', 'e', 'collecting'), ('old', 3, 't', 'a', 'e', 'succeeded'), "
		"('open', 0, 't', 'a', 'e', 'preparing'), ('open', 1, 't', 'a', 'e', 'running')",
		"INSERT INTO inputs VALUES ('old', '/in', 3, 'sha256:11')",
		"INSERT INTO outputs VALUES ('old', 'out', 4, 'sha256:22', 'objects/22')",
	};

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(statements); i++)
		run_sql(st, statements[i]);
}

static int count_one(const char *digest, void *arg)
{
	assert_string_equal(digest, "sha256:22");
	++*(int *)arg;
	return 0;
}

static void check_old_rows(struct forge_store *st)
{
	char *id = NULL;
	int objects = 0;

	assert_status(st, "old", "succeeded");
	assert_int_equal(events_of(st, "old"), 4);
	assert_int_equal(forge_store_find_key(st, "me", "key", &id, NULL), 0);
	assert_string_equal(id, "old");
	free(id);
	assert_int_equal(number(st, "SELECT size FROM inputs WHERE sha256 = 'sha256:11'"),
			 3);
	assert_int_equal(forge_store_each_object(st, count_one, &objects, NULL), 0);
	assert_int_equal(objects, 1);
	/* Version 8: what was there has one attempt. */
	assert_int_equal(number(st, "SELECT count(*) FROM runs WHERE attempt = 1 AND "
				    "parent_run IS NULL"),
			 2);
	/* A run that was under way goes on. */
	json_t *r = record_of("open", "failed");
	told(st, r, json_pack("[o]", event_of(2, "status", "failed")), json_pack("[{}]"));
	assert_int_equal(number(st, "SELECT count(*) FROM post_process_records"), 1);
	/* Version 5: a runtime's checks, also where the tables are older. */
	const struct forge_runtime_check check = { "x", "venv", NULL, "d", "t", "", "broken",
						   "why", NULL };
	assert_int_equal(forge_store_put_check(st, &check, NULL), 0);
	assert_int_equal(number(st, "SELECT count(*) FROM runtimes WHERE last_seen = 't'"), 1);
	assert_int_equal(
		number(st, "SELECT count(*) FROM health_checks WHERE problem = 'why'"), 1);
}

static void every_earlier_version_is_brought_up(void **state)
{
	(void)unmake(state);
	for (unsigned v = 1; v <= forge_store_schema_version(); v++) {
		(void)make_empty(state);
		struct fixture *f = *state;
		f->st = open_raw(f->url);
		assert_int_equal(forge_store_migrate(f->st, v, NULL), 0);
		assert_int_equal(number(f->st, "SELECT version FROM forge_schema"), v);
		put_old_rows(f->st);
		(void)reopen(f);
		assert_int_equal(number(f->st, "SELECT version FROM forge_schema"),
				 forge_store_schema_version());
		check_old_rows(f->st);
		if (v < forge_store_schema_version())
			(void)unmake(state);
	}
}

/* A post-process is part of its run, and a later attempt is not: only the one is hidden. */
static void attempts_are_not_parts(void **state)
{
	struct fixture *f = *state;
	json_t *r = record_of("later", "failed");

	json_object_set_new(r, "parent_run", json_string("first"));
	json_object_set_new(r, "attempt", json_integer(2));
	assert_null(forge_store_part_of(r));
	told(f->st, r, json_pack("[o, o]", event_of(0, "status", "preparing"),
				 event_of(1, "status", "failed")),
	     NULL);
	r = record_of("post", "failed");
	json_object_set_new(r, "parent_run", json_string("later"));
	json_object_set_new(r, "attempt", json_integer(1));
	assert_string_equal(forge_store_part_of(r), "later");
	told(f->st, r, json_pack("[o, o]", event_of(0, "status", "preparing"),
				 event_of(1, "status", "failed")),
	     NULL);
	assert_int_equal(number(f->st, "SELECT attempt FROM runs WHERE parent_run = 'first' "
				       "AND part_of IS NULL"),
			 2);
	assert_int_equal(number(f->st, "SELECT attempt FROM runs WHERE parent_run = 'later' "
				       "AND part_of = 'later'"),
			 1);
}

/* Rows of version 7: post-processes and probes are told apart from runs. */
static void version_7_gets_its_parents(void **state)
{
	(void)unmake(state);
	(void)make_empty(state);
	struct fixture *f = *state;
	f->st = open_raw(f->url);
	assert_int_equal(forge_store_migrate(f->st, 7, NULL), 0);
	run_sql(f->st, "INSERT INTO analyses VALUES ('a', 't')");
	run_sql(f->st, "INSERT INTO runs (run_id, analysis_id, status, created_at, part_of, "
		       "record) VALUES ('run', 'a', 'succeeded', 't', NULL, '{}'), ('post', "
		       "'a', 'succeeded', 't', 'run', '{}'), ('probe', 'a', 'succeeded', 't', "
		       "'probe', '{}')");
	(void)reopen(f);
	assert_int_equal(number(f->st, "SELECT count(*) FROM runs WHERE attempt = 1"), 3);
	assert_int_equal(number(f->st, "SELECT count(*) FROM runs WHERE parent_run IS NULL"), 2);
	assert_int_equal(number(f->st, "SELECT count(*) FROM runs WHERE parent_run = 'run' AND "
				       "run_id = 'post'"),
			 1);
}

/* The second statement of version 2 fails: the first must not have happened either. */
static void a_migration_is_whole_or_not_there(void **state)
{
	struct fixture *f = *state;
	struct forge_error err = FORGE_ERROR_INIT;

	f->st = open_raw(f->url);
	assert_int_equal(forge_store_migrate(f->st, 1, NULL), 0);
	put_old_rows(f->st);
	run_sql(f->st, "CREATE TABLE health_checks (x BIGINT)");
	assert_true(forge_store_migrate(f->st, 0, &err) < 0);
	assert_contains(err.msg, "migrate to version 2");
	assert_contains(err.msg, "health_checks");
	assert_int_equal(number(f->st, "SELECT version FROM forge_schema"), 1);
	assert_int_equal(f->st->ops->exec(f->st, "SELECT * FROM runtimes", NULL, 0, NULL,
					  NULL, NULL),
			 -ENOENT);
	run_sql(f->st, "DROP TABLE health_checks");
	check_old_rows(reopen(f));
}

static void tables_of_a_newer_forge_are_refused(void **state)
{
	struct fixture *f = *state;
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_store *other = NULL;
	char sql[64], newer[24];

	WENT(f->st, "a", SUCCEEDED);
	(void)snprintf(sql, sizeof(sql), "UPDATE forge_schema SET version = %u",
		       forge_store_schema_version() + 1);
	run_sql(f->st, sql);
	assert_int_equal(forge_store_open(f->url, &other, &err), -EPROTO);
	assert_null(other);
	(void)snprintf(newer, sizeof(newer), "version %u",
		       forge_store_schema_version() + 1);
	assert_contains(err.msg, newer);
	assert_contains(err.hint, "newer forge");
	/* and left as they are */
	assert_int_equal(number(f->st, "SELECT version FROM forge_schema"),
			 forge_store_schema_version() + 1);
	assert_int_equal(number(f->st, "SELECT count(*) FROM runs"), 1);
}

/* ---- several processes ---- */

/*
 * Forks n children which begin together; each returns 0 or the number of what went wrong.
 * The parent must have no store open: SQLite does not survive a fork.
 */
static void together(int n, int (*work)(const char *url, int i), const char *url)
{
	int gate[2], failed = 0;
	pid_t pids[16];

	assert_int_equal(pipe(gate), 0);
	for (int i = 0; i < n; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (pids[i] == 0) {
			char byte;
			close(gate[1]);
			(void)!read(gate[0], &byte, 1);
			_exit(work(url, i));
		}
	}
	close(gate[0]);
	close(gate[1]);
	for (int i = 0; i < n; i++) {
		int status;
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
			print_error("child %d: status %d\n", i, status);
			failed++;
		}
	}
	assert_int_equal(failed, 0);
}

static int complain(const char *what, const struct forge_error *err)
{
	fprintf(stderr, "# %s: %s\n", what, err->msg);
	return 1;
}

static int open_only_once(const char *url, int i)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_store *st = NULL;

	(void)i;
	if (forge_store_open(url, &st, &err) < 0)
		return complain("open", &err);
	if (number(st, "SELECT count(*) FROM forge_schema") != 1)
		return 2;
	forge_store_close(st);
	return 0;
}

static void a_fresh_store_opened_by_many_at_once(void **state)
{
	for (int round = 0; round < 5; round++) {
		if (round)
			(void)make_empty(state);
		together(8, open_only_once, ((struct fixture *)*state)->url);
		(void)reopen(*state);
		assert_int_equal(number(((struct fixture *)*state)->st,
					"SELECT version FROM forge_schema"),
				 forge_store_schema_version());
		if (round < 4)
			(void)unmake(state);
	}
}

/* Twenty runs from beginning to end, as a supervisor tells them: bit by bit. */
static int tell_runs(const char *url, int i)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_store *st = NULL;

	if (forge_store_open(url, &st, &err) < 0)
		return complain("open", &err);
	for (int k = 0; k < 20; k++) {
		static const char *const path[] = { SUCCEEDED };
		char id[32];
		(void)snprintf(id, sizeof(id), "run%02dx%02d", i, k);
		for (int step = 0; step < 4; step++) {
			json_t *r = record_of(id, path[step]);
			/* all of one analysis: they meet at its row */
			json_object_set_new(r, "analysis_id", json_string("shared"));
			if (tell(st, r,
				 json_pack("[o]", event_of(step, "status", path[step])),
				 NULL, &err) < 0)
				return complain(id, &err);
		}
	}
	forge_store_close(st);
	return 0;
}

static void different_runs_from_many_processes(void **state)
{
	struct fixture *f = *state;

	together(8, tell_runs, f->url);
	(void)reopen(f);
	assert_int_equal(
		number(f->st, "SELECT count(*) FROM runs WHERE status = 'succeeded'"),
		160);
	assert_int_equal(number(f->st, "SELECT count(*) FROM run_events"), 640);
	assert_int_equal(number(f->st, "SELECT count(*) FROM analyses"), 1);
}

/* One says that it succeeded, the other that it was lost: who comes second must be told so. */
static int tell_verdict(const char *url, int i)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_store *st = NULL;
	int won = 0;

	if (forge_store_open(url, &st, &err) < 0)
		return complain("open", &err);
	for (int k = 0; k < 40; k++) {
		char id[32];
		const char *verdict = i ? "lost" : "succeeded";
		(void)snprintf(id, sizeof(id), "run%02d", k);
		json_t *r = record_of(id, verdict);
		json_object_set_new(r, "completion_notes", json_string(verdict));
		json_object_set_new(r, "outputs",
				    json_pack("[{s:s, s:s}]", "path", verdict, "sha256",
					      "sha256:22"));
		int rc = tell(st, r, json_pack("[o]", event_of(3, "status", verdict)),
			      NULL, &err);
		if (rc < 0 && rc != -EALREADY)
			return complain(id, &err);
		won += rc == 0;
	}
	forge_store_close(st);
	/* The parent adds them up. */
	int fd = open("/dev/shm/forge-unit-won", O_WRONLY | O_APPEND | O_CREAT, 0600);
	dprintf(fd, "%d\n", won);
	close(fd);
	return 0;
}

static void one_run_has_one_verdict_whoever_tells_it(void **state)
{
	struct fixture *f = *state;
	int a = -1, b = -1;

	for (int k = 0; k < 40; k++) {
		char id[32];
		(void)snprintf(id, sizeof(id), "run%02d", k);
		WENT(f->st, id, "preparing", "running", "collecting");
	}
	forge_store_close(f->st);
	f->st = NULL;
	(void)unlink("/dev/shm/forge-unit-won");
	together(2, tell_verdict, f->url);
	FILE *in = fopen("/dev/shm/forge-unit-won", "re");
	assert_non_null(in);
	assert_int_equal(fscanf(in, "%d %d", &a, &b), 2);
	(void)fclose(in);
	(void)unlink("/dev/shm/forge-unit-won");
	assert_int_equal(a + b, 40);
	(void)reopen(f);
	assert_int_equal(number(f->st, "SELECT count(*) FROM run_events WHERE seq = 3"),
			 40);
	assert_int_equal(number(f->st, "SELECT count(*) FROM run_events"), 160);
	/* The row, the record, the event and the files are of one and the same teller. */
	assert_int_equal(
		number(f->st,
		       "SELECT count(*) FROM runs r JOIN run_events e ON e.run_id = "
		       "r.run_id AND e.seq = 3 JOIN outputs o ON o.run_id = r.run_id "
		       "WHERE r.status = e.status AND o.path = r.status AND r.notes = "
		       "r.status"),
		40);
	assert_int_equal(number(f->st, "SELECT count(*) FROM outputs"), 40);
}

static int tell_the_same(const char *url, int i)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_store *st = NULL;

	(void)i;
	if (forge_store_open(url, &st, &err) < 0)
		return complain("open", &err);
	for (int k = 0; k < 20; k++) {
		char id[32];
		(void)snprintf(id, sizeof(id), "run%02d", k);
		for (int last = 0; last < 4; last++) {
			static const char *const path[] = { SUCCEEDED };
			json_t *events = json_array();
			for (int step = 0; step <= last; step++)
				json_array_append_new(
					events, event_of(step, "status", path[step]));
			int rc = tell(st, record_of(id, path[last]), events, NULL, &err);
			/* The others may be further already, and then this is old news. */
			if (rc < 0 && rc != -EPROTO && rc != -EALREADY)
				return complain(id, &err);
		}
	}
	forge_store_close(st);
	return 0;
}

static void the_same_run_told_by_several_is_one_run(void **state)
{
	struct fixture *f = *state;

	together(4, tell_the_same, f->url);
	(void)reopen(f);
	assert_int_equal(
		number(f->st, "SELECT count(*) FROM runs WHERE status = 'succeeded'"),
		20);
	assert_int_equal(number(f->st, "SELECT count(*) FROM run_events"), 80);
}

static int claim_keys(const char *url, int i)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_store *st = NULL;

	if (forge_store_open(url, &st, &err) < 0)
		return complain("open", &err);
	for (int k = 0; k < 10; k++) {
		char id[32], key[32], *other = NULL;
		(void)snprintf(id, sizeof(id), "run%02dx%02d", k, i);
		(void)snprintf(key, sizeof(key), "key%d", k);
		json_t *r = record_of(id, "preparing");
		json_object_set_new(r, "idempotency_key", json_string(key));
		int rc = tell(st, r, json_pack("[o]", event_of(0, "status", "preparing")),
			      NULL, &err);
		if (rc < 0 && rc != -EEXIST)
			return complain(id, &err);
		if (forge_store_find_key(st, "me", key, &other, &err) < 0)
			return complain(key, &err);
		if ((strcmp(other, id) == 0) != (rc == 0))
			return 3;
		free(other);
	}
	forge_store_close(st);
	return 0;
}

static void a_key_wanted_by_many_is_one_runs(void **state)
{
	struct fixture *f = *state;

	together(8, claim_keys, f->url);
	(void)reopen(f);
	assert_int_equal(number(f->st, "SELECT count(*) FROM runs"), 10);
	assert_int_equal(number(f->st, "SELECT count(*) FROM run_events"), 10);
}

/* ---- applying ---- */

static void told_twice_nothing_changes(void **state)
{
	struct fixture *f = *state;
	json_t *r = record_of("a", "succeeded"), *before, *after;

	json_object_set_new(
		r, "outputs",
		json_pack("[{s:s, s:s}]", "path", "x", "sha256", "sha256:22"));
	json_t *batch = json_pack(
		"{s:o, s:[o, o, o, o], s:[{s:i}, {s:i}]}", "record", r, "events",
		event_of(0, "status", "preparing"), event_of(1, "status", "running"),
		event_of(2, "status", "collecting"), event_of(3, "status", "succeeded"),
		"post_process", "n", 1, "n", 2);
	assert_int_equal(forge_store_apply(f->st, batch, true, NULL), 0);
	assert_int_equal(forge_store_get(f->st, "a", &before, NULL), 0);
	for (int i = 0; i < 3; i++) {
		struct forge_error err = UNIT_ERROR_UNTOUCHED;
		assert_int_equal(forge_store_apply(f->st, batch, i % 2 == 0, &err), 0);
		assert_untouched(err);
	}
	assert_int_equal(forge_store_get(f->st, "a", &after, NULL), 0);
	assert_true(json_equal(before, after));
	json_decref(before);
	json_decref(after);
	assert_int_equal(number(f->st, "SELECT count(*) FROM runs"), 1);
	assert_int_equal(number(f->st, "SELECT count(*) FROM run_events"), 4);
	assert_int_equal(number(f->st, "SELECT count(*) FROM outputs"), 1);
	assert_int_equal(number(f->st, "SELECT count(*) FROM post_process_records"), 2);
	json_decref(batch);
}

/* Takes a fresh run to a status by the shortest way there is. */
static int reach(struct forge_store *st, const char *id, enum forge_status to)
{
	switch (to) {
	case FORGE_STATUS_QUEUED:
		WENT(st, id, "queued");
		return 1;
	case FORGE_STATUS_PREPARING:
		WENT(st, id, "preparing");
		return 1;
	case FORGE_STATUS_RUNNING:
		WENT(st, id, "preparing", "running");
		return 2;
	case FORGE_STATUS_COLLECTING:
		WENT(st, id, "preparing", "running", "collecting");
		return 3;
	case FORGE_STATUS_REJECTED:
		WENT(st, id, "rejected");
		return 1;
	case FORGE_STATUS_NONE:
	case FORGE_STATUS_SUCCEEDED:
	case FORGE_STATUS_FAILED:
	case FORGE_STATUS_KILLED:
	case FORGE_STATUS_CANCELLED:
	case FORGE_STATUS_CORRUPTED:
	case FORGE_STATUS_LOST:
	case FORGE_STATUS_COUNT:
		break;
	}
	WENT(st, id, "preparing", "running", "collecting", forge_status_name(to));
	return 4;
}

static int wanted(enum forge_status from, enum forge_status to)
{
	if (from == to || forge_status_may_follow(from, to))
		return 0;
	return forge_status_is_terminal(from) ? -EALREADY : -EPROTO;
}

static void every_transition_is_judged(void **state)
{
	struct fixture *f = *state;

	for (enum forge_status a = FORGE_STATUS_QUEUED; a < FORGE_STATUS_COUNT; a++)
		for (enum forge_status b = FORGE_STATUS_QUEUED; b < FORGE_STATUS_COUNT;
		     b++) {
			struct forge_error err = FORGE_ERROR_INIT;
			char id[16];
			(void)snprintf(id, sizeof(id), "run%02dx%02d", (int)a, (int)b);
			int seq = reach(f->st, id, a);
			const char *name = forge_status_name(b);
			int rc = tell(f->st, record_of(id, name),
				      json_pack("[o]", event_of(seq, "status", name)),
				      NULL, &err);
			if (rc != wanted(a, b))
				fail_msg("%s to %s: %d (%s)", forge_status_name(a), name,
					 rc, err.msg);
			assert_status(f->st, id, forge_status_name(rc == 0 ? b : a));
			assert_int_equal(events_of(f->st, id), seq + (rc == 0));
			if (rc == 0)
				continue;
			assert_int_equal(err.code, -rc);
			assert_contains(err.msg, id);
			assert_contains(err.msg, name);
		}
}

static void a_run_must_begin_at_a_beginning(void **state)
{
	struct fixture *f = *state;
	struct forge_error err = FORGE_ERROR_INIT;

	assert_int_equal(tell(f->st, record_of("a", "running"),
			      json_pack("[o]", event_of(0, "status", "running")), NULL,
			      &err),
			 -EPROTO);
	assert_contains(err.msg, "not known");
	assert_int_equal(number(f->st, "SELECT count(*) FROM runs"), 0);
	assert_int_equal(number(f->st, "SELECT count(*) FROM analyses"), 0);
}

/* The verdict was on disk, the events before it were not. */
static void assumed(struct forge_store *st, const char *id, const char *to,
		    const char *path)
{
	json_t *events, *e;
	forge_auto_free char *got = strdup("");
	size_t i;

	told(st, record_of(id, to), NULL, NULL);
	assert_status(st, id, to);
	assert_int_equal(forge_store_events(st, id, &events, NULL), 0);
	json_array_foreach (events, i, e) {
		char *longer =
			forge_asprintf("%s%s%s", got, *got ? " " : "",
				       forge_json_string(e, "status"));
		free(got);
		got = longer;
		assert_int_equal(json_integer_value(json_object_get(e, "seq")), i);
		if (strcmp(forge_json_string(e, "actor"), "test") != 0) {
			assert_string_equal(
				forge_json_string(e, "actor"), "repair");
			assert_string_equal(
				forge_json_string(e, "event"),
				"assumed");
		}
	}
	assert_string_equal(got, path);
	json_decref(events);
}

static void lost_events_are_assumed(void **state)
{
	struct fixture *f = *state;
	struct forge_error err = FORGE_ERROR_INIT;

	assumed(f->st, "a", "succeeded", "preparing running collecting succeeded");
	assumed(f->st, "b", "lost", "preparing lost");
	assumed(f->st, "c", "rejected", "rejected");
	assumed(f->st, "d", "queued", "queued");
	WENT(f->st, "e", "queued");
	assumed(f->st, "e", "failed", "queued preparing failed");
	WENT(f->st, "f", "preparing", "running");
	assumed(f->st, "f", "succeeded", "preparing running collecting succeeded");
	WENT(f->st, "g", "queued");
	assumed(f->st, "g", "cancelled", "queued cancelled");
	/* but no way leads there */
	WENT(f->st, "h", "preparing", "running");
	assert_int_equal(tell(f->st, record_of("h", "rejected"), NULL, NULL, &err),
			 -EPROTO);
	assert_int_equal(tell(f->st, record_of("h", "queued"), NULL, NULL, &err),
			 -EPROTO);
	assert_int_equal(tell(f->st, record_of("a", "failed"), NULL, NULL, &err),
			 -EALREADY);
	assert_int_equal(tell(f->st, record_of("a", "running"), NULL, NULL, &err),
			 -EALREADY);
	assert_status(f->st, "a", "succeeded");
	assert_status(f->st, "h", "running");
	assert_int_equal(events_of(f->st, "h"), 2);
}

/* What repair adds to a file of events that the power took: one line, the first or after a gap. */
static void what_repair_adds_to_lost_events_is_taken(void **state)
{
	struct fixture *f = *state;
	json_t *end = event_of(0, "succeeded", "succeeded"), *events;

	json_object_set_new(end, "actor", json_string("repair"));
	for (int i = 0; i < 2; i++) /* told twice it is the same */
		told(f->st, record_of("a", "succeeded"), json_pack("[O]", end), NULL);
	assert_status(f->st, "a", "succeeded");
	assert_int_equal(forge_store_events(f->st, "a", &events, NULL), 0);
	assert_int_equal(json_array_size(events), 4);
	assert_string_equal(forge_json_string(json_array_get(events, 3), "event"),
			    "succeeded");
	json_decref(events);
	WENT(f->st, "b", "queued", "preparing");
	json_object_set_new(end, "seq", json_integer(2));
	told(f->st, record_of("b", "succeeded"), json_pack("[O]", end), NULL);
	assert_status(f->st, "b", "succeeded");
	assert_int_equal(events_of(f->st, "b"), 5);
	json_decref(end);
}

static void events_that_are_known_are_skipped(void **state)
{
	struct fixture *f = *state;
	json_t *events;

	WENT(f->st, "a", "preparing", "running");
	/* From the beginning again, and further; what is said differently now comes too late. */
	told(f->st, record_of("a", "collecting"),
	     json_pack("[o, o, o, o]", event_of(0, "other", "preparing"),
		       event_of(1, "other", NULL), event_of(2, "note", NULL),
		       event_of(3, "status", "collecting")),
	     NULL);
	assert_int_equal(forge_store_events(f->st, "a", &events, NULL), 0);
	assert_int_equal(json_array_size(events), 4);
	assert_string_equal(
		forge_json_string(json_array_get(events, 0), "event"),
		"status");
	assert_string_equal(
		forge_json_string(json_array_get(events, 2), "event"),
		"note");
	assert_null(json_object_get(json_array_get(events, 2), "status"));
	json_decref(events);
}

static void files_come_with_the_verdict(void **state)
{
	struct fixture *f = *state;
	json_t *r = record_of("a", "running");
	json_t *files = json_pack("[{s:s, s:i, s:s, s:s}, {s:s, s:i, s:s, s:s}]", "path",
				  "x", "size", 1, "sha256", "sha256:11", "stored_as",
				  "objects/11", "path", "y", "size", 2, "sha256",
				  "sha256:11", "stored_as", "objects/11");

	json_object_set(r, "inputs", files);
	json_object_set(r, "outputs", files);
	told(f->st, json_incref(r), NULL, NULL);
	assert_int_equal(number(f->st, "SELECT count(*) FROM outputs"), 0);
	json_object_set_new(r, "status", json_string("succeeded"));
	told(f->st, r, NULL, json_pack("[{s:i}, {s:i}, {s:i}]", "n", 1, "n", 2, "n", 3));
	assert_int_equal(
		number(f->st, "SELECT sum(size) FROM outputs WHERE run_id = 'a'"), 3);
	assert_int_equal(number(f->st, "SELECT sum(size) FROM inputs WHERE run_id = 'a'"),
			 3);
	json_t *rows;
	assert_int_equal(forge_store_post_records(f->st, "a", &rows, NULL), 0);
	assert_int_equal(json_array_size(rows), 3);
	assert_int_equal(
		json_integer_value(json_object_get(json_array_get(rows, 2), "n")), 3);
	json_decref(rows);
	json_decref(files);
}

/* What fails last must undo what came first. */
static void a_failure_in_the_middle_leaves_nothing(void **state)
{
	struct fixture *f = *state;
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *bad = json_pack("[{s:s, s:s}, {s:s}]", "path", "x", "sha256", "sha256:11",
				"sha256", "sha256:22"); /* the second has no path */
	json_t *r = record_of("a", "succeeded");

	json_object_set(r, "outputs", bad);
	assert_true(tell(f->st, r, NULL, json_pack("[{}]"), &err) < 0);
	assert_true(err.code != 0);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(tables); i++) {
		char sql[96];
		(void)snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s", tables[i]);
		assert_int_equal(number(f->st, sql), 0);
	}
	WENT(f->st, "b", "preparing", "running", "collecting");
	r = record_of("b", "succeeded");
	json_object_set(r, "outputs", bad);
	assert_true(tell(f->st, r, json_pack("[o]", event_of(3, "status", "succeeded")),
			 NULL, &err) < 0);
	assert_status(f->st, "b", "collecting");
	assert_int_equal(events_of(f->st, "b"), 3);
	assert_int_equal(number(f->st, "SELECT count(*) FROM outputs"), 0);
	/* and the store goes on working */
	json_decref(bad);
	told(f->st, record_of("b", "succeeded"), NULL, NULL);
	assert_status(f->st, "b", "succeeded");
}

static void a_record_must_say_whose_it_is(void **state)
{
	struct fixture *f = *state;
	struct forge_error err = FORGE_ERROR_INIT;

	assert_int_equal(tell(f->st, json_object(), NULL, NULL, &err), -EINVAL);
	assert_contains(err.msg, "run_id");
	assert_int_equal(tell(f->st, record_of("a", "dancing"), NULL, NULL, &err),
			 -EINVAL);
	assert_int_equal(number(f->st, "SELECT count(*) FROM runs"), 0);
}

static json_t *keyed(const char *id, const char *key)
{
	json_t *r = record_of(id, "preparing");

	json_object_set_new(r, "idempotency_key", json_string(key));
	return r;
}

static void a_key_is_one_runs(void **state)
{
	struct fixture *f = *state;
	struct forge_error err = FORGE_ERROR_INIT;
	char *id = NULL;

	told(f->st, keyed("a", "k"), NULL, NULL);
	told(f->st, keyed("a", "k"), NULL, NULL); /* its own */
	assert_int_equal(tell(f->st, keyed("b", "k"), NULL, NULL, &err), -EEXIST);
	assert_int_equal(err.code, EEXIST);
	assert_int_equal(number(f->st, "SELECT count(*) FROM runs"), 1);
	assert_int_equal(number(f->st, "SELECT count(*) FROM analyses"), 1);
	told(f->st, keyed("c", "K"), NULL, NULL); /* another key */
	WENT(f->st, "d", "preparing");		  /* none: as many as you like */
	WENT(f->st, "e", "preparing");
	err = UNIT_ERROR_UNTOUCHED;
	assert_int_equal(forge_store_find_key(f->st, "me", "k", &id, &err), 0);
	assert_untouched(err);
	assert_string_equal(id, "a");
	free(id);
	id = NULL;
	assert_int_equal(forge_store_find_key(f->st, "me", "x", &id, &err), -ENOENT);
	assert_null(id);
	assert_contains(err.msg, "'x'");
	/* Taken for ever, also when its run is over. */
	json_t *r = keyed("a", "k");
	json_object_set_new(r, "status", json_string("failed"));
	told(f->st, r, NULL, NULL);
	assert_int_equal(tell(f->st, keyed("b", "k"), NULL, NULL, NULL), -EEXIST);
}

static void a_key_is_one_users(void **state)
{
	struct fixture *f = *state;
	char *id = NULL;
	json_t *r = keyed("b", "k");

	told(f->st, keyed("a", "k"), NULL, NULL);
	json_object_set_new(r, "user", json_string("you"));
	told(f->st, r, NULL, NULL);
	assert_int_equal(tell(f->st, keyed("c", "k"), NULL, NULL, NULL), -EEXIST);
	assert_int_equal(forge_store_find_key(f->st, "you", "k", &id, NULL), 0);
	assert_string_equal(id, "b");
	free(id);
	assert_int_equal(forge_store_find_key(f->st, "they", "k", &id, NULL), -ENOENT);
}

/* Longer than a row of an index may be in PostgreSQL. */
static void a_path_may_be_long(void **state)
{
	struct fixture *f = *state;
	json_t *r = record_of("a", "succeeded");
	char *path = calloc(1, 16384 + 1);

	/* Not a repetition, which would be compressed. */
	for (unsigned i = 0, x = 1; i < 16384; i++, x = x * 1103515245 + 12345)
		path[i] = (char)('a' + (x >> 16) % 26);
	json_object_set_new(r, "inputs", json_pack("[{s:s}]", "path", path));
	json_object_set_new(r, "outputs",
			    json_pack("[{s:s, s:i, s:s}, {s:s, s:i, s:s}]", "path", path,
				      "size", 1, "sha256", "sha256:1", "path", path + 1,
				      "size", 2, "sha256", "sha256:2"));
	free(path);
	told(f->st, r, NULL, NULL);
	assert_status(f->st, "a", "succeeded");
	assert_int_equal(number(f->st, "SELECT count(*) FROM outputs"), 2);
	assert_int_equal(number(f->st, "SELECT max(length(path)) FROM inputs"), 16384);
	json_t *full;
	assert_int_equal(forge_store_get(f->st, "a", &full, NULL), 0);
	assert_null(json_object_get(full, "store_refused"));
	json_decref(full);
}

/* Whatever a store refuses for ever: the run does not stay open for that. */
static void what_is_refused_for_ever_still_ends(void **state)
{
	struct fixture *f = *state;
	json_t *r = record_of("a", "failed"), *got;

	WENT(f->st, "a", "preparing", "running");
	run_sql(f->st, server ? "ALTER TABLE outputs ADD CHECK (size < 100)"
			      : "CREATE TRIGGER no BEFORE INSERT ON outputs WHEN NEW.size >= 100 "
				"BEGIN SELECT RAISE(ABORT, 'too large'); END");
	json_object_set_new(r, "reason", json_string("exit"));
	json_object_set_new(r, "outputs",
			    json_pack("[{s:s, s:i}]", "path", "x", "size", 100));
	json_t *batch = json_pack("{s:o, s:[o]}", "record", r, "events",
				  event_of(2, "status", "failed"));
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	assert_int_equal(forge_store_settle(f->st, batch, false, &err), 0);
	assert_untouched(err);
	json_decref(batch);
	assert_status(f->st, "a", "failed");
	assert_int_equal(events_of(f->st, "a"), 3);
	assert_int_equal(number(f->st, "SELECT count(*) FROM outputs"), 0);
	assert_int_equal(forge_store_get(f->st, "a", &got, NULL), 0);
	assert_non_null(json_object_get(got, "store_refused"));
	assert_string_equal(forge_json_string(got, "reason"), "exit");
	json_decref(got);
}

/* ---- asking ---- */

static void finds(struct forge_store *st, const char *word, int wanted_rc, const char *id)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	char *got = NULL;
	int rc = forge_store_find(st, word, "u", &got, &err);

	if (rc != wanted_rc || (id && strcmp(got, id) != 0))
		fail_msg("'%s': %d, '%s'", word, rc, got ? got : "");
	if (rc == 0) {
		assert_untouched(err);
	} else {
		assert_null(got);
		assert_int_equal(err.code, -rc);
		assert_contains(err.msg, word);
	}
	free(got);
}

static void runs_are_found_by_how_they_begin(void **state)
{
	struct fixture *f = *state;

	WENT(f->st, "01aaaaaa", "queued");
	WENT(f->st, "01aaaabb", "queued");
	WENT(f->st, "01ab", "queued");
	WENT(f->st, "01abz", "queued");
	WENT(f->st, "02zzzzzz", "queued");
	finds(f->st, "01aaaaaa", 0, "01aaaaaa");
	finds(f->st, "01aaaaa", 0, "01aaaaaa");
	finds(f->st, "01aaaab", 0, "01aaaabb");
	finds(f->st, "01aaaa", -ENOTUNIQ, NULL);
	finds(f->st, "0", -ENOTUNIQ, NULL);
	finds(f->st, "01ab", 0, "01ab"); /* a whole id, though another begins with it */
	finds(f->st, "01abz", 0, "01abz");
	finds(f->st, "02", 0, "02zzzzzz");
	finds(f->st, "02zzzzzz", 0, "02zzzzzz");
	finds(f->st, "02zzzzzzz", -ENOENT, NULL);
	finds(f->st, "03", -ENOENT, NULL);
	finds(f->st, "1", -ENOENT, NULL);
	/* no pattern and no SQL in it */
	finds(f->st, "%", -ENOENT, NULL);
	finds(f->st, "0_", -ENOENT, NULL);
	finds(f->st, "' OR 1=1 --", -ENOENT, NULL);
}

static void what_is_not_there_is_said(void **state)
{
	struct fixture *f = *state;
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *j = NULL;

	assert_int_equal(forge_store_get(f->st, "none", &j, &err), -ENOENT);
	assert_null(j);
	assert_contains(err.msg, "none");
	err = UNIT_ERROR_UNTOUCHED;
	assert_int_equal(forge_store_events(f->st, "none", &j, &err), 0);
	assert_int_equal(json_array_size(j), 0);
	json_decref(j);
	assert_int_equal(forge_store_post_records(f->st, "none", &j, &err), 0);
	assert_int_equal(json_array_size(j), 0);
	json_decref(j);
	assert_untouched(err);
}

static void a_damaged_record_is_told(void **state)
{
	struct fixture *f = *state;
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *j = NULL;

	WENT(f->st, "a", "queued");
	run_sql(f->st, "UPDATE runs SET record = '{\"run_id\": '");
	assert_int_equal(forge_store_get(f->st, "a", &j, &err), -EUCLEAN);
	assert_contains(err.msg, "damaged");
}

struct ids {
	char text[512];
	int stop_after;
};

static int take_id(const struct forge_run_row *row, void *arg)
{
	struct ids *l = arg;
	size_t len = strlen(l->text);

	(void)snprintf(l->text + len, sizeof(l->text) - len, "%s%s", len ? " " : "",
		       row->run_id);
	return l->stop_after && --l->stop_after == 0 ? 42 : 0;
}

static void lists(struct forge_store *st, struct forge_run_filter filter, const char *ids)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	struct ids l = { .text = "" };
	int n = forge_store_list(st, &filter, take_id, &l, &err), words = *ids != '\0';

	for (const char *p = ids; *p; p++)
		words += *p == ' ';
	if (strcmp(l.text, ids) != 0)
		fail_msg("'%s' and not '%s'", l.text, ids);
	assert_int_equal(n, words);
	assert_untouched(err);
}
#define LISTS(st, ids, ...) lists((st), (struct forge_run_filter){ __VA_ARGS__ }, (ids))

/* Six runs that differ in everything there is a filter for. */
static void put_six(struct forge_store *st)
{
	static const struct {
		const char *id, *status, *reason, *runtime, *analysis, *host, *user,
			*created, *ended;
		double wall;
		long long memory;
	} six[] = {
		{ "r1", "succeeded", "exit", "py", "fit", "h1", "ann",
		  "2026-01-01T10:00:00.000Z", "2026-01-09T10:00:00.000Z", 3.5, 100 },
		{ "r2", "failed", "exit", "R", "fit", "h1", "bob",
		  "2026-01-02T10:00:00.000Z", "2026-01-03T10:00:00.000Z", 9.25, 1000 },
		{ "r3", "killed", "memory", "py", "map", "h2", "ann",
		  "2026-01-03T10:00:00.000Z", "2026-01-05T10:00:00.000Z", 0.5, 20 },
		{ "r4", "running", NULL, "py", "fit", "h1", "ann",
		  "2026-01-04T10:00:00.000Z", NULL, -1, -1 },
		{ "r5", "queued", NULL, NULL, "map", "h2", "bob",
		  "2026-01-05T10:00:00.000Z", NULL, -1, -1 },
		{ "r6", "failed", "wall_time", "R", "fit", "h1", "ann",
		  "2026-01-06T10:00:00.000Z", "2026-01-07T10:00:00.000Z", 60, 3 },
	};

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(six); i++) {
		json_t *r = json_pack(
			"{s:s, s:s, s:s, s:s*, s:s, s:s, s:s, s:s*}", "run_id", six[i].id,
			"analysis_id", six[i].analysis, "status", six[i].status, "reason",
			six[i].reason, "host", six[i].host, "user", six[i].user,
			"created_at", six[i].created, "ended_at", six[i].ended);
		if (six[i].runtime)
			json_object_set_new(r, "runtime",
					    json_pack("{s:s}", "name", six[i].runtime));
		if (six[i].ended)
			json_object_set_new(r, "usage",
					    json_pack("{s:f, s:I}", "wall_seconds",
						      six[i].wall, "memory_peak_bytes",
						      (json_int_t)six[i].memory));
		told(st, r, NULL, NULL);
	}
}

static void listings_are_filtered(void **state)
{
	struct fixture *f = *state;

	LISTS(f->st, "", .limit = 5);
	put_six(f->st);
	LISTS(f->st, "r6 r5 r4 r3 r2 r1", .limit = 0);
	LISTS(f->st, "r6 r2", .status = "failed");
	LISTS(f->st, "", .status = "corrupted");
	LISTS(f->st, "r2 r1", .reason = "exit");
	LISTS(f->st, "r4 r3 r1", .runtime = "py");
	LISTS(f->st, "r5 r3", .analysis = "map");
	LISTS(f->st, "r5 r3", .host = "h2");
	LISTS(f->st, "r5 r2", .user = "bob");
	LISTS(f->st, "r6 r5 r4", .since = "r4"); /* ids sort by time */
	LISTS(f->st, "r3 r2 r1", .until = "r4");
	LISTS(f->st, "r3", .since = "r3", .until = "r3z");
	LISTS(f->st, "", .since = "s");
	LISTS(f->st, "r5 r4", .open_only = true);
	LISTS(f->st, "r4", .open_only = true, .user = "ann");
	LISTS(f->st, "r6", .status = "failed", .reason = "wall_time", .runtime = "R",
	      .analysis = "fit", .host = "h1", .user = "ann", .since = "r1",
	      .until = "r7", .after = "r7", .limit = 9, .sort = "created");
	LISTS(f->st, "", .analysis = "fi%");
	LISTS(f->st, "", .analysis = "' OR '1'='1");
}

static void listings_are_sorted(void **state)
{
	struct fixture *f = *state;

	put_six(f->st);
	LISTS(f->st, "r6 r5 r4 r3 r2 r1", .sort = "created");
	LISTS(f->st, "r1 r2 r3 r4 r5 r6", .oldest_first = true);
	LISTS(f->st, "r1 r6 r3 r2", .sort = "ended");
	LISTS(f->st, "r2 r3 r6 r1", .sort = "ended", .oldest_first = true);
	LISTS(f->st, "r6 r2 r1 r3",
	      .sort = "wall"); /* as numbers: 60 is more than 9.25 */
	LISTS(f->st, "r2 r1 r3 r6", .sort = "memory");
	LISTS(f->st, "r6 r3 r1 r2", .sort = "memory", .oldest_first = true);
	LISTS(f->st, "r6 r2", .sort = "wall", .limit = 2);
}

static void listings_come_in_pages(void **state)
{
	struct fixture *f = *state;

	put_six(f->st);
	LISTS(f->st, "r6 r5", .limit = 2);
	LISTS(f->st, "r4 r3", .limit = 2, .after = "r5");
	LISTS(f->st, "r2 r1", .limit = 2, .after = "r3");
	LISTS(f->st, "", .limit = 2, .after = "r1");
	LISTS(f->st, "r3 r4", .limit = 2, .after = "r2", .oldest_first = true);
	LISTS(f->st, "r2", .status = "failed", .after = "r6");
	/* the page goes on although its last run has been removed meanwhile */
	LISTS(f->st, "r4", .limit = 1, .after = "r4x");
}

static int check_row(const struct forge_run_row *row, void *arg)
{
	(void)arg;
	if (strcmp(row->run_id, "r2") == 0) {
		assert_string_equal(row->analysis_id, "fit");
		assert_string_equal(row->status, "failed");
		assert_string_equal(row->reason, "exit");
		assert_string_equal(row->runtime, "R");
		assert_string_equal(row->host, "h1");
		assert_string_equal(row->user, "bob");
		assert_string_equal(row->created_at, "2026-01-02T10:00:00.000Z");
		assert_string_equal(row->ended_at, "2026-01-03T10:00:00.000Z");
		assert_int_equal(row->wall_usec, 9250000);
		assert_int_equal(row->memory_peak, 1000);
	} else if (strcmp(row->run_id, "r5") == 0) {
		assert_null(row->reason);
		assert_null(row->runtime);
		assert_null(row->started_at);
		assert_null(row->ended_at);
		assert_int_equal(row->wall_usec, -1);
		assert_int_equal(row->memory_peak, -1);
		assert_int_equal(row->pid, -1);
		assert_null(row->boot_id);
	} else if (strcmp(row->run_id, "r7") == 0) {
		assert_int_equal(row->pid, 4000000000LL);
		assert_int_equal(row->pid_start, 123456789012LL);
		assert_string_equal(row->boot_id, "boot");
		assert_string_equal(row->notes, "a sentence");
	}
	return 0;
}

static void a_row_has_what_the_record_says(void **state)
{
	struct fixture *f = *state;
	json_t *r = record_of("r7", "failed");

	put_six(f->st);
	json_object_set_new(r, "completion_notes", json_string("a sentence"));
	json_object_set_new(r, "supervisor",
			    json_pack("{s:I, s:I, s:s}", "pid", (json_int_t)4000000000LL,
				      "start_time", (json_int_t)123456789012LL, "boot_id",
				      "boot"));
	told(f->st, r, NULL, NULL);
	struct forge_run_filter all = { .limit = 0 };
	assert_int_equal(forge_store_list(f->st, &all, check_row, NULL, NULL), 7);
}

static void a_listing_stops_when_told_to(void **state)
{
	struct fixture *f = *state;
	struct forge_run_filter all = { .limit = 0 };
	struct ids l = { .stop_after = 2 };

	put_six(f->st);
	assert_int_equal(forge_store_list(f->st, &all, take_id, &l, NULL), 42);
	assert_string_equal(l.text, "r6 r5");
	/* and the store can be written to at once */
	WENT(f->st, "r7", "queued");
}

static int take_digest(const char *digest, void *arg)
{
	struct ids *l = arg;
	size_t len = strlen(l->text);

	if (strstr(l->text, digest))
		return -ELOOP; /* twice */
	(void)snprintf(l->text + len, sizeof(l->text) - len, "%s ", digest);
	return l->stop_after ? -ECANCELED : 0;
}

static void every_object_is_named_once(void **state)
{
	struct fixture *f = *state;
	struct ids l = { .text = "" };

	assert_int_equal(forge_store_each_object(f->st, take_digest, &l, NULL), 0);
	assert_string_equal(l.text, "");
	for (int i = 0; i < 3; i++) {
		char id[8];
		(void)snprintf(id, sizeof(id), "r%d", i);
		json_t *r = record_of(id, "succeeded");
		json_object_set_new(
			r, "outputs",
			json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s}]", "path", "x",
				  "sha256", "sha256:same", "path", "y", "sha256",
				  i ? "sha256:same" : "sha256:other", "path", "z"));
		/* an input is no object */
		json_object_set_new(
			r, "inputs",
			json_pack("[{s:s, s:s}]", "path", "i", "sha256", "sha256:input"));
		told(f->st, r, NULL, NULL);
	}
	assert_int_equal(forge_store_each_object(f->st, take_digest, &l, NULL), 0);
	assert_contains(l.text, "sha256:same ");
	assert_contains(l.text, "sha256:other ");
	assert_int_equal(strlen(l.text), strlen("sha256:same sha256:other "));
	l = (struct ids){ .stop_after = 1 };
	assert_int_equal(forge_store_each_object(f->st, take_digest, &l, NULL),
			 -ECANCELED);
}

static int take_output(const struct forge_output_row *row, void *arg)
{
	struct ids *l = arg;
	size_t len = strlen(l->text);

	(void)snprintf(l->text + len, sizeof(l->text) - len, "%s/%s/%s/%s/%lld ", row->run_id,
		       row->analysis_id, row->path, row->digest, (long long)row->size);
	return l->stop_after ? -ECANCELED : 0;
}

static void files_are_found_by_content_owner_and_host(void **state)
{
	static const char *const owners[][3] = { { "r1", "me", "here" },
						 { "r2", "me", "here" },
						 { "r3", "you", "here" },
						 { "r4", "me", "there" } };
	struct fixture *f = *state;
	struct ids l = { .text = "" };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(owners); i++) {
		json_t *r = record_of(owners[i][0], "succeeded");
		json_object_set_new(r, "user", json_string(owners[i][1]));
		json_object_set_new(r, "host", json_string(owners[i][2]));
		json_object_set_new(
			r, "outputs",
			json_pack("[{s:s, s:s, s:i}, {s:s, s:s}, {s:s}]", "path", "x",
				  "sha256", "sha256:same", "size", 4, "path", "y", "sha256",
				  i ? "sha256:same" : "sha256:other", "path", "z"));
		told(f->st, r, NULL, NULL);
	}
	assert_int_equal(forge_store_each_output(f->st, "me", "here", "sha256:same",
						 take_output, &l, NULL),
			 0);
	assert_string_equal(l.text, "r1/r1/x/sha256:same/4 r2/r2/x/sha256:same/4 "
				    "r2/r2/y/sha256:same/-1 ");
	l = (struct ids){ .text = "" };
	assert_int_equal(forge_store_each_output(f->st, "me", "there", NULL, take_output, &l,
						 NULL),
			 0);
	assert_contains(l.text, "r4/r4/x/sha256:same/4 ");
	assert_contains(l.text, "r4/r4/y/sha256:same/-1 ");
	assert_null(strstr(l.text, "/z/"));
	l = (struct ids){ .stop_after = 1 };
	assert_int_equal(forge_store_each_output(f->st, "me", "here", NULL, take_output, &l,
						 NULL),
			 -ECANCELED);
}

/* ---- runtimes and their checks ---- */

static struct forge_runtime_check check_of(const char *digest, const char *time,
					   const char *verdict)
{
	return (struct forge_runtime_check){ .name = "ml",	 .kind = "conda",
					     .prefix = "/c/ml",	 .digest = digest,
					     .time = time,	 .run_id = time,
					     .verdict = verdict, .problem = "",
					     .versions = NULL };
}

static void checked(struct forge_store *st, struct forge_runtime_check check)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;

	if (forge_store_put_check(st, &check, &err) < 0)
		fail_msg("%s", err.msg);
	assert_untouched(err);
}

static int take_use(const struct forge_runtime_use *use, void *arg)
{
	struct ids *l = arg;
	size_t len = strlen(l->text);

	(void)snprintf(l->text + len, sizeof(l->text) - len, "%s %s %s %lld;", use->digest,
		       use->first, use->last, (long long)use->runs);
	return 0;
}

static int take_check(const struct forge_runtime_check *c, void *arg)
{
	struct ids *l = arg;
	size_t len = strlen(l->text);

	(void)snprintf(l->text + len, sizeof(l->text) - len, "%s %s %s %s %s;", c->time,
		       c->run_id, c->verdict, c->problem, c->versions ? c->versions : "-");
	return l->stop_after ? -ECANCELED : 0;
}

static void used(struct forge_store *st, const char *id, const char *digest,
		 const char *created)
{
	json_t *r = record_of(id, "succeeded");

	json_object_set_new(r, "created_at", json_string(created));
	json_object_set_new(r, "runtime",
			    json_pack("{s:s, s:s}", "name", "ml", "digest", digest));
	told(st, r, NULL, NULL);
}

static void contents_and_checks_of_a_runtime(void **state)
{
	struct fixture *f = *state;
	struct ids l = { .text = "" };
	struct forge_runtime_check broken = check_of("d:2", "t5", "broken"),
				   other = check_of("d:1", "t9", "healthy");

	checked(f->st, check_of("d:1", "t1", "healthy"));
	used(f->st, "r1", "d:1", "t2");
	used(f->st, "r2", "d:1", "t3");
	/* Which no run ever used. */
	broken.problem = "module 'größe' is missing";
	broken.versions = "{\"python\": \"3\"}";
	broken.run_id = "";
	checked(f->st, broken);
	/* Two names of one content are two runtimes. */
	other.name = "twin";
	checked(f->st, other);
	assert_int_equal(forge_store_runtime_history(f->st, "ml", take_use, &l, NULL), 2);
	assert_string_equal(l.text, "d:2 t5 t5 0;d:1 t1 t3 2;");
	l.text[0] = '\0';
	assert_int_equal(forge_store_runtime_checks(f->st, "ml", "d:2", take_check, &l, NULL),
			 1);
	assert_string_equal(
		l.text, "t5  broken module 'größe' is missing {\"python\": \"3\"};");
	l.text[0] = '\0';
	checked(f->st, check_of("d:1", "t6", "broken"));
	assert_int_equal(forge_store_runtime_checks(f->st, "ml", "d:1", take_check, &l, NULL),
			 2);
	assert_string_equal(l.text, "t6 t6 broken  -;t1 t1 healthy  -;"); /* newest first */
	l = (struct ids){ .stop_after = 1 };
	assert_int_equal(forge_store_runtime_checks(f->st, "ml", "d:1", take_check, &l, NULL),
			 -ECANCELED);
	assert_int_equal(forge_store_runtime_history(f->st, "nobody", take_use, &l, NULL), 0);
}

static void a_check_told_twice_or_late_is_one(void **state)
{
	struct fixture *f = *state;
	struct ids l = { .text = "" };

	checked(f->st, check_of("d:1", "t5", "healthy"));
	checked(f->st, check_of("d:1", "t5", "healthy"));
	checked(f->st, check_of("d:1", "t3", "broken")); /* delivered late */
	assert_int_equal(number(f->st, "SELECT count(*) FROM runtimes"), 1);
	assert_int_equal(number(f->st, "SELECT count(*) FROM health_checks"), 2);
	assert_int_equal(forge_store_runtime_history(f->st, "ml", take_use, &l, NULL), 1);
	assert_string_equal(l.text, "d:1 t3 t5 0;");
}

/* ---- post-process records ---- */

static int put_rows(struct forge_store *st, const char *id, json_t *rows,
		    struct forge_error *err)
{
	json_t *result = json_pack("{s:s, s:I}", "status", "succeeded", "records",
				   (json_int_t)json_array_size(rows));
	json_t *event = event_of(0, "post_process", NULL);
	int rc = forge_store_put_post_process(st, id, result, rows, event, err);

	json_decref(result);
	json_decref(rows);
	json_decref(event);
	return rc;
}

static void assert_rows(struct forge_store *st, const char *id, const char *text)
{
	json_t *rows;

	assert_int_equal(forge_store_post_records(st, id, &rows, NULL), 0);
	forge_auto_free char *got = json_dumps(rows, JSON_COMPACT);
	assert_string_equal(got, text);
	json_decref(rows);
}

static void a_repeated_post_process_replaces_the_first(void **state)
{
	struct fixture *f = *state;
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	json_t *r;

	told(f->st, record_of("a", "succeeded"), NULL,
	     json_pack("[{s:i}, {s:i}]", "n", 1, "n", 2));
	told(f->st, record_of("b", "succeeded"), NULL, json_pack("[{s:i}]", "n", 9));
	assert_int_equal(put_rows(f->st, "a", json_pack("[{s:i}]", "n", 3), &err), 0);
	assert_untouched(err);
	assert_rows(f->st, "a", "[{\"n\":3}]");
	assert_rows(f->st, "b", "[{\"n\":9}]");
	assert_int_equal(forge_store_get(f->st, "a", &r, NULL), 0);
	assert_int_equal(json_integer_value(json_object_get(
				 json_object_get(r, "post_process"), "records")),
			 1);
	assert_string_equal(forge_json_string(r, "status"), "succeeded");
	json_decref(r);
	assert_int_equal(events_of(f->st, "a"), 5);
	assert_int_equal(put_rows(f->st, "a", json_array(), NULL), 0);
	assert_rows(f->st, "a", "[]");
	assert_int_equal(events_of(f->st, "a"), 6);
}

static void a_failed_repetition_keeps_the_first(void **state)
{
	struct fixture *f = *state;
	struct forge_error err = FORGE_ERROR_INIT;

	told(f->st, record_of("a", "succeeded"), NULL, json_pack("[{s:i}]", "n", 1));
	/* a text cannot be written as a record */
	assert_true(put_rows(f->st, "a", json_pack("[{s:i}, s]", "n", 2, "text"), &err) <
		    0);
	assert_true(err.code != 0);
	assert_rows(f->st, "a", "[{\"n\":1}]");
	assert_int_equal(events_of(f->st, "a"), 4);
	/* nor is there anything to replace before the end */
	WENT(f->st, "b", "preparing", "running");
	assert_int_equal(put_rows(f->st, "b", json_pack("[{}]"), &err), -EPROTO);
	assert_true(put_rows(f->st, "none", json_pack("[{}]"), &err) < 0);
	assert_int_equal(number(f->st, "SELECT count(*) FROM post_process_records"), 1);
}

/* ---- texts ---- */

static void any_text_comes_back_as_it_was(void **state)
{
	static const char odd[] = "quotes ' \" `, \\ back, $1 %s ?, line\nend\ttab\r, "
				  "\xc3\xa4\xe2\x82\xac\xf0\x9f\xa7\xac, \x01\x7f";
	struct fixture *f = *state;
	const size_t size = 1 << 20;
	char *big = malloc(size + 1);
	json_t *r = record_of("a", "succeeded"), *got;

	for (size_t i = 0; i < size; i++)
		big[i] = "abc'\"\\\n\xc3\xa4"[i % 9];
	big[size - size % 9] = '\0';
	json_object_set_new(r, "analysis_id", json_string(odd));
	json_object_set_new(r, "completion_notes", json_string(odd));
	json_object_set_new(r, "idempotency_key", json_string(odd));
	json_object_set_new(r, "big", json_string(big));
	json_object_set_new(r, "number", json_real(0.1));
	json_object_set_new(r, "int", json_integer(9007199254740993));
	json_object_set_new(r, "outputs",
			    json_pack("[{s:s, s:s}]", "path", odd, "sha256", "sha256:1"));
	assert_non_null(json_object_get(r, "big"));
	json_t *e = event_of(0, odd, "preparing");
	json_object_set_new(e, "detail", json_string(odd));
	json_t *row = json_pack("{s:s}", odd, odd);
	told(f->st, json_incref(r), json_pack("[o]", e), json_pack("[O]", row));
	assert_int_equal(forge_store_get(reopen(f), "a", &got, NULL), 0);
	assert_true(json_equal(got, r));
	json_decref(got);
	assert_int_equal(forge_store_events(f->st, "a", &got, NULL), 0);
	assert_string_equal(
		forge_json_string(json_array_get(got, 0), "detail"),
		odd);
	json_decref(got);
	assert_int_equal(forge_store_post_records(f->st, "a", &got, NULL), 0);
	assert_true(json_equal(json_array_get(got, 0), row));
	json_decref(got);
	char *id = NULL;
	assert_int_equal(forge_store_find_key(f->st, "me", odd, &id, NULL), 0);
	free(id);
	LISTS(f->st, "a", .analysis = odd);
	json_decref(row);
	json_decref(r);
	free(big);
}

/* Everybody must read what was written, whatever they are used to. */
static void the_environment_does_not_change_texts(void **state)
{
	struct fixture *f = *state;
	json_t *r = record_of("a", "succeeded"), *got;

	json_object_set_new(r, "analysis_id",
			    json_string("na\xc3\xafve \xf0\x9f\xa7\xac"));
	assert_int_equal(setenv("PGCLIENTENCODING", "LATIN1", 1), 0);
	told(reopen(f), json_incref(r), NULL, NULL);
	assert_int_equal(unsetenv("PGCLIENTENCODING"), 0);
	assert_int_equal(forge_store_get(reopen(f), "a", &got, NULL), 0);
	assert_true(json_equal(got, r));
	json_decref(got);
	json_decref(r);
}

/* Both are only about time; neither may change what there is. */
static void getting_ready_and_tidying_change_nothing(void **state)
{
	struct fixture *f = *state;
	char wal[96];
	struct stat log;

	forge_store_warm(f->st);
	for (int i = 0; i < 200; i++) {
		char id[16];
		(void)snprintf(id, sizeof(id), "run%03d", i);
		WENT(f->st, id, SUCCEEDED);
	}
	forge_store_tidy(f->st);
	if (!server) {
		(void)snprintf(wal, sizeof(wal), "%s/forge.db-wal", f->dir);
		assert_int_equal(stat(wal, &log), 0);
		assert_int_equal(log.st_size, 0);
	}
	forge_store_tidy(f->st);
	assert_int_equal(number(reopen(f), "SELECT count(*) FROM run_events"), 800);
	assert_status(f->st, "run199", "succeeded");
}

/* ---- errors ---- */

static void errors_are_told_and_may_be_ignored(void **state)
{
	struct fixture *f = *state;
	struct forge_error err = FORGE_ERROR_INIT;

	WENT(f->st, "a", SUCCEEDED);
	run_sql(f->st, server ? "DROP TABLE post_process_records CASCADE"
			      : "DROP TABLE post_process_records");
	json_t *j = NULL;
	assert_int_equal(forge_store_post_records(f->st, "a", &j, &err), -ENOENT);
	assert_null(j);
	assert_contains(err.msg, f->st->ops->name);
	assert_int_equal(forge_store_post_records(f->st, "a", &j, NULL), -ENOENT);
	assert_int_equal(put_rows(f->st, "a", json_pack("[{}]"), NULL), -ENOENT);
	assert_int_equal(forge_store_get(f->st, "none", &j, NULL), -ENOENT);
	assert_int_equal(tell(f->st, record_of("a", "failed"), NULL, NULL, NULL),
			 -EALREADY);
	assert_status(f->st, "a", "succeeded");
}

static void what_is_no_store_is_refused(const char *url, int rc, const char *word)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_store *st = NULL;

	int got = forge_store_open(url, &st, &err);
	if (got != rc)
		fail_msg("'%s': %d (%s)", url, got, err.msg);
	assert_null(st);
	assert_int_equal(err.code, -rc);
	assert_contains(err.msg, word);
}

static void places_that_are_no_store_are_refused(void **state)
{
	struct fixture *f = *state;
	char url[320];

	what_is_no_store_is_refused("", -EINVAL, "postgresql://");
	what_is_no_store_is_refused("mysql://x", -EINVAL, "sqlite:/");
	what_is_no_store_is_refused("/var/lib/x.db", -EINVAL, "unknown store");
	if (server) {
		what_is_no_store_is_refused("postgresql://x@/x?host=/nonexistent",
					    -ENOTCONN, "/nonexistent");
		const char *host = strchr(f->url, '?');
		(void)snprintf(url, sizeof(url), "postgres://nobody@/none%s", host);
		what_is_no_store_is_refused(url, -ENOTCONN, "nobody");
		return;
	}
	what_is_no_store_is_refused("sqlite:relative.db", -EINVAL, "absolute");
	what_is_no_store_is_refused("sqlite:/nonexistent/x.db", -ENOENT,
				    "/nonexistent/x.db");
	(void)snprintf(url, sizeof(url), "sqlite:%s", f->dir);
	what_is_no_store_is_refused(url, -EISDIR, f->dir);
	int fd = open(f->url + strlen("sqlite:"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(write(fd, "garbage. ", 9), 9);
	close(fd);
	what_is_no_store_is_refused(f->url, -EUCLEAN, "forge.db");
}

static void passwords_are_not_displayed(void **state)
{
	static const struct {
		const char *url, *shown;
	} cases[] = {
		{ "sqlite:/a/b.db", "sqlite:/a/b.db" },
		{ "postgresql://h/db", "postgresql://h/db" },
		{ "postgresql://u@h:5432/db", "postgresql://u@h:5432/db" },
		{ "postgresql://u:secret@h:5432/db", "postgresql://u@h:5432/db" },
		{ "postgresql://u:se:cr@et@h/db", "postgresql://u@h/db" },
		{ "postgresql://:secret@h/db", "postgresql://@h/db" },
		{ "postgresql://h:5432/db", "postgresql://h:5432/db" },
		{ "postgresql:///db?host=/x&user=u", "postgresql:///db?host=/x&user=u" },
	};
	static const char *const hidden[] = {
		"postgresql:///db?user=u&password=secret&host=h",
		"postgresql:///db?password=secret",
		"postgresql:///db?sslpassword=secret&password=secret",
		"postgresql:///db?password=secret&password=secret",
		"postgresql://u:secret@h/db?sslpassword=secret&user=u",
		"postgresql://u:secret@h1,h2/db?password=secret",
	};

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(cases); i++) {
		forge_auto_free char *s = forge_store_display(cases[i].url);
		assert_string_equal(s, cases[i].shown);
	}
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(hidden); i++) {
		forge_auto_free char *s = forge_store_display(hidden[i]);
		if (strstr(s, "secret"))
			fail_msg("'%s' is displayed as '%s'", hidden[i], s);
		assert_contains(s, "postgresql://");
		assert_contains(s, "/db");
	}
}

/* A file does not freeze; of a server only the process that serves us is stopped. */
static void a_frozen_server_is_not_waited_for(void **state)
{
#if HAVE_POSTGRES
	struct fixture *f = *state;
	struct forge_error err = FORGE_ERROR_INIT;
	long long n = 0;

	if (!server)
		return;
	pid_t backend = (pid_t)number(f->st, "SELECT pg_backend_pid()");
	unsigned before = forge_postgres_answer_msec;
	forge_postgres_answer_msec = 200;
	assert_int_equal(kill(backend, SIGSTOP), 0);
	int rc = f->st->ops->exec(f->st, "SELECT 1", NULL, 0, take_number, &n, &err);
	int again = f->st->ops->begin(f->st, true, NULL);
	assert_int_equal(kill(backend, SIGCONT), 0);
	forge_postgres_answer_msec = before;
	assert_int_equal(rc, -ETIMEDOUT);
	assert_int_equal(again, -ETIMEDOUT);
	assert_contains(err.msg, "does not answer");
	assert_int_equal(n, 0);
#else
	(void)state;
#endif
}

#define ON(f)	    cmocka_unit_test_setup_teardown(f, make_store, unmake)
#define ON_EMPTY(f) cmocka_unit_test_setup_teardown(f, make_empty, unmake)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		ON(a_fresh_store_has_its_tables),
		ON(a_file_is_the_owners_alone),
		ON(opened_again_it_has_what_it_had),
		ON_EMPTY(every_earlier_version_is_brought_up),
		ON_EMPTY(version_7_gets_its_parents),
		ON(attempts_are_not_parts),
		ON_EMPTY(a_migration_is_whole_or_not_there),
		ON(tables_of_a_newer_forge_are_refused),
		ON_EMPTY(a_fresh_store_opened_by_many_at_once),
		ON_EMPTY(different_runs_from_many_processes),
		ON(one_run_has_one_verdict_whoever_tells_it),
		ON_EMPTY(the_same_run_told_by_several_is_one_run),
		ON_EMPTY(a_key_wanted_by_many_is_one_runs),
		ON(told_twice_nothing_changes),
		ON(every_transition_is_judged),
		ON(a_run_must_begin_at_a_beginning),
		ON(lost_events_are_assumed),
		ON(what_repair_adds_to_lost_events_is_taken),
		ON(events_that_are_known_are_skipped),
		ON(files_come_with_the_verdict),
		ON(a_failure_in_the_middle_leaves_nothing),
		ON(a_record_must_say_whose_it_is),
		ON(a_key_is_one_runs),
		ON(a_key_is_one_users),
		ON(a_path_may_be_long),
		ON(what_is_refused_for_ever_still_ends),
		ON(runs_are_found_by_how_they_begin),
		ON(what_is_not_there_is_said),
		ON(a_damaged_record_is_told),
		ON(listings_are_filtered),
		ON(listings_are_sorted),
		ON(listings_come_in_pages),
		ON(a_row_has_what_the_record_says),
		ON(a_listing_stops_when_told_to),
		ON(every_object_is_named_once),
		ON(files_are_found_by_content_owner_and_host),
		ON(contents_and_checks_of_a_runtime),
		ON(a_check_told_twice_or_late_is_one),
		ON(a_repeated_post_process_replaces_the_first),
		ON(a_failed_repetition_keeps_the_first),
		ON(any_text_comes_back_as_it_was),
		ON(the_environment_does_not_change_texts),
		ON(getting_ready_and_tidying_change_nothing),
		ON(errors_are_told_and_may_be_ignored),
		ON_EMPTY(places_that_are_no_store_are_refused),
		ON(a_frozen_server_is_not_waited_for),
		cmocka_unit_test(passwords_are_not_displayed),
	};

	if (argc > 1 && strcmp(argv[1], "postgres") == 0) {
		server = getenv("FORGE_TEST_PG");
		if (!HAVE_POSTGRES || !server) {
			printf("1..0 # SKIP %s\n",
			       HAVE_POSTGRES ? "FORGE_TEST_PG names no server "
					       "(tests/tools/with-postgres.sh)"
					     : "built without PostgreSQL");
			return 0;
		}
	}
	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
