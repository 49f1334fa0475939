/* SPDX-License-Identifier: Apache-2.0 */
/* What of a request is text: targets, ranges, hosts, routes, bodies; tokens and tickets; UTF-8 of any bytes. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "scratch.h"
#include "server/body.h"
#include "server/mcp_state.h"
#include "server/target.h"
#include "server/token.h"
#include "server/utf8.h"

static struct forge_target t;

static int parse(const char *raw)
{
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = forge_target_parse(raw, &t, &err);

	assert_int_equal(rc, -err.code);
	return rc;
}

static void a_target_is_decoded_into_parts(void **state)
{
	(void)state;
	assert_int_equal(parse("/api/v1/runs/a%20b?status=killed&x&y=1%2B1+2"), 0);
	assert_int_equal(t.n_segments, 4);
	assert_string_equal(t.segments[3], "a b");
	assert_string_equal(forge_target_get(&t, "status"), "killed");
	assert_null(forge_target_get(&t, "x"));
	assert_null(forge_target_get(&t, "z"));
	assert_false(forge_target_flag(&t, "x"));
	assert_false(forge_target_flag(&t, "z"));
	assert_string_equal(forge_target_get(&t, "y"), "1+1 2");
	assert_int_equal(parse("/"), 0);
	assert_int_equal(t.n_segments, 0);
	assert_int_equal(parse("/a/"), 0);
	assert_int_equal(t.n_segments, 1);
	/* An encoded slash is part of a name and separates nothing. */
	assert_int_equal(parse("/a%2Fb"), 0);
	assert_int_equal(t.n_segments, 1);
	assert_string_equal(t.segments[0], "a/b");
}

static void a_bad_target_is_refused(void **state)
{
	(void)state;
	static char longest[FORGE_TARGET_MAX + 8], deep[64], many[256] = "/?";

	assert_int_equal(parse(""), -EINVAL);
	assert_int_equal(parse("runs"), -EINVAL);
	assert_int_equal(parse("/%"), -EINVAL);
	assert_int_equal(parse("/%4"), -EINVAL);
	assert_int_equal(parse("/%zz"), -EINVAL);
	assert_int_equal(parse("/a%00b"), -EINVAL);
	assert_int_equal(parse("/a\nb"), -EINVAL);
	memset(longest, 'a', sizeof(longest) - 1);
	longest[0] = '/';
	assert_int_equal(parse(longest), -E2BIG);
	longest[FORGE_TARGET_MAX - 2] = '\0';
	assert_int_equal(parse(longest), 0);
	for (size_t i = 0; i < 2 * FORGE_SEGMENTS_MAX + 2; i++)
		deep[i] = i % 2 ? 'a' : '/';
	assert_int_equal(parse(deep), -E2BIG);
	for (size_t i = 0; i <= FORGE_QUERY_MAX; i++)
		memcpy(many + 2 + 4 * i, "a=1&", 4);
	assert_int_equal(parse(many), -E2BIG);
}

static void numbers_of_a_query_have_a_limit(void **state)
{
	uint64_t n = 7;

	(void)state;
	assert_int_equal(
		parse("/?limit=20&big=21&bad=2x&minus=-1&huge=99999999999999999999"), 0);
	assert_int_equal(forge_target_number(&t, "limit", 20, 5, &n, NULL), 0);
	assert_int_equal(n, 20);
	assert_int_equal(forge_target_number(&t, "none", 20, 5, &n, NULL), 0);
	assert_int_equal(n, 5);
	assert_int_equal(forge_target_number(&t, "big", 20, 5, &n, NULL), -EINVAL);
	assert_int_equal(forge_target_number(&t, "bad", 20, 5, &n, NULL), -EINVAL);
	assert_int_equal(forge_target_number(&t, "minus", 20, 5, &n, NULL), -EINVAL);
	assert_int_equal(forge_target_number(&t, "huge", UINT64_MAX, 5, &n, NULL),
			 -EINVAL);
}

