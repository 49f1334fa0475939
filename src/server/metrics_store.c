/* SPDX-License-Identifier: Apache-2.0 */
/* Totals of runs and checks, and the runs that are open, as metrics. */
#include "server/metrics_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/strv.h"
#include "store/state.h"

/* How many values a label has; further ones are counted as "other". The first ones that were counted stay. */
#define RUNTIMES_MAX  30
#define EXECUTORS_MAX 10
#define REASONS_MAX   30
#define CHECKS_MAX    50
/* A run this far beyond its wall time limit is overdue: its grace period has passed as well. */
#define OVERDUE_SECONDS 300

struct total {
	char *kind, *status, *reason, *runtime, *executor, *since;
	int64_t le;
	double n, total;
};

struct totals {
	struct total *v;
	size_t n, room;
};

static void free_totals(struct totals *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->v[i].kind);
		free(t->v[i].status);
		free(t->v[i].reason);
		free(t->v[i].runtime);
		free(t->v[i].executor);
		free(t->v[i].since);
	}
	free(t->v);
}
#define forge_auto_totals FORGE_CLEANUP(free_totals)

static int keep_total(const struct forge_total_row *row, void *arg)
{
	struct totals *t = arg;

	if (t->n == t->room) {
		size_t room = t->room ? t->room * 2 : 64;
		struct total *v = reallocarray(t->v, room, sizeof(*v));
		if (!v)
			return -ENOMEM;
		t->v = v;
		t->room = room;
	}
	struct total *to = &t->v[t->n++];
	*to = (struct total){ .kind = strdup(row->kind),
			      .status = strdup(row->status),
			      .reason = strdup(row->reason),
			      .runtime = strdup(row->runtime),
			      .executor = strdup(row->executor),
			      .since = strdup(row->since ? row->since : ""),
			      .le = row->le,
			      .n = (double)row->n,
			      .total = (double)row->total };
	return to->kind && to->status && to->reason && to->runtime && to->executor &&
			       to->since
		       ? 0
		       : -ENOMEM;
}

/* ---- labels with a bounded number of values ---- */

struct name {
	const char *text, *since;
};

static int by_text(const void *a, const void *b)
{
	const struct name *x = a, *y = b;
	int order = strcmp(x->text, y->text);

	return order ? order : strcmp(x->since, y->since);
}

static int by_since(const void *a, const void *b)
{
	const struct name *x = a, *y = b;
	int order = strcmp(x->since, y->since);

	return order ? order : strcmp(x->text, y->text);
}

static char **column_of(struct total *t, char which)
{
	return which == 'r' ? &t->runtime : which == 'e' ? &t->executor : &t->reason;
}

/* Leaves the first `most` values of this label in the rows of a kind, and makes the others "other". */
static int bound(struct totals *t, const char *kind, char which, size_t most)
{
	forge_auto_free struct name *names = calloc(t->n + 1, sizeof(*names));
	size_t n = 0, distinct = 0;

	if (!names)
		return -ENOMEM;
	for (size_t i = 0; i < t->n; i++)
		if (strcmp(t->v[i].kind, kind) == 0)
			names[n++] = (struct name){ *column_of(&t->v[i], which),
						    t->v[i].since };
	qsort(names, n, sizeof(*names), by_text);
	for (size_t i = 0; i < n; i++)
		if (distinct == 0 || strcmp(names[distinct - 1].text, names[i].text) != 0)
			names[distinct++] = names[i];
	if (distinct <= most)
		return 0;
	qsort(names, distinct, sizeof(*names), by_since);
	for (size_t i = 0; i < t->n; i++) {
		char **text = column_of(&t->v[i], which);
		size_t at = 0;
		if (strcmp(t->v[i].kind, kind) != 0)
			continue;
		while (at < most && strcmp(names[at].text, *text) != 0)
			at++;
		if (at < most)
			continue;
		/* The names point into the rows, but not at those that are replaced from here on. */
		char *other = strdup("other");
		if (!other)
			return -ENOMEM;
		free(*text);
		*text = other;
	}
	return 0;
}

/* ---- counters ---- */

struct line {
	char *labels;
	double n, total;
};

