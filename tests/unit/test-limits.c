/* SPDX-License-Identifier: Apache-2.0 */
/* The table of limits, overlays and what a host allows. */
#include "unit.h"

#include "base/cleanup.h"
#include "config/limits.h"

static const struct forge_limit_row *row(const char *name)
{
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++)
		if (strcmp(forge_limit_rows[i].name, name) == 0)
			return &forge_limit_rows[i];
	fail_msg("no limit %s", name);
	return NULL;
}

static void the_table_is_complete(void **state)
{
	struct forge_limits all = {0};

	(void)state;
	assert_int_equal(sizeof(all), FORGE_LIMIT_COUNT_ROWS * sizeof(uint64_t));
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *r = &forge_limit_rows[i];

		assert_true(r->name && r->key && r->json && r->metavar && r->help);
		assert_null(strchr(r->key, '-'));
		assert_true(r->help[strlen(r->help) - 1] != '.');
		/* Two rows with one offset would show here. */
		assert_true(forge_limit_value(&all, r) == 0);
		assert_int_equal(forge_limit_set(&all, r, r->builtin, NULL), 0);
		assert_true(forge_limit_value(&all, r) != 0);
	}
}

static void built_in_values_are_the_documented_ones(void **state)
{
	struct forge_limits l = {0};

	(void)state;
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++)
		assert_int_equal(forge_limit_set(&l, &forge_limit_rows[i],
						 forge_limit_rows[i].builtin, NULL),
				 0);
	assert_true(l.memory_bytes == UINT64_C(2) << 30);
	assert_true(l.cpus_milli == 1000);
	assert_true(l.pids == 100);
	assert_true(l.wall_usec == UINT64_C(1800) * 1000000);
	assert_true(l.cpu_usec == FORGE_UNLIMITED);
	assert_true(l.disk_bytes == UINT64_C(10) << 30);
	assert_true(l.inodes == 1000000);
	assert_true(l.output_bytes == UINT64_C(64) << 20);
	assert_true(l.open_files == 1024);
	assert_true(l.io_bytes_per_second == FORGE_UNLIMITED);
	assert_true(l.grace_usec == 5000000);
	/* ... and a host that allows nothing else allows them */
	assert_int_equal(forge_limits_check(&l, &(struct forge_limits){ 0 }, false, NULL), 0);
}

static void values_go_by_type(void **state)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	struct forge_limits l = {0};

	(void)state;
	assert_int_equal(forge_limit_set(&l, row("memory"), "1.5G", &err), 0);
	assert_true(l.memory_bytes == UINT64_C(1536) << 20);
	assert_int_equal(forge_limit_set(&l, row("timeout"), "2h", &err), 0);
	assert_true(l.wall_usec == UINT64_C(7200) * 1000000);
	assert_int_equal(forge_limit_set(&l, row("cpus"), "0.5", &err), 0);
	assert_true(l.cpus_milli == 500);
	assert_int_equal(forge_limit_set(&l, row("pids"), "unlimited", &err), 0);
	assert_true(l.pids == FORGE_UNLIMITED);
	assert_untouched(err);
}

static void a_wrong_value_changes_nothing(void **state)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_limits l = {.memory_bytes = 5, .grace_usec = 6, .cpus_milli = 7};

	(void)state;
	assert_int_equal(forge_limit_set(&l, row("memory"), "2X", &err), -EINVAL);
	assert_contains(err.msg, "'2X' is not a size");
	assert_int_equal(forge_limit_set(&l, row("grace"), "unlimited", &err), -EINVAL);
	assert_contains(err.msg, "'unlimited' is never allowed for grace");
	assert_int_equal(forge_limit_set(&l, row("cpus"), "unlimited", &err), -EINVAL);
	assert_contains(err.msg, "is not a number of CPUs");
	assert_true(l.memory_bytes == 5 && l.grace_usec == 6 && l.cpus_milli == 7);
}

