/* SPDX-License-Identifier: Apache-2.0 */
/* The option parser: what words mean, what is left for the command, and what a refusal says. */
#include "unit.h"

#include <stdbool.h>

#include "base/cleanup.h"
#include "cli/opt.h"

static bool quiet, keep;
static unsigned count;
static const char *memory, *network, *file;
static struct forge_strv inputs;

static const struct forge_opt opts[] = {
	FORGE_GROUP("Flags"),
	FORGE_FLAG('q', "quiet", &quiet, "Say nothing"),
	FORGE_FLAG('k', "keep", &keep, "Keep the workdir"),
	FORGE_GROUP("Values"),
	FORGE_UINT('n', "limit", "N", &count, "Show at most N"),
	FORGE_STRING(0, "memory", "SIZE", &memory, "Memory that it may have"),
	FORGE_STRING('f', "file", "FILE", &file, "Read this file"),
	FORGE_WORD(0, "network", "none|host", &network, "Its network"),
	FORGE_STRV('i', "input", "PATH", &inputs, "A file that it reads"),
	FORGE_OPTS_END,
};

static int forget(void **state)
{
	(void)state;
	quiet = keep = false;
	count = 0;
	memory = network = file = NULL;
	forge_strv_done(&inputs);
	inputs = (struct forge_strv){ 0 };
	return 0;
}

#define WORDS_MAX 16
static char *words[WORDS_MAX + 1];

/* argv of "forge run" and these words, which end with NULL. */
static int fill(const char *const *given)
{
	int argc = 1;

	words[0] = (char *)"run";
	while (given[argc - 1] && argc < WORDS_MAX) {
		words[argc] = (char *)given[argc - 1];
		argc++;
	}
	words[argc] = NULL;
	return argc;
}

typedef int parser(const struct forge_opt *table, int argc, char **argv,
		   struct forge_error *err);

static int parsed(parser *parse, const char *const *given)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;

	(void)forget(NULL);
	int rc = parse(opts, fill(given), words, &err);
	if (rc < 0)
		fail_msg("refused: %s", err.msg);
	assert_untouched(err);
	return rc;
}
#define PARSED(...) parsed(forge_opt_parse, (const char *const[]){ __VA_ARGS__, NULL })
#define PERMUTED(...)                                                                    \
	parsed(forge_opt_permute, (const char *const[]){ __VA_ARGS__, NULL })

/* Both parsers refuse it, with this code and exactly these words. */
static void refused(int code, const char *message, const char *const *given)
{
	parser *const parsers[] = { forge_opt_parse, forge_opt_permute };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(parsers); i++) {
		struct forge_error err = FORGE_ERROR_INIT;

		(void)forget(NULL);
		assert_int_equal(parsers[i](opts, fill(given), words, &err), -code);
		assert_int_equal(err.code, code);
		assert_string_equal(err.msg, message);
		(void)forget(NULL);
		assert_int_equal(parsers[i](opts, fill(given), words, NULL), -code);
	}
}
#define REFUSED(code, message, ...)                                                      \
	refused((code), (message), (const char *const[]){ __VA_ARGS__, NULL })

static void nothing_is_given(void **state)
{
	(void)state;
	assert_int_equal(parsed(forge_opt_parse, (const char *const[]){ NULL }), 1);
	assert_int_equal(parsed(forge_opt_permute, (const char *const[]){ NULL }), 1);
	assert_false(quiet);
	assert_null(memory);
}

static void flags_are_set(void **state)
{
	(void)state;
	assert_int_equal(PARSED("-q"), 2);
	assert_true(quiet && !keep);
	assert_int_equal(PARSED("--keep"), 2);
	assert_true(keep && !quiet);
	REFUSED(EINVAL, "option '--quiet' takes no value", "--quiet=yes");
	REFUSED(EINVAL, "option '--quiet' takes no value", "--quiet=");
}

static void values_stand_in_the_same_or_the_next_word(void **state)
{
	(void)state;
	assert_int_equal(PARSED("--memory", "2G", "x"), 3);
	assert_string_equal(memory, "2G");
	assert_int_equal(PARSED("--memory=2G", "x"), 2);
	assert_string_equal(memory, "2G");
	assert_int_equal(PARSED("--memory=", "x"), 2);
	assert_string_equal(memory, "");
	assert_int_equal(PARSED("--memory=a=b"), 2);
	assert_string_equal(memory, "a=b");
	assert_int_equal(PARSED("-f", "name"), 3);
	assert_string_equal(file, "name");
	assert_int_equal(PARSED("-fname"), 2);
	assert_string_equal(file, "name");
	/* A value is a value, whatever it looks like. */
	assert_int_equal(PARSED("--memory", "--quiet"), 3);
	assert_string_equal(memory, "--quiet");
	assert_false(quiet);
	assert_int_equal(PARSED("-f", "--"), 3);
	assert_string_equal(file, "--");
}

