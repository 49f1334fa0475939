/* SPDX-License-Identifier: Apache-2.0 */
/* Which runs are tried again, and with what: the rules as text, and the decision. */
#include "unit.h"

#include <string.h>

#include "config/config.h"
#include "record/retry.h"

#define MIB (1ull << 20)
#define SEC 1000000ull

static const struct forge_limits had = {
	.memory_bytes = 100 * MIB, .cpus_milli = 1000, .pids = 20, .wall_usec = 10 * SEC,
	.cpu_usec = FORGE_UNLIMITED, .disk_bytes = 50 * MIB, .inodes = 1000,
	.output_bytes = MIB, .open_files = 64, .grace_usec = SEC,
};
static const struct forge_limits no_bound;

static struct forge_retry_chain chain_of(const char *rules)
{
	struct forge_retry_chain c = { .attempt = 1 };
	char copy[200], *rest = copy;

	(void)snprintf(copy, sizeof(copy), "%s", rules);
	for (char *word; (word = strsep(&rest, " "));)
		assert_int_equal(forge_retry_parse(word, &c.policy, NULL), 0);
	return c;
}

static struct forge_retry_choice choose(const struct forge_retry_chain *chain, const char *reason)
{
	struct forge_retry_case c = { .status = "killed", .reason = reason, .chain = chain,
				      .limits = &had, .most = &no_bound };
	struct forge_retry_choice choice;

	forge_retry_choose(&c, &choice);
	return choice;
}

static void rules_are_read_and_written(void **state)
{
	static const char *const texts[] = {
		"host_lost=2", "memory=2,factor=2,max=64G", "memory=1,factor=1.5", "exit=1",
		"wall_time=3,factor=2,max=2h", "pids=1,factor=3,max=400", "signal=100",
		"disk=1,factor=100", "cpu_time=1,factor=1", "output=2,factor=2,max=1M",
	};
	char buf[FORGE_RETRY_TEXT_MAX];

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(texts); i++) {
		struct forge_retry_policy p = { 0 };
		struct forge_error err = UNIT_ERROR_UNTOUCHED;
		char name[32];

		assert_int_equal(forge_retry_parse(texts[i], &p, &err), 0);
		assert_untouched(err);
		(void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(texts[i], "="), texts[i]);
		int at = forge_retry_find(name);
		assert_string_equal(forge_retry_format(buf, (enum forge_retry_reason)at,
						       &p.rules[at]),
				    texts[i]);
		assert_false(forge_retry_is_empty(&p));
		assert_int_equal(forge_retry_parse("none", &p, NULL), 0);
		assert_true(forge_retry_is_empty(&p));
	}
}

static void bad_rules_are_refused_and_change_nothing(void **state)
{
	static const struct {
		const char *text, *why;
	} bad[] = {
		{ "", "unknown reason ''" },
		{ "memory", "does not say how often" },
		{ "memory=", "is not a whole number" },
		{ "memory=-1", "is not a whole number" },
		{ "memory=1,", "is neither factor=F nor max=V" },
		{ "memory=1,factor", "is neither factor=F nor max=V" },
		{ "memory=1,factor=", "is not a number from 1 to 100" },
		{ "memory=1,factor=101", "is not a number from 1 to 100" },
		{ "memory=1,factor=unlimited", "is not a number from 1 to 100" },
		{ "memory=1,max=0", "'0'" },
		{ "memory=1,max=10s", "'10s'" },
		{ "wall_time=1,max=10G", "'10G'" },
		{ "exit=1,max=3", "no limit belongs to exit" },
		{ "runtime=1", "another attempt does not cure 'runtime'" },
		{ "mem=1", "unknown reason 'mem'" },
	};

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(bad); i++) {
		struct forge_retry_policy p = { 0 };
		struct forge_error err = FORGE_ERROR_INIT;

		assert_true(forge_retry_parse(bad[i].text, &p, &err) < 0);
		assert_contains(err.msg, bad[i].why);
		assert_true(forge_retry_is_empty(&p));
	}
}

static void a_limit_grows_by_its_factor_up_to_its_max(void **state)
{
	static const struct {
		const char *rule, *reason;
		uint64_t want; /* 0: not retried */
	} cases[] = {
		{ "memory=1", "memory", 200 * MIB },
		{ "memory=1,factor=1.5", "memory", 150 * MIB },
		{ "memory=1,max=120M", "memory", 120 * MIB },
		{ "memory=1,max=100M", "memory", 0 },
		{ "memory=1,max=10M", "memory", 0 },
		{ "memory=1,factor=1", "memory", 100 * MIB },
		{ "memory=1", "disk", 0 },
		{ "disk=1", "memory", 0 },
		{ "host_lost=1", "host_lost", 100 * MIB },
	};

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(cases); i++) {
		struct forge_retry_chain chain = chain_of(cases[i].rule);
		struct forge_retry_choice c = choose(&chain, cases[i].reason);

		assert_int_equal(c.is_retried, cases[i].want != 0);
		if (cases[i].want)
			assert_true(c.limits.memory_bytes == cases[i].want);
		/* Nothing else changes. */
		c.limits.memory_bytes = had.memory_bytes;
		assert_memory_equal(&c.limits, &had, sizeof(had));
	}
}

