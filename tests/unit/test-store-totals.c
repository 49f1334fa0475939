/* SPDX-License-Identifier: Apache-2.0 */
/* Contract of the totals: every ended run counts once, for ever, whoever folds and whatever is removed. */
#include "store-fixture.h"

struct wanted {
	const char *kind, *status, *reason;
	int64_t le, n, total;
};

static int add_up(const struct forge_total_row *row, void *arg)
{
	struct wanted *w = arg;

	if (strcmp(row->kind, w->kind) == 0 &&
	    (!w->status || strcmp(row->status, w->status) == 0) &&
	    (!w->reason || strcmp(row->reason, w->reason) == 0) &&
	    (!w->le || row->le == w->le)) {
		w->n += row->n;
		w->total += row->total;
	}
	return 0;
}

static struct wanted sum(struct forge_store *st, const char *kind, const char *status,
			 const char *reason, int64_t le)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	struct wanted w = { kind, status, reason, le, 0, 0 };

	if (forge_store_totals(st, add_up, &w, &err) < 0)
		fail_msg("%s", err.msg);
	return w;
}

/* A run that ended after 2.5 s, waited 0.3 s and used half of its memory. */
static json_t *ended(const char *id, const char *status)
{
	json_t *r = record_of(id, status);

	json_object_set_new(r, "reason", json_string("exit"));
	json_object_set_new(r, "started_at", json_string("2026-01-01T00:00:00.300Z"));
	json_object_set_new(
		r, "usage",
		json_pack("{s:f, s:i}", "wall_seconds", 2.5, "memory_peak_bytes", 512));
	json_object_set_new(r, "limits", json_pack("{s:i}", "memory_bytes", 1024));
	json_object_set_new(r, "runtime", json_pack("{s:s}", "name", "data-ml"));
	return r;
}

static json_t *path_to(const char *status)
{
	return json_pack("[o, o, o]", event_of(0, "s", "preparing"),
			 event_of(1, "s", "running"), event_of(2, "s", status));
}

static void an_ended_run_counts_once(void **state)
{
	struct fixture *f = *state;

	WENT(f->st, "open", "preparing", "running");
	assert_int_equal(sum(f->st, "run", NULL, NULL, 0).n, 0);
	for (int i = 0; i < 3; i++) /* told again */
		told(f->st, ended("a", "failed"), path_to("failed"), NULL);
	told(f->st, ended("b", "killed"), path_to("killed"), NULL);
	assert_int_equal(sum(f->st, "run", NULL, NULL, 0).n, 2);
	assert_int_equal(sum(f->st, "run", "failed", "exit", 0).n, 1);
	struct wanted wall = sum(f->st, "wall", "failed", NULL, 5000000);
	assert_int_equal(wall.n, 1);
	assert_int_equal(wall.total, 2500000);
	struct wanted wait = sum(f->st, "wait", NULL, NULL, 1000000);
	assert_int_equal(wait.n, 2);
	assert_int_equal(wait.total, 600000);
	assert_int_equal(sum(f->st, "share", NULL, NULL, 500000).n, 2);
}

static void parts_do_not_count(void **state)
{
	struct fixture *f = *state;
	json_t *probe = ended("p", "failed"), *post = ended("q", "failed");

	json_object_set_new(probe, "is_probe", json_true());
	json_object_set_new(post, "parent_run", json_string("a"));
	told(f->st, probe, path_to("failed"), NULL);
	told(f->st, post, path_to("failed"), NULL);
	assert_int_equal(sum(f->st, "run", NULL, NULL, 0).n, 0);
}

