/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of runs, single runs, the queue and the host. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "config-build.h"
#include "config/budget.h"
#include "record/foreign.h"
#include "record/judge.h"
#include "record/record.h"
#include "record/view.h"
#include "run/admit.h"
#include "server/cache.h"
#include "server/route.h"
#include "server/shared.h"
#include "server/view.h"
#include "state/samples.h"
#include "state/slot.h"
#include "store/state.h"

#define PAGE_DEFAULT   50
#define PAGE_MAX       500
#define OPEN_SHOWN     200
#define WHY_SHOWN      20 /* each looks through the queue */
#define FAILURES_SHOWN 10
#define DAY_SECONDS    86400

/* A whole one: the beginning of one would name several runs. */
static bool is_run_id(const char *text)
{
	return forge_run_id_is_valid(text) && strlen(text) == FORGE_RUN_ID_MAX - 1;
}

bool forge_api_is_run(const char *text, struct forge_answer *a)
{
	if (is_run_id(text))
		return true;
	forge_answer_error(
		a, 400, "bad_request", "this is no id of a run",
		"An id has 26 letters and digits; GET /api/v1/runs lists them");
	return false;
}

/* ---- listings ---- */

struct rows {
	json_t *list;
	const struct forge_server *sv;
	const json_t *slots; /* NULL: rows without live values */
	size_t n;
	char last[FORGE_RUN_ID_MAX];
};

static int add_row(const struct forge_run_row *row, void *arg)
{
	struct rows *r = arg;
	forge_auto_json json_t *record =
		row->record ? json_loads(row->record, 0, NULL) : NULL;

	(void)snprintf(r->last, sizeof(r->last), "%s", row->run_id);
	r->n++;
	return json_array_append_new(
		       r->list, r->slots ? forge_view_live(r->sv, row, record, r->slots,
							   r->n <= WHY_SHOWN)
					 : forge_view_row(row, record)) < 0
		       ? -ENOMEM
		       : 0;
}

/* A list from the store. The error is the answer; then this is NULL. */
static json_t *list(struct forge_server *sv, const struct forge_run_filter *filter,
		    struct rows *r, struct forge_answer *a)
{
	struct forge_store *st;
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = forge_server_take(sv, &st, &err);

	r->list = json_array();
	r->sv = sv;
	if (rc == 0) {
		rc = r->list ? forge_store_list(st, filter, add_row, r, &err) : -ENOMEM;
		forge_server_give(sv, st, rc);
	}
	if (rc >= 0)
		return r->list;
	json_decref(r->list);
	forge_answer_fail(a, rc, &err);
	return NULL;
}

static int no_status(const char *word, struct forge_error *err)
{
	char list[160];
	size_t n = 0;

	for (unsigned i = FORGE_STATUS_QUEUED; i < FORGE_STATUS_COUNT && n < sizeof(list);
	     i++)
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", n ? ", " : "",
				      forge_status_name((enum forge_status)i));
	return forge_fail(err, EINVAL, "status: there is no '%.32s' (have: %s)", word,
			  list);
}

static int check_reason(const char *word, struct forge_error *err)
{
	char list[256];
	size_t n = 0;

	for (const char *const *r = forge_reasons; *r && n < sizeof(list); r++) {
		if (strcmp(*r, word) == 0)
			return 0;
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", n ? ", " : "",
				      *r);
	}
	return forge_fail(err, EINVAL, "reason: there is no '%.32s' (have: %s)", word,
			  list);
}

static int read_filter(const struct forge_ask *ask, struct forge_run_filter *f,
		       char since[FORGE_RUN_ID_MAX], char until[FORGE_RUN_ID_MAX],
		       struct forge_error *err)
{
	const struct forge_target *t = &ask->target;
	const char *text;
	uint64_t limit;
	int rc = forge_target_number(t, "limit", PAGE_MAX, PAGE_DEFAULT, &limit, err);

