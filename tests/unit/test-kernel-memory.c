/* SPDX-License-Identifier: Apache-2.0 */
/* What moments in which a run stands, and moves, say about kernel memory that grew. */
#include "unit.h"

#include "sandbox/kernel_memory.h"
#include "sandbox/kernel_numbers.h"

#define MIB (1LL << 20)

/* Pairs of what it grew by while the run stood and while it moved, in MiB. */
static enum forge_memory_opinion judge(bool is_slow, const int (*rounds)[2], size_t n)
{
	const uint64_t usec = is_slow ? 50000 : 4000;
	struct forge_memory_trial t = { .is_slow = is_slow };

	for (size_t i = 0; i < n; i++)
		forge_memory_note(&t, rounds[i][0] * MIB, usec, rounds[i][1] * MIB, usec);
	return forge_memory_judge(&t);
}
#define FAST(...) judge(false, (const int[][2])__VA_ARGS__, sizeof((int[][2])__VA_ARGS__) / sizeof(int[2]))
#define SLOW(...) judge(true, (const int[][2])__VA_ARGS__, sizeof((int[][2])__VA_ARGS__) / sizeof(int[2]))

static void growth_while_it_moves_is_its_own(void **state)
{
	(void)state;
	assert_int_equal(FAST({ { 0, 8 }, { 0, 8 }, { 0, 8 } }), FORGE_MEMORY_CAUSED);
	assert_int_equal(FAST({ { 1, 8 }, { 0, 4 }, { 1, 8 } }), FORGE_MEMORY_CAUSED);
	assert_int_equal(SLOW({ { 0, 4 }, { 0, 4 }, { 0, 4 } }), FORGE_MEMORY_CAUSED);
	assert_int_equal(SLOW({ { 0, 4 }, { 0, 4 } }), FORGE_MEMORY_UNCLEAR);
	/* Others giving back memory meanwhile change nothing. */
	assert_int_equal(FAST({ { -5, 8 }, { -2, 8 }, { 0, 8 } }), FORGE_MEMORY_CAUSED);
}

static void growth_while_it_stands_is_not(void **state)
{
	(void)state;
	assert_int_equal(FAST({ { 8, 8 }, { 8, 8 } }), FORGE_MEMORY_NOT_CAUSED);
	assert_int_equal(FAST({ { 20, 0 } }), FORGE_MEMORY_NOT_CAUSED);
	assert_int_equal(SLOW({ { 2, 1 }, { 1, 2 }, { 1, 2 }, { 0, 0 }, { 0, 0 } }), FORGE_MEMORY_NOT_CAUSED);
}

static void chance_says_nothing(void **state)
{
	(void)state;
	assert_int_equal(FAST({ { 0, 0 } }), FORGE_MEMORY_UNCLEAR);
	/* Somebody else may have begun in that moment, and in that one. */
	assert_int_equal(FAST({ { 0, 40 } }), FORGE_MEMORY_UNCLEAR);
	assert_int_equal(FAST({ { 0, 7 }, { 4, 8 }, { 0, 7 } }), FORGE_MEMORY_UNCLEAR);
	assert_int_equal(SLOW({ { 0, 9 }, { 1, 1 } }), FORGE_MEMORY_UNCLEAR);
	/* Twice so much is no chance. */
	assert_int_equal(FAST({ { 0, 20 }, { 0, 20 } }), FORGE_MEMORY_CAUSED);
	assert_int_equal(SLOW({ { 0, 1 }, { 0, 1 }, { 0, 1 } }), FORGE_MEMORY_UNCLEAR);
	/* Neither more than half nor less than a quarter. */
	assert_int_equal(FAST({ { 4, 10 }, { 4, 10 } }), FORGE_MEMORY_UNCLEAR);
}

/* From nothing to a reading in MiB. */
static int64_t growth(bool is_split, int64_t rough, int64_t reclaimable, int64_t charged)
{
	const struct forge_kernel_reading then = { .is_split = is_split };
	const struct forge_kernel_reading now = { .rough = rough * MIB,
						  .reclaimable = reclaimable * MIB,
						  .charged = charged * MIB,
						  .is_split = is_split };
	return forge_kernel_growth(&then, &now) / MIB;
}

static void what_is_charged_is_no_growth(void **state)
{
	(void)state;
	/* v2 tells both kinds of slabs apart. */
	assert_int_equal(growth(true, 50, 0, 50), 0);
	assert_int_equal(growth(true, 50, 300, 0), 50);
	assert_int_equal(growth(true, 50, -300, 20), 30);
	/* v1 does not: many files are made, and deleted, and only the slabs change. */
	assert_int_equal(growth(false, 0, 300, 300), 0);
	assert_int_equal(growth(false, 0, -300, -300), 0);
	/* Half of them are deleted: the slabs stay, with holes. */
	assert_int_equal(growth(false, 0, 0, -150), 0);
	/* Nothing hides behind files that are charged. */
	assert_int_equal(growth(false, 80, 300, 300), 80);
	assert_int_equal(growth(false, 80, 300, 320), 60);
	assert_int_equal(growth(false, 40, -100, -60), 40);
	/* Page tables, stacks, queues of sockets: charged, and of no other kind. */
	assert_int_equal(growth(false, 60, 0, 60), 0);
	assert_int_equal(growth(false, -60, 0, -60), 0);
	assert_int_equal(growth(false, -100, 0, -60), -40);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(growth_while_it_moves_is_its_own),
		cmocka_unit_test(growth_while_it_stands_is_not),
		cmocka_unit_test(chance_says_nothing),
		cmocka_unit_test(what_is_charged_is_no_growth),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
