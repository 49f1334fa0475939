/* SPDX-License-Identifier: Apache-2.0 */
/* Points of a run: bounded and thinned, safe from a killed writer, read whatever the file has. */
#include "scratch.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "state/home.h"
#include "state/samples.h"

#define SECOND 1000000ull

static struct forge_home home = { NULL, -1, -1, -1, 0 };
static char run_id[FORGE_RUN_ID_MAX];

/* A home with one run that has a directory. */
static void make_run(void)
{
	scratch_make();
	assert_int_equal(forge_home_open(true, &home, NULL), 0);
	assert_int_equal(forge_make_run_id(run_id), 0);
	assert_int_equal(mkdirat(home.runs_fd, run_id, 0700), 0);
}

static void remove_run(void)
{
	forge_home_close(&home);
	scratch_remove();
}

static struct forge_sample at(uint64_t usec)
{
	return (struct forge_sample){ .usec = usec,
				      .memory_bytes = usec / 1000,
				      .cpu_usec = usec / 2,
				      .pids = 3,
				      .disk_bytes = UINT64_MAX };
}

static void add(struct forge_samples *s, uint64_t usec)
{
	const struct forge_sample p = at(usec);

	assert_int_equal(forge_samples_add(s, &p), 0);
}

static int open_run(void)
{
	int dir = forge_home_open_run(&home, run_id);

	assert_true(dir >= 0);
	return dir;
}

static void write_file(const char *text)
{
	forge_auto_close int dir = open_run();

	assert_int_equal(
		forge_replace_file(dir, FORGE_SAMPLES_FILE, text, strlen(text), false),
		0);
}

static json_t *read_rows(void)
{
	forge_auto_json json_t *j = NULL;

	assert_int_equal(forge_samples_read(&home, run_id, &j, NULL), 0);
	assert_int_equal(json_array_size(json_object_get(j, "columns")), 5);
	return json_incref(json_object_get(j, "samples"));
}

static double number(const json_t *rows, size_t row, size_t column)
{
	return json_number_value(json_array_get(json_array_get(rows, row), column));
}

static void a_run_without_points_has_an_empty_list(void **state)
{
	(void)state;
	make_run();
	forge_auto_json json_t *rows = read_rows();
	assert_int_equal(json_array_size(rows), 0);
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *j = NULL;
	assert_int_equal(forge_samples_read(&home, "../etc", &j, &err), -EINVAL);
	assert_null(j);
	remove_run();
}

static void points_are_read_back_as_they_were(void **state)
{
	struct forge_samples s;

	(void)state;
	make_run();
	forge_samples_init(&s, &home, run_id, 2 * SECOND);
	add(&s, SECOND / 10);
	add(&s, 5 * SECOND);
	add(&s, 5 * SECOND); /* no time has passed: no new point */
	forge_auto_json json_t *rows = read_rows();
	assert_int_equal(json_array_size(rows), 2);
	assert_true(number(rows, 0, 0) == 0.1);
	assert_true(number(rows, 1, 0) == 5);
	assert_true(number(rows, 1, 1) == 5000);
	assert_true(number(rows, 1, 2) == 2.5);
	assert_true(number(rows, 1, 3) == 3);
	assert_true(json_is_null(json_array_get(json_array_get(rows, 1), 4)));
	forge_samples_done(&s);
	remove_run();
}

