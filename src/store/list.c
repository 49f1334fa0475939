/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listings of runs: pages that are filtered and ordered, in a store with a million runs, too.
 *
 * A page in the order of time, of runs with one status, say, is read from the index of that condition. In two cases
 * the planners of the stores choose badly: in another order, SQLite sorts all runs that a condition leaves, however many,
 * because it has no statistics; and for a pattern that hardly any run matches, both read run after run until the page
 * is full. So each condition is counted first, up to a bound. If one of them leaves few runs, these are looked up and sorted;
 * otherwise the runs are read in the order of the page, and many of those read match.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "store/backend.h"

/* So many runs are sorted in some hundredths of a second, and counted in one. */
unsigned forge_list_few = 20000;

struct listing {
	forge_run_visitor *visit;
	void *arg;
	bool with_record;
};

static int visit_row(const char *const *c, void *arg)
{
	const struct listing *l = arg;
	struct forge_run_row row = {
		.run_id = c[0],
		.analysis_id = c[1],
		.status = c[2],
		.reason = c[3],
		.runtime = c[4],
		.executor = c[5],
		.host = c[6],
		.user = c[7],
		.created_at = c[8],
		.started_at = c[9],
		.ended_at = c[10],
		.notes = c[11],
		.wall_usec = forge_sql_number(c[12]),
		.memory_peak = forge_sql_number(c[13]),
		.pid = forge_sql_number(c[14]),
		.pid_start = forge_sql_number(c[15]),
		.boot_id = c[16],
		.parent_run = c[17],
		.attempt = forge_sql_number(c[18]),
		.record = l->with_record ? c[19] : NULL,
	};

	return l->visit(&row, l->arg);
}

/* ---- conditions ---- */

/* "column op value", joined by AND. */
struct condition {
	const char *column, *op, *value;
	/* What an index leaves out, because nearly all runs have it; NULL: nothing, or no index serves this value. */
	const char *except;
	bool has_index;
};

struct conditions {
	struct condition v[16];
	size_t n;
	char like[256]; /* a pattern, as SQL writes it */
};

static void need(struct conditions *c, const char *column, const char *op,
		 const char *value)
{
	if (value)
		c->v[c->n++] = (struct condition){ column, op, value, NULL, true };
}

/* The index has no row for the usual value. */
static void need_except(struct conditions *c, const char *column, const char *usual,
			const char *value)
{
	bool is_usual = value && strcmp(value, usual) == 0;

	need(c, column, "=", value);
	if (!value)
		return;
	c->v[c->n - 1].has_index = !is_usual;
	c->v[c->n - 1].except = is_usual ? NULL : usual;
}

/* analysis is a name, or a pattern with * and ?, which SQL writes differently. */
static void need_analysis(struct conditions *c, const char *analysis)
{
	size_t n = 0;

	if (!analysis || !strpbrk(analysis, "*?")) {
		need(c, "analysis_id", "=", analysis);
		return;
	}
	for (const char *p = analysis; *p && n + 3 < sizeof(c->like); p++) {
		if (strchr("%_!", *p))
			c->like[n++] = '!';
		c->like[n++] = *p == '*' ? '%' : *p == '?' ? '_' : *p;
	}
	c->like[n] = '\0';
	need(c, "analysis_id", "LIKE", c->like);
}

static void collect(struct conditions *c, const struct forge_run_filter *f)
{
	need(c, "status", "=", f->status);
	need_except(c, "reason", "exit", f->reason);
	need(c, "runtime", "=", f->runtime);
	need_except(c, "executor", "local", f->executor);
	need_analysis(c, f->analysis);
	need(c, "host", "=", f->host);
	need(c, "username", "=", f->user);
	need(c, "run_id", ">=", f->since);
	need(c, "run_id", "<", f->until);
	need(c, "run_id", f->oldest_first ? ">" : "<", f->after);
	need(c, "part_of", "=", f->part_of);
	need(c, "pipeline", "=", f->pipeline);
	need(c, "step", "=", f->step);
	if (f->step)
		c->v[c->n - 1].has_index = false; /* without a pipeline */
	need(c, "step_key", "=", f->step_key);
	need(c, "sha256", "=", f->output);
}

