/* SPDX-License-Identifier: Apache-2.0 */
/* Slots: which are claimed, how their lines are joined, and what counts as a slot of a run. */
#include "unit.h"

#include <jansson.h>
#include <sys/file.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "scratch.h"
#include "state/home.h"
#include "state/slot.h"

static struct forge_home home = FORGE_HOME_INIT;

/* Reads come in small pieces, as they may from a file system. */
#define PIECE 1000

ssize_t __real_pread64(int fd, void *buf, size_t n, off_t at);
ssize_t __wrap_pread64(int fd, void *buf, size_t n, off_t at);
ssize_t __wrap___pread64_chk(int fd, void *buf, size_t n, off_t at, size_t room);

ssize_t __wrap_pread64(int fd, void *buf, size_t n, off_t at)
{
	return __real_pread64(fd, buf, n < PIECE ? n : PIECE, at);
}

/* What pread() is where the compiler checks sizes. */
ssize_t __wrap___pread64_chk(int fd, void *buf, size_t n, off_t at, size_t room)
{
	assert_true(n <= room);
	return __wrap_pread64(fd, buf, n, at);
}

static int make(void **state)
{
	(void)state;
	scratch_make();
	return forge_home_open(true, &home, NULL);
}

static int unmake(void **state)
{
	(void)state;
	forge_home_close(&home);
	home = FORGE_HOME_INIT;
	scratch_remove();
	return 0;
}

static struct forge_slot claim(unsigned n_slots)
{
	struct forge_slot s = FORGE_SLOT_INIT;
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	unsigned attempt = 0;

	if (forge_slot_claim(&home, &attempt, n_slots, &s, &err) < 0)
		fail_msg("%s", err.msg);
	assert_untouched(err);
	assert_true(s.fd >= 0);
	return s;
}

static void begin(struct forge_slot *s, const char *run_id)
{
	json_t *plan = json_pack("{s:s, s:s}", "workdir", "/w", "cgroup", "/c");
	const struct forge_slot_run run = {
		.run_id = run_id, .store = "sqlite:/db", .executor = "local",
		.executor_kind = "local", .plan = plan
	};
	struct forge_error err = UNIT_ERROR_UNTOUCHED;

	assert_int_equal(forge_slot_begin(s, &run, &err), 0);
	assert_untouched(err);
	json_decref(plan);
}

static void add(struct forge_slot *s, const char *key, const char *value)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;

	assert_int_equal(forge_slot_add(s, json_pack("{s:s}", key, value), &err), 0);
	assert_untouched(err);
}

static json_t *content(const struct forge_slot *s)
{
	json_t *j = NULL;

	assert_int_equal(forge_slot_read(s->fd, &j), 0);
	return j;
}

static void write_raw(const struct forge_slot *s, const char *text)
{
	assert_int_equal(write(s->fd, text, strlen(text)), strlen(text));
}

static void low_numbers_are_claimed_first(void **state)
{
	struct forge_slot s[8];

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		s[i] = claim(1000);
		assert_int_equal(s[i].number, i);
	}
	struct forge_slot far = claim(1000);
	assert_in_range(far.number, 8, 999);
	forge_slot_close(&s[3]);
	s[3] = claim(1000);
	assert_int_equal(s[3].number, 3);
	for (unsigned i = 0; i < 8; i++)
		forge_slot_close(&s[i]);
	forge_slot_close(&far);
}

/* Random slots are tried on the way; in the end there is none that was never tried. */
static void every_slot_can_be_claimed(void **state)
{
	enum { COUNT = 40 };
	struct forge_slot s[COUNT], more = FORGE_SLOT_INIT;
	struct forge_error err = FORGE_ERROR_INIT;
	bool is_taken[COUNT] = { false };
	unsigned attempt = 0;

	(void)state;
	for (unsigned i = 0; i < COUNT; i++) {
		s[i] = claim(COUNT);
		assert_in_range(s[i].number, 0, COUNT - 1);
		assert_false(is_taken[s[i].number]);
		is_taken[s[i].number] = true;
	}
	assert_int_equal(forge_slot_claim(&home, &attempt, COUNT, &more, &err), -EAGAIN);
	assert_string_equal(err.msg, "40 analyses are running already");
	assert_contains(err.hint, "sandbox.uid_count");
	assert_int_equal(more.fd, -1);
	for (unsigned i = 0; i < COUNT; i++)
		forge_slot_close(&s[i]);
}

static void further_calls_give_other_slots(void **state)
{
	struct forge_slot s = FORGE_SLOT_INIT;
	unsigned attempt = 0;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(forge_slot_claim(&home, &attempt, 3, &s, NULL), 0);
		assert_int_equal(s.number, i);
		forge_slot_close(&s); /* it is free again, and yet not tried twice */
	}
}

