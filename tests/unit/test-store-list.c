/* SPDX-License-Identifier: Apache-2.0 */
/* Listings of many runs: whichever way they are found, they are the right ones; and no page reads all runs. */
#include "store-fixture.h"

#include <fnmatch.h>
#include <sqlite3.h>

#define N 400

static struct one {
	char id[16], analysis[16], created[32], ended[32];
	const char *status, *reason, *runtime, *executor, *host, *user;
	long long wall, memory; /* -1: NULL */
} all[N];

/* The same numbers each time. */
static unsigned any(unsigned n)
{
	static unsigned long long x = 88172645463325252ull;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return (unsigned)(x % n);
}
#define PICK(...)                                                                        \
	((const char *const[]){ __VA_ARGS__ })[any(                                      \
		sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))]

static void make_one(struct one *r, unsigned i)
{
	bool is_open = any(10) == 0;

	(void)snprintf(r->id, sizeof(r->id), "r%04u", i);
	(void)snprintf(r->analysis, sizeof(r->analysis), "%s-%u",
		       PICK("fit", "fit", "map", "rare%x", "old_y"), any(6));
	(void)snprintf(r->created, sizeof(r->created), "2026-01-01T00:%02u:%02u.000Z",
		       i / 60, i % 60);
	(void)snprintf(r->ended, sizeof(r->ended), "2026-01-02T00:00:%02u.000Z", any(60));
	r->status =
		is_open ? PICK("queued", "running")
			: PICK("succeeded", "succeeded", "succeeded", "failed", "killed");
	r->reason = is_open ? NULL : PICK("exit", "exit", "exit", "memory", "signal");
	r->runtime = PICK(NULL, "py", "py", "R");
	r->executor = PICK("local", "local", "local", "slurm");
	r->host = PICK("h1", "h1", "h1", "h2");
	r->user = PICK("ann", "ann", "ann", "bob", "eve");
	r->wall = is_open ? -1 : (long long)any(50);
	r->memory = is_open || any(7) == 0 ? -1 : (long long)any(1000);
}

static const char *quoted(const char *s, char buf[48])
{
	(void)snprintf(buf, 48, s ? "'%s'" : "NULL", s);
	return buf;
}

static void put_one(struct forge_store *st, const struct one *r)
{
	char sql[1024], reason[48], runtime[48], ended[48], wall[24] = "NULL",
							    memory[24] = "NULL";

	if (r->wall >= 0)
		(void)snprintf(wall, sizeof(wall), "%lld", r->wall);
	if (r->memory >= 0)
		(void)snprintf(memory, sizeof(memory), "%lld", r->memory);
	(void)snprintf(
		sql, sizeof(sql),
		"INSERT INTO runs (run_id, analysis_id, status, reason, runtime, "
		"executor, host, "
		"username, created_at, ended_at, wall_usec, memory_peak, record) VALUES "
		"('%s', '%s', '%s', %s, %s, '%s', '%s', '%s', '%s', %s, %s, %s, '{}')",
		r->id, r->analysis, r->status, quoted(r->reason, reason),
		quoted(r->runtime, runtime), r->executor, r->host, r->user, r->created,
		quoted(r->wall < 0 ? NULL : r->ended, ended), wall, memory);
	run_sql(st, sql);
}

static void put_all(struct forge_store *st)
{
	run_sql(st, "BEGIN");
	for (unsigned i = 0; i < N; i++) {
		char sql[256];
		make_one(&all[i], i);
		(void)snprintf(
			sql, sizeof(sql),
			"INSERT INTO analyses SELECT '%s', 'then' WHERE NOT EXISTS "
			"(SELECT 1 FROM analyses WHERE analysis_id = '%s')",
			all[i].analysis, all[i].analysis);
		run_sql(st, sql);
		put_one(st, &all[i]);
	}
	run_sql(st, "COMMIT");
}

/* ---- what a listing must be, without a store ---- */

static bool same(const char *wanted, const char *is)
{
	return !wanted || (is && strcmp(wanted, is) == 0);
}

static bool matches(const struct one *r, const struct forge_run_filter *f)
{
	return same(f->status, r->status) && same(f->reason, r->reason) &&
	       same(f->runtime, r->runtime) && same(f->executor, r->executor) &&
	       same(f->host, r->host) && same(f->user, r->user) &&
	       (!f->analysis || fnmatch(f->analysis, r->analysis, FNM_NOESCAPE) == 0) &&
	       (!f->since || strcmp(r->id, f->since) >= 0) &&
	       (!f->until || strcmp(r->id, f->until) < 0) &&
	       (!f->after || (f->oldest_first ? strcmp(r->id, f->after) > 0
					      : strcmp(r->id, f->after) < 0)) &&
	       (!f->open_only || r->wall < 0);
}

static const struct forge_run_filter *filter_now;

static long long key_of(const struct one *r)
{
	const char *sort = filter_now->sort;

	if (!sort || strcmp(sort, "created") == 0)
		return 0;
	if (strcmp(sort, "ended") == 0)
		return r->wall < 0 ? -1 : strtoll(r->ended + 17, NULL, 10);
	return strcmp(sort, "wall") == 0 ? r->wall : r->memory;
}

