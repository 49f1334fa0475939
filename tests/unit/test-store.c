/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of a store: opening, migrations, errors. */
#include "store-fixture.h"

/* ---- opening ---- */

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
		ON(errors_are_told_and_may_be_ignored),
		ON_EMPTY(places_that_are_no_store_are_refused),
		ON(a_frozen_server_is_not_waited_for),
		cmocka_unit_test(passwords_are_not_displayed),
	};

	if (!choose_backend(argc, argv))
		return 0;
	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