static void numbers_are_whole_and_in_range(void **state)
{
	(void)state;
	assert_int_equal(PARSED("--limit", "12"), 3);
	assert_int_equal(count, 12);
	assert_int_equal(PARSED("-n0"), 2);
	assert_int_equal(count, 0);
	assert_int_equal(PARSED("--limit=4294967295"), 2);
	assert_true(count == UINT32_MAX);
	REFUSED(EDOM, "--limit: 4294967296 is too large", "--limit=4294967296");
	REFUSED(EDOM, "--limit: 99999999999999999999 is too large", "-n",
		"99999999999999999999");
	REFUSED(EDOM, "--limit: 'x' is not a whole number", "-nx");
	REFUSED(EDOM, "--limit: '' is not a whole number", "--limit=");
	REFUSED(EDOM, "--limit: '-1' is not a whole number", "--limit", "-1");
	REFUSED(EDOM, "--limit: '+1' is not a whole number", "--limit", "+1");
	REFUSED(EDOM, "--limit: ' 1' is not a whole number", "--limit", " 1");
	REFUSED(EDOM, "--limit: '1x' is not a whole number", "--limit", "1x");
}

static void words_are_of_the_list(void **state)
{
	(void)state;
	assert_int_equal(PARSED("--network", "host"), 3);
	assert_string_equal(network, "host");
	REFUSED(EDOM, "--network: 'hos' is not one of none|host", "--network=hos");
	REFUSED(EDOM, "--network: 'none|host' is not one of none|host",
		"--network=none|host");
	REFUSED(EDOM, "--network: '' is not one of none|host", "--network=");
}

static void lists_grow(void **state)
{
	(void)state;
	assert_int_equal(PARSED("-i", "a", "--input=b", "-ic", "--input", "d", "x"), 7);
	assert_int_equal(inputs.n, 4);
	assert_string_equal(inputs.v[0], "a");
	assert_string_equal(inputs.v[1], "b");
	assert_string_equal(inputs.v[2], "c");
	assert_string_equal(inputs.v[3], "d");
}

static void other_options_are_given_once(void **state)
{
	(void)state;
	REFUSED(EINVAL, "option '--memory' is given twice", "--memory=1G", "--memory=1G");
	REFUSED(EINVAL, "option '--quiet' is given twice", "-q", "--quiet");
	REFUSED(EINVAL, "option '--quiet' is given twice", "-qq");
	REFUSED(EINVAL, "option '--limit' is given twice", "-n1", "--limit", "2");
}

static void short_options_stand_together(void **state)
{
	(void)state;
	assert_int_equal(PARSED("-qk", "x"), 2);
	assert_true(quiet && keep);
	assert_int_equal(PARSED("-qkn5"), 2);
	assert_true(quiet && keep && count == 5);
	assert_int_equal(PARSED("-qn", "5", "x"), 3);
	assert_true(quiet && count == 5);
	assert_int_equal(PARSED("-ia", "-qib"), 3);
	assert_int_equal(inputs.n, 2);
	assert_string_equal(inputs.v[1], "b");
	REFUSED(EINVAL, "unknown option '-z'", "-qz");
	REFUSED(EINVAL, "unknown option '-z'", "-z");
}

static void values_must_be_there(void **state)
{
	(void)state;
	REFUSED(EINVAL, "option '--memory' needs a value (SIZE)", "--memory");
	REFUSED(EINVAL, "option '--file' needs a value (FILE)", "-f");
	REFUSED(EINVAL, "option '--limit' needs a value (N)", "-qn");
	REFUSED(EINVAL, "option '--input' needs a value (PATH)", "--input=a", "-i");
}

static void unknown_options_name_the_nearest(void **state)
{
	(void)state;
	REFUSED(EINVAL, "unknown option '--memroy' (did you mean --memory?)",
		"--memroy=2G");
	REFUSED(EINVAL, "unknown option '--quite' (did you mean --quiet?)", "--quite");
	REFUSED(EINVAL, "unknown option '--frobnicate'", "--frobnicate");
	REFUSED(EINVAL, "unknown option '--'", "--=x", "y");
	/* Not even a beginning that is unique: tomorrow it may not be. */
	REFUSED(EINVAL, "unknown option '--quie' (did you mean --quiet?)", "--quie");
	/* A long name with one dash. */
	REFUSED(EINVAL, "unknown option '-limti' (did you mean --limit?)", "-limti");
	char text[120] = "--";
	memset(text + 2, 'x', sizeof(text) - 3);
	char message[200];
	(void)snprintf(message, sizeof(message), "unknown option '%s'", text);
	REFUSED(EINVAL, message, text);
}

