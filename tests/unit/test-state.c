/* SPDX-License-Identifier: Apache-2.0 */
/* The table of states, written out a second time: what may follow what, and nothing else. */
#include "unit.h"

#include "base/cleanup.h"
#include "store/state.h"

static const struct {
	const char *from, *to;
} legal[] = {
	{ "", "queued" },
	{ "", "preparing" },
	{ "", "rejected" },
	{ "queued", "preparing" },
	{ "queued", "cancelled" },
	{ "queued", "rejected" },
	{ "queued", "lost" },
	{ "preparing", "running" },
	{ "preparing", "rejected" },
	{ "preparing", "failed" },
	{ "preparing", "killed" },
	{ "preparing", "cancelled" },
	{ "preparing", "corrupted" },
	{ "preparing", "lost" },
	{ "running", "collecting" },
	{ "running", "failed" },
	{ "running", "killed" },
	{ "running", "cancelled" },
	{ "running", "corrupted" },
	{ "running", "lost" },
	{ "collecting", "succeeded" },
	{ "collecting", "failed" },
	{ "collecting", "killed" },
	{ "collecting", "cancelled" },
	{ "collecting", "corrupted" },
	{ "collecting", "lost" },
};

static bool is_legal(const char *from, const char *to)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(legal); i++)
		if (strcmp(legal[i].from, from) == 0 && strcmp(legal[i].to, to) == 0)
			return true;
	return false;
}

static void every_pair_is_as_written(void **state)
{
	(void)state;
	for (enum forge_status a = 0; a < FORGE_STATUS_COUNT; a++)
		for (enum forge_status b = 0; b < FORGE_STATUS_COUNT; b++)
			if (forge_status_may_follow(a, b) !=
			    is_legal(forge_status_name(a), forge_status_name(b)))
				fail_msg("'%s' to '%s'", forge_status_name(a),
					 forge_status_name(b));
}

static void a_terminal_status_is_never_left(void **state)
{
	static const char *const open[] = { "queued", "preparing", "running",
					    "collecting" };

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(open); i++)
		assert_false(forge_status_is_terminal(forge_status_of(open[i])));
	for (enum forge_status a = FORGE_STATUS_SUCCEEDED; a < FORGE_STATUS_COUNT; a++) {
		assert_true(forge_status_is_terminal(a));
		for (enum forge_status b = 0; b < FORGE_STATUS_COUNT; b++)
			assert_false(forge_status_may_follow(a, b));
	}
}

/* A run that is over came there somehow: no state is out of reach. */
static void every_status_can_be_reached(void **state)
{
	bool seen[FORGE_STATUS_COUNT] = { [FORGE_STATUS_NONE] = true };

	(void)state;
	for (int round = 0; round < FORGE_STATUS_COUNT; round++)
		for (enum forge_status a = 0; a < FORGE_STATUS_COUNT; a++)
			for (enum forge_status b = 0; b < FORGE_STATUS_COUNT; b++)
				seen[b] = seen[b] ||
					  (seen[a] && forge_status_may_follow(a, b));
	for (enum forge_status a = 0; a < FORGE_STATUS_COUNT; a++)
		assert_true(seen[a]);
}

static void names_and_statuses_are_one_to_one(void **state)
{
	(void)state;
	for (enum forge_status a = FORGE_STATUS_QUEUED; a < FORGE_STATUS_COUNT; a++) {
		assert_true(*forge_status_name(a));
		assert_int_equal(forge_status_of(forge_status_name(a)), a);
	}
	assert_string_equal(forge_status_name(FORGE_STATUS_NONE), "");
}

static void strangers_are_no_status(void **state)
{
	(void)state;
	assert_int_equal(forge_status_of(NULL), FORGE_STATUS_NONE);
	assert_int_equal(forge_status_of(""), FORGE_STATUS_NONE);
	assert_int_equal(forge_status_of("Running"), FORGE_STATUS_NONE);
	assert_int_equal(forge_status_of("running "), FORGE_STATUS_NONE);
	assert_int_equal(forge_status_of("run"), FORGE_STATUS_NONE);
	assert_false(forge_status_may_follow(FORGE_STATUS_NONE, FORGE_STATUS_NONE));
	assert_false(forge_status_may_follow(FORGE_STATUS_NONE, FORGE_STATUS_COUNT));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_pair_is_as_written),
		cmocka_unit_test(a_terminal_status_is_never_left),
		cmocka_unit_test(every_status_can_be_reached),
		cmocka_unit_test(names_and_statuses_are_one_to_one),
		cmocka_unit_test(strangers_are_no_status),
	};

	return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}
