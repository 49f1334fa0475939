/* SPDX-License-Identifier: Apache-2.0 */
/* Who changed a table: what is certain, and what has to stay unknown. */
#include "unit.h"

#include <string.h>

#include "base/json.h"
#include "record/writer.h"

/* A run with two sessions that nobody else had, as the default. Each test changes one fact. */
struct facts {
	json_t *connections, *before, *after;
};

static struct facts alone(void)
{
	struct facts f = {
		json_pack("{s:i, s:i, s:b, s:[{s:s, s:i, s:b, s:i}], s:i, s:i, "
			  "s:[{s:s, s:i, s:i}, {s:s, s:i, s:i}]}",
			  "sockets", 2, "sockets_unix", 0, "complete", 1, "made",
			  "address", "127.0.0.1", "port", 5432, "udp", 0, "count", 2,
			  "incoming", 0, "unix", 0, "sessions", "address", "127.0.0.1",
			  "port", 5432, "local_port", 40001, "address", "127.0.0.1",
			  "port", 5432, "local_port", 40002),
		json_pack("{s:{s:b, s:{s:s, s:i}, s:{s:i, s:s, s:b, s:[]}}}", "numbers",
			  "plain", 1, "server", "address", "127.0.0.1", "port", 5432,
			  "sessions_before", "count", 10, "epoch", "e", "sees_all", 1,
			  "others"),
		json_pack("{s:b, s:{s:b, s:{s:s, s:i}, s:{s:i, s:s, s:b, s:[]}}}",
			  "reused", 0, "numbers", "plain", 1, "server", "address",
			  "127.0.0.1", "port", 5432, "sessions_after", "count", 13,
			  "epoch", "e", "sees_all", 1, "others"),
	};

	assert_non_null(f.connections);
	assert_non_null(f.before);
	assert_non_null(f.after);
	return f;
}

static json_t *at(json_t *check, const char *key)
{
	return json_object_get(json_object_get(check, "numbers"), key);
}

/* Judges, and releases the facts. */
static void expect(struct facts f, enum forge_writer writer, const char *words)
{
	char text[FORGE_WRITER_TEXT];

	assert_int_equal(forge_table_writer(f.connections, f.before, f.after, text),
			 writer);
	if (!strstr(text, words))
		fail_msg("no '%s' in: %s", words, text);
	json_decref(f.connections);
	json_decref(f.before);
	json_decref(f.after);
}

static void all_sessions_are_its_own(void **state)
{
	(void)state;
	expect(alone(), FORGE_WRITER_RUN, "all of the 2 sessions");
}

static void a_session_more_is_of_another(void **state)
{
	(void)state;
	struct facts f = alone();

	json_object_set_new(at(f.after, "sessions_after"), "count", json_integer(14));
	expect(f, FORGE_WRITER_UNKNOWN, "opened 3 sessions");
}

static void sessions_at_another_address_do_not_count(void **state)
{
	(void)state;
	struct facts f = alone();

	json_object_set_new(json_array_get(json_object_get(f.connections, "sessions"), 0),
			    "port", json_integer(5433));
	expect(f, FORGE_WRITER_UNKNOWN, "it made 2 connections (127.0.0.1 port 5432)");
}

static void not_known_stays_not_known(void **state)
{
	(void)state;
	struct facts f = alone();
	char text[FORGE_WRITER_TEXT];

	/* Nothing was counted, or sockets only. */
	assert_int_equal(forge_table_writer(NULL, f.before, f.after, text),
			 FORGE_WRITER_UNKNOWN);
	assert_non_null(strstr(text, "not known (they were not counted)"));
	json_t *little = json_pack("{s:s, s:i}", "why", "eBPF is refused", "sockets", 3);
	assert_int_equal(forge_table_writer(little, f.before, f.after, text),
			 FORGE_WRITER_UNKNOWN);
	assert_non_null(strstr(text, "it made 3 sockets, and its connections are not "
				     "known (eBPF is refused)"));
	json_object_set_new(little, "sockets", json_null());
	assert_int_equal(forge_table_writer(little, f.before, f.after, text),
			 FORGE_WRITER_UNKNOWN);
	json_object_set_new(little, "sockets", json_integer(0));
	assert_int_equal(forge_table_writer(little, f.before, f.after, text),
			 FORGE_WRITER_UNKNOWN);
	json_object_set_new(little, "sockets_unix", json_integer(0));
	assert_int_equal(forge_table_writer(little, f.before, f.after, text),
			 FORGE_WRITER_OTHER);
	json_decref(little);
	/* No check before the run. */
	assert_int_equal(forge_table_writer(f.connections, NULL, f.after, text),
			 FORGE_WRITER_UNKNOWN);
	/* An old server. */
	json_object_del(json_object_get(f.after, "numbers"), "sessions_after");
	expect(f, FORGE_WRITER_UNKNOWN, "does not count sessions");

	f = alone();
	json_object_set_new(at(f.after, "sessions_after"), "epoch", json_string("f"));
	expect(f, FORGE_WRITER_UNKNOWN, "began anew");
	f = alone();
	json_object_set_new(at(f.after, "sessions_after"), "count", json_integer(10));
	expect(f, FORGE_WRITER_UNKNOWN, "began anew");
	f = alone();
	json_object_set_new(f.after, "reused", json_true());
	expect(f, FORGE_WRITER_UNKNOWN, "opened 2 sessions");
	f = alone();
	json_object_set_new(at(f.after, "sessions_after"), "sees_all", json_false());
	expect(f, FORGE_WRITER_UNKNOWN, "opened 2 sessions");
	f = alone();
	json_object_del(json_object_get(f.before, "numbers"), "server");
	expect(f, FORGE_WRITER_UNKNOWN, "opened 2 sessions");
	f = alone();
	json_object_del(json_object_get(f.after, "numbers"), "server");
	expect(f, FORGE_WRITER_UNKNOWN, "opened 2 sessions");
	f = alone();
	json_object_set_new(at(f.before, "server"), "address", json_string("10.0.0.1"));
	expect(f, FORGE_WRITER_UNKNOWN, "opened 2 sessions");
}