static int by_labels(const void *a, const void *b)
{
	return strcmp(((const struct line *)a)->labels, ((const struct line *)b)->labels);
}

static char *labels_of_run(const struct total *t)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	forge_metric_label(f, true, "status", t->status);
	forge_metric_label(f, false, "reason", t->reason);
	forge_metric_label(f, false, "runtime", t->runtime);
	forge_metric_label(f, false, "executor", t->executor);
	return fclose(f) == 0 ? text : NULL;
}

static char *labels_of_check(const struct total *t)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	forge_metric_label(f, true, "check", t->reason);
	forge_metric_label(f, false, "result", t->status);
	return fclose(f) == 0 ? text : NULL;
}

static char *labels_of_check_time(const struct total *t)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	forge_metric_label(f, true, "check", t->reason);
	return fclose(f) == 0 ? text : NULL;
}

static char *labels_of_probe(const struct total *t)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	forge_metric_label(f, true, "runtime", t->reason);
	forge_metric_label(f, false, "result", t->status);
	return fclose(f) == 0 ? text : NULL;
}

struct lines {
	struct line *v;
	size_t n;
};

static void free_lines(struct lines *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i].labels);
	free(l->v);
}
#define forge_auto_lines FORGE_CLEANUP(free_lines)

/* One line for each set of labels that the rows of a kind have. */
static int gather(const struct totals *t, const char *kind,
		  char *(*labels_of)(const struct total *t), struct lines *ret)
{
	size_t distinct = 0;

	ret->v = calloc(t->n + 1, sizeof(*ret->v));
	if (!ret->v)
		return -ENOMEM;
	for (size_t i = 0; i < t->n; i++) {
		if (strcmp(t->v[i].kind, kind) != 0)
			continue;
		struct line *to = &ret->v[ret->n];
		*to = (struct line){ labels_of(&t->v[i]), t->v[i].n, t->v[i].total };
		if (!to->labels)
			return -ENOMEM;
		ret->n++;
	}
	qsort(ret->v, ret->n, sizeof(*ret->v), by_labels);
	for (size_t i = 0; i < ret->n; i++) {
		struct line *last = distinct ? &ret->v[distinct - 1] : NULL;
		if (last && strcmp(last->labels, ret->v[i].labels) == 0) {
			last->n += ret->v[i].n;
			last->total += ret->v[i].total;
			free(ret->v[i].labels);
		} else {
			ret->v[distinct++] = ret->v[i];
		}
	}
	ret->n = distinct;
	return 0;
}

static int print_counter(const struct forge_metrics_page *p, const struct totals *t,
			 const char *kind, char *(*labels_of)(const struct total *t),
			 const char *name, const char *help)
{
	forge_auto_lines struct lines lines = { 0 };
	int rc = gather(t, kind, labels_of, &lines);

	if (rc < 0)
		return rc;
	forge_metric_family(p, name, FORGE_METRIC_COUNTER, NULL, help);
	for (size_t i = 0; i < lines.n; i++)
		forge_metric_sample(p, name, "_total", lines.v[i].labels, lines.v[i].n);
	return 0;
}

static int print_check_times(const struct forge_metrics_page *p, const struct totals *t)
{
	static const char name[] = "forge_health_check_duration_seconds";
	forge_auto_lines struct lines lines = { 0 };
	int rc = gather(t, "check", labels_of_check_time, &lines);

	if (rc < 0)
		return rc;
	forge_metric_family(p, name, FORGE_METRIC_SUMMARY, "seconds",
			    "How long checks of a host's health took");
	for (size_t i = 0; i < lines.n; i++) {
		const struct line *l = &lines.v[i];
		forge_metric_sample(p, name, "_count", l->labels, l->n);
		forge_metric_sample(p, name, "_sum", l->labels, l->total / 1e6);
	}
	return 0;
}

/* ---- histograms ---- */

#define BUCKETS_MAX 16

/* A bound as a floating-point number, which the format asks for. */
static void print_le(FILE *f, int64_t bound, bool is_first)
{
	char text[32];

	if (bound == FORGE_TOTAL_INF)
		(void)snprintf(text, sizeof(text), "+Inf");
	else
		(void)snprintf(text, sizeof(text), "%g%s", (double)bound / 1e6,
			       bound % 1000000 ? "" : ".0");
	forge_metric_label(f, is_first, "le", text);
}

