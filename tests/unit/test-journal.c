/* SPDX-License-Identifier: Apache-2.0 */
/* The events of a pipeline, written by its head and followed by another process. */
#include "unit.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/fd.h"
#include "base/json.h"
#include "pipeline/journal.h"
#include "scratch.h"

static const struct forge_pipeline pipeline = { .name = (char *)"p",
						.path = (char *)"/p/pipeline.yaml" };
static struct forge_home home;

static int make(void **state)
{
	(void)state;
	scratch_make();
	if (setenv("FORGE_HOME", scratch("home"), 1) < 0)
		return -1;
	home = FORGE_HOME_INIT;
	return forge_home_open(true, &home, NULL);
}

static int unmake(void **state)
{
	(void)state;
	forge_home_close(&home);
	scratch_remove();
	return 0;
}

/* ---- the head ---- */

static void add(struct forge_journal *j, const char *event, int n)
{
	forge_auto_json json_t *e =
		json_pack("{s:s, s:i, s:s}", "event", event, "n", n, "status_of",
			  "a text that makes the line as long as those of a task are, "
			  "with its usage, its limits and a sentence about its end");

	if (strcmp(event, "end") == 0)
		json_object_set_new(e, "status", json_integer(3));
	forge_journal_add(j, e);
}

#define FIRST	     5000
#define SLOW	     24
#define BETWEEN_MSEC 50

static void many_then_few(const struct child *ch, void *arg)
{
	struct forge_journal j;

	(void)arg;
	if (forge_journal_open(&home, &pipeline, &j, NULL) != 0)
		_exit(9);
	for (int i = 0; i < FIRST; i++)
		add(&j, "first", i);
	if (write(ch->to, "x", 1) != 1)
		_exit(8);
	for (int i = 0; i < SLOW; i++) {
		(void)poll(NULL, 0, BETWEEN_MSEC); /* as steps that take their time */
		add(&j, "slow", FIRST + i);
	}
	add(&j, "end", FIRST + SLOW);
}

/* ---- the follower ---- */

static void count(void *arg, const json_t *event)
{
	int *next = arg;

	assert_int_equal(json_integer_value(json_object_get(event, "n")), *next);
	++*next;
}

/* Bytes that this process has read so far. */
static uint64_t bytes_read(void)
{
	char text[512];
	uint64_t n = 0;

	assert_true(forge_read_at(AT_FDCWD, "/proc/self/io", text, sizeof(text)) > 0);
	assert_int_equal(sscanf(text, "rchar: %" SCNu64, &n), 1);
	return n;
}

static void a_follower_reads_only_what_is_new(void **state)
{
	forge_auto_journal struct forge_journal j = FORGE_JOURNAL_INIT;
	struct child c = child_start(many_then_few, NULL);
	struct stat st;
	char byte;
	int next = 0, status = 0;

	(void)state;
	assert_int_equal(read(c.from, &byte, 1), 1);
	assert_int_equal(forge_journal_open(&home, &pipeline, &j, NULL), 1);
	uint64_t before = bytes_read();
	assert_int_equal(forge_journal_follow(&j, -1, count, NULL, &next, &status, NULL),
			 0);
	uint64_t now = bytes_read() - before;
	assert_int_equal(next, FIRST + SLOW + 1);
	assert_int_equal(status, 3);
	assert_int_equal(fstatat(j.dir_fd, "events.jsonl", &st, 0), 0);
	assert_true(st.st_size > 500000);
	/* Once, and not at each of the looks while the rest came. */
	assert_true(now >= (uint64_t)st.st_size);
	assert_true(now < (uint64_t)st.st_size * 3 / 2);
	assert_int_equal(child_end(&c), 0);
}

/* Killed while it wrote: the line that is not whole is no event. */
static void a_head_that_is_gone_has_no_end(void **state)
{
	forge_auto_journal struct forge_journal j = FORGE_JOURNAL_INIT;
	int next = 0, status = 0;

	(void)state;
	assert_int_equal(forge_journal_open(&home, &pipeline, &j, NULL), 0);
	add(&j, "first", 0);
	assert_int_equal(write(j.events_fd, "{\"event\": \"e", 12), 12);
	close(j.lock_fd);
	j.lock_fd = -1;
	assert_int_equal(forge_journal_follow(&j, -1, count, NULL, &next, &status, NULL),
			 1);
	assert_int_equal(next, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_follower_reads_only_what_is_new),
		TEST(a_head_that_is_gone_has_no_end),
	};

	return cmocka_run_group_tests_name("journal", tests, NULL, NULL);
}