	*f = (struct forge_run_filter){
		.status = forge_target_get(t, "status"),
		.reason = forge_target_get(t, "reason"),
		.runtime = forge_target_get(t, "runtime"),
		.executor = forge_target_get(t, "executor"),
		.user = forge_target_get(t, "user"),
		.host = forge_target_get(t, "host"),
		.analysis = forge_target_get(t, "analysis"),
		.after = forge_target_get(t, "after"),
		.pipeline = forge_target_get(t, "pipeline"),
		.step = forge_target_get(t, "step"),
		.output = forge_target_get(t, "output"),
		.sort = forge_target_get(t, "sort"),
		.open_only = forge_target_flag(t, "open"),
		.with_parts = forge_target_flag(t, "parts"),
		.oldest_first = forge_target_flag(t, "reverse"),
		.with_record = true,
	};
	if (rc == 0 && limit == 0)
		rc = forge_fail(err, EINVAL, "limit: 0 is no page: it is 1 to %d",
				PAGE_MAX);
	f->limit = rc == 0 ? (unsigned)limit : PAGE_DEFAULT;
	if (rc == 0 && f->status && forge_status_of(f->status) == FORGE_STATUS_NONE)
		rc = no_status(f->status, err);
	if (rc == 0 && f->reason)
		rc = check_reason(f->reason, err);
	if (rc == 0 && f->sort && strcmp(f->sort, "created") != 0 &&
	    strcmp(f->sort, "ended") != 0 && strcmp(f->sort, "wall") != 0 &&
	    strcmp(f->sort, "memory") != 0)
		rc = forge_fail(err, EINVAL,
				"sort: '%.32s' is none of created, ended, wall, memory",
				f->sort);
	if (rc == 0 && f->after && f->sort && strcmp(f->sort, "created") != 0)
		rc = forge_fail(err, EINVAL, "after goes with sort=created only");
	if (rc == 0 && f->after && !is_run_id(f->after))
		rc = forge_fail(err, EINVAL, "after: this is no id of a run");
	if (rc == 0 && (text = forge_target_get(t, "since")))
		rc = forge_record_time_to_id(text, since, err);
	f->since = rc == 0 && forge_target_get(t, "since") ? since : NULL;
	if (rc == 0 && (text = forge_target_get(t, "until")))
		rc = forge_record_time_to_id(text, until, err);
	f->until = rc == 0 && forge_target_get(t, "until") ? until : NULL;
	return rc;
}

/* The path and the parameters as a key. Their lengths keep two targets from having one key. */
static void make_key(const struct forge_ask *ask, char *buf, size_t size)
{
	size_t n = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < ask->target.n_segments && n < size; i++)
		n += (size_t)snprintf(buf + n, size - n, "/%s", ask->target.segments[i]);
	for (size_t i = 0; i < ask->target.n_query && n < size; i++)
		n += (size_t)snprintf(
			buf + n, size - n, " %zu %s %zu %s",
			strlen(ask->target.query[i].name), ask->target.query[i].name,
			strlen(ask->target.query[i].value), ask->target.query[i].value);
	if (n >= size)
		buf[0] = '\0';
}

void forge_api_runs(struct forge_server *sv, const struct forge_ask *ask,
		    struct forge_answer *a)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_run_filter f;
	char since[FORGE_RUN_ID_MAX], until[FORGE_RUN_ID_MAX];
	char key[FORGE_TARGET_MAX + 64];
	uint64_t generation;
	struct rows r = { .n = 0 };
	int rc = read_filter(ask, &f, since, until, &err);

	if (rc < 0) {
		forge_answer_fail(a, rc, &err);
		return;
	}
	make_key(ask, key, sizeof(key));
	if (*key && forge_cache_get(sv->cache, key, a, &generation))
		return;
	json_t *runs = list(sv, &f, &r, a);
	if (!runs)
		return;
	bool has_more = r.n == f.limit && (!f.sort || strcmp(f.sort, "created") == 0);
	forge_answer_json(
		a, 200,
		json_pack("{s:o, s:s?}", "runs", runs, "next", has_more ? r.last : NULL));
	if (*key)
		forge_cache_put(sv->cache, key, a, generation);
}

/* The runs that are not over: those that go on, and those that wait. Each list has its own bound. */
static bool list_open(struct forge_server *sv, json_t **ret_running, json_t **ret_queued,
		      struct forge_answer *a)
{
	static const char *const states[] = { "preparing", "running", "collecting",
					      "queued" };
	forge_auto_json json_t *slots = forge_slot_all(&sv->home);
	forge_auto_json json_t *running = json_array();
	json_t *queued = NULL;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(states); i++) {
		const struct forge_run_filter f = { .status = states[i],
						    .with_record = true,
						    .with_parts = true,
						    .oldest_first = true,
						    .limit = OPEN_SHOWN };
		struct rows r = { .slots = slots };
		json_t *some = list(sv, &f, &r, a);
		if (!some)
			return false;
		if (strcmp(states[i], "queued") == 0) {
			queued = some;
			continue;
		}
		(void)json_array_extend(running, some);
		json_decref(some);
	}
	*ret_running = json_incref(running);
	*ret_queued = queued;
	return true;
}

static int compare_ids(const void *a, const void *b)
{
	return strcmp(forge_json_string_or(*(json_t *const *)b, "run_id", ""),
		      forge_json_string_or(*(json_t *const *)a, "run_id", ""));
}