/* One histogram; status NULL: of runs with any. */
static void print_buckets(const struct forge_metrics_page *p, const struct totals *t,
			  const char *kind, const char *name, const char *status)
{
	const int64_t *bounds;
	size_t n = forge_total_bounds(kind, &bounds);
	double counts[BUCKETS_MAX] = { 0 }, sum = 0, count = 0;
	char labels[128] = "";

	for (size_t i = 0; i < t->n; i++) {
		const struct total *row = &t->v[i];
		size_t at = 0;
		if (strcmp(row->kind, kind) != 0 ||
		    (status && strcmp(row->status, status) != 0))
			continue;
		/* A bound of another version of forge counts with the next higher one. */
		while (at + 1 < n && row->le > bounds[at])
			at++;
		counts[at] += row->n;
		sum += row->total / 1e6;
	}
	for (size_t i = 0; i < n; i++) {
		count += counts[i];
		FILE *f = fmemopen(labels, sizeof(labels), "w");
		if (!f)
			return;
		if (status)
			forge_metric_label(f, true, "status", status);
		print_le(f, bounds[i], !status);
		(void)fclose(f);
		forge_metric_sample(p, name, "_bucket", labels, count);
	}
	labels[0] = '\0';
	if (status)
		(void)snprintf(labels, sizeof(labels), "status=\"%s\"", status);
	forge_metric_sample(p, name, "_count", labels, count);
	forge_metric_sample(p, name, "_sum", labels, sum);
}

static void print_histograms(const struct forge_metrics_page *p, const struct totals *t)
{
	static const char duration[] = "forge_run_duration_seconds",
			  wait[] = "forge_run_wait_seconds",
			  share[] = "forge_run_memory_used_ratio";

	forge_metric_family(p, duration, FORGE_METRIC_HISTOGRAM, "seconds",
			    "Wall time of runs that ended");
	for (enum forge_status s = FORGE_STATUS_SUCCEEDED; s < FORGE_STATUS_COUNT; s++)
		print_buckets(p, t, "wall", duration, forge_status_name(s));
	forge_metric_family(p, wait, FORGE_METRIC_HISTOGRAM, "seconds",
			    "Time from the request of a run to the start of its command");
	print_buckets(p, t, "wait", wait, NULL);
	forge_metric_family(p, share, FORGE_METRIC_HISTOGRAM, "ratio",
			    "Peak memory of runs that ended, of what they were allowed");
	print_buckets(p, t, "share", share, NULL);
}

static int print_totals(const struct forge_metrics_page *p, struct totals *t)
{
	int rc = bound(t, "run", 'r', RUNTIMES_MAX);

	if (rc == 0)
		rc = bound(t, "run", 'e', EXECUTORS_MAX);
	if (rc == 0)
		rc = bound(t, "run", 'a', REASONS_MAX);
	if (rc == 0)
		rc = bound(t, "check", 'a', CHECKS_MAX);
	if (rc == 0)
		rc = bound(t, "probe", 'a', RUNTIMES_MAX);
	if (rc == 0)
		rc = print_counter(p, t, "run", labels_of_run, "forge_runs_ended",
				   "Runs that ended, without probes and post-processes");
	if (rc == 0)
		rc = print_counter(p, t, "check", labels_of_check, "forge_health_checks",
				   "Checks of a host's health");
	if (rc == 0)
		rc = print_check_times(p, t);
	if (rc == 0)
		rc = print_counter(p, t, "probe", labels_of_probe, "forge_runtime_probes",
				   "Probes of runtimes");
	if (rc == 0)
		print_histograms(p, t);
	return rc;
}

/* ---- open runs ---- */

struct open_runs {
	double n[FORGE_STATUS_COUNT], oldest[FORGE_STATUS_COUNT];
	double overdue;
	time_t now;
};

/* "2026-01-31T12:00:00.123Z"; -1: it is no time. */
static time_t time_of(const char *text)
{
	struct tm tm = { 0 };

	if (!text || !strptime(text, "%Y-%m-%dT%H:%M:%S", &tm))
		return (time_t)-1;
	return timegm(&tm);
}