/* What forge_target_check() says of a target; "": it is right. */
static const char *refusal(const char *raw, const char *names)
{
	static char said[512];
	struct forge_error err = FORGE_ERROR_INIT;

	assert_int_equal(parse(raw), 0);
	int rc = forge_target_check(&t, names, &err);
	assert_int_equal(rc, -err.code);
	(void)snprintf(said, sizeof(said), "%s", err.msg);
	return said;
}

static void a_parameter_that_a_path_does_not_have_is_refused(void **state)
{
	static const char names[] = "limit after open?";

	(void)state;
	assert_string_equal(refusal("/", names), "");
	assert_string_equal(refusal("/?", names), "");
	assert_string_equal(refusal("/?limit=x&after=&open=1&", names), "");
	assert_string_equal(refusal("/?open=false", names), "");
	assert_string_equal(refusal("/?open", names),
			    "open: '' is none of 0, 1, false, true");
	assert_string_equal(refusal("/?open=maybe", names),
			    "open: 'maybe' is none of 0, 1, false, true");
	assert_string_equal(
		refusal("/?foo=1", names),
		"this path has no parameter 'foo' (have: limit, after, open)");
	assert_string_equal(
		refusal("/?open%3f=1", names),
		"this path has no parameter 'open?' (have: limit, after, open)");
	assert_string_equal(
		refusal("/?lim=1", names),
		"this path has no parameter 'lim' (have: limit, after, open)");
	assert_string_equal(refusal("/?=1", names),
			    "this path has no parameter '' (have: limit, after, open)");
	assert_string_equal(refusal("/?limit=1&limit=2", names), "limit is there twice");
	assert_string_equal(refusal("/?x", ""),
			    "this path has no parameters, and no 'x'");
	assert_int_equal(parse("/?a=true&b=1&c=0&d=yes"), 0);
	assert_true(forge_target_flag(&t, "a"));
	assert_true(forge_target_flag(&t, "b"));
	assert_false(forge_target_flag(&t, "c"));
	assert_false(forge_target_flag(&t, "d"));
}

static void gzip_is_for_those_who_take_it(void **state)
{
	(void)state;
	assert_true(forge_takes_gzip("gzip"));
	assert_true(forge_takes_gzip("br, GZip;q=0.5"));
	assert_true(forge_takes_gzip("deflate,x-gzip"));
	assert_true(forge_takes_gzip("*"));
	assert_true(forge_takes_gzip("identity;q=0.5, *;q=0.001"));
	assert_false(forge_takes_gzip(NULL));
	assert_false(forge_takes_gzip(""));
	assert_false(forge_takes_gzip("identity"));
	assert_false(forge_takes_gzip("gzip;q=0"));
	assert_false(forge_takes_gzip("*, gzip; q=0.000"));
	assert_false(forge_takes_gzip("gzipped, zgzip"));
	assert_false(forge_takes_gzip("*;q=0"));
}

static void check_range(const char *header, uint64_t size, int rc, uint64_t from,
			uint64_t len)
{
	uint64_t got_from = 99, got_len = 99;

	assert_int_equal(forge_range_parse(header, size, &got_from, &got_len), rc);
	if (rc == 1) {
		assert_int_equal(got_from, from);
		assert_int_equal(got_len, len);
	}
}

static void ranges(void **state)
{
	(void)state;
	check_range(NULL, 10, 0, 0, 0);
	check_range("bytes=0-3", 10, 1, 0, 4);
	check_range("bytes=4-", 10, 1, 4, 6);
	check_range("bytes=4-100", 10, 1, 4, 6);
	check_range("bytes=-3", 10, 1, 7, 3);
	check_range("bytes=-30", 10, 1, 0, 10);
	check_range("bytes=10-", 10, -ERANGE, 0, 0);
	check_range("bytes=-0", 10, -ERANGE, 0, 0);
	check_range("bytes=0-", 0, -ERANGE, 0, 0);
	/* What a server may ignore. */
	check_range("bytes=0-1,3-4", 10, 0, 0, 0);
	check_range("lines=0-1", 10, 0, 0, 0);
	check_range("bytes=5-2", 10, 0, 0, 0);
	check_range("bytes=-", 10, 0, 0, 0);
	check_range("bytes=a-b", 10, 0, 0, 0);
	check_range("bytes=99999999999999999999999999-", 10, 0, 0, 0);
	check_range("bytes=0-18446744073709551615", 10, 0, 0, 0);
}