/* A run of two months with a point whenever one is due. */
static void there_are_never_more_than_the_most(void **state)
{
	const uint64_t end = 60 * 86400 * SECOND;
	struct forge_samples s;
	uint64_t now = FORGE_SAMPLES_FIRST_USEC, taken = 0, longest = 0;

	(void)state;
	make_run();
	forge_samples_init(&s, &home, run_id, FORGE_SAMPLES_MIN_USEC);
	for (; now < end; taken++) {
		add(&s, now);
		assert_true(s.n <= FORGE_SAMPLES_MAX);
		assert_true(taken < 20000); /* else the interval does not grow */
		now += forge_samples_pause_usec(&s, now);
	}
	assert_true(taken > FORGE_SAMPLES_MAX);
	forge_auto_json json_t *rows = read_rows();
	size_t n = json_array_size(rows);
	assert_true(n <= FORGE_SAMPLES_MAX);
	assert_true(n >= FORGE_SAMPLES_MAX / 2);
	/* What is left covers the whole run evenly: no gap is longer than a hundredth of it. */
	for (size_t i = 1; i < n; i++) {
		uint64_t gap =
			(uint64_t)((number(rows, i, 0) - number(rows, i - 1, 0)) * 1e6);
		longest = gap > longest ? gap : longest;
	}
	assert_true(longest < end / 100);
	assert_true(number(rows, n - 1, 0) * 1e6 > (double)end * 0.99);
	forge_auto_close int dir = open_run();
	struct stat st;
	assert_int_equal(fstatat(dir, FORGE_SAMPLES_FILE, &st, 0), 0);
	assert_true(st.st_size < 80 * 1024);
	forge_samples_done(&s);
	remove_run();
}

static void thinning_drops_every_second_and_doubles(void **state)
{
	struct forge_samples s;

	(void)state;
	make_run();
	forge_samples_init(&s, NULL, run_id, 2 * SECOND);
	for (uint64_t i = 1; i <= FORGE_SAMPLES_MAX; i++)
		add(&s, i * 2 * SECOND);
	assert_int_equal(s.n, FORGE_SAMPLES_MAX);
	assert_int_equal(s.interval_usec, 2 * SECOND);
	add(&s, (FORGE_SAMPLES_MAX + 1) * 2 * SECOND);
	assert_int_equal(s.n, FORGE_SAMPLES_MAX / 2 + 1);
	assert_int_equal(s.interval_usec, 4 * SECOND);
	assert_int_equal(s.points[0].usec, 4 * SECOND);
	assert_int_equal(s.points[1].usec, 8 * SECOND);
	assert_int_equal(s.points[s.n - 2].usec, FORGE_SAMPLES_MAX * 2 * SECOND);
	/* In memory only: the run's directory has no file. */
	forge_auto_close int dir = open_run();
	assert_int_equal(faccessat(dir, FORGE_SAMPLES_FILE, F_OK, 0), -1);
	forge_samples_done(&s);
	remove_run();
}

static void the_beginning_is_denser(void **state)
{
	struct forge_samples s;
	uint64_t now = FORGE_SAMPLES_FIRST_USEC;
	int n = 0;

	(void)state;
	forge_samples_init(&s, NULL, "x", 2 * SECOND);
	for (; now < 3 * SECOND; n++)
		now += forge_samples_pause_usec(&s, now);
	assert_true(n >= 8);
	assert_true(forge_samples_pause_usec(&s, 3600 * SECOND) == 2 * SECOND);
	forge_samples_init(&s, NULL, "x", FORGE_SAMPLES_MIN_USEC);
	assert_true(forge_samples_pause_usec(&s, 0) == FORGE_SAMPLES_MIN_USEC);
}

static void a_torn_line_is_ignored_and_then_repaired(void **state)
{
	struct forge_samples s;

	(void)state;
	make_run();
	write_file("[0.1,10,0.0,1,null]\n[2.0,20,1.0,2,0]\n[4.0,30,1.");
	forge_auto_json json_t *before = read_rows();
	assert_int_equal(json_array_size(before), 2);
	/* The next supervisor goes on behind them. */
	forge_samples_init(&s, &home, run_id, 2 * SECOND);
	add(&s, 6 * SECOND);
	forge_auto_json json_t *after = read_rows();
	assert_int_equal(json_array_size(after), 3);
	assert_true(number(after, 1, 1) == 20);
	assert_true(number(after, 2, 0) == 6);
	forge_samples_done(&s);
	remove_run();
}

