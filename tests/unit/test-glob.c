/* SPDX-License-Identifier: Apache-2.0 */
/* Output patterns: which paths they mean, and which patterns are refused. */
#include "unit.h"

#include <time.h>

#include "base/cleanup.h"
#include "base/glob.h"

static const struct {
	const char *pattern, *path;
	bool is_meant;
} cases[] = {
	{ "a", "a", true },
	{ "a", "b", false },
	{ "a", "ab", false },
	{ "ab", "a", false },
	/* within a name */
	{ "*", "a", true },
	{ "*", ".hidden", true },
	{ "*.csv", "x.csv", true },
	{ "*.csv", ".csv", true },
	{ "*.csv", "x.csv.gz", false },
	{ "*.csv", "d/x.csv", false },
	{ "a*b*c", "abc", true },
	{ "a*b*c", "aXbYbZc", true },
	{ "a*b*c", "acb", false },
	{ "**x", "abx", true }, /* not alone in its part: two stars are one */
	{ "?", "a", true },
	{ "?", "", false },
	{ "?", "ab", false },
	{ "a?c", "abc", true },
	{ "a?c", "a/c", false },
	{ "*", "a\nb", true },
	{ "[ab]", "a",
	  false }, /* no classes, no escapes: names are common that have them */
	{ "[ab]", "[ab]", true },
	{ "\\*", "*", false },
	/* across directories */
	{ "**", "a", true },
	{ "**", "a/b/c", true },
	{ "outputs/**", "outputs/x", true },
	{ "outputs/**", "outputs/a/b/x", true },
	{ "outputs/**", "outputs2/x", false },
	{ "outputs/**", "x/outputs/x", false },
	{ "**/x", "x", true },
	{ "**/x", "a/b/x", true },
	{ "**/x", "a/b/xy", false },
	{ "a/**/z", "a/z", true },
	{ "a/**/z", "a/b/c/z", true },
	{ "a/**/z", "b/a/z", false },
	{ "a/**/b/**/c", "a/x/b/y/z/c", true },
	{ "a/**/b/**/c", "a/x/c/y/z/b", false },
	{ "**/b/c", "b/x/b/c", true }, /* the first b is not the one */
	{ "**/*.csv", "d/e/x.csv", true },
	{ "*/x", "a/x", true },
	{ "*/x", "a/b/x", false },
	/* a directory means what is below it */
	{ "out", "out/a/b", true },
	{ "out/*", "out/a/b", true },
	{ "out", "outer", false },
	{ "a/b", "a", false },
	{ "a/b", "a/bc/d", false },
};

static void paths_are_meant_or_not(void **state)
{
	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(cases); i++)
		if (forge_glob_match(cases[i].pattern, cases[i].path) !=
		    cases[i].is_meant)
			fail_msg("'%s' and '%s': should be %d", cases[i].pattern,
				 cases[i].path, cases[i].is_meant);
}

static void good_patterns_are_taken(void **state)
{
	static const char *const good[] = { "a",   "a/b", "**",	  "out/", "*.csv",
					    "...", "..a", ".h/x", "a b/c" };
	struct forge_error err = UNIT_ERROR_UNTOUCHED;

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(good); i++)
		assert_int_equal(forge_glob_check(good[i], &err), 0);
	assert_untouched(err);
}

static void patterns_that_lead_out_are_refused(void **state)
{
	static const char *const bad[] = { "",	   "/",	    "/etc/passwd", "..",
					   "../x", "a/..",  "a/../b",	   "a//b",
					   "./a",  "a/./b", "a/." };

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(bad); i++) {
		struct forge_error err = FORGE_ERROR_INIT;
		if (forge_glob_check(bad[i], &err) != -EINVAL)
			fail_msg("'%s' was taken", bad[i]);
		assert_contains(err.msg, "output");
	}
}

static void length_has_a_limit(void **state)
{
	char text[1026];

	(void)state;
	memset(text, 'a', sizeof(text));
	text[1024] = '\0';
	assert_int_equal(forge_glob_check(text, NULL), 0);
	text[1024] = 'a';
	text[1025] = '\0';
	assert_int_equal(forge_glob_check(text, NULL), -EINVAL);
}

/* The pattern is the user's, the names are the run's: no pair of them may hang forge. */
static void hostile_names_cost_little(void **state)
{
	char pattern[1025], path[4001];
	clock_t start = clock();

	(void)state;
	memset(path, 'a', sizeof(path));
	path[4000] = '\0';
	for (size_t i = 0; i < 1024; i++)
		pattern[i] = i % 2 ? 'a' : '*';
	pattern[1023] = 'b';
	pattern[1024] = '\0';
	assert_false(forge_glob_match(pattern, path));
	for (size_t i = 1; i < 4000; i += 2)
		path[i] = '/';
	for (size_t i = 0; i < 1020; i += 5)
		memcpy(pattern + i, "**/a/", 5);
	memcpy(pattern + 1020, "b", 2);
	assert_false(forge_glob_match(pattern, path));
	assert_true(clock() - start < 2 * CLOCKS_PER_SEC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths_are_meant_or_not),
		cmocka_unit_test(good_patterns_are_taken),
		cmocka_unit_test(patterns_that_lead_out_are_refused),
		cmocka_unit_test(length_has_a_limit),
		cmocka_unit_test(hostile_names_cost_little),
	};

	return cmocka_run_group_tests_name("glob", tests, NULL, NULL);
}
