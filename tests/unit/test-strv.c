/* SPDX-License-Identifier: Apache-2.0 */
/* String vectors, with memory and without. */
#include "unit.h"

#include "base/strv.h"
#include "torture.h"

static void an_empty_one_is_usable(void **state)
{
	struct forge_strv sv = {0};

	(void)state;
	forge_strv_foreach (s, &sv)
		fail_msg("found '%s'", s);
	assert_null(forge_strv_getenv(&sv, "A"));
	forge_strv_done(&sv);
	forge_strv_done(&sv);
}

static void it_grows_and_stays_terminated(void **state)
{
	forge_auto_strv struct forge_strv sv = {0};
	size_t n = 0;

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		assert_int_equal(forge_strv_addf(&sv, "item %u", i), 0);
		assert_int_equal(sv.n, i + 1);
		assert_null(sv.v[sv.n]);
	}
	forge_strv_foreach (s, &sv) {
		char want[32];
		(void)snprintf(want, sizeof(want), "item %zu", n++);
		assert_string_equal(s, want);
	}
	assert_int_equal(n, 1000);
}

static void taking_null_is_out_of_memory(void **state)
{
	forge_auto_strv struct forge_strv sv = {0};

	(void)state;
	assert_int_equal(forge_strv_take(&sv, NULL), -ENOMEM);
	assert_int_equal(sv.n, 0);
}

static void a_copy_replaces_and_is_deep(void **state)
{
	forge_auto_strv struct forge_strv a = {0}, b = {0};

	(void)state;
	assert_int_equal(forge_strv_add(&a, "one"), 0);
	assert_int_equal(forge_strv_add(&b, "old"), 0);
	assert_int_equal(forge_strv_copy(&b, &a), 0);
	assert_int_equal(b.n, 1);
	assert_string_equal(b.v[0], "one");
	assert_ptr_not_equal(a.v[0], b.v[0]);
	forge_strv_done(&a);
	assert_int_equal(forge_strv_copy(&b, &a), 0);
	assert_int_equal(b.n, 0);
}

static void environment_is_replaced_by_whole_name(void **state)
{
	forge_auto_strv struct forge_strv sv = {0};

	(void)state;
	assert_int_equal(forge_strv_setenv(&sv, "PATHS", "x"), 0);
	assert_int_equal(forge_strv_setenv(&sv, "PATH", "/bin"), 0);
	assert_int_equal(forge_strv_setenv(&sv, "PATH", "/usr/bin=1"), 0);
	assert_int_equal(sv.n, 2);
	assert_string_equal(sv.v[0], "PATHS=x");
	assert_string_equal(forge_strv_getenv(&sv, "PATH"), "/usr/bin=1");
	assert_null(forge_strv_getenv(&sv, "PAT"));
	assert_null(forge_strv_getenv(&sv, "PATHS=x"));
}

static void asprintf_measures(void **state)
{
	forge_auto_free char *s = forge_asprintf("%0500d", 7);

	(void)state;
	assert_int_equal(strlen(s), 500);
	forge_auto_free char *none = forge_asprintf("%s", "");
	assert_string_equal(none, "");
}

static int every_function(void *arg)
{
	forge_auto_strv struct forge_strv a = {0}, b = {0};
	int rc = 0;

	(void)arg;
	for (int i = 0; rc == 0 && i < 20; i++)
		rc = forge_strv_addf(&a, "%d", i);
	if (rc == 0)
		rc = forge_strv_setenv(&a, "A", "1");
	if (rc == 0)
		rc = forge_strv_setenv(&a, "A", "2");
	if (rc == 0)
		rc = forge_strv_add(&b, "kept");
	if (rc == 0) {
		rc = forge_strv_copy(&b, &a);
		assert_string_equal(b.v[0], rc == 0 ? "0" : "kept");
	}
	/* Half-built or not, it must be terminated. */
	assert_true(!a.v || !a.v[a.n]);
	return rc;
}

static void memory_may_run_out_anywhere(void **state)
{
	(void)state;
	assert_true(torture(every_function, NULL) > 40);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_one_is_usable),
		cmocka_unit_test(it_grows_and_stays_terminated),
		cmocka_unit_test(taking_null_is_out_of_memory),
		cmocka_unit_test(a_copy_replaces_and_is_deep),
		cmocka_unit_test(environment_is_replaced_by_whole_name),
		cmocka_unit_test(asprintf_measures),
		cmocka_unit_test(memory_may_run_out_anywhere),
	};

	return cmocka_run_group_tests_name("strv", tests, NULL, NULL);
}