static void another_supervisor_keeps_the_longer_interval(void **state)
{
	struct forge_samples s;

	(void)state;
	make_run();
	write_file("[1000,10,0.0,1,null]\n[1064,20,1.0,2,0]\n");
	forge_samples_init(&s, &home, run_id, 2 * SECOND);
	add(&s, 2000 * SECOND);
	assert_true(s.interval_usec >= 32 * SECOND);
	assert_true(s.interval_usec <= 64 * SECOND);
	forge_samples_done(&s);
	remove_run();
}

static void what_is_no_point_is_left_out(void **state)
{
	(void)state;
	make_run();
	write_file("[1,2,3,4,5]\n"
		   "{}\n[]\n[1,2]\nnonsense\n\n"
		   "[\"2\",2,3,4,5]\n"
		   "[null,2,3,4,5]\n"
		   "[3,-1,3,4,5]\n"
		   "[3,1e300,3,4,5]\n"
		   "[0.5,2,3,4,5]\n" /* before the last one */
		   "[7,null,null,null,null]\n");
	forge_auto_json json_t *rows = read_rows();
	assert_int_equal(json_array_size(rows), 2);
	assert_true(number(rows, 1, 0) == 7);
	assert_true(json_is_null(json_array_get(json_array_get(rows, 1), 1)));
	remove_run();
}

static void a_link_or_a_huge_file_is_refused(void **state)
{
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *j = NULL;

	(void)state;
	make_run();
	forge_auto_close int dir = open_run();
	assert_int_equal(symlinkat("/etc/passwd", dir, FORGE_SAMPLES_FILE), 0);
	assert_true(forge_samples_read(&home, run_id, &j, &err) < 0);
	assert_null(j);
	/* A writer does not follow it either. */
	struct forge_samples s;
	const struct forge_sample p = at(SECOND);
	forge_samples_init(&s, &home, run_id, SECOND);
	assert_true(forge_samples_add(&s, &p) < 0);
	forge_samples_done(&s);
	assert_int_equal(unlinkat(dir, FORGE_SAMPLES_FILE, 0), 0);
	forge_auto_close int fd =
		openat(dir, FORGE_SAMPLES_FILE, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 1 << 30), 0);
	assert_int_equal(forge_samples_read(&home, run_id, &j, &err), -EFBIG);
	assert_null(j);
	remove_run();
}

static void points_of_another_machine_are_stored(void **state)
{
	struct forge_samples s;

	(void)state;
	make_run();
	forge_samples_init(&s, NULL, run_id, SECOND);
	add(&s, SECOND);
	add(&s, 2 * SECOND);
	forge_auto_json json_t *sent = forge_samples_json(&s);
	json_array_append_new(sent, json_string("no point"));
	assert_int_equal(forge_samples_store(&home, run_id, sent, NULL), 0);
	forge_auto_json json_t *rows = read_rows();
	assert_int_equal(json_array_size(rows), 2);
	assert_true(number(rows, 1, 2) == 1);
	forge_samples_done(&s);
	/* Nothing to store makes no file and is no error. */
	assert_int_equal(forge_samples_store(&home, run_id, NULL, NULL), 0);
	remove_run();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_run_without_points_has_an_empty_list),
		cmocka_unit_test(points_are_read_back_as_they_were),
		cmocka_unit_test(there_are_never_more_than_the_most),
		cmocka_unit_test(thinning_drops_every_second_and_doubles),
		cmocka_unit_test(the_beginning_is_denser),
		cmocka_unit_test(a_torn_line_is_ignored_and_then_repaired),
		cmocka_unit_test(another_supervisor_keeps_the_longer_interval),
		cmocka_unit_test(what_is_no_point_is_left_out),
		cmocka_unit_test(a_link_or_a_huge_file_is_refused),
		cmocka_unit_test(points_of_another_machine_are_stored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