static int by_order(const void *a, const void *b)
{
	const struct one *x = *(const struct one *const *)a,
			 *y = *(const struct one *const *)b;
	long long m = key_of(x), n = key_of(y);
	int order = m < n ? -1 : m > n ? 1 : strcmp(x->id, y->id);

	return filter_now->oldest_first ? order : -order;
}

static size_t expect(const struct forge_run_filter *f, const struct one *ret[N])
{
	size_t n = 0;

	filter_now = f;
	for (size_t i = 0; i < N; i++)
		if (matches(&all[i], f) && key_of(&all[i]) >= 0)
			ret[n++] = &all[i];
	qsort(ret, n, sizeof(*ret), by_order);
	return f->limit && n > f->limit ? f->limit : n;
}

/* ---- and what it is ---- */

struct got {
	char ids[N][16];
	size_t n;
};

static int take_row(const struct forge_run_row *row, void *arg)
{
	struct got *g = arg;

	assert_true(g->n < N);
	(void)snprintf(g->ids[g->n++], sizeof(g->ids[0]), "%s", row->run_id);
	return 0;
}

static void lists_what_matches(struct forge_store *st, const struct forge_run_filter *f,
			       const char *what)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	const struct one *wanted[N];
	struct got got = { .n = 0 };
	size_t n = expect(f, wanted);

	if (forge_store_list(st, f, take_row, &got, &err) < 0)
		fail_msg("%s: %s", what, err.msg);
	assert_untouched(err);
	if (got.n != n)
		fail_msg("%s: %zu runs and not %zu", what, got.n, n);
	for (size_t i = 0; i < n; i++)
		if (strcmp(got.ids[i], wanted[i]->id) != 0)
			fail_msg("%s: %s and not %s at %zu", what, got.ids[i],
				 wanted[i]->id, i);
}

/* Those that leave nearly all, some and no runs, alone and together. */
static const struct forge_run_filter filters[] = {
	{ .limit = 0 },
	{ .status = "succeeded" },
	{ .status = "killed" },
	{ .status = "lost" },
	{ .reason = "exit" },
	{ .reason = "memory" },
	{ .reason = "memory", .status = "killed" },
	{ .executor = "local" },
	{ .executor = "slurm" },
	{ .executor = "slurm", .reason = "exit", .host = "h2" },
	{ .host = "h2" },
	{ .user = "ann" },
	{ .user = "nobody" },
	{ .runtime = "py" },
	{ .runtime = "R", .user = "eve" },
	{ .analysis = "fit-1" },
	{ .analysis = "fit*" },
	{ .analysis = "*it-1" },
	{ .analysis = "*%*" },
	{ .analysis = "*_*" },
	{ .analysis = "ma?-2" },
	{ .analysis = "*none*" },
	{ .analysis = "*a*", .status = "succeeded", .user = "ann" },
	{ .since = "r0100", .until = "r0180" },
	{ .since = "r0390" },
	{ .since = "r0390", .analysis = "*t*" },
	{ .status = "failed", .since = "r0200" },
	{ .open_only = true },
};

static void whatever_way_is_taken_the_same_runs_are_found(void **state)
{
	static const char *const sorts[] = { NULL, "created", "ended", "wall", "memory" };
	static const unsigned few[] = { 0, 30, 100, 20000 }, limits[] = { 0, 5, 60 };
	struct fixture *f = *state;
	char what[160];

	put_all(f->st);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(filters); i++)
		for (size_t k = 0; k < FORGE_ARRAY_SIZE(sorts) * 2 * 4 * 3; k++) {
			struct forge_run_filter one = filters[i];
			one.sort = sorts[k % 5];
			one.oldest_first = k / 5 % 2;
			forge_list_few = few[k / 10 % 4];
			one.limit = limits[k / 40];
			/* Those without a value have no place that both stores give them. */
			if (one.open_only && one.sort && strcmp(one.sort, "created") != 0)
				continue;
			(void)snprintf(what, sizeof(what),
				       "filter %zu by %s%s, few %u, limit %u", i,
				       one.sort ? one.sort : "-",
				       one.oldest_first ? " reversed" : "",
				       forge_list_few, one.limit);
			lists_what_matches(f->st, &one, what);
			one.after = "r0200";
			if (!one.sort || strcmp(one.sort, "created") == 0)
				lists_what_matches(f->st, &one, what);
		}
	forge_list_few = 20000;
}

/* ---- what a page costs, in SQLite's own counts ---- */

static struct {
	long long steps, pages; /* of the virtual machine; that were looked at */
} spent;

static int note_cost(unsigned what, void *arg, void *stmt, void *nsec)
{
	int hits, misses, high;

	(void)what;
	(void)arg;
	(void)nsec;
	spent.steps += sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_VM_STEP, 1);
	sqlite3 *db = sqlite3_db_handle(stmt);
	(void)sqlite3_db_status(db, SQLITE_DBSTATUS_CACHE_HIT, &hits, &high, 1);
	(void)sqlite3_db_status(db, SQLITE_DBSTATUS_CACHE_MISS, &misses, &high, 1);
	spent.pages += hits + misses;
	return 0;
}

