/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as text: what is read, what is refused and with which words, and back. */
#include "unit.h"

#include "base/cleanup.h"
#include "base/parse.h"

typedef int parser(const char *s, uint64_t *ret, struct forge_error *err);

struct good {
	const char *text;
	uint64_t value;
};

static void all_good(parser *parse, const struct good *cases, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct forge_error err = UNIT_ERROR_UNTOUCHED;
		uint64_t value = 0;

		if (parse(cases[i].text, &value, &err) != 0)
			fail_msg("'%s' was refused: %s", cases[i].text, err.msg);
		if (value != cases[i].value)
			fail_msg("'%s' is %ju", cases[i].text, (uintmax_t)value);
		assert_untouched(err);
		assert_int_equal(parse(cases[i].text, &value, NULL), 0);
	}
}

/* Each is refused, the value is named and so are the legal forms; ret stays as it was. */
static void all_bad(parser *parse, const char *const *cases, size_t n, const char *forms)
{
	for (size_t i = 0; i < n; i++) {
		struct forge_error err = FORGE_ERROR_INIT;
		uint64_t value = 4242;

		if (parse(cases[i], &value, &err) >= 0)
			fail_msg("'%s' was read as %ju", cases[i], (uintmax_t)value);
		assert_true(value == 4242);
		assert_contains(err.msg, forms);
		if (!strpbrk(cases[i], "\n\t") && strlen(cases[i]) < 60)
			assert_contains(err.msg, cases[i]);
		assert_true(parse(cases[i], &value, NULL) < 0);
	}
}

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define TIB (UINT64_C(1) << 40)
#define PIB (UINT64_C(1) << 50)

static void sizes_are_read(void **state)
{
	static const struct good cases[] = {
		{"1", 1},
		{"512", 512},
		{"512B", 512},
		{"512b", 512},
		{"1K", KIB},
		{"1k", KIB},
		{"1KiB", KIB},
		{"1kib", KIB},
		{"512M", 512 * MIB},
		{"512MiB", 512 * MIB},
		{"2G", 2 * GIB},
		{"2g", 2 * GIB},
		{"2gb", 2ULL << 30},
		{"2GiB", 2 * GIB},
		{"2GIB", 2 * GIB},
		{"1.5G", 3 * GIB / 2},
		{"1.50G", 3 * GIB / 2},
		{"0.5K", 512},
		{"0.001K", 1},
		{"3T", 3 * TIB},
		{"3TiB", 3 * TIB},
		{"1P", PIB},
		{"1PiB", PIB},
		{"0.3G", 322122547},
		{"1.0000000000000000000000000000000000000000G", GIB},
		{"16383P", 16383 * PIB},
		{"16383.5P", 16383 * PIB + PIB / 2},
		{"18446744073709551614", UINT64_MAX - 1},
		{"9223372036854775808", UINT64_C(1) << 63},
		{"unlimited", FORGE_UNLIMITED},
	};
	(void)state;
	all_good(forge_parse_size, cases, FORGE_ARRAY_SIZE(cases));
}

static void wrong_sizes_are_refused(void **state)
{
	static const char *const cases[] = {
		"",
		" ",
		"0",
		"00",
		"0G",
		"0.0G",
		"0B",
		"-1",
		"-2G",
		"+2G",
		" 2G",
		"2G ",
		"2 G",
		"2\n",
		"\t2",
		"2X",
		"G",
		".5G",
		"5.",
		"5.G",
		"1.5",
		"1.5B",
		"2Gi",
		"2E",
		"2EiB",
		"1e3",
		"0x10",
		"010",
		"nan",
		"inf",
		"1,5G",
		"1.5.5G",
		"Unlimited",
		"unlimited ",
		"unlimite",
		"2GG",
		"2G2",
		"18446744073709551615",
		"18446744073709551616",
		"99999999999999999999999",
		"16777216T",
		"16384P",
		"18014398509481984K",
		"0.0001K",
		"16383.9999999999999999999999P", /* would be the number of "unlimited" */
		"\xc3\xa9",
		"\xd9\xa1",
	};
	(void)state;
	all_bad(forge_parse_size, cases, FORGE_ARRAY_SIZE(cases),
		"(write 512M, 2G, 2GiB or unlimited)");
}

