/* SPDX-License-Identifier: Apache-2.0 */
/* What a post-process may print: JSON objects, one a line; all of it or nothing. */
#include "unit.h"

#include <stdlib.h>

#include "base/json.h"
#include "run/postprocess.h"

static int parse(const char *text, json_t **ret, struct forge_error *err)
{
	*ret = NULL;
	return forge_post_parse(text, strlen(text), ret, err);
}

/* Takes it, with so many records. */
static json_t *taken(const char *text, size_t n)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	json_t *rows;

	assert_int_equal(parse(text, &rows, &err), 0);
	assert_untouched(err);
	assert_int_equal(json_array_size(rows), n);
	return rows;
}

static void refused(const char *text, const char *line)
{
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *rows;

	if (parse(text, &rows, &err) != -EINVAL)
		fail_msg("'%s' was taken", text);
	assert_null(rows);
	assert_contains(err.msg, line);
	assert_contains(err.msg, "no JSON object");
}

static void lines_become_records_in_order(void **state)
{
	json_t *rows =
		taken("{\"a\": 1}\n{\"a\": 2, \"b\": {\"c\": [null, true]}}\n{}\n", 3);

	(void)state;
	assert_int_equal(
		json_integer_value(json_object_get(json_array_get(rows, 0), "a")), 1);
	assert_int_equal(
		json_integer_value(json_object_get(json_array_get(rows, 1), "a")), 2);
	assert_int_equal(json_object_size(json_array_get(rows, 2)), 0);
	json_decref(rows);
}

static void nothing_is_no_records(void **state)
{
	(void)state;
	json_decref(taken("", 0));
	json_decref(taken("\n", 0));
	json_decref(taken("\n \t\r\n\n", 0));
}

static void blank_lines_do_not_matter(void **state)
{
	(void)state;
	json_decref(taken("\n\n{\"a\": 1}\n\n  \t \n{\"a\": 2}\r\n\n", 2));
	/* but they count, for who looks for the line in an editor */
	refused("\n\n{}\n\nx\n", "line 5");
}

static void the_last_line_needs_no_end(void **state)
{
	(void)state;
	json_decref(taken("{\"a\": 1}\n{\"a\": 2}", 2));
}

static void what_is_no_object_is_refused_with_its_line(void **state)
{
	(void)state;
	refused("[]\n", "line 1");
	refused("{}\n1\n", "line 2");
	refused("{}\n{}\n\"text\"\n", "line 3");
	refused("null\n", "line 1");
	refused("word\n", "line 1");
	refused("{} {}\n", "line 1");
	refused("{}x\n", "line 1");
	refused("{'a': 1}\n", "line 1");
	refused("{\"a\": NaN}\n", "line 1");
	refused("{\"a\": 1,}\n", "line 1");
	refused("{\"a\": \"\xff\"}\n", "line 1");
}

static void an_object_over_two_lines_is_refused(void **state)
{
	(void)state;
	refused("{\"a\":\n1}\n", "line 1");
}

static void torn_last_line_is_refused(void **state)
{
	(void)state;
	refused("{\"a\": 1}\n{\"a\": 2", "line 2");
	refused("{\"a\": 1}\n{\"a", "line 2");
}

/* What is kept of a line, as it is printed again. */
static void kept_as(const char *text, const char *want)
{
	json_t *rows = taken(text, 1);
	char *line = forge_json_line(json_array_get(rows, 0));

	assert_string_equal(line, want);
	free(line);
	json_decref(rows);
}

static void numbers_stay_what_they_were(void **state)
{
	(void)state;
	kept_as("{\"a\": 49.86}", "{\"a\":49.86}");
	kept_as("{\"a\": [0.1, 1e-300, 5e-324, -0.0]}", "{\"a\":[0.1,1e-300,4.94065645841247e-324,-0.0]}");
	kept_as("{\"a\": 49.86, \"b\": 0.30000000000000004, \"e1.5\": [true, false, null, 1e22]}",
		"{\"a\":49.86,\"b\":0.30000000000000004,\"e1.5\":[true,false,null,1e22]}");
	kept_as("{\"1.10\\\"2.20\": \"3.30\\\\\"}", "{\"1.10\\\"2.20\":\"3.30\\\\\"}");
	/* All 17 digits where they are needed. */
	kept_as("{\"a\": 0.30000000000000004}", "{\"a\":0.30000000000000004}");
	kept_as("{\"a\": 9007199254740993}", "{\"a\":9007199254740993}");
	kept_as("{\"a\": 1.0}", "{\"a\":1.0}");
}