static void each_reason_raises_its_own_limit(void **state)
{
	struct forge_retry_chain chain =
		chain_of("wall_time=1 disk=1 output=1 pids=1 cpu_time=1");

	(void)state;
	assert_true(choose(&chain, "wall_time").limits.wall_usec == 20 * SEC);
	assert_true(choose(&chain, "disk").limits.disk_bytes == 100 * MIB);
	assert_true(choose(&chain, "output").limits.output_bytes == 2 * MIB);
	assert_true(choose(&chain, "pids").limits.pids == 40);
	/* There is nothing above unlimited. */
	assert_true(choose(&chain, "cpu_time").is_retried);
	assert_true(choose(&chain, "cpu_time").limits.cpu_usec == FORGE_UNLIMITED);
	/* Files in the workdir are a limit of their own; max is one of bytes. */
	struct forge_retry_chain disk = chain_of("disk=1,max=60M");
	struct forge_retry_case c = { .status = "killed", .reason = "disk", .chain = &disk,
				      .limits = &had, .most = &no_bound, .is_inodes = true };
	struct forge_retry_choice choice;
	forge_retry_choose(&c, &choice);
	assert_true(choice.limits.inodes == 2000);
	assert_true(choice.limits.disk_bytes == had.disk_bytes);
}

static void the_host_has_the_last_word(void **state)
{
	struct forge_retry_chain chain = chain_of("memory=3,max=150M wall_time=3");
	struct forge_limits most = { .memory_bytes = 120 * MIB };
	struct forge_retry_case c = { .status = "killed", .reason = "memory", .chain = &chain,
				      .limits = &had, .most = &most };
	struct forge_retry_choice choice;
	char with[FORGE_RETRY_WITH_MAX];

	(void)state;
	forge_retry_choose(&c, &choice);
	assert_true(choice.is_retried);
	assert_true(choice.limits.memory_bytes == 120 * MIB);
	assert_string_equal(forge_retry_describe(with, choice.raised, &choice.limits),
			    "--memory 120M");
	most.memory_bytes = 100 * MIB;
	forge_retry_choose(&c, &choice);
	assert_false(choice.is_retried);
	assert_string_equal(choice.why_not, "memory cannot be raised above 100.00 MiB, the most "
					    "that this host allows");
	/* More would not help. */
	most.memory_bytes = 0;
	c.is_hopeless = true;
	forge_retry_choose(&c, &choice);
	assert_false(choice.is_retried);
	assert_string_equal(choice.why_not, "more of the limit would not help");
	/* Or it was not this run's: it is tried with what it had. */
	c.is_hopeless = false;
	c.is_host_full = true;
	forge_retry_choose(&c, &choice);
	assert_true(choice.is_retried);
	assert_memory_equal(&choice.limits, &had, sizeof(had));
	assert_string_equal(forge_retry_describe(with, choice.raised, &choice.limits), "");
}

static void each_reason_has_its_own_count(void **state)
{
	struct forge_retry_chain chain = chain_of("memory=2 exit=1");

	(void)state;
	assert_int_equal(forge_retry_attempts_max(&chain.policy), 4);
	chain.used[FORGE_RETRY_EXIT] = 1;
	assert_true(choose(&chain, "memory").is_retried);
	assert_false(choose(&chain, "exit").is_retried);
	assert_string_equal(choose(&chain, "exit").why_not, "exit had its 1 retry");
	chain.used[FORGE_RETRY_MEMORY] = 2;
	assert_false(choose(&chain, "memory").is_retried);
	assert_string_equal(choose(&chain, "memory").why_not, "memory had its 2 retries");
}

static void what_is_not_asked_for_is_not_retried(void **state)
{
	struct forge_retry_chain none = chain_of("none"), all = chain_of("exit=3");
	struct forge_retry_case c = { .status = "succeeded", .reason = "exit", .chain = &all,
				      .limits = &had, .most = &no_bound };
	struct forge_retry_choice choice;

	(void)state;
	for (int i = 0; i < FORGE_RETRY_COUNT; i++) {
		assert_false(choose(&none, forge_retry_names[i]).is_retried);
		assert_string_equal(choose(&none, forge_retry_names[i]).why_not, "");
	}
	forge_retry_choose(&c, &choice);
	assert_false(choice.is_retried);
	c.status = "failed";
	forge_retry_choose(&c, &choice);
	assert_true(choice.is_retried);
	c.status = c.reason = "cancelled";
	forge_retry_choose(&c, &choice);
	assert_false(choice.is_retried);
}

static void a_limit_beyond_all_numbers_does_not_wrap(void **state)
{
	struct forge_retry_chain chain = chain_of("memory=1,factor=100");
	struct forge_limits big = had;
	struct forge_retry_case c = { .status = "killed", .reason = "memory", .chain = &chain,
				      .limits = &big, .most = &no_bound };
	struct forge_retry_choice choice;

	(void)state;
	big.memory_bytes = UINT64_MAX / 4;
	forge_retry_choose(&c, &choice);
	assert_true(choice.is_retried);
	assert_true(choice.limits.memory_bytes > big.memory_bytes);
	assert_true(choice.limits.memory_bytes != FORGE_UNLIMITED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rules_are_read_and_written),
		cmocka_unit_test(bad_rules_are_refused_and_change_nothing),
		cmocka_unit_test(a_limit_grows_by_its_factor_up_to_its_max),
		cmocka_unit_test(each_reason_raises_its_own_limit),
		cmocka_unit_test(the_host_has_the_last_word),
		cmocka_unit_test(each_reason_has_its_own_count),
		cmocka_unit_test(what_is_not_asked_for_is_not_retried),
		cmocka_unit_test(a_limit_beyond_all_numbers_does_not_wrap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