static void size_messages_are_exact(void **state)
{
	struct forge_error err = FORGE_ERROR_INIT;
	uint64_t n;

	(void)state;
	assert_int_equal(forge_parse_size("2X", &n, &err), -EINVAL);
	assert_string_equal(err.msg,
			    "'2X' is not a size (write 512M, 2G, 2GiB or unlimited)");
	assert_int_equal(forge_parse_size("16777216T", &n, &err), -ERANGE);
	assert_string_equal(err.msg,
			    "'16777216T' is too large for a size (write 512M, 2G, "
			    "2GiB or unlimited)");
	assert_int_equal(forge_parse_size("0", &n, &err), -EINVAL);
	assert_string_equal(err.msg,
			    "'0' is not a size: the least is 1 byte (write 512M, "
			    "2G, 2GiB or unlimited)");
}

static void long_and_binary_values_stay_readable(void **state)
{
	struct forge_error err = FORGE_ERROR_INIT;
	char text[4096];
	uint64_t n;

	(void)state;
	memset(text, '7', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(forge_parse_size(text, &n, &err), -ERANGE);
	assert_contains(err.msg, "7...' is too large for a size (write 512M");
	assert_int_equal(forge_parse_size("\033[2J", &n, &err), -EINVAL);
	assert_contains(err.msg, "'?[2J' is not a size");
}

#define SEC UINT64_C(1000000)

static void durations_are_read(void **state)
{
	static const struct good cases[] = {
		{"1", SEC},
		{"90", 90 * SEC},
		{"90s", 90 * SEC},
		{"250ms", SEC / 4},
		{"0.001ms", 1},
		{"0.5", SEC / 2},
		{"1.5s", 3 * SEC / 2},
		{"30m", 1800 * SEC},
		{"30min", 1800 * SEC},
		{"2hours", 7200 * SEC},
		{"1:30:00", 5400 * SEC},
		{"2-12:00:01", 216001 * SEC},
		{"2h", 7200 * SEC},
		{"1.5h", 5400 * SEC},
		{"1d", 86400 * SEC},
		{"18446744073709.551614s", UINT64_MAX - 1},
		{"213503982d", UINT64_C(213503982) * 86400 * SEC},
		{"unlimited", FORGE_UNLIMITED},
	};
	(void)state;
	all_good(forge_parse_duration, cases, FORGE_ARRAY_SIZE(cases));
}

static void wrong_durations_are_refused(void **state)
{
	static const char *const cases[] = {
		"",	      "0",
		"0s",	      "0ms",
		"0.0001ms",   "-1s",
		"+1s",	      " 1s",
		"1s ",	      "1 s",
		"1S",	      "30M",
		"1H",	      "2weeks",
		"1w",	      "1y",
		"1us",	      "1h30m",
		"1:30",	      "90:00",
		"1:60:00",    "1:2:3:4",
		"1:00:60",    "1:0:00",
		"1-1:00",     "0:00:00",
		"1e3",	      ":30:00",
		"nan",	      "0x1s",
		"01s",	      ".5s",
		"1.s",	      "18446744073709.551615s",
		"213503983d", "99999999999999999999d",
	};
	(void)state;
	all_bad(forge_parse_duration, cases, FORGE_ARRAY_SIZE(cases),
		"(write 250ms, 90s, 30m, 2h, 1:30:00, 1d or unlimited)");
}

static void counts(void **state)
{
	static const struct good good[] = {
		{"1", 1},
		{"1024", 1024},
		{"18446744073709551614", UINT64_MAX - 1},
		{"unlimited", FORGE_UNLIMITED},
	};
	static const char *const bad[] = {
		"",
		"0",
		"-1",
		"+1",
		" 1",
		"1 ",
		"1.5",
		"1.0",
		"1K",
		"four",
		"0x1",
		"1e3",
		"01",
		"18446744073709551615",
		"18446744073709551616",
	};
	(void)state;
	all_good(forge_parse_count, good, FORGE_ARRAY_SIZE(good));
	all_bad(forge_parse_count, bad, FORGE_ARRAY_SIZE(bad), "whole number");
}

static void cpus(void **state)
{
	static const struct good good[] = {
		{"1", 1000},	 {"0.5", 500},
		{"2.25", 2250},	 {"0.01", 10},
		{"0.125", 125},	 {"64", 64000},
		{"1.000", 1000}, {"18446744073709551.614", UINT64_MAX - 1},
	};
	static const char *const bad[] = {
		"",
		"0",
		"0.0",
		"0.009",
		"0.001",
		"-1",
		"+1",
		"1.",
		".5",
		"1.0000",
		"1.2345",
		"2c",
		"1m",
		"1e1",
		"nan",
		"unlimited",
		"18446744073709551.615",
		"18446744073709552",
		"01",
	};
	(void)state;
	all_good(forge_parse_cpus, good, FORGE_ARRAY_SIZE(good));
	all_bad(forge_parse_cpus, bad, FORGE_ARRAY_SIZE(bad), "(write 1, 0.5 or 2.25)");
}

static void ids(void **state)
{
	static const char *const good[] = {
		"a",
		"A1",
		"0",
		"a.b",
		"a-b_c.d",
		"x.",
		"x-",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	};
	static const char *const bad[] = {
		"",
		".",
		"..",
		"a..b",
		"-a",
		"_a",
		".a",
		"a/b",
		"a b",
		"a\n",
		"/",
		"\xc3\xa9",
		"{id}",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	};
	struct forge_error err = UNIT_ERROR_UNTOUCHED;

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(good); i++)
		assert_int_equal(forge_parse_id(good[i], &err), 0);
	assert_untouched(err);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(bad); i++) {
		if (forge_parse_id(bad[i], &err) != -EINVAL)
			fail_msg("'%s' is no id", bad[i]);
		assert_contains(err.msg, "is not an id (write 1 to 64 letters");
	}
}

