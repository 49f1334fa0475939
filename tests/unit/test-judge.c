/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict table: every way a run can end, with status, reason, exit status and numbers. */
#include "unit.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "record/judge.h"

static const struct forge_limits limits = {
	.memory_bytes = 64 << 20, .cpus_milli = 1000, .pids = 20, .wall_usec = 2000000,
	.cpu_usec = 1000000, .disk_bytes = 100 << 20, .inodes = 1000, .output_bytes = 1 << 20,
	.open_files = 64, .grace_usec = 100000,
};

static struct forge_outcome ended(int wait_status)
{
	return (struct forge_outcome){ .has_started = true, .has_status = true,
				       .wait_status = wait_status, .wall_usec = 1500000,
				       .cpu_usec = 700000, .memory_peak_bytes = 10 << 20 };
}

static void expect(const struct forge_outcome *o, const char *status, const char *reason, int exit,
		   const char *words)
{
	struct forge_verdict v;

	forge_judge(o, &limits, &v);
	assert_string_equal(v.status, status);
	assert_string_equal(v.reason, reason);
	assert_int_equal(v.exit_status, exit);
	assert_non_null(strstr(v.notes, words));
}

static void exit_codes_pass_through(void **state)
{
	(void)state;
	struct forge_outcome ok = ended(0), three = ended(3 << 8);

	expect(&ok, "succeeded", "exit", 0, "Succeeded in 1.5 s (memory 10.00 MiB of 64.00 MiB)");
	expect(&three, "failed", "exit", 3, "exit code 3");
}

static void signals_are_128_plus_n(void **state)
{
	(void)state;
	struct forge_outcome segv = ended(SIGSEGV), sys = ended(SIGSYS);

	expect(&segv, "failed", "signal", 139, "signal 11");
	expect(&sys, "failed", "signal", 159, "foreign ABI");
}