static void folding_changes_no_total(void **state)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	struct fixture *f = *state;
	char id[16];

	for (int i = 0; i < 300; i++) {
		(void)snprintf(id, sizeof(id), "r%d", i);
		told(f->st, ended(id, i % 3 ? "failed" : "killed"),
		     path_to(i % 3 ? "failed" : "killed"), NULL);
		if (i % 100 == 50)
			assert_int_equal(forge_store_fold(f->st, &err), 0);
	}
	assert_untouched(err);
	assert_int_equal(sum(f->st, "run", NULL, NULL, 0).n, 300);
	assert_int_equal(forge_store_wants_fold(f->st), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(forge_store_fold(f->st, &err), 0);
		assert_int_equal(number(f->st, "SELECT count(*) FROM run_deltas"), 0);
		assert_int_equal(sum(f->st, "run", "killed", NULL, 0).n, 100);
		assert_int_equal(sum(f->st, "run", "failed", NULL, 0).n, 200);
		assert_int_equal(sum(f->st, "wall", NULL, NULL, 5000000).n, 300);
		assert_int_equal(sum(f->st, "wall", NULL, NULL, 0).total,
				 300 * 2500000ll);
		assert_int_equal(sum(f->st, "share", NULL, NULL, 0).n, 300);
	}
}

static void a_removed_run_still_counts(void **state)
{
	struct fixture *f = *state;

	told(f->st, ended("a", "failed"), path_to("failed"), NULL);
	assert_int_equal(forge_store_remove(f->st, "a", NULL), 0);
	assert_int_equal(number(f->st, "SELECT count(*) FROM runs"), 0);
	assert_int_equal(sum(f->st, "run", "failed", NULL, 0).n, 1);
	assert_int_equal(forge_store_fold(f->st, NULL), 0);
	assert_int_equal(sum(f->st, "run", "failed", NULL, 0).n, 1);
}

/* Runs that were there before the totals are counted by the migration. */
static void runs_of_before_are_counted(void **state)
{
	struct fixture *f = *state;

	f->st = open_raw(f->url);
	assert_int_equal(forge_store_migrate(f->st, 10, NULL), 0);
	run_sql(f->st, "INSERT INTO analyses VALUES ('a', 't')");
	run_sql(f->st,
		"INSERT INTO runs (run_id, analysis_id, status, reason, runtime, "
		"created_at, wall_usec, part_of, record) VALUES "
		"('1', 'a', 'killed', 'memory', 'x', 't', 2500000, NULL, '{}'), "
		"('2', 'a', 'killed', 'memory', 'x', 't', NULL, NULL, '{}'), "
		"('3', 'a', 'killed', 'memory', 'x', 't', 99999999999999, NULL, '{}'), "
		"('4', 'a', 'failed', NULL, NULL, 't', 1, 'probe', '{}'), "
		"('5', 'a', 'running', NULL, NULL, 't', NULL, NULL, '{}')");
	(void)reopen(f);
	assert_int_equal(sum(f->st, "run", NULL, NULL, 0).n, 3);
	assert_int_equal(sum(f->st, "run", "killed", "memory", 0).n, 3);
	assert_int_equal(sum(f->st, "wall", "killed", NULL, 5000000).n, 1);
	assert_int_equal(sum(f->st, "wall", "killed", NULL, FORGE_TOTAL_INF).n, 1);
	/* And it goes on from there. */
	told(f->st, ended("b", "killed"), path_to("killed"), NULL);
	assert_int_equal(forge_store_fold(f->st, NULL), 0);
	assert_int_equal(sum(f->st, "wall", "killed", NULL, 5000000).n, 2);
}

/* The migration writes the bounds out; they are those of new runs. */
static void the_bounds_of_before_are_the_same(void **state)
{
	struct fixture *f = *state;
	const int64_t *bounds;
	size_t n = forge_total_bounds("wall", &bounds);
	char sql[512];

	f->st = open_raw(f->url);
	assert_int_equal(forge_store_migrate(f->st, 10, NULL), 0);
	run_sql(f->st, "INSERT INTO analyses VALUES ('a', 't')");
	for (size_t i = 0; i < n; i++) {
		(void)snprintf(sql, sizeof(sql),
			       "INSERT INTO runs (run_id, analysis_id, status, "
			       "created_at, wall_usec, record) VALUES ('%zu', 'a', "
			       "'failed', 't', %lld, '{}')",
			       i, (long long)(i + 1 < n ? bounds[i] : bounds[i - 1] + 1));
		run_sql(f->st, sql);
	}
	(void)reopen(f);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(sum(f->st, "wall", "failed", NULL, bounds[i]).n, 1);
}