static void env_names(void **state)
{
	static const char *const good[] = {"A", "_", "PATH", "a1_B"};
	static const char *const bad[] = {"", "1A", "A-B", "A=B", "A B", "\xc3\xa9"};
	struct forge_error err = UNIT_ERROR_UNTOUCHED;

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(good); i++)
		assert_int_equal(forge_parse_env_name(good[i], strlen(good[i]), &err), 0);
	assert_int_equal(forge_parse_env_name("AB=c", 2, &err), 0);
	assert_untouched(err);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(bad); i++) {
		assert_int_equal(forge_parse_env_name(bad[i], strlen(bad[i]), &err),
				 -EINVAL);
		assert_contains(err.msg, "is not the name of an environment variable");
	}
	assert_int_equal(forge_parse_env_name("A\0B", 3, NULL), -EINVAL);
}

static void sizes_are_written(void **state)
{
	char buf[FORGE_FORMAT_MAX];

	(void)state;
	assert_string_equal(forge_format_size(buf, 0), "0 B");
	assert_string_equal(forge_format_size(buf, 512), "512 B");
	assert_string_equal(forge_format_size(buf, 1024), "1.00 KiB");
	assert_string_equal(forge_format_size(buf, 1536), "1.50 KiB");
	assert_string_equal(forge_format_size(buf, 2 * GIB), "2.00 GiB");
	assert_string_equal(forge_format_size(buf, 2 * GIB - 1), "2.00 GiB");
	assert_string_equal(forge_format_size(buf, GIB - 1), "1.00 GiB");
	assert_string_equal(forge_format_size(buf, 1023 * MIB), "1023.00 MiB");
	assert_string_equal(forge_format_size(buf, 5 * PIB), "5.00 PiB");
	assert_string_equal(forge_format_size(buf, UINT64_MAX - 1), "16384.00 PiB");
	assert_string_equal(forge_format_size(buf, FORGE_UNLIMITED), "unlimited");
}

static void durations_are_written(void **state)
{
	char buf[FORGE_FORMAT_MAX];

	(void)state;
	assert_string_equal(forge_format_duration(buf, 0), "0 s");
	assert_string_equal(forge_format_duration(buf, 7), "7 us");
	assert_string_equal(forge_format_duration(buf, 250000), "250 ms");
	assert_string_equal(forge_format_duration(buf, SEC - 1), "999 ms");
	assert_string_equal(forge_format_duration(buf, 41 * SEC), "41 s");
	assert_string_equal(forge_format_duration(buf, 1250000), "1.25 s");
	assert_string_equal(forge_format_duration(buf, 1500000), "1.5 s");
	assert_string_equal(forge_format_duration(buf, 10 * SEC), "10 s");
	assert_string_equal(forge_format_duration(buf, 60 * SEC - 1), "59.99 s");
	assert_string_equal(forge_format_duration(buf, 90 * SEC), "1 min 30 s");
	assert_string_equal(forge_format_duration(buf, 1800 * SEC), "30 min");
	assert_string_equal(forge_format_duration(buf, 7500 * SEC), "2 h 5 min");
	assert_string_equal(forge_format_duration(buf, 86400 * SEC), "1 d");
	assert_string_equal(forge_format_duration(buf, 93600 * SEC), "1 d 2 h");
	assert_string_equal(forge_format_duration(buf, UINT64_MAX - 1),
			    "213503982 d 8 h");
	assert_string_equal(forge_format_duration(buf, FORGE_UNLIMITED), "unlimited");
}

