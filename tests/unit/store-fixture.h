/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the contract of a store, which is the same for every backend: a fresh store for each case, and runs to
 * put into it.
 *   test-store             SQLite, in a temporary file
 *   test-store postgres    the server of $FORGE_TEST_PG (tests/tools/with-postgres.sh), a database a test
 */
#pragma once

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
static inline struct forge_store *open_raw(const char *url)
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

static inline void run_sql(struct forge_store *st, const char *sql)
{
	struct forge_error err = FORGE_ERROR_INIT;

	if (st->ops->exec(st, sql, NULL, 0, NULL, NULL, &err) < 0)
		fail_msg("%s: %s", sql, err.msg);
}

static inline int take_number(const char *const *columns, void *arg)
{
	*(long long *)arg = columns[0] ? strtoll(columns[0], NULL, 10) : -1;
	return 0;
}

/* The one number that sql answers. */
static inline long long number(struct forge_store *st, const char *sql)
{
	struct forge_error err = FORGE_ERROR_INIT;
	long long n = -1;

	if (st->ops->exec(st, sql, NULL, 0, take_number, &n, &err) < 0)
		fail_msg("%s: %s", sql, err.msg);
	return n;
}

static inline void on_server(const char *what, const char *name, const char *how)
{
	struct forge_store *admin = open_raw(server);
	char sql[128];

	(void)snprintf(sql, sizeof(sql), "%s DATABASE %s%s", what, name, how);
	run_sql(admin, sql);
	forge_store_close(admin);
}

/* A place for a store, with nothing in it. */
static inline int make_empty(void **state)
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

static inline int make_store(void **state)
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

static inline void unlink_in(const char *dir, const char *name)
{
	char path[96];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	(void)unlink(path);
}

static inline int unmake(void **state)
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

static inline struct forge_store *reopen(struct fixture *f)
{
	struct forge_error err = FORGE_ERROR_INIT;

	forge_store_close(f->st);
	f->st = NULL;
	if (forge_store_open(f->url, &f->st, &err) < 0)
		fail_msg("%s", err.msg);
	return f->st;
}

/* ---- runs ---- */

static inline json_t *record_of(const char *id, const char *status)
{
	json_t *r = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "run_id", id,
			      "analysis_id", id, "status", status, "executor", "local",
			      "host", "here", "user", "me", "created_at",
			      "2026-01-01T00:00:00.000Z");

	assert_non_null(r);
	return r;
}

static inline json_t *event_of(int seq, const char *event, const char *status)
{
	json_t *e = json_pack("{s:i, s:s, s:s, s:s, s:s*}", "seq", seq, "time",
			      "2026-01-01T00:00:00.000Z", "actor", "test", "event", event,
			      "status", status);

	assert_non_null(e);
	return e;
}

/* All three are taken; events and rows may be NULL. */
static inline int tell(struct forge_store *st, json_t *record, json_t *events,
		       json_t *rows, struct forge_error *err)
{
	json_t *batch = json_pack("{s:o, s:o*, s:o*}", "record", record, "events", events,
				  "post_process", rows);

	assert_non_null(batch);
	int rc = forge_store_apply(st, batch, false, err);
	json_decref(batch);
	return rc;
}

static inline void told(struct forge_store *st, json_t *record, json_t *events,
			json_t *rows)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;

	if (tell(st, record, events, rows, &err) < 0)
		fail_msg("%s", err.msg);
	assert_untouched(err);
}

/* The run is new, and goes through these statuses. */
static inline void went(struct forge_store *st, const char *id, const char *const *path)
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

static inline size_t events_of(struct forge_store *st, const char *id)
{
	json_t *a;

	assert_int_equal(forge_store_events(st, id, &a, NULL), 0);
	size_t n = json_array_size(a);
	json_decref(a);
	return n;
}

static inline void assert_status(struct forge_store *st, const char *id,
				 const char *status)
{
	json_t *r;

	assert_int_equal(forge_store_get(st, id, &r, NULL), 0);
	assert_string_equal(forge_json_string(r, "status"), status);
	json_decref(r);
}

static const char *const tables[] = { "analyses",      "runs",
				      "run_events",    "outputs",
				      "inputs",	       "runtimes",
				      "health_checks", "post_process_records" };

static inline int put_rows(struct forge_store *st, const char *id, json_t *rows,
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

#define ON(f)	    cmocka_unit_test_setup_teardown(f, make_store, unmake)
#define ON_EMPTY(f) cmocka_unit_test_setup_teardown(f, make_empty, unmake)

/* False: the backend is not here, and TAP says so. */
static inline bool choose_backend(int argc, char **argv)
{
	if (argc < 2 || strcmp(argv[1], "postgres") != 0)
		return true;
	server = getenv("FORGE_TEST_PG");
	if (HAVE_POSTGRES && server)
		return true;
	printf("1..0 # SKIP %s\n",
	       HAVE_POSTGRES
		       ? "FORGE_TEST_PG names no server (tests/tools/with-postgres.sh)"
		       : "built without PostgreSQL");
	return false;
}