static void only_our_names_are_served(void **state)
{
	static const char *const names[] = { "forge.example.org", "10.0.0.7" };

	(void)state;
	assert_true(forge_host_is_ours("127.0.0.1:8765", NULL, 0));
	assert_true(forge_host_is_ours("localhost", NULL, 0));
	assert_true(forge_host_is_ours("LocalHost:1", NULL, 0));
	assert_true(forge_host_is_ours("[::1]:8765", NULL, 0));
	assert_true(forge_host_is_ours("forge.example.org:443", names, 2));
	assert_true(forge_host_is_ours("10.0.0.7", names, 2));
	assert_false(forge_host_is_ours(NULL, names, 2));
	assert_false(forge_host_is_ours("", names, 2));
	assert_false(forge_host_is_ours("evil.example.org", names, 2));
	assert_false(forge_host_is_ours("localhost.evil.org", NULL, 0));
	assert_false(forge_host_is_ours("127.0.0.1:80:90", NULL, 0));
	assert_false(forge_host_is_ours("127.0.0.1@evil.org", NULL, 0));
	assert_false(forge_host_is_ours("127.0.0.1:evil.org", NULL, 0));
	assert_false(forge_host_is_ours("[::1", NULL, 0));

	assert_true(forge_origin_is_ours(NULL, "localhost:1"));
	assert_true(forge_origin_is_ours("http://localhost:1", "localhost:1"));
	assert_true(
		forge_origin_is_ours("https://forge.example.org", "forge.example.org"));
	assert_false(forge_origin_is_ours("http://localhost:2", "localhost:1"));
	assert_false(forge_origin_is_ours("http://evil.org", "localhost:1"));
	assert_false(forge_origin_is_ours("null", "localhost:1"));
	assert_false(forge_origin_is_ours("http://localhost:1", NULL));
}

/* ---- bodies ---- */

/* The words, joined by spaces; the sentence of the refusal, when there is one. */
static const char *words_of(const char *text, bool is_again)
{
	static char joined[1024];
	forge_auto_strv struct forge_strv words = { 0 };
	forge_auto_json json_t *body = json_loads(text, JSON_ALLOW_NUL, NULL);
	struct forge_error err = FORGE_ERROR_INIT;
	size_t n = 0;

	assert_non_null(body);
	int rc = is_again ? forge_body_again("rerun", "RUN", body, &words, &err)
			  : forge_body_submit(body, &words, &err);
	assert_int_equal(rc, -err.code);
	if (rc < 0)
		(void)snprintf(joined, sizeof(joined), "%s", err.msg);
	if (rc < 0)
		return joined;
	joined[0] = '\0';
	forge_strv_foreach (word, &words)
		n += (size_t)snprintf(joined + n, sizeof(joined) - n, "%s%s",
				      n ? " " : "", word);
	return joined;
}

static void a_body_becomes_a_command_line(void **state)
{
	(void)state;
	assert_string_equal(words_of("{\"command\": [\"echo\", \"-n\", \"x\"]}", false),
			    "submit --json -- echo -n x");
	assert_string_equal(words_of("{\"command\": \"echo $HOME\"}", false),
			    "submit --json -- /bin/sh -c echo $HOME");
	assert_string_equal(
		words_of("{\"runtime\": \"r\", \"limits\": {\"memory\": \"2G\", "
			 "\"pids\": 5}, "
			 "\"inputs\": [\"/a\"], \"env\": {\"A\": \"b=c\"}, \"keep\": "
			 "true, "
			 "\"id\": null, \"priority\": -3, \"command\": [\"x\"]}",
			 false),
		"submit --json --runtime=r --memory=2G --pids=5 --input=/a --env=A=b=c "
		"--keep --priority=-3 -- x");
	assert_string_equal(words_of("{\"limits\": {\"timeout\": \"1h\"}}", true),
			    "rerun --detach --json --timeout=1h RUN");
	/* A text cannot become another option. */
	assert_string_equal(
		words_of("{\"id\": \"--config=/x\", \"command\": [\"--help\"]}", false),
		"submit --json --id=--config=/x -- --help");
}