/* ---- statements ---- */

struct builder {
	char sql[1536];
	size_t len;
	struct forge_sql_value v[20];
	size_t n;
	bool has_where;
};

FORGE_PRINTF(2, 3)
static void add(struct builder *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	int n = vsnprintf(b->sql + b->len, sizeof(b->sql) - b->len, fmt, ap);
	va_end(ap);
	b->len += n > 0 ? (size_t)n : 0;
}

static void begin_condition(struct builder *b)
{
	add(b, b->has_where ? " AND " : " WHERE ");
	b->has_where = true;
}

static bool is_pattern(const struct condition *c)
{
	return strcmp(c->op, "LIKE") == 0;
}

static bool is_output(const struct condition *c)
{
	return strcmp(c->column, "sha256") == 0;
}

/* An expression in the place of a column: no index is used for it. */
static void add_condition(struct builder *b, const struct condition *c, bool by_index)
{
	begin_condition(b);
	b->v[b->n++] = SQL_TEXT(c->value);
	if (is_output(c)) {
		add(b, "run_id%s IN (SELECT run_id FROM outputs WHERE sha256 = $%zu)",
		    by_index ? "" : " || ''", b->n);
		return;
	}
	add(b, "%s%s %s $%zu%s", c->column, by_index ? "" : " || ''", c->op, b->n,
	    is_pattern(c) ? " ESCAPE '!'" : "");
	if (by_index && c->except)
		add(b, " AND %s <> '%s'", c->column, c->except);
}

/* The runs that a condition leaves, by its index. */
static void add_matching(struct builder *b, const struct condition *c, const char *what)
{
	bool had_where = b->has_where;

	add(b, "SELECT %s FROM %s", what, is_output(c) ? "outputs" : "runs");
	b->has_where = false;
	if (is_output(c)) {
		b->v[b->n++] = SQL_TEXT(c->value);
		add(b, " WHERE sha256 = $%zu", b->n);
	} else {
		add_condition(b, c, true);
	}
	b->has_where = had_where;
}

static int take_number(const char *const *columns, void *arg)
{
	*(int64_t *)arg = forge_sql_number(columns[0]);
	return 0;
}

static int count_matching(struct forge_store *st, const struct condition *c, int64_t *ret,
			  struct forge_error *err)
{
	struct builder b = { .len = 0 };

	add(&b, "SELECT count(*) FROM (");
	add_matching(&b, c, "1 AS one");
	add(&b, " LIMIT %u) AS matching", forge_list_few + 1);
	int rc = st->ops->exec(st, b.sql, b.v, b.n, take_number, ret, err);
	return rc < 0 ? rc : 0;
}

/* How a listing finds its runs. */
struct way {
	bool is_free; /* the store chooses */
	/* The condition that leaves few runs; NULL and not free: they are read in their order. */
	const struct condition *few;
};

/* A column by whose index pages are read; the same as an expression, which no index serves. */
struct order {
	const char *word, *column, *expression;
};

static const struct order *find_order(const char *word)
{
	static const struct order orders[] = {
		{ "created", "run_id", "run_id || ''" }, /* begins with the time */
		{ "ended", "ended_at", "ended_at || ''" },
		{ "wall", "wall_usec", "wall_usec + 0" },
		{ "memory", "memory_peak", "memory_peak + 0" },
	};

	for (size_t i = 0; word && i < FORGE_ARRAY_SIZE(orders); i++)
		if (strcmp(orders[i].word, word) == 0)
			return &orders[i];
	return &orders[0];
}

static bool is_by_time(const struct order *o)
{
	return strcmp(o->column, "run_id") == 0;
}