static int add_open(const struct forge_run_row *row, void *arg)
{
	struct open_runs *o = arg;
	enum forge_status s = forge_status_of(row->status);
	/* A run that runs is as old as its command. */
	time_t since =
		time_of(s >= FORGE_STATUS_RUNNING && row->started_at ? row->started_at
								     : row->created_at);

	o->n[s]++;
	if (since != (time_t)-1 && difftime(o->now, since) > o->oldest[s])
		o->oldest[s] = difftime(o->now, since);
	return 0;
}

static int add_running(const struct forge_run_row *row, void *arg)
{
	struct open_runs *o = arg;
	time_t since = time_of(row->started_at);

	if (since == (time_t)-1 || !row->record || o->now - since < OVERDUE_SECONDS)
		return 0;
	forge_auto_json json_t *record = json_loads(row->record, 0, NULL);
	const json_t *limit =
		json_object_get(json_object_get(record, "limits"), "wall_seconds");
	o->overdue +=
		json_is_number(limit) &&
		difftime(o->now, since) > json_number_value(limit) + OVERDUE_SECONDS;
	return 0;
}

static void print_open(const struct forge_metrics_page *p, const struct open_runs *o)
{
	static const char n[] = "forge_runs_open",
			  oldest[] = "forge_runs_open_oldest_seconds";
	char labels[64];

	forge_metric_family(p, n, FORGE_METRIC_GAUGE, NULL, "Runs that have not ended");
	for (enum forge_status s = FORGE_STATUS_QUEUED; s < FORGE_STATUS_SUCCEEDED; s++) {
		(void)snprintf(labels, sizeof(labels), "status=\"%s\"",
			       forge_status_name(s));
		forge_metric_sample(p, n, "", labels, o->n[s]);
	}
	forge_metric_family(p, oldest, FORGE_METRIC_GAUGE, "seconds",
			    "Age of the oldest run that has not ended");
	for (enum forge_status s = FORGE_STATUS_QUEUED; s < FORGE_STATUS_SUCCEEDED; s++) {
		(void)snprintf(labels, sizeof(labels), "status=\"%s\"",
			       forge_status_name(s));
		forge_metric_sample(p, oldest, "", labels, o->oldest[s]);
	}
	forge_metric_gauge(p, "forge_runs_overdue", NULL,
			   "Runs that run for more than 5 minutes beyond their limit",
			   o->overdue);
}

static int read_open(struct forge_store *st, struct open_runs *ret,
		     struct forge_error *err)
{
	const struct forge_run_filter open = { .open_only = true },
				      running = { .status = "running",
						  .with_record = true };

	ret->now = time(NULL);
	int rc = forge_store_list(st, &open, add_open, ret, err);
	if (rc >= 0)
		rc = forge_store_list(st, &running, add_running, ret, err);
	return rc < 0 ? rc : 0;
}

int forge_metrics_of_store(const struct forge_metrics_page *p, struct forge_store *st,
			   struct forge_error *err)
{
	forge_auto_totals struct totals totals = { 0 };
	struct open_runs open = { .overdue = 0 };
	uint64_t start = forge_now_usec();
	int rc = -ENOTCONN;

	if (st) {
		/* Only how the totals are kept changes. A reader that may not write reads a little more. */
		if (forge_store_wants_fold(st))
			(void)!forge_store_fold(st, NULL);
		rc = forge_store_totals(st, keep_total, &totals, err);
		rc = rc < 0 ? rc : read_open(st, &open, err);
	}
	double seconds = (double)(forge_now_usec() - start) / 1e6;
	forge_metric_gauge(p, "forge_store_up", NULL,
			   "Whether the store answered: 1 or 0", rc == 0);
	if (rc < 0)
		return rc;
	forge_metric_gauge(p, "forge_store_latency_seconds", "seconds",
			   "How long the store took to answer for these metrics",
			   seconds);
	rc = print_totals(p, &totals);
	if (rc < 0)
		return forge_fail(err, -rc, "out of memory");
	print_open(p, &open);
	return 0;
}