static void cpus_are_written(void **state)
{
	char buf[FORGE_FORMAT_MAX];

	(void)state;
	assert_string_equal(forge_format_cpus(buf, 1000), "1");
	assert_string_equal(forge_format_cpus(buf, 500), "0.5");
	assert_string_equal(forge_format_cpus(buf, 2250), "2.25");
	assert_string_equal(forge_format_cpus(buf, 10000), "10");
	assert_string_equal(forge_format_cpus(buf, 10), "0.01");
	assert_string_equal(forge_format_cpus(buf, UINT64_MAX - 1),
			    "18446744073709551.614");
}

static void arguments_are_short(void **state)
{
	char buf[FORGE_FORMAT_MAX];

	(void)state;
	assert_string_equal(forge_format_size_arg(buf, 4 * GIB), "4G");
	assert_string_equal(forge_format_size_arg(buf, 3 * GIB / 2), "1.5G");
	assert_string_equal(forge_format_size_arg(buf, 4 * GIB + 1), "4.1G");
	assert_string_equal(forge_format_size_arg(buf, 100 * MIB), "100M");
	assert_string_equal(forge_format_size_arg(buf, 512), "512");
	assert_string_equal(forge_format_size_arg(buf, 0), "1");
	assert_string_equal(forge_format_size_arg(buf, FORGE_UNLIMITED), "unlimited");
	assert_string_equal(forge_format_duration_arg(buf, 3600 * SEC), "1h");
	assert_string_equal(forge_format_duration_arg(buf, 5400 * SEC), "90m");
	assert_string_equal(forge_format_duration_arg(buf, 61 * SEC), "61s");
	assert_string_equal(forge_format_duration_arg(buf, 86400 * SEC), "1d");
	assert_string_equal(forge_format_duration_arg(buf, 1250000), "1.3s");
	assert_string_equal(forge_format_duration_arg(buf, 250000), "250ms");
	assert_string_equal(forge_format_duration_arg(buf, 0), "1ms");
	assert_string_equal(forge_format_duration_arg(buf, FORGE_UNLIMITED), "unlimited");
}

/* Around every power of two: reading an argument back never gives less. */
static void arguments_read_back_as_at_least_as_much(void **state)
{
	char buf[FORGE_FORMAT_MAX];

	(void)state;
	for (unsigned bit = 0; bit < 64; bit++) {
		for (int off = -3; off <= 3; off++) {
			uint64_t want = (UINT64_C(1) << bit) + (uint64_t)off, got = 0;

			forge_format_size_arg(buf, want);
			assert_int_equal(forge_parse_size(buf, &got, NULL), 0);
			assert_true(got >= want);
			forge_format_duration_arg(buf, want);
			assert_int_equal(forge_parse_duration(buf, &got, NULL), 0);
			assert_true(got >= want);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_read),
		cmocka_unit_test(wrong_sizes_are_refused),
		cmocka_unit_test(size_messages_are_exact),
		cmocka_unit_test(long_and_binary_values_stay_readable),
		cmocka_unit_test(durations_are_read),
		cmocka_unit_test(wrong_durations_are_refused),
		cmocka_unit_test(counts),
		cmocka_unit_test(cpus),
		cmocka_unit_test(ids),
		cmocka_unit_test(env_names),
		cmocka_unit_test(sizes_are_written),
		cmocka_unit_test(durations_are_written),
		cmocka_unit_test(cpus_are_written),
		cmocka_unit_test(arguments_are_short),
		cmocka_unit_test(arguments_read_back_as_at_least_as_much),
	};

	return cmocka_run_group_tests_name("parse", tests, NULL, NULL);
}