#define AGAIN_KEYS                                                                       \
	"runtime, profile, executor, network, id, priority, inputs, outputs, retry, "    \
	"env, limits"
#define ALL_KEYS                                                                         \
	"command, runtime, profile, executor, network, id, key, priority, inputs, "      \
	"outputs, retry, env, limits, keep"

static void a_wrong_body_is_refused(void **state)
{
	(void)state;
	static const char *const cases[][2] = {
		{ "{}", "command: a list of words, or a text for a shell, is needed" },
		{ "{\"command\": []}",
		  "command: a list of words, or a text for a shell, is needed" },
		{ "{\"command\": \"\"}",
		  "command: a list of words, or a text for a shell, is needed" },
		{ "{\"command\": [1]}", "command: word 1 is no text without NUL" },
		{ "{\"command\": [\"a\\u0000b\"]}",
		  "command: word 1 is no text without NUL" },
		{ "{\"command\": [\"x\"], \"config\": \"/etc\"}",
		  "there is no key 'config' (have: " ALL_KEYS ")" },
		{ "{\"command\": [\"x\"], \"store\": \"sqlite:/x\"}",
		  "there is no key 'store' (have: " ALL_KEYS ")" },
		{ "{\"command\": [\"x\"], \"inputs\": [\"a\"]}",
		  "inputs: 'a' is no absolute path" },
		{ "{\"command\": [\"x\"], \"inputs\": \"/a\"}",
		  "inputs: a list of texts is needed" },
		{ "{\"command\": [\"x\"], \"env\": {\"A\": null}}",
		  "env.A: a text is needed" },
		{ "{\"command\": [\"x\"], \"limits\": {\"memry\": 1}}",
		  "limits: there is no 'memry'" },
		{ "{\"command\": [\"x\"], \"keep\": \"yes\"}",
		  "keep: true or false is needed" },
		{ "{\"command\": [\"x\"], \"runtime\": \"a\\u0000b\"}",
		  "runtime: a text without NUL is needed" },
		{ "{\"command\": [\"x\"], \"priority\": 1.5}",
		  "priority: a whole number is needed" },
	};

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(cases); i++)
		assert_string_equal(words_of(cases[i][0], false), cases[i][1]);
	assert_string_equal(words_of("{\"command\": [\"x\"]}", true),
			    "there is no key 'command' (have: " AGAIN_KEYS ")");
	assert_string_equal(words_of("{\"key\": \"x\"}", true),
			    "there is no key 'key' (have: " AGAIN_KEYS ")");
}

/* ---- verdicts for an agent ---- */

static void advice_is_in_words_of_the_tools(void **state)
{
	static const char *const cases[][2] = {
		{ "Succeeded in 3 s.", "Succeeded in 3 s." },
		{ "Killed: memory 1 of 1. Retry with --memory 1G.",
		  "Killed: memory 1 of 1. Retry with memory 1G." },
		{ "Killed: memory 1 of 1. Retry with --memory 3G. More.",
		  "Killed: memory 1 of 1. memory 3G would be above the 2.00 GiB that "
		  "were fixed for this server (--max-memory): make it need less. More." },
		{ "Killed: ran 2 h of 1 h. Retry with --timeout 4h.",
		  "Killed: ran 2 h of 1 h. Retry with timeout 4h." },
		{ "x. Retry with --pids 64.",
		  "x. No argument of a tool changes this limit (pids)." },
		{ "(largest: Retry with --m 4M). Retry with --memory 1G.",
		  "(largest: Retry with --m 4M). Retry with memory 1G." },
		{ "Retry with --", "No argument of a tool changes this limit ()" },
		{ "Retry with --memory", "No argument of a tool changes this limit "
					 "(memory)" },
	};
	const struct forge_mcp_options o = { .caps.memory_bytes = 2ull << 30 };
	char buf[FORGE_MCP_NOTES_MAX];
	static char longest[2 * FORGE_MCP_NOTES_MAX];

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(cases); i++)
		assert_string_equal(forge_mcp_notes(&o, cases[i][0], buf), cases[i][1]);
	assert_string_equal(forge_mcp_notes(NULL, cases[1][0], buf),
			    "Killed: memory 1 of 1. Its limit is in the file of the "
			    "pipeline (memory).");
	memset(longest, 'x', sizeof(longest) - 1);
	memcpy(longest + sizeof(longest) - 32, "Retry with --memory 1G.", 23);
	assert_int_equal(strlen(forge_mcp_notes(&o, longest, buf)), sizeof(buf) - 1);
}