static void a_slot_that_waits_for_repair_is_not_claimed(void **state)
{
	struct forge_slot s = claim(4);

	(void)state;
	begin(&s, "run");
	forge_slot_release(&s);
	assert_int_equal(s.fd, -1);
	struct forge_slot next = claim(4);
	assert_int_equal(next.number, 1);
	assert_true(forge_slot_exists(&home, "run"));
	forge_slot_close(&next);
}

static void closing_empties_the_slot(void **state)
{
	struct forge_slot s = claim(4);
	struct stat st;

	(void)state;
	begin(&s, "run");
	forge_slot_close(&s);
	assert_int_equal(s.fd, -1);
	assert_int_equal(fstatat(home.active_fd, "0", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(st.st_size, 0);
	assert_false(forge_slot_exists(&home, "run"));
	s = claim(4);
	assert_int_equal(s.number, 0);
	forge_slot_close(&s);
	forge_slot_close(&s); /* there is none any more */
	forge_slot_release(&s);
}

static void a_link_in_place_of_a_slot_is_an_error(void **state)
{
	struct forge_slot s = FORGE_SLOT_INIT;
	struct forge_error err = FORGE_ERROR_INIT;
	unsigned attempt = 0;

	(void)state;
	assert_int_equal(symlinkat("elsewhere", home.active_fd, "0"), 0);
	assert_int_equal(forge_slot_claim(&home, &attempt, 4, &s, &err), -ELOOP);
	assert_contains(err.msg, "/active/0");
	assert_int_equal(faccessat(home.active_fd, "elsewhere", F_OK, 0), -1);
}

static void lines_are_joined(void **state)
{
	struct forge_slot s = claim(4);

	(void)state;
	begin(&s, "run");
	add(&s, "cgroup", "/other");
	add(&s, "more", "value");
	json_t *record = json_pack("{s:s}", "status", "running");
	assert_int_equal(forge_slot_add_record(&s, record, NULL), 0);
	json_decref(record);
	json_t *j = content(&s);
	assert_string_equal(forge_json_string(j, "run_id"), "run");
	assert_string_equal(forge_json_string(j, "store"), "sqlite:/db");
	assert_string_equal(forge_json_string(j, "executor"), "local");
	assert_string_equal(forge_json_string(j, "workdir"), "/w");
	assert_string_equal(forge_json_string(j, "cgroup"), "/other");
	assert_string_equal(forge_json_string(j, "more"), "value");
	assert_true(json_is_false(json_object_get(j, "keep")));
	assert_int_equal(json_integer_value(json_object_get(j, "pid")), getpid());
	json_decref(j);
	assert_int_equal(forge_slot_add_keep(&s, NULL), 0);
	j = content(&s);
	assert_true(json_is_true(json_object_get(j, "keep")));
	json_decref(j);
	forge_slot_close(&s);
}

static void torn_lines_do_not_count(void **state)
{
	struct forge_slot s = claim(4);
	json_t *j = content(&s);

	(void)state;
	assert_null(j);
	write_raw(&s, "{\"run_id\": \"r");
	assert_null(content(&s));
	write_raw(&s, "\n"); /* a whole line, but no JSON */
	assert_null(content(&s));
	begin(&s, "run");
	write_raw(&s,
		  "[1]\n{\"a\": \"1\"}\n{\"run_id\": \"other\"}"); /* without its end */
	j = content(&s);
	assert_string_equal(forge_json_string(j, "run_id"), "run");
	assert_string_equal(forge_json_string(j, "a"), "1");
	json_decref(j);
	forge_slot_close(&s);
}

static void a_slot_may_be_larger_than_one_read(void **state)
{
	enum { LONG = 100 * PIECE };
	struct forge_slot s = claim(4);
	char *text = malloc(LONG + 1);

	(void)state;
	memset(text, 'x', LONG);
	text[LONG] = '\0';
	begin(&s, "run");
	add(&s, "long", text);
	add(&s, "last", "line");
	json_t *j = content(&s);
	assert_string_equal(forge_json_string(j, "long"), text);
	assert_string_equal(forge_json_string(j, "last"), "line");
	json_decref(j);
	free(text);
	forge_slot_close(&s);
}

static void what_cannot_be_written_is_an_error(void **state)
{
	struct forge_slot s = claim(4);
	struct forge_error err = FORGE_ERROR_INIT;
	__attribute__((unused)) forge_auto_close int real = s.fd;

	(void)state;
	s.fd = open("/dev/full", O_RDWR | O_CLOEXEC);
	assert_true(s.fd >= 0);
	assert_int_equal(forge_slot_add(&s, json_object(), &err), -ENOSPC);
	assert_contains(err.msg, "write active/0");
	assert_int_equal(forge_slot_add(&s, NULL, &err), -ENOMEM);
	forge_slot_release(&s);
}

static void a_run_is_found_by_its_slot(void **state)
{
	struct forge_slot a = claim(4), b = claim(4);
	json_t *record = json_pack("{s:s}", "status", "running"), *j = NULL;

	(void)state;
	begin(&a, "run-a");
	begin(&b, "run-b");
	assert_int_equal(forge_slot_add_record(&b, record, NULL), 0);
	json_decref(record);
	forge_slot_release(&b); /* its supervisor is dead: it is found all the same */
	assert_int_equal(forge_slot_find(&home, "run-b", &j), 0);
	assert_string_equal(forge_json_string(j, "run_id"), "run-b");
	json_decref(j);
	assert_true(forge_slot_exists(&home, "run-a"));
	assert_true(forge_slot_exists(&home, "run-b"));
	j = forge_slot_record(&home, "run-b");
	assert_string_equal(forge_json_string(j, "status"), "running");
	json_decref(j);
	assert_null(forge_slot_record(&home, "run-a")); /* no record was written */
	assert_int_equal(forge_slot_find(&home, "run", &j), 0);
	assert_null(j);
	assert_false(forge_slot_exists(&home, "run"));
	assert_null(forge_slot_record(&home, "run"));
	forge_slot_close(&a);
}

static void a_slot_that_cannot_be_read_may_belong_to_any_run(void **state)
{
	struct forge_slot s = claim(4);
	json_t *j = NULL;

	(void)state;
	begin(&s, "run");
	assert_int_equal(mkdirat(home.active_fd, "3", 0700), 0);
	assert_true(forge_slot_find(&home, "other", &j) < 0);
	assert_null(j);
	assert_true(forge_slot_exists(&home, "other"));
	/* What can be read is found all the same. */
	assert_int_equal(forge_slot_find(&home, "run", &j), 0);
	assert_string_equal(forge_json_string(j, "run_id"), "run");
	json_decref(j);
	assert_int_equal(unlinkat(home.active_fd, "3", AT_REMOVEDIR), 0);
	assert_int_equal(symlinkat("0", home.active_fd, "2"), 0);
	assert_int_equal(forge_slot_find(&home, "other", &j), -ELOOP);
	assert_true(forge_slot_exists(&home, "other"));
	/* Hidden files are none of ours. */
	assert_int_equal(renameat(home.active_fd, "2", home.active_fd, ".2"), 0);
	assert_false(forge_slot_exists(&home, "other"));
	forge_slot_close(&s);
}

/* For those who look at thousands of them. */
static void all_slots_at_once(void **state)
{
	struct forge_slot a = claim(4), b = claim(4);
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *j;

	(void)state;
	begin(&a, "run-a");
	begin(&b, "run-b");
	assert_int_equal(forge_slot_add(&b, json_pack("{s:s, s:{}, s:{}}", "x", "y", "saved", "record"), &err), 0);
	j = forge_slot_all(&home);
	assert_int_equal(json_object_size(j), 2);
	assert_string_equal(forge_json_string(json_object_get(j, "run-b"), "x"), "y");
	assert_null(json_object_get(json_object_get(j, "run-b"), "record"));
	assert_null(json_object_get(json_object_get(j, "run-b"), "saved"));
	json_decref(j);
	j = forge_slot_ids(&home);
	assert_int_equal(json_object_size(j), 2);
	assert_non_null(json_object_get(j, "run-a"));
	json_decref(j);
	assert_int_equal(forge_slot_number(&home, "run-b"), b.number);
	assert_int_equal(forge_slot_number(&home, "run"), -ENOENT);
	forge_slot_close(&a);
	forge_slot_close(&b);
}

static void the_first_line_alone(void **state)
{
	struct forge_slot s = claim(4);
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *j;

	(void)state;
	begin(&s, "run");
	assert_int_equal(forge_slot_add(&s, json_pack("{s:i, s:s}", "start_usec", 1, "run_id", "other"), &err), 0);
	assert_int_equal(forge_slot_read_first(s.fd, "\"start_usec\"", &j), 0);
	assert_string_equal(forge_json_string(j, "run_id"), "run");
	assert_null(json_object_get(j, "start_usec"));
	json_decref(j);
	assert_int_equal(forge_slot_read_first(s.fd, "no such word", &j), 0);
	assert_null(j);
	forge_slot_close(&s);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(low_numbers_are_claimed_first),
		TEST(every_slot_can_be_claimed),
		TEST(further_calls_give_other_slots),
		TEST(a_slot_that_waits_for_repair_is_not_claimed),
		TEST(closing_empties_the_slot),
		TEST(a_link_in_place_of_a_slot_is_an_error),
		TEST(lines_are_joined),
		TEST(torn_lines_do_not_count),
		TEST(a_slot_may_be_larger_than_one_read),
		TEST(what_cannot_be_written_is_an_error),
		TEST(a_run_is_found_by_its_slot),
		TEST(a_slot_that_cannot_be_read_may_belong_to_any_run),
		TEST(all_slots_at_once),
		TEST(the_first_line_alone),
	};

	return cmocka_run_group_tests_name("slot", tests, NULL, NULL);
}