/* The last runs that did not succeed, by an index for each status: there may be a million others. */
static json_t *list_failures(struct forge_server *sv, struct forge_answer *a)
{
	static const char *const bad[] = { "failed", "killed", "corrupted", "lost",
					   "rejected" };
	json_t *found[FORGE_ARRAY_SIZE(bad) * FAILURES_SHOWN], *run;
	size_t n = 0, i;

	for (size_t b = 0; b < FORGE_ARRAY_SIZE(bad); b++) {
		const struct forge_run_filter f = { .status = bad[b],
						    .with_record = true,
						    .limit = FAILURES_SHOWN };
		struct rows r = { .n = 0 };
		forge_auto_json json_t *some = list(sv, &f, &r, a);
		if (!some) {
			while (n)
				json_decref(found[--n]);
			return NULL;
		}
		json_array_foreach (some, i, run)
			found[n++] = json_incref(run);
	}
	qsort(found, n, sizeof(*found), compare_ids);
	json_t *last = json_array();
	for (i = 0; i < n; i++) {
		if (i < FAILURES_SHOWN)
			(void)json_array_append(last, found[i]);
		json_decref(found[i]);
	}
	return last;
}

static int add_count(const char *status, int64_t n, void *arg)
{
	return json_object_set_new(arg, status, json_integer(n)) < 0 ? -ENOMEM : 0;
}

/* Of the last day. The store has to look at each of them, so the numbers are kept for as long as that is cheap. */
static json_t *count_day(struct forge_server *sv, struct forge_answer *a)
{
	char since[FORGE_RUN_ID_MAX];
	struct forge_store *st;
	struct forge_error err = FORGE_ERROR_INIT;
	uint64_t now = forge_now_usec();

	pthread_mutex_lock(&sv->counts_lock);
	if (sv->counts && now - sv->counted_usec < sv->counts_for_usec) {
		json_t *kept = json_deep_copy(sv->counts);
		pthread_mutex_unlock(&sv->counts_lock);
		return kept;
	}
	pthread_mutex_unlock(&sv->counts_lock);
	int rc = forge_server_take(sv, &st, &err);
	json_t *counts = json_object();
	if (rc == 0) {
		rc = forge_store_count_status(
			st,
			forge_run_id_at(since,
					((uint64_t)time(NULL) - DAY_SECONDS) * 1000),
			add_count, counts, &err);
		forge_server_give(sv, st, rc);
	}
	if (rc < 0) {
		json_decref(counts);
		forge_answer_fail(a, rc, &err);
		return NULL;
	}
	pthread_mutex_lock(&sv->counts_lock);
	json_decref(sv->counts);
	sv->counts = json_deep_copy(counts);
	sv->counted_usec = forge_now_usec();
	sv->counts_for_usec = 50 * (sv->counted_usec - now);
	pthread_mutex_unlock(&sv->counts_lock);
	return counts;
}

static json_t *budget(const struct forge_server *sv)
{
	struct forge_load l;

	if (forge_admit_load(&sv->home, sv->cfg, &l, NULL) < 0)
		return json_null();
	return json_pack("{s:o, s:o, s:f, s:f, s:o, s:I, s:I}", "memory_bytes",
			 forge_json_number(l.budget.memory_bytes), "memory_used_bytes",
			 forge_json_number(l.used.memory_bytes), "cpus",
			 (double)l.budget.cpus_milli / 1000, "cpus_used",
			 (double)l.used.cpus_milli / 1000, "runs",
			 forge_json_number(l.budget.runs), "runs_used",
			 (json_int_t)l.used.runs, "waiting", (json_int_t)l.queued);
}

static json_t *host_name(void)
{
	char name[256] = "";

	(void)gethostname(name, sizeof(name) - 1); /* "" unknown */
	return forge_json_text(name);
}

void forge_api_overview(struct forge_server *sv, const struct forge_ask *ask,
			struct forge_answer *a)
{
	char now[FORGE_TIME_MAX], key[64];
	uint64_t generation;
	json_t *running, *queued;