static void values_are_written_by_type(void **state)
{
	char buf[FORGE_FORMAT_MAX];

	(void)state;
	assert_string_equal(forge_limit_format(buf, row("memory"), 1u << 30), "1.00 GiB");
	assert_string_equal(forge_limit_format(buf, row("timeout"), 90000000),
			    "1 min 30 s");
	assert_string_equal(forge_limit_format(buf, row("cpus"), 1500), "1.5");
	assert_string_equal(forge_limit_format(buf, row("pids"), 100), "100");
	assert_string_equal(forge_limit_format(buf, row("pids"), FORGE_UNLIMITED),
			    "unlimited");
}

static void only_what_is_set_overlays(void **state)
{
	struct forge_limits base = {.memory_bytes = 1, .pids = 2, .grace_usec = 3};
	const struct forge_limits over = {.pids = 20, .disk_bytes = 30};

	(void)state;
	forge_limits_overlay(&base, &over);
	assert_true(base.memory_bytes == 1 && base.pids == 20 && base.disk_bytes == 30);
	assert_true(base.grace_usec == 3 && base.cpus_milli == 0);
}

static void caps_are_the_most(void **state)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	const struct forge_limits caps = {.memory_bytes = UINT64_C(2) << 30}, none = {0};
	struct forge_limits l = {.memory_bytes = UINT64_C(2) << 30, .pids = 1u << 30};

	(void)state;
	assert_int_equal(forge_limits_check(&l, &caps, false, &err), 0);
	assert_int_equal(forge_limits_check(&none, &caps, false, &err), 0);
	l.memory_bytes = UINT64_C(4) << 30;
	assert_int_equal(forge_limits_check(&l, &none, false, &err), 0);
	assert_untouched(err);
	assert_int_equal(forge_limits_check(&l, &caps, false, &err), -ERANGE);
	assert_string_equal(err.msg,
			    "memory: 4.00 GiB is more than this host allows: 2.00 GiB "
			    "(host.max.memory)");
	assert_contains(err.hint, "raise host.max.memory");
	/* Even where "unlimited" is allowed, a cap is a cap. */
	l.memory_bytes = FORGE_UNLIMITED;
	assert_int_equal(forge_limits_check(&l, &caps, true, &err), -ERANGE);
	assert_contains(err.msg, "unlimited is more than this host allows: 2.00 GiB");
	assert_int_equal(forge_limits_check(&l, &caps, true, NULL), -ERANGE);
}

static void unlimited_must_be_allowed(void **state)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	const struct forge_limits none = {0}, l = {.output_bytes = FORGE_UNLIMITED};

	(void)state;
	assert_int_equal(forge_limits_check(&l, &none, true, &err), 0);
	assert_untouched(err);
	assert_int_equal(forge_limits_check(&l, &none, false, &err), -EPERM);
	assert_string_equal(err.msg,
			    "output-limit: unlimited is not allowed on this host "
			    "(host.allow_unlimited is false)");
}

static void cpu_time_may_always_be_unlimited_below_no_cap(void **state)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	const struct forge_limits none = {0}, l = {.cpu_usec = FORGE_UNLIMITED};
	const struct forge_limits caps = {.cpu_usec = 1000000};

	(void)state;
	assert_int_equal(forge_limits_check(&l, &none, false, &err), 0);
	assert_untouched(err);
	assert_int_equal(forge_limits_check(&l, &caps, false, &err), -ERANGE);
	assert_contains(err.msg, "host.max.cpu_time");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_table_is_complete),
		cmocka_unit_test(built_in_values_are_the_documented_ones),
		cmocka_unit_test(values_go_by_type),
		cmocka_unit_test(a_wrong_value_changes_nothing),
		cmocka_unit_test(values_are_written_by_type),
		cmocka_unit_test(only_what_is_set_overlays),
		cmocka_unit_test(caps_are_the_most),
		cmocka_unit_test(unlimited_must_be_allowed),
		cmocka_unit_test(cpu_time_may_always_be_unlimited_below_no_cap),
	};

	return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