static void rows_that_change_without_a_session_of_the_server(void **state)
{
	(void)state;
	struct facts f = alone();

	/* A standby: its check gives no numbers of sessions. */
	json_object_del(json_object_get(f.before, "numbers"), "sessions_before");
	json_object_del(json_object_get(f.after, "numbers"), "sessions_after");
	json_object_set_new(json_object_get(f.after, "numbers"), "standby", json_true());
	expect(f, FORGE_WRITER_UNKNOWN, "the server of the check is a standby");
	/* It is one no more. */
	f = alone();
	json_object_del(json_object_get(f.before, "numbers"), "sessions_before");
	json_object_set_new(json_object_get(f.before, "numbers"), "standby", json_true());
	expect(f, FORGE_WRITER_UNKNOWN, "the server of the check is a standby");
	/* A view. */
	f = alone();
	json_object_set_new(json_object_get(f.after, "numbers"), "plain", json_false());
	expect(f, FORGE_WRITER_UNKNOWN, "what is guarded is not all plain tables");
	f = alone();
	json_object_set_new(json_object_get(f.before, "numbers"), "plain", json_false());
	expect(f, FORGE_WRITER_UNKNOWN, "by whom is not known");
	/* The check says nothing about it. */
	f = alone();
	json_object_del(json_object_get(f.after, "numbers"), "plain");
	expect(f, FORGE_WRITER_UNKNOWN, "by whom is not known");
}

static void who_is_there_may_write(void **state)
{
	(void)state;
	struct facts f = alone();

	json_array_append_new(json_object_get(at(f.before, "sessions_before"), "others"),
			      json_pack("{s:i}", "port", -1));
	expect(f, FORGE_WRITER_UNKNOWN, "1 client had been connected before");
	/* The server has not noticed the end of the run's session yet. */
	f = alone();
	json_array_append_new(
		json_object_get(at(f.after, "sessions_after"), "others"),
		json_pack("{s:s, s:i}", "address", "127.0.0.1", "port", 40002));
	expect(f, FORGE_WRITER_RUN, "this run did it");
	f = alone();
	json_array_append_new(
		json_object_get(at(f.after, "sessions_after"), "others"),
		json_pack("{s:s, s:i}", "address", "127.0.0.1", "port", 40003));
	expect(f, FORGE_WRITER_UNKNOWN, "by whom is not known");
	f = alone();
	json_array_append_new(json_object_get(at(f.after, "sessions_after"), "others"),
			      json_pack("{s:i, s:s}", "port", 0, "worker",
					"logical replication worker"));
	expect(f, FORGE_WRITER_UNKNOWN, "by whom is not known");
}

static struct facts quiet(void)
{
	struct facts f = alone();

	json_object_set_new(f.connections, "made", json_array());
	json_object_set_new(f.connections, "sessions", json_array());
	return f;
}

static void a_run_that_reached_nothing_did_nothing(void **state)
{
	(void)state;
	struct facts f = quiet();

	/* Whatever the server says, or does not say. */
	json_object_clear(json_object_get(f.before, "numbers"));
	json_object_clear(json_object_get(f.after, "numbers"));
	expect(f, FORGE_WRITER_OTHER, "made no connection and cannot have done it");
	expect(quiet(), FORGE_WRITER_OTHER, "cannot have done it");
	f = quiet();
	json_object_set_new(f.connections, "unix", json_integer(1));
	expect(f, FORGE_WRITER_UNKNOWN, "1 to UNIX sockets");
	/* No socket was noted, and yet one was used. */
	f = quiet();
	json_object_set_new(f.connections, "sockets", json_integer(0));
	json_object_set_new(f.connections, "unix", json_integer(1));
	expect(f, FORGE_WRITER_UNKNOWN, "1 to UNIX sockets");
	f = alone();
	json_object_set_new(f.connections, "sockets", json_integer(0));
	json_object_set_new(at(f.after, "sessions_after"), "count", json_integer(14));
	expect(f, FORGE_WRITER_UNKNOWN, "it made 2 connections");
	/* A kernel that does not see them, and no UNIX socket. */
	f = quiet();
	json_object_set_new(f.connections, "unix", json_null());
	expect(f, FORGE_WRITER_OTHER, "cannot have done it");
	/* Others may have connected to this one. */
	f = quiet();
	json_object_set_new(f.connections, "sockets_unix", json_integer(1));
	expect(f, FORGE_WRITER_UNKNOWN, "1 UNIX socket to which others can connect");
	f = quiet();
	json_object_set_new(f.connections, "sockets_unix", json_null());
	expect(f, FORGE_WRITER_UNKNOWN, "UNIX sockets cannot be seen");
	f = quiet();
	json_object_set_new(f.connections, "incoming", json_integer(1));
	expect(f, FORGE_WRITER_UNKNOWN, "others connected to it");
	f = quiet();
	json_object_set_new(f.connections, "complete", json_false());
	expect(f, FORGE_WRITER_UNKNOWN, "by whom is not known");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_sessions_are_its_own),
		cmocka_unit_test(a_session_more_is_of_another),
		cmocka_unit_test(sessions_at_another_address_do_not_count),
		cmocka_unit_test(not_known_stays_not_known),
		cmocka_unit_test(rows_that_change_without_a_session_of_the_server),
		cmocka_unit_test(who_is_there_may_write),
		cmocka_unit_test(a_run_that_reached_nothing_did_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