static void options_of_other_programs_are_known(void **state)
{
	(void)state;
	REFUSED(EINVAL,
		"unknown option '--mem' (here it is --memory SIZE: Memory that it may "
		"have)",
		"--mem=2G");
	REFUSED(EINVAL,
		"unknown option '-m' (here it is --memory SIZE: Memory that it may have)",
		"-m", "2G");
	REFUSED(EINVAL,
		"unknown option '-m' (here it is --memory SIZE: Memory that it may have)",
		"-m2G");
	REFUSED(EINVAL,
		"unknown option '-qm' (here it is --memory SIZE: Memory that it may "
		"have)",
		"-qm", "2G");
	REFUSED(EINVAL,
		"unknown option '-mem' (here it is --memory SIZE: Memory that it may "
		"have)",
		"-mem");
	REFUSED(EINVAL,
		"unknown option '--volume' (here it is --input PATH: A file that it "
		"reads)",
		"--volume", "/a:/b");
	/* Known, but this command has no such option. */
	REFUSED(EINVAL, "unknown option '--walltime'", "--walltime=1h");
	REFUSED(EINVAL, "unknown option '--gpus' (a run sees no GPU yet)", "--gpus=1");
	REFUSED(EINVAL, "unknown option '--gpu' (a run sees no GPU yet)", "--gpu");
}

static void parsing_ends_at_the_first_word(void **state)
{
	(void)state;
	assert_int_equal(PARSED("-q", "script.py", "--keep", "-n"), 2);
	assert_true(quiet && !keep);
	assert_string_equal(words[2], "script.py");
	/* "-" is a word: standard input. */
	assert_int_equal(PARSED("-", "-q"), 1);
	assert_false(quiet);
	assert_int_equal(PARSED("", "-q"), 1);
	assert_false(quiet);
}

static void two_dashes_end_the_options(void **state)
{
	(void)state;
	assert_int_equal(PARSED("-q", "--", "--keep"), 3);
	assert_true(quiet && !keep);
	assert_int_equal(PARSED("--"), 2);
	assert_int_equal(PARSED("--", "--"), 2);
}

static void permuted_options_stand_anywhere(void **state)
{
	(void)state;
	assert_int_equal(PERMUTED("a", "-q", "b", "--memory", "2G", "-", "c", "-n3"), 5);
	assert_true(quiet && count == 3);
	assert_string_equal(memory, "2G");
	assert_string_equal(words[1], "a");
	assert_string_equal(words[2], "b");
	assert_string_equal(words[3], "-");
	assert_string_equal(words[4], "c");
	assert_null(words[5]);
	assert_int_equal(PERMUTED("a", "--", "-q", "--", "b"), 5);
	assert_false(quiet);
	assert_string_equal(words[2], "-q");
	assert_string_equal(words[3], "--");
	assert_string_equal(words[4], "b");
	assert_null(words[5]);
	REFUSED(EINVAL, "unknown option '--frobnicate'", "--quiet", "--frobnicate", "a");
}

static void options_are_found_by_their_words(void **state)
{
	(void)state;
	assert_string_equal(forge_opt_of(opts, "--memory")->name, "memory");
	assert_string_equal(forge_opt_of(opts, "--memory=2G")->name, "memory");
	assert_string_equal(forge_opt_of(opts, "-f")->name, "file");
	assert_string_equal(forge_opt_of(opts, "--quiet")->name, "quiet");
	assert_null(forge_opt_of(opts, "--quiet=yes"));
	assert_null(forge_opt_of(opts, "-fname"));
	assert_null(forge_opt_of(opts, "--mem"));
	assert_null(forge_opt_of(opts, "memory"));
	assert_null(forge_opt_of(opts, "-"));
	assert_null(forge_opt_of(opts, "--"));
	assert_null(forge_opt_of(opts, ""));
}

static void lists_of_words_are_stepped_through(void **state)
{
	const char *list = "a|bcd|e";
	size_t len;

	(void)state;
	assert_memory_equal(forge_word_next(&list, &len), "a", 1);
	assert_int_equal(len, 1);
	assert_memory_equal(forge_word_next(&list, &len), "bcd", 3);
	assert_int_equal(len, 3);
	assert_memory_equal(forge_word_next(&list, &len), "e", 1);
	assert_null(forge_word_next(&list, &len));
	list = NULL;
	assert_null(forge_word_next(&list, &len));
	assert_true(forge_word_is_one("a|bcd", "bcd"));
	assert_false(forge_word_is_one("a|bcd", "bc"));
	assert_false(forge_word_is_one("a|bcd", "a|bcd"));
	assert_false(forge_word_is_one("a|bcd", ""));
}

#define TEST(name) cmocka_unit_test_teardown(name, forget)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nothing_is_given),
		TEST(flags_are_set),
		TEST(values_stand_in_the_same_or_the_next_word),
		TEST(numbers_are_whole_and_in_range),
		TEST(words_are_of_the_list),
		TEST(lists_grow),
		TEST(other_options_are_given_once),
		TEST(short_options_stand_together),
		TEST(values_must_be_there),
		TEST(unknown_options_name_the_nearest),
		TEST(options_of_other_programs_are_known),
		TEST(parsing_ends_at_the_first_word),
		TEST(two_dashes_end_the_options),
		TEST(permuted_options_stand_anywhere),
		TEST(options_are_found_by_their_words),
		TEST(lists_of_words_are_stepped_through),
	};

	return cmocka_run_group_tests_name("opt", tests, NULL, NULL);
}