static int watch(sqlite3 *db, char **ret_message, const struct sqlite3_api_routines *api)
{
	(void)ret_message;
	(void)api;
	return sqlite3_trace_v2(db, SQLITE_TRACE_PROFILE, note_cost, NULL);
}

#define MANY	  20000
#define MANY_TEXT "20000"
/* A row has a record of 2 KB, two rows a page. */
#define ALL_PAGES  (MANY / 2)
#define PAGE_LIMIT 50

static void put_many(struct forge_store *st)
{
	run_sql(st, "BEGIN");
	run_sql(st, "INSERT INTO analyses WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL "
		    "SELECT i + 1 FROM s WHERE i < 99) "
		    "SELECT 'a' || i, 'then' FROM s");
	run_sql(st, "INSERT INTO runs (run_id, analysis_id, status, reason, executor, "
		    "host, username, created_at, ended_at, "
		    "wall_usec, memory_peak, record) WITH RECURSIVE s(i) AS (SELECT 0 "
		    "UNION ALL SELECT i + 1 FROM s WHERE i < " MANY_TEXT
		    " - 1) SELECT printf('%06d', i), 'a' || (i % 100), CASE i % 200 WHEN "
		    "7 THEN 'killed' ELSE "
		    "'succeeded' END, CASE i % 200 WHEN 7 THEN 'memory' ELSE 'exit' END, "
		    "'local', 'here', 'me', 'then', 'then', "
		    "i * 7919 % 10007, i * 104729 % 99991, hex(zeroblob(1000)) FROM s");
	run_sql(st, "COMMIT");
}

static void costs(struct forge_store *st, const struct forge_run_filter *filter,
		  const char *what, long long most_steps, long long most_pages)
{
	struct forge_run_filter f = *filter;
	struct got got = { .n = 0 };

	f.limit = PAGE_LIMIT;
	spent.steps = spent.pages = 0;
	assert_true(forge_store_list(st, &f, take_row, &got, NULL) >= 0);
	assert_true(spent.steps > 0);
	if (spent.steps > most_steps || spent.pages > most_pages)
		fail_msg("%s: %lld steps, %lld pages", what, spent.steps, spent.pages);
}

static void no_page_reads_all_runs(void **state)
{
	static const struct forge_run_filter by_index[] = {
		{ .limit = 0 },	       { .status = "killed" },
		{ .status = "lost" },  { .reason = "memory" },
		{ .reason = "pids" },  { .executor = "slurm" },
		{ .host = "there" },   { .user = "nobody" },
		{ .user = "me" },      { .analysis = "a7" },
		{ .since = "019990" }, { .status = "succeeded", .user = "me" },
	};
	static const char *const patterns[] = { "*none*", "*a77*", "*a*", "a7*" };
	static const char *const sorts[] = { "created", "ended", "wall", "memory" };
	struct fixture *f = *state;
	char what[80];

	if (server)
		return;
	assert_int_equal(sqlite3_auto_extension((void (*)(void))watch), SQLITE_OK);
	struct forge_store *st = reopen(f);
	put_many(st);
	/* What all runs cost. */
	struct forge_run_filter none = { .step = "none" };
	struct got got = { .n = 0 };
	spent.pages = spent.steps = 0;
	none.limit = PAGE_LIMIT;
	assert_int_equal(forge_store_list(st, &none, take_row, &got, NULL), 0);
	assert_true(spent.pages > ALL_PAGES / 2 && spent.steps > 3 * MANY);
	forge_list_few = 500;
	for (size_t s = 0; s < FORGE_ARRAY_SIZE(sorts); s++) {
		for (size_t i = 0; i < FORGE_ARRAY_SIZE(by_index); i++) {
			struct forge_run_filter one = by_index[i];
			one.sort = sorts[s];
			(void)snprintf(what, sizeof(what), "filter %zu by %s", i,
				       sorts[s]);
			costs(st, &one, what, 3 * MANY / 2, ALL_PAGES / 4);
		}
		/* The names of all runs are read once, or twice, but not the runs. */
		for (size_t i = 0; i < FORGE_ARRAY_SIZE(patterns); i++) {
			struct forge_run_filter one = { .analysis = patterns[i],
							.sort = sorts[s] };
			(void)snprintf(what, sizeof(what), "%s by %s", patterns[i],
				       sorts[s]);
			costs(st, &one, what, 20 * MANY, ALL_PAGES / 4);
		}
	}
	forge_list_few = 20000;
	(void)sqlite3_cancel_auto_extension((void (*)(void))watch);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		ON(whatever_way_is_taken_the_same_runs_are_found),
		ON(no_page_reads_all_runs),
	};

	if (!choose_backend(argc, argv))
		return 0;
	return cmocka_run_group_tests_name("store-list", tests, NULL, NULL);
}