static void each_limit_has_its_reason(void **state)
{
	(void)state;
	const struct {
		enum forge_stop stop;
		const char *status, *reason;
		int exit;
		const char *words;
	} rows[] = {
		{ FORGE_STOP_WALL, "killed", "wall_time", 124, "1.5 s of 2 s. Retry with --timeout 4s" },
		{ FORGE_STOP_CPU, "killed", "cpu_time", 124, "700 ms of 1 s. Retry with --cpu-time 2s" },
		{ FORGE_STOP_MEMORY, "killed", "memory", 137, "of 64.00 MiB after 1.5 s. Retry with --memory 128M" },
		{ FORGE_STOP_DISK, "killed", "disk", 137, "of 100.00 MiB" },
		{ FORGE_STOP_OUTPUT, "killed", "output", 137, "--output-limit 2M" },
		{ FORGE_STOP_CANCEL, "cancelled", "cancelled", 130, "Cancelled after 1.5 s" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct forge_outcome o = ended(SIGKILL);
		o.stop = rows[i].stop;
		expect(&o, rows[i].status, rows[i].reason, rows[i].exit, rows[i].words);
	}
}

/* The kernel killed the group by itself; forge only finds out afterwards. */
static void an_oom_kill_counts_without_a_stop(void **state)
{
	(void)state;
	struct forge_outcome o = ended(0);

	o.oom_kills = 1;
	expect(&o, "killed", "memory", 137, "Retry with --memory");
	o.oom_elsewhere = true;
	expect(&o, "killed", "memory", 137, "the host ran out of memory");
}

static void the_memory_verdict_names_the_largest(void **state)
{
	(void)state;
	struct forge_outcome o = ended(0);

	o.oom_kills = 1;
	o.memory_peak_bytes = 64 << 20;
	expect(&o, "killed", "memory", 137,
	       "Killed: memory 64.00 MiB of 64.00 MiB after 1.5 s. Retry with --memory 128M.");
	o.largest_bytes = 60 << 20;
	memcpy(o.largest_name, "python3.11", 11);
	expect(&o, "killed", "memory", 137,
	       "Killed: memory 64.00 MiB of 64.00 MiB after 1.5 s (largest: python3.11 60.00 MiB). "
	       "Retry with --memory 128M.");
	/* only where it explains something */
	o.oom_kills = 0;
	expect(&o, "succeeded", "exit", 0, "Succeeded in 1.5 s (memory");
}

static void a_process_limit_is_a_reason_only_of_failure(void **state)
{
	(void)state;
	struct forge_outcome bad = ended(1 << 8), good = ended(0);

	bad.pids_refused = good.pids_refused = 4;
	expect(&bad, "failed", "pids", 1, "4 new processes were refused at the limit of 20. Retry with --pids 40");
	expect(&good, "succeeded", "exit", 0, "Succeeded");
}

static void a_full_disk_explains_a_failure(void **state)
{
	(void)state;
	struct forge_outcome o = ended(1 << 8), x = ended(SIGXFSZ);

	o.disk_peak_bytes = 100 << 20;
	expect(&o, "failed", "disk", 1, "disk limit of 100.00 MiB used up");
	expect(&x, "killed", "disk", 137, "--disk 200M");
}

static void exec_failures_are_126_and_127(void **state)
{
	(void)state;
	struct forge_outcome o = { .is_exec_failure = true };

	forge_fail_errno(&o.start_error, ENOENT, "execute nope");
	expect(&o, "failed", "exec", 127, "nope");
	forge_fail_errno(&o.start_error, EACCES, "execute dir");
	expect(&o, "failed", "exec", 126, "not an executable");
}

static void a_broken_sandbox_is_never_the_programs_fault(void **state)
{
	(void)state;
	struct forge_outcome o = { 0 };
	struct forge_verdict v;

	forge_fail_errno(&o.start_error, EPERM, "mount /usr");
	expect(&o, "failed", "sandbox", 125, "mount /usr: Operation not permitted");
	forge_judge_refused(&o.start_error, &v);
	assert_string_equal(v.status, "rejected");
	assert_int_equal(v.exit_status, 125);
}

static void killed_from_outside_is_lost(void **state)
{
	(void)state;
	struct forge_outcome o = { .has_started = true, .wall_usec = 1 };

	expect(&o, "lost", "host_lost", 137, "outside of forge");
}

/* What a cluster says explains a run that left no status of its own. */
static void a_cluster_explains(void **state)
{
	(void)state;
	struct forge_outcome o = FORGE_OUTCOME_INIT;

	(void)snprintf(o.cluster, sizeof(o.cluster), "Slurm");
	(void)snprintf(o.explanation, sizeof(o.explanation), "Slurm job 7 ended as NODE_FAIL (NodeDown)");
	expect(&o, "lost", "host_lost", 137, "Lost: Slurm job 7 ended as NODE_FAIL (NodeDown), and it left no result.");
	o.stop = FORGE_STOP_PENDING;
	expect(&o, "cancelled", "admission", 125, "Cancelled: Slurm job 7");
	o.stop = FORGE_STOP_CANCEL;
	expect(&o, "cancelled", "cancelled", 130, "while it was queued");
	o.has_started = true;
	o.wall_usec = 1500000;
	expect(&o, "cancelled", "cancelled", 130, "Cancelled: Slurm job 7");
	o.stop = FORGE_STOP_WALL;
	expect(&o, "killed", "wall_time", 124, "Slurm job 7");
	o.stop = FORGE_STOP_MEMORY;
	expect(&o, "killed", "memory", 137, "Slurm job 7");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exit_codes_pass_through),
		cmocka_unit_test(signals_are_128_plus_n),
		cmocka_unit_test(each_limit_has_its_reason),
		cmocka_unit_test(an_oom_kill_counts_without_a_stop),
		cmocka_unit_test(the_memory_verdict_names_the_largest),
		cmocka_unit_test(a_process_limit_is_a_reason_only_of_failure),
		cmocka_unit_test(a_full_disk_explains_a_failure),
		cmocka_unit_test(exec_failures_are_126_and_127),
		cmocka_unit_test(a_broken_sandbox_is_never_the_programs_fault),
		cmocka_unit_test(killed_from_outside_is_lost),
		cmocka_unit_test(a_cluster_explains),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
