/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of a store: many writers at once, and what a batch changes. */
#include "store-fixture.h"

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

static json_t *refused(const char *id, const char *key, const char *reason)
{
	json_t *r = keyed(id, key);

	json_object_set_new(r, "status", json_string("rejected"));
	json_object_set_new(r, "reason", json_string(reason));
	return r;
}

static void a_run_refused_for_health_frees_its_key(void **state)
{
	struct fixture *f = *state;
	char *id = NULL;
	json_t *back = NULL;

	told(f->st, keyed("a", "k"), NULL, NULL);
	told(f->st, refused("a", "k", "health_pre"), NULL, NULL);
	assert_int_equal(forge_store_find_key(f->st, "me", "k", &id, NULL), -ENOENT);
	told(f->st, keyed("b", "k"), NULL, NULL);
	assert_int_equal(forge_store_find_key(f->st, "me", "k", &id, NULL), 0);
	assert_string_equal(id, "b");
	free(id);
	/* Told again, or for the first time only now: it takes nothing from the run that has the key. */
	told(f->st, refused("a", "k", "health_pre"), NULL, NULL);
	told(f->st, refused("c", "k", "health_pre"), NULL, NULL);
	assert_int_equal(forge_store_find_key(f->st, "me", "k", &id, NULL), 0);
	assert_string_equal(id, "b");
	free(id);
	/* Its record still says which it had. */
	assert_int_equal(forge_store_get(f->st, "a", &back, NULL), 0);
	assert_string_equal(forge_json_string(back, "idempotency_key"), "k");
	json_decref(back);
	/* Another refusal is for ever. */
	told(f->st, keyed("d", "other"), NULL, NULL);
	told(f->st, refused("d", "other", "admission"), NULL, NULL);
	assert_int_equal(tell(f->st, keyed("e", "other"), NULL, NULL, NULL), -EEXIST);
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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
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
		ON(a_run_refused_for_health_frees_its_key),
		ON(a_key_is_one_users),
		ON(a_path_may_be_long),
		ON(what_is_refused_for_ever_still_ends),
	};

	if (!choose_backend(argc, argv))
		return 0;
	return cmocka_run_group_tests_name("store-write", tests, NULL, NULL);
}
