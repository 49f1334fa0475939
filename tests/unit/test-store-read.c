/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of a store: finding, listing, runtimes, post-process records, texts. */
#include "store-fixture.h"

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
	/* Fewer than fill the log: it would be moved by a commit then. */
	for (int i = 0; i < 60; i++) {
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
	assert_int_equal(number(reopen(f), "SELECT count(*) FROM run_events"), 240);
	assert_status(f->st, "run059", "succeeded");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
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
	};

	if (!choose_backend(argc, argv))
		return 0;
	return cmocka_run_group_tests_name("store-read", tests, NULL, NULL);
}