/* ---- tokens ---- */

static struct forge_home home = { NULL, -1, -1, -1, 0 };

static int set_up(void **state)
{
	(void)state;
	scratch_make();
	return forge_home_open(true, &home, NULL);
}

static int tear_down(void **state)
{
	(void)state;
	forge_home_close(&home);
	scratch_remove();
	return 0;
}

static void tokens_are_made_checked_and_revoked(void **state)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_tokens seen = { .list = NULL };
	char reader[FORGE_TOKEN_MAX], doer[FORGE_TOKEN_MAX], old[FORGE_TOKEN_MAX];
	forge_auto_json json_t *a = NULL, *b = NULL, *c = NULL, *list = NULL;
	struct stat st;

	(void)state;
	assert_int_equal(forge_tokens_check(&seen, &home, "forge_x", &err),
			 FORGE_ACCESS_NONE);
	assert_int_equal(
		forge_token_new(&home, "grafana", FORGE_ACCESS_READ, 0, reader, &a, &err),
		0);
	assert_int_equal(
		forge_token_new(&home, "", FORGE_ACCESS_OPERATOR, 0, doer, &b, &err), 0);
	assert_int_equal(
		forge_token_new(&home, "old", FORGE_ACCESS_OPERATOR, 1, old, &c, &err),
		0);
	assert_int_equal(forge_tokens_check(&seen, &home, reader, &err),
			 FORGE_ACCESS_READ);
	assert_int_equal(forge_tokens_check(&seen, &home, doer, &err),
			 FORGE_ACCESS_OPERATOR);
	assert_int_equal(forge_tokens_check(&seen, &home, old, &err), FORGE_ACCESS_NONE);
	reader[10] ^= 1;
	assert_int_equal(forge_tokens_check(&seen, &home, reader, &err),
			 FORGE_ACCESS_NONE);
	reader[10] ^= 1;
	assert_int_equal(fstatat(home.fd, "tokens.json", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0600);

	assert_int_equal(forge_token_list(&home, &list, &err), 0);
	assert_int_equal(json_array_size(list), 3);
	assert_null(json_object_get(json_array_get(list, 0), "sha256"));

	assert_int_equal(forge_token_revoke(&home, "grafana", &err), 0);
	assert_int_equal(forge_tokens_check(&seen, &home, reader, &err),
			 FORGE_ACCESS_NONE);
	assert_int_equal(forge_tokens_check(&seen, &home, doer, &err),
			 FORGE_ACCESS_OPERATOR);
	assert_int_equal(forge_token_revoke(&home, "grafana", &err), -ENOENT);
	forge_tokens_done(&seen);
}

static void a_damaged_file_lets_nobody_in(void **state)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_tokens seen = { .list = NULL };
	char token[FORGE_TOKEN_MAX];
	json_t *made = NULL;

	(void)state;
	assert_int_equal(
		forge_token_new(&home, "", FORGE_ACCESS_OPERATOR, 0, token, &made, &err),
		0);
	json_decref(made);
	int fd = openat(home.fd, "tokens.json", O_WRONLY | O_TRUNC | O_CLOEXEC);
	assert_int_equal(write(fd, "[{\"sha", 6), 6);
	close(fd);
	assert_int_equal(forge_tokens_check(&seen, &home, token, &err),
			 FORGE_ACCESS_NONE);
	assert_int_equal(err.code, EBADMSG);
	/* And it is not replaced by a list without the others. */
	err = FORGE_ERROR_INIT;
	assert_int_equal(
		forge_token_new(&home, "", FORGE_ACCESS_READ, 0, token, &made, &err),
		-EBADMSG);
	forge_tokens_done(&seen);
}