	(void)snprintf(key, sizeof(key), "overview %d", (int)ask->access);
	if (forge_cache_get(sv->cache, key, a, &generation))
		return;
	if (!list_open(sv, &running, &queued, a))
		return;
	json_t *failures = list_failures(sv, a);
	json_t *counts = failures ? count_day(sv, a) : NULL;
	json_t *health = counts ? forge_api_health_rows(sv, a) : NULL;
	if (!health) {
		json_decref(running);
		json_decref(queued);
		json_decref(failures);
		json_decref(counts);
		return;
	}
	forge_answer_json(a, 200,
			  json_pack("{s:s, s:o, s:s, s:s, s:{s:s, s:b}, s:o, s:o, s:o, "
				    "s:o, s:o, s:o}",
				    "forge_version", FORGE_VERSION, "host", host_name(),
				    "now", forge_format_now(now), "access",
				    forge_access_name(ask->access), "store", "url",
				    sv->shown_url, "ok", 1, "budget", budget(sv),
				    "running", running, "queued", queued, "failures",
				    failures, "counts", counts, "health", health));
	forge_cache_put(sv->cache, key, a, generation);
}

void forge_api_queue(struct forge_server *sv, const struct forge_ask *ask,
		     struct forge_answer *a)
{
	json_t *running, *queued;

	(void)ask;
	if (!list_open(sv, &running, &queued, a))
		return;
	json_decref(running);
	forge_answer_json(a, 200, json_pack("{s:o}", "queued", queued));
}

void forge_api_host(struct forge_server *sv, const struct forge_ask *ask,
		    struct forge_answer *a)
{
	(void)ask;
	forge_answer_json(a, 200,
			  json_pack("{s:o, s:o, s:s, s:f}", "host", host_name(), "budget",
				    budget(sv), "forge_version", FORGE_VERSION,
				    "uptime_seconds",
				    (double)(forge_now_usec() - sv->started_usec) / 1e6));
}

/* ---- one run ---- */

json_t *forge_api_find(struct forge_server *sv, const struct forge_ask *ask,
		       struct forge_answer *a)
{
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *record = NULL;

	if (!forge_api_is_run(ask->params[0], a))
		return NULL;
	int rc = forge_server_record(sv, ask->params[0], &record, &err);
	if (rc < 0)
		forge_answer_fail(a, rc, &err);
	return rc < 0 ? NULL : record;
}

void forge_api_run(struct forge_server *sv, const struct forge_ask *ask,
		   struct forge_answer *a)
{
	json_t *record = forge_api_find(sv, ask, a);

	if (!record)
		return;
	json_t *live = forge_view_usage(sv, record), *why = forge_view_why(sv, record);
	const char *next = forge_json_string(record, "retried_by");
	forge_answer_json(a, 200,
			  json_pack("{s:o, s:o, s:o, s:s?}", "record", record, "live",
				    live, "why", why, "next_attempt", next));
}

void forge_api_events(struct forge_server *sv, const struct forge_ask *ask,
		      struct forge_answer *a)
{
	struct forge_store *st;
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *events = NULL, *e;
	size_t i;

	/* A run without events is not one that there is not. */
	forge_auto_json json_t *record = forge_api_find(sv, ask, a);
	if (!record)
		return;
	int rc = forge_server_take(sv, &st, &err);
	if (rc == 0) {
		rc = forge_store_events(st, ask->params[0], &events, &err);
		forge_server_give(sv, st, rc);
	}
	if (rc < 0) {
		forge_answer_fail(a, rc, &err);
		return;
	}
	json_array_foreach (events, i, e) {
		if (!json_object_get(e, "status"))
			json_object_set_new(e, "status", json_null());
		if (!json_object_get(e, "detail"))
			json_object_set_new(e, "detail", json_null());
	}
	forge_answer_json(a, 200, json_pack("{s:o}", "events", events));
}

/* Those of another FORGE_HOME are read as its logs are. */
static int read_samples(const struct forge_server *sv, const json_t *record, json_t **ret,
			struct forge_error *err)
{
	forge_auto_home struct forge_home theirs = FORGE_HOME_INIT;
	const char *run_id = forge_json_string(record, "run_id");

	if (!forge_foreign_is(&sv->home, record))
		return forge_samples_read(&sv->home, run_id, ret, err);
	int rc = forge_foreign_open(record, "samples", &theirs, err);
	if (rc < 0)
		return rc;
	int fd = forge_foreign_open_log(&theirs, record, FORGE_SAMPLES_FILE);
	if (fd == -ENOENT)
		return forge_samples_read(&theirs, run_id, ret, err);
	return fd < 0 ? forge_foreign_fail(record, "samples", -fd, err)
		      : forge_samples_read_fd(fd, ret, err);
}

void forge_api_samples(struct forge_server *sv, const struct forge_ask *ask,
		       struct forge_answer *a)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_json json_t *record = forge_api_find(sv, ask, a);
	json_t *samples;

	if (!record)
		return;
	int rc = read_samples(sv, record, &samples, &err);
	if (rc < 0)
		forge_answer_fail(a, rc, &err);
	else
		forge_answer_json(a, 200, samples);
}
