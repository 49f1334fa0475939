/* SPDX-License-Identifier: Apache-2.0 */
/* "Did you mean": near enough helps, far-fetched does not. */
#include "unit.h"

#include "base/cleanup.h"
#include "base/near.h"

static const char *const words[] = {"memory", "cpus", "pids", "timeout", "disk", "no"};

static const char *near(const char *s)
{
	return forge_near_miss(s, words, FORGE_ARRAY_SIZE(words));
}

static void slips_are_understood(void **state)
{
	(void)state;
	assert_string_equal(near("memroy"), "memory"); /* swapped */
	assert_string_equal(near("memry"), "memory");  /* left out */
	assert_string_equal(near("memorry"), "memory");
	assert_string_equal(near("MEMORY"), "memory");
	assert_string_equal(near("cpu"), "cpus");
	assert_string_equal(near("time-out"), "timeout");
	assert_string_equal(near("tmeotu"), "timeout"); /* two slips in six letters */
}

static void strangers_are_not(void **state)
{
	(void)state;
	assert_null(near("network"));
	assert_null(near(""));
	assert_null(near("x"));
	assert_null(near("xx"));
	assert_null(near("mem"));
	assert_null(forge_near_miss("memory", words, 0));
}

static void the_nearest_wins_and_the_first_of_equals(void **state)
{
	static const char *const close[] = {"abcd", "abcx", "abcy"};

	(void)state;
	assert_string_equal(forge_near_miss("abcy", close, 3), "abcy");
	assert_string_equal(forge_near_miss("abcz", close, 3), "abcd");
}

static void long_words_cost_nothing(void **state)
{
	char text[10000];
	const char *const list[] = {text, ""};

	(void)state;
	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_null(near(text));
	assert_null(forge_near_miss("a", list, 2));
	text[64] = '\0';
	assert_ptr_equal(forge_near_miss(text, list, 2), text);
	text[64] = 'a';
	text[65] = '\0';
	assert_null(forge_near_miss(text, list, 2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slips_are_understood),
		cmocka_unit_test(strangers_are_not),
		cmocka_unit_test(the_nearest_wins_and_the_first_of_equals),
		cmocka_unit_test(long_words_cost_nothing),
	};

	return cmocka_run_group_tests_name("near", tests, NULL, NULL);
}
