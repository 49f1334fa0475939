/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out from the connections of a run, which the kernel counted, and from the sessions of the server, which
 * the server counted, who changed a table.
 *
 * Not the run: it reached nothing outside, not even a program that could have written in its place.
 *
 * The run: every session that the server opened between the two checks is one of the run's, nobody else had one
 * before, and nobody else has one now. Only sessions of this server can change what is guarded: plain tables, and
 * the server is no standby. The run's sessions are those over which the server at the
 * very address of the check said that it was ready. Connections alone are not enough: a run that connects and is
 * turned away, and another client that is let in, give the same numbers.
 */
#include "record/writer.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

static const json_t *number_of(const json_t *check, const char *key)
{
	return json_object_get(json_object_get(check, "numbers"), key);
}

static json_int_t integer(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* Sessions of all databases that were opened from the first check to the last, less the last one's. -1: not known. */
static json_int_t sessions_opened(const json_t *before, const json_t *after)
{
	const json_t *b = number_of(before, "sessions_before"),
		     *a = number_of(after, "sessions_after");

	if (!b || !a ||
	    !json_equal(json_object_get(b, "epoch"), json_object_get(a, "epoch")))
		return -1;
	json_int_t n = integer(a, "count") - integer(b, "count") - 1;
	return n < 0 ? -1 : n;
}

/* Did the run reach anything but itself? Not known counts as yes. */
static bool reached_something(const json_t *connections)
{
	const json_t *sockets = json_object_get(connections, "sockets"),
		     *unix_sockets = json_object_get(connections, "sockets_unix");

	/*
	 * The filter of the run has seen every call that makes one; this is so for every user. Nothing sees who
	 * connects to a UNIX socket of the run, and might be told what to write.
	 */
	if (!json_is_integer(sockets) || !json_is_integer(unix_sockets) ||
	    json_integer_value(unix_sockets) > 0)
		return true;
	if (!json_object_get(connections, "made"))
		return json_integer_value(sockets) > 0;
	/* Both must say so. */
	return !json_is_true(json_object_get(connections, "complete")) ||
	       json_array_size(json_object_get(connections, "made")) > 0 ||
	       integer(connections, "incoming") > 0 || integer(connections, "unix") > 0;
}

static bool is_at(const json_t *one, const json_t *server)
{
	return strcmp(forge_json_string_or(one, "address", ""),
		      forge_json_string_or(server, "address", "-")) == 0 &&
	       integer(one, "port") == integer(server, "port");
}

/* The run's sessions of this server, at least. With a port: is the one from there among them? */
static json_int_t own_sessions(const json_t *connections, const json_t *server,
			       json_int_t port)
{
	json_int_t n = 0;
	size_t i;
	const json_t *one;

	json_array_foreach (json_object_get(connections, "sessions"), i, one)
		n += is_at(one, server) && (!port || integer(one, "local_port") == port);
	return n;
}

/* The server ends the session of a process that is gone a little later. */
static bool only_own_are_left(const json_t *connections, const json_t *server,
			      const json_t *others)
{
	size_t i;
	const json_t *one;

	json_array_foreach (others, i, one) {
		json_int_t port = integer(one, "port");
		if (json_object_get(one, "worker") || port <= 0 ||
		    own_sessions(connections, server, port) == 0)
			return false;
	}
	return true;
}

static bool all_sessions_are_own(const json_t *connections, const json_t *before,
				 const json_t *after, json_int_t opened)
{
	const json_t *b = number_of(before, "sessions_before"),
		     *a = number_of(after, "sessions_after");
	const json_t *server = number_of(after, "server");

	return opened > 0 && json_is_true(number_of(before, "plain")) &&
	       json_is_true(number_of(after, "plain")) && server &&
	       json_equal(server, number_of(before, "server")) &&
	       /* Another run's check may have been carried out before this run ended. */
	       !json_is_true(json_object_get(after, "reused")) &&
	       json_is_true(json_object_get(b, "sees_all")) &&
	       json_is_true(json_object_get(a, "sees_all")) &&
	       json_array_size(json_object_get(b, "others")) == 0 &&
	       own_sessions(connections, server, 0) == opened &&
	       only_own_are_left(connections, server, json_object_get(a, "others"));
}

/* ---- sentences ---- */

static void tell_of_connections(const json_t *connections,
				char text[FORGE_WRITER_TEXT / 2])
{
	const json_t *made = json_object_get(connections, "made"), *one,
		     *first = json_array_get(made, 0);
	const json_t *unix_sockets = json_object_get(connections, "unix"),
		     *made_unix = json_object_get(connections, "sockets_unix");
	json_int_t n = 0;
	size_t i;
	char to[96] = "", local[64] = "";

	if (!made) {
		json_int_t sockets = integer(connections, "sockets");
		if (sockets > 0)
			(void)snprintf(to, sizeof(to), "it made %lld socket%s, and ",
				       (long long)sockets, sockets == 1 ? "" : "s");
		(void)snprintf(text, FORGE_WRITER_TEXT / 2,
			       "%sits connections are not known (%.90s)", to,
			       forge_json_string_or(connections, "why",
						    "they were not counted"));
		return;
	}
	json_array_foreach (made, i, one)
		n += integer(one, "count");
	if (first)
		(void)snprintf(to, sizeof(to), " (%.45s port %lld%s)",
			       forge_json_string_or(first, "address", ""),
			       (long long)integer(first, "port"),
			       json_array_size(made) > 1 ? " and others" : "");
	if (!json_is_integer(made_unix))
		(void)snprintf(local, sizeof(local),
			       ", UNIX sockets cannot be seen here");
	else if (json_integer_value(unix_sockets) > 0)
		(void)snprintf(local, sizeof(local), ", %lld to UNIX sockets",
			       (long long)json_integer_value(unix_sockets));
	else if (json_integer_value(made_unix) > 0)
		(void)snprintf(local, sizeof(local),
			       ", %lld UNIX socket%s to which others can connect",
			       (long long)json_integer_value(made_unix),
			       json_integer_value(made_unix) == 1 ? "" : "s");
	(void)snprintf(text, FORGE_WRITER_TEXT / 2, "it made %lld connection%s%s%s%s",
		       (long long)n, n == 1 ? "" : "s", to, local,
		       integer(connections, "incoming") > 0 ? ", others connected to it"
							    : "");
}

static void tell_of_sessions(const json_t *before, const json_t *after, json_int_t opened,
			     char text[FORGE_WRITER_TEXT / 2])
{
	const json_t *b = number_of(before, "sessions_before");
	size_t were = json_array_size(json_object_get(b, "others"));

	if (number_of(before, "standby") || number_of(after, "standby"))
		(void)snprintf(text, FORGE_WRITER_TEXT / 2,
			       "the server of the check is a standby, whose rows another "
			       "server writes");
	else if (!b || !number_of(after, "sessions_after"))
		(void)snprintf(text, FORGE_WRITER_TEXT / 2,
			       "the server does not count sessions (PostgreSQL 15 does)");
	else if (opened < 0)
		(void)snprintf(text, FORGE_WRITER_TEXT / 2,
			       "the server's statistics began anew meanwhile");
	else
		(void)snprintf(text, FORGE_WRITER_TEXT / 2,
			       "the server opened %lld session%s meanwhile, and %zu%s "
			       "client%s had been connected before",
			       (long long)opened, opened == 1 ? "" : "s", were,
			       json_is_true(json_object_get(b, "sees_all"))
				       ? ""
				       : " or more (the check's user sees not all)",
			       were == 1 ? "" : "s");
	if (json_is_false(number_of(after, "plain"))) {
		size_t len = strlen(text);
		(void)snprintf(text + len, FORGE_WRITER_TEXT / 2 - len,
			       "; what is guarded is not all plain tables");
	}
}

enum forge_writer forge_table_writer(const json_t *connections, const json_t *before,
				     const json_t *after, char text[FORGE_WRITER_TEXT])
{
	json_int_t opened = sessions_opened(before, after);
	char made[FORGE_WRITER_TEXT / 2], sessions[FORGE_WRITER_TEXT / 2];

	if (connections && !reached_something(connections)) {
		(void)snprintf(text, FORGE_WRITER_TEXT,
			       "this run made no connection and cannot have done it");
		return FORGE_WRITER_OTHER;
	}
	if (connections && all_sessions_are_own(connections, before, after, opened)) {
		(void)snprintf(text, FORGE_WRITER_TEXT,
			       "this run did it: nobody else had a session, and all of "
			       "the %lld session%s that the server opened meanwhile %s "
			       "its own",
			       (long long)opened, opened == 1 ? "" : "s",
			       opened == 1 ? "is" : "are");
		return FORGE_WRITER_RUN;
	}
	tell_of_connections(connections, made);
	tell_of_sessions(before, after, opened, sessions);
	(void)snprintf(text, FORGE_WRITER_TEXT, "by whom is not known: %s; %s", made,
		       sessions);
	return FORGE_WRITER_UNKNOWN;
}