static void checks_count_by_result(void **state)
{
	struct fixture *f = *state;
	json_t *checks =
		json_pack("[{s:s, s:s, s:b, s:f}, {s:s, s:s, s:b, s:f}]", "name", "disk",
			  "time", "t1", "ok", 1, "duration_seconds", 0.5, "name", "disk",
			  "time", "t2", "ok", 0, "duration_seconds", 0.25);
	const struct forge_runtime_check probe = { "x",	     "venv",   NULL,  "d", "t",
						   "broken", "broken", "why", NULL };

	for (int i = 0; i < 2; i++) /* the same results again */
		assert_int_equal(forge_store_put_checks(f->st, checks, "here", NULL), 0);
	json_decref(checks);
	assert_int_equal(sum(f->st, "check", "pass", "disk", 0).n, 1);
	assert_int_equal(sum(f->st, "check", "fail", "disk", 0).n, 1);
	assert_int_equal(sum(f->st, "check", NULL, "disk", 0).total, 750000);
	for (int i = 0; i < 2; i++)
		assert_int_equal(forge_store_put_check(f->st, &probe, NULL), 0);
	assert_int_equal(sum(f->st, "probe", "broken", "x", 0).n, 1);
	assert_int_equal(forge_store_drop_checks(f->st, "t9", "here", NULL), 0);
	assert_int_equal(sum(f->st, "check", NULL, "disk", 0).n, 2);
}

/* A name of 10,000 characters, some of two bytes, is a key of the table. */
static void a_long_name_is_cut_between_characters(void **state)
{
	struct fixture *f = *state;
	static char name[20001];

	for (int i = 0; i < 10000; i++)
		memcpy(name + 2 * i, "\xc3\xa9", 2);
	json_t *r = ended("a", "failed");
	json_object_set_new(r, "runtime", json_pack("{s:s}", "name", name));
	told(f->st, r, path_to("failed"), NULL);
	assert_int_equal(forge_store_fold(f->st, NULL), 0);
	assert_int_equal(number(f->st, "SELECT length(runtime) FROM run_totals WHERE "
				       "kind = 'run'"),
			 120);
}

/* Several processes tell runs and fold at the same time: nothing is lost and nothing counts twice. */
static void many_count_and_fold_at_once(void **state)
{
	enum { CHILDREN = 4, RUNS = 40 };
	struct fixture *f = *state;
	pid_t pids[CHILDREN];

	forge_store_close(f->st);
	f->st = NULL;
	for (int c = 0; c < CHILDREN; c++) {
		pids[c] = fork();
		if (pids[c] != 0)
			continue;
		struct forge_store *st = NULL;
		int bad = forge_store_open(f->url, &st, NULL);
		for (int i = 0; i < RUNS && bad == 0; i++) {
			char id[16];
			(void)snprintf(id, sizeof(id), "r%d-%d", c, i);
			bad = tell(st, ended(id, "failed"), path_to("failed"), NULL,
				   NULL);
			if (bad == 0 && i % 5 == 0)
				(void)!forge_store_fold(
					st, NULL); /* may lose against another */
		}
		_exit(bad ? 1 : 0);
	}
	for (int c = 0; c < CHILDREN; c++) {
		int status = -1;
		assert_int_equal(waitpid(pids[c], &status, 0), pids[c]);
		assert_int_equal(status, 0);
	}
	(void)reopen(f);
	assert_int_equal(sum(f->st, "run", NULL, NULL, 0).n, CHILDREN * RUNS);
	assert_int_equal(forge_store_fold(f->st, NULL), 0);
	assert_int_equal(sum(f->st, "run", NULL, NULL, 0).n, CHILDREN * RUNS);
	assert_int_equal(sum(f->st, "wait", NULL, NULL, 0).n, CHILDREN * RUNS);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		ON(an_ended_run_counts_once),
		ON(parts_do_not_count),
		ON(folding_changes_no_total),
		ON(a_removed_run_still_counts),
		ON_EMPTY(runs_of_before_are_counted),
		ON_EMPTY(the_bounds_of_before_are_the_same),
		ON(checks_count_by_result),
		ON(a_long_name_is_cut_between_characters),
		ON(many_count_and_fold_at_once),
	};

	if (!choose_backend(argc, argv))
		return 0;
	return cmocka_run_group_tests_name("store-totals", tests, NULL, NULL);
}
