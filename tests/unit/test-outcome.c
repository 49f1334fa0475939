/* SPDX-License-Identifier: Apache-2.0 */
/* An outcome comes back from JSON as it was. */
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "executor/outcome.h"

static struct forge_outcome filled(void)
{
	struct forge_outcome o = FORGE_OUTCOME_INIT;

	o.has_started = o.has_status = o.is_exec_failure = true;
	o.wait_status = 0x0700;
	o.stop = FORGE_STOP_DISK;
	o.network_tries = 1;
	o.tmp_files = 2;
	o.tmp_bytes = 3;
	o.wall_usec = 4;
	o.cpu_usec = 5;
	o.memory_peak_bytes = UINT64_C(1) << 63; /* beyond an integer of JSON */
	o.disk_peak_bytes = 7;
	o.inodes_peak = 8;
	o.io_read_bytes = 9;
	o.stream_bytes[0] = 10;
	o.stream_bytes[1] = 11;
	o.is_truncated[1] = true;
	o.oom_kills = 12;
	o.pids_refused = 13;
	o.sockets_refused = 14;
	(void)snprintf(o.largest_name, sizeof(o.largest_name), "python3");
	o.largest_bytes = 15;
	o.kernel_memory_bytes = 16;
	o.oom_elsewhere = o.is_too_deep = o.is_stuck = o.has_quota = true;
	o.missing = 1u << FORGE_MECH_IO;
	o.cgroup_manager = "v2";
	o.landlock_abi = 7;
	(void)forge_fail(&o.start_error, ENOEXEC, "execute x");
	return o;
}

static void test_all_of_it(void **state)
{
	struct forge_outcome a = filled(), b;
	json_t *j = forge_outcome_json(&a);

	(void)state;
	assert_int_equal(forge_outcome_restore(j, &b), 0);
	json_decref(j);
	assert_string_equal(b.cgroup_manager, "v2");
	a.cgroup_manager = b.cgroup_manager; /* compared by its text */
	/* Fields that a node does not know are empty in both. */
	assert_memory_equal(&a, &b, sizeof(a));
}

static void test_through_text(void **state)
{
	struct forge_outcome a = filled(), b;
	json_t *j = forge_outcome_json(&a);
	char *text = json_dumps(j, JSON_COMPACT);
	json_t *again = json_loads(text, 0, NULL);

	(void)state;
	assert_int_equal(forge_outcome_restore(again, &b), 0);
	assert_true(b.memory_peak_bytes == a.memory_peak_bytes);
	assert_true(b.pids_peak == UINT64_MAX); /* not known */
	json_decref(j);
	json_decref(again);
	free(text);
}

/* A cause that this version does not know must not be taken for none. */
static void test_unknown_stop(void **state)
{
	struct forge_outcome a = filled(), b;
	json_t *j = forge_outcome_json(&a);

	(void)state;
	json_object_set_new(j, "stop", json_string("flood"));
	assert_int_equal(forge_outcome_restore(j, &b), -EINVAL);
	json_object_del(j, "stop");
	assert_int_equal(forge_outcome_restore(j, &b), -EINVAL);
	json_decref(j);
	assert_int_equal(forge_outcome_restore(NULL, &b), -EINVAL);
}

static void test_error(void **state)
{
	struct forge_error a = FORGE_ERROR_INIT, b;

	(void)state;
	(void)forge_hint(&a, forge_fail(&a, EPERM, "no"), "ask");
	json_t *j = forge_error_json(&a);
	forge_error_restore(j, &b);
	json_decref(j);
	assert_int_equal(b.code, EPERM);
	assert_string_equal(b.msg, "no");
	assert_string_equal(b.hint, "ask");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_of_it),
		cmocka_unit_test(test_through_text),
		cmocka_unit_test(test_unknown_stop),
		cmocka_unit_test(test_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