static int choose(struct forge_store *st, const struct conditions *c,
		  const struct forge_run_filter *f, struct way *ret,
		  struct forge_error *err)
{
	bool by_time = is_by_time(find_order(f->sort));
	bool has_pattern = false;
	int64_t least = (int64_t)forge_list_few + 1, n;

	for (size_t i = 0; i < c->n; i++)
		has_pattern |= is_pattern(&c->v[i]);
	/* Of open runs there are few, and all of a listing without an end are read anyway. */
	ret->is_free = f->limit == 0 || f->open_only || (by_time && !has_pattern);
	ret->few = NULL;
	for (size_t i = 0; i < c->n && !ret->is_free; i++) {
		if (!c->v[i].has_index)
			continue;
		int rc = count_matching(st, &c->v[i], &n, err);
		if (rc < 0)
			return rc;
		if (n < least) {
			least = n;
			ret->few = &c->v[i];
		}
	}
	/* What matches often is found soon in the order of time, by whatever index. */
	ret->is_free |= by_time && !ret->few;
	return 0;
}

static void build(struct builder *b, const struct conditions *c,
		  const struct forge_run_filter *f, const struct way *way)
{
	const struct order *order = find_order(f->sort);
	const char *direction = f->oldest_first ? "ASC" : "DESC";

	add(b,
	    "SELECT run_id, analysis_id, status, reason, runtime, executor, host, "
	    "username, created_at, started_at, ended_at, notes, wall_usec, memory_peak, "
	    "pid, pid_start, boot_id, parent_run, attempt%s FROM runs",
	    f->with_record ? ", record" : "");
	if (way->few) {
		begin_condition(b);
		add(b, "run_id IN (");
		add_matching(b, way->few, "run_id");
		add(b, ")");
	}
	for (size_t i = 0; i < c->n; i++)
		if (&c->v[i] != way->few)
			add_condition(b, &c->v[i], way->is_free);
	if (!f->with_parts) {
		begin_condition(b);
		add(b, "part_of IS NULL");
	}
	if (f->open_only) {
		begin_condition(b);
		add(b, "status IN ('queued', 'preparing', 'running', 'collecting')");
	} else if (!is_by_time(order)) {
		begin_condition(b);
		add(b, "%s IS NOT NULL", order->column);
	}
	add(b, " ORDER BY %s %s", way->few ? order->expression : order->column,
	    direction);
	/* Those that are alike have an order, too. */
	if (!is_by_time(order))
		add(b, ", run_id %s", direction);
	if (f->limit) {
		b->v[b->n++] = SQL_INT(f->limit);
		add(b, " LIMIT $%zu", b->n);
	}
}

int forge_store_list(struct forge_store *st, const struct forge_run_filter *filter,
		     forge_run_visitor *visit, void *arg, struct forge_error *err)
{
	struct conditions c = { .n = 0 };
	struct builder b = { .len = 0 };
	struct listing l = { visit, arg, filter->with_record };
	struct way way;

	collect(&c, filter);
	int rc = choose(st, &c, filter, &way, err);
	if (rc < 0)
		return rc;
	build(&b, &c, filter, &way);
	return st->ops->exec(st, b.sql, b.v, b.n, visit_row, &l, err);
}

/* ---- counts ---- */

struct counting {
	int (*visit)(const char *status, int64_t n, void *arg);
	void *arg;
};

static int visit_count(const char *const *columns, void *arg)
{
	const struct counting *c = arg;

	return columns[0] ? c->visit(columns[0], forge_sql_number(columns[1]), c->arg)
			  : 0;
}

int forge_store_count_status(struct forge_store *st, const char *since,
			     int (*visit)(const char *status, int64_t n, void *arg),
			     void *arg, struct forge_error *err)
{
	struct counting c = { visit, arg };

	/* By the range of ids: in the index of the status all of them would be looked at. */
	return forge_sql(st, err, visit_count, &c,
			 "SELECT status || '', count(*) FROM runs WHERE run_id >= $1 AND "
			 "part_of IS NULL GROUP BY status || ''",
			 SQL_TEXT(since ? since : ""));
}
