/* SPDX-License-Identifier: Apache-2.0 */
/* struct forge_error: what each function sets, and that nothing overflows. */
#include "unit.h"

static void fail_sets_code_and_message(void **state)
{
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	assert_int_equal(forge_fail(&err, ENOENT, "no %s here", "file"), -ENOENT);
	assert_int_equal(err.code, ENOENT);
	assert_string_equal(err.msg, "no file here");
	assert_string_equal(err.file, "");
	assert_int_equal(err.line, 0);
}

static void a_new_failure_forgets_the_old_one(void **state)
{
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	(void)forge_hint(&err, forge_fail_at(&err, "f", 1, 2, "old"), "old");
	(void)forge_fail(&err, EIO, "new");
	assert_string_equal(err.hint, "");
	assert_string_equal(err.file, "");
	assert_int_equal(err.line, 0);
}

static void null_is_fine_everywhere(void **state)
{
	(void)state;
	assert_int_equal(forge_fail(NULL, EIO, "x"), -EIO);
	assert_int_equal(forge_fail_errno(NULL, EIO, "x"), -EIO);
	assert_int_equal(forge_fail_at(NULL, "f", 1, 1, "x"), -EINVAL);
	assert_int_equal(forge_wrap(NULL, -EIO, "x"), -EIO);
	assert_int_equal(forge_hint(NULL, -EIO, "x"), -EIO);
}

static void errno_text_is_appended(void **state)
{
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	assert_int_equal(forge_fail_errno(&err, EACCES, "open %s", "/x"), -EACCES);
	assert_string_equal(err.msg, "open /x: Permission denied");
}

static void place_is_filled(void **state)
{
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	assert_int_equal(forge_fail_at(&err, "forge.yaml", 3, 9, "bad"), -EINVAL);
	assert_string_equal(err.file, "forge.yaml");
	assert_int_equal(err.line, 3);
	assert_int_equal(err.column, 9);
	assert_int_equal(err.code, EINVAL);
}

static void wrap_prepends_and_keeps_the_rest(void **state)
{
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = forge_fail_at(&err, "f", 3, 9, "inner");

	(void)state;
	rc = forge_hint(&err, rc, "Do %s.", "this");
	assert_int_equal(forge_wrap(&err, rc, "outer %d", 1), -EINVAL);
	assert_string_equal(err.msg, "outer 1: inner");
	assert_string_equal(err.hint, "Do this.");
	assert_int_equal(err.line, 3);
}

static void long_texts_are_cut(void **state)
{
	struct forge_error err = FORGE_ERROR_INIT;
	char text[2048];

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void)forge_fail_at(&err, text, 1, 1, "%s", text);
	assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
	assert_int_equal(strlen(err.file), sizeof(err.file) - 1);
	(void)forge_wrap(&err, -EINVAL, "%s", text);
	(void)forge_wrap(&err, -EINVAL, "short");
	assert_contains(err.msg, "short: xxx");
	(void)forge_hint(&err, -EINVAL, "%s", text);
	(void)forge_fail_errno(&err, EIO, "%s", text);
	assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fail_sets_code_and_message),
		cmocka_unit_test(a_new_failure_forgets_the_old_one),
		cmocka_unit_test(null_is_fine_everywhere),
		cmocka_unit_test(errno_text_is_appended),
		cmocka_unit_test(place_is_filled),
		cmocka_unit_test(wrap_prepends_and_keeps_the_rest),
		cmocka_unit_test(long_texts_are_cut),
	};

	return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