static void a_ticket_is_for_one_path_and_a_time(void **state)
{
	const unsigned char key[FORGE_TICKET_KEY] = "a key",
			    other[FORGE_TICKET_KEY] = "another";
	char ticket[FORGE_TICKET_MAX], later[FORGE_TICKET_MAX];

	(void)state;
	forge_ticket_make(key, "/a?x=1", 1000, ticket);
	assert_true(forge_ticket_is_valid(key, "/a?x=1", ticket, 999));
	assert_false(forge_ticket_is_valid(key, "/a?x=1", ticket, 1000));
	assert_false(forge_ticket_is_valid(key, "/a?x=2", ticket, 999));
	assert_false(forge_ticket_is_valid(other, "/a?x=1", ticket, 999));
	/* The time is signed, too. */
	(void)snprintf(later, sizeof(later), "2000%s", strchr(ticket, '-'));
	assert_false(forge_ticket_is_valid(key, "/a?x=1", later, 999));
	assert_false(forge_ticket_is_valid(key, "/a?x=1", "", 999));
	assert_false(forge_ticket_is_valid(key, "/a?x=1", "1000", 999));
	assert_false(forge_ticket_is_valid(key, "/a?x=1", "99999999999999999999-x", 999));
}

/* ---- UTF-8 ---- */

static void check_utf8(const char *bytes, size_t len, bool is_end, const char *expected,
		       size_t taken)
{
	char to[64];
	size_t n;

	assert_int_equal(
		forge_utf8_copy((const unsigned char *)bytes, len, is_end, to, &n),
		taken);
	assert_int_equal(n, strlen(expected));
	assert_memory_equal(to, expected, n);
}

static void any_bytes_become_utf8(void **state)
{
	(void)state;
	check_utf8("a\xc3\xa4z", 4, false, "a\xc3\xa4z", 4);
	check_utf8("\xff\xfe", 2, false, "\xef\xbf\xbd\xef\xbf\xbd", 2);
	/* Half a character at the end waits for the rest. */
	check_utf8("a\xe2\x82", 3, false, "a", 1);
	check_utf8("a\xe2\x82", 3, true, "a\xef\xbf\xbd\xef\xbf\xbd", 3);
	check_utf8("\xe2\x82x", 3, false, "\xef\xbf\xbd\xef\xbf\xbdx", 3);
	check_utf8("\xf0\x9f\x98\x80", 4, false, "\xf0\x9f\x98\x80", 4);
	/* A longer form, a half of a pair, and what is above the last character. */
	check_utf8("\xc0\xaf", 2, false, "\xef\xbf\xbd\xef\xbf\xbd", 2);
	check_utf8("\xed\xa0\x80", 3, false, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 3);
	check_utf8("\xf4\x90\x80\x80", 4, false,
		   "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_target_is_decoded_into_parts),
		cmocka_unit_test(a_bad_target_is_refused),
		cmocka_unit_test(numbers_of_a_query_have_a_limit),
		cmocka_unit_test(a_parameter_that_a_path_does_not_have_is_refused),
		cmocka_unit_test(gzip_is_for_those_who_take_it),
		cmocka_unit_test(ranges),
		cmocka_unit_test(only_our_names_are_served),
		cmocka_unit_test(a_body_becomes_a_command_line),
		cmocka_unit_test(a_wrong_body_is_refused),
		cmocka_unit_test(advice_is_in_words_of_the_tools),
		cmocka_unit_test_setup_teardown(tokens_are_made_checked_and_revoked,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_damaged_file_lets_nobody_in, set_up,
						tear_down),
		cmocka_unit_test(a_ticket_is_for_one_path_and_a_time),
		cmocka_unit_test(any_bytes_become_utf8),
	};

	return cmocka_run_group_tests_name("server", tests, NULL, NULL);
}