static void a_key_twice_is_refused(void **state)
{
	(void)state;
	refused("{\"a\": 1, \"a\": 2}\n", "line 1");
	refused("{\"b\": {\"a\": 1, \"a\": 1}}\n", "line 1");
}

static void a_nul_is_no_end(void **state)
{
	static const char text[] = "{\"a\": 1}\n\0{\"a\": 2}\n";
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *rows = NULL;

	(void)state;
	assert_int_equal(forge_post_parse(text, sizeof(text) - 1, &rows, &err), -EINVAL);
	assert_contains(err.msg, "line 2");
	refused("{\"a\": \"\\u0000\"}\n",
		"line 1"); /* no text of the stores can hold it */
}

static void depth_does_no_harm(void **state)
{
	size_t n = 1000000;
	char *text = malloc(2 * n + 1);
	json_t *rows = NULL;

	(void)state;
	memset(text, '[', 2 * n);
	memcpy(text, "{\"a\":", 5);
	assert_int_equal(forge_post_parse(text, 2 * n, &rows, NULL), -EINVAL);
	free(text);
}

static void there_can_be_too_many(void **state)
{
	const size_t most = 100000;
	struct forge_error err = FORGE_ERROR_INIT;
	char *text = malloc(3 * (most + 1));
	json_t *rows = NULL;

	(void)state;
	for (size_t i = 0; i <= most; i++)
		memcpy(text + 3 * i, "{}\n", 3);
	assert_int_equal(forge_post_parse(text, 3 * most, &rows, &err), 0);
	assert_int_equal(json_array_size(rows), most);
	json_decref(rows);
	rows = NULL;
	assert_int_equal(forge_post_parse(text, 3 * (most + 1), &rows, &err), -E2BIG);
	assert_null(rows);
	assert_contains(err.msg, "100000");
	free(text);
}

/* Text that is small and memory that is not. */
static void there_can_be_too_many_values(void **state)
{
	const size_t n = 2000000;
	struct forge_error err = FORGE_ERROR_INIT;
	char *text = malloc(2 * n + 64);
	json_t *rows = NULL;

	(void)state;
	size_t len = (size_t)snprintf(text, 64, "{\"a\":[0");
	for (size_t i = 0; i < n; i++, len += 2)
		memcpy(text + len, ",0", 2);
	len += (size_t)snprintf(text + len, 8, "]}\n");
	assert_int_equal(forge_post_parse(text, len, &rows, &err), -E2BIG);
	assert_contains(err.msg, "values");
	/* Commas in a text are no values, nor is a quote that is escaped its end. */
	len = (size_t)snprintf(text, 64, "{\"a\":\"\\\"");
	memset(text + len, ',', 2 * n);
	len += 2 * n;
	len += (size_t)snprintf(text + len, 8, "\"}");
	assert_int_equal(forge_post_parse(text, len, &rows, NULL), 0);
	assert_int_equal(json_array_size(rows), 1);
	json_decref(rows);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_become_records_in_order),
		cmocka_unit_test(nothing_is_no_records),
		cmocka_unit_test(blank_lines_do_not_matter),
		cmocka_unit_test(the_last_line_needs_no_end),
		cmocka_unit_test(what_is_no_object_is_refused_with_its_line),
		cmocka_unit_test(an_object_over_two_lines_is_refused),
		cmocka_unit_test(torn_last_line_is_refused),
		cmocka_unit_test(numbers_stay_what_they_were),
		cmocka_unit_test(a_key_twice_is_refused),
		cmocka_unit_test(a_nul_is_no_end),
		cmocka_unit_test(depth_does_no_harm),
		cmocka_unit_test(there_can_be_too_many),
		cmocka_unit_test(there_can_be_too_many_values),
	};

	return cmocka_run_group_tests_name("post", tests, NULL, NULL);
}
