/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of PostgreSQL databases: kind postgres. The session only reads. Nothing that libpq says about the
 * text of the URL is printed: it may quote a password. libpq reads the URL here first, so that its later messages
 * are about the server.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "health/postgres.h"

/* Connections in the numbers of a result; there may be more. */
#define CONNECTIONS_MAX "100"

/* ---- what is printed ---- */

/* Shorter ones are part of many words. */
static void scrub(char *text, const char *secret)
{
	size_t n = strlen(secret);

	if (n < 4)
		return;
	for (char *p = text; (p = strstr(p, secret)); p += 3) {
		memcpy(p, "***", 3);
		memmove(p + 3, p + n, strlen(p + n) + 1);
	}
}

/* The server's own words are one line; those of libpq have several. */
static void reason_of(const struct forge_checked_server *s, const PGresult *res,
		      char buf[300])
{
	const char *said = res ? pPQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY) : NULL;

	if (!said)
		said = pPQerrorMessage(s->conn);
	size_t len = said ? strlen(said) : 0;
	while (len && isspace((unsigned char)said[len - 1]))
		len--;
	forge_auto_free char *copy = said ? strndup(said, len) : NULL;
	if (copy)
		for (size_t i = 0; i < FORGE_ARRAY_SIZE(s->secrets); i++)
			scrub(copy, s->secrets[i]);
	(void)snprintf(buf, 300, "%s", copy && *copy ? copy : "the connection was lost");
}

int forge_checked_fail(struct forge_checked_server *s, const PGresult *res,
		       const char *fmt, ...)
{
	char what[128], why[300];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	reason_of(s, res, why);
	forge_check_say(s->ret, false, "%s: %s", what, why);
	return -1;
}

/* ---- questions ---- */

PGresult *forge_checked_ask(struct forge_checked_server *s, const char *sql, int n,
			    const char *const *values)
{
	return pPQexecParams(s->conn, sql, n, NULL, values, NULL, NULL, 0);
}

bool forge_checked_has_rows(const PGresult *res)
{
	return pPQresultStatus(res) == PGRES_TUPLES_OK && pPQntuples(res) > 0;
}

const char *forge_checked_value(const PGresult *res, int row, int column)
{
	return pPQgetvalue(res, row, column); /* "" for NULL */
}

/* ---- the connection ---- */

/* What libpq says about a URL, without the part that it quotes. */
static void report_bad_url(const char *said, struct forge_check_report *ret)
{
	forge_check_say(ret, false, "the URL cannot be used: %.*s",
			said ? (int)strcspn(said, "\":\n") : 0, said ? said : "");
}

static const char *option(const PQconninfoOption *options, const char *key)
{
	for (const PQconninfoOption *o = options; o && o->keyword; o++)
		if (strcmp(o->keyword, key) == 0 && o->val)
			return o->val;
	return "";
}

static int prepare_session(struct forge_checked_server *s,
			   const struct forge_check_decl *d)
{
	char msec[24];
	const char *values[] = { msec };

	/* The server goes on with a statement when its client was killed. */
	(void)snprintf(msec, sizeof(msec), "%llu",
		       (unsigned long long)(d->timeout_usec / 1000 + 1));
	PGresult *res = forge_checked_ask(
		s,
		"SELECT set_config('statement_timeout', $1, false), "
		"set_config('lock_timeout', $1, false), "
		"set_config('default_transaction_read_only', 'on', false), "
		/* Rows that a policy hides would be missing without a word. */
		"set_config('row_security', 'off', false)",
		1, values);
	int rc = forge_checked_has_rows(res) ? 0 : forge_checked_fail(s, res, "session");
	pPQclear(res);
	return rc;
}

static void no_notice(void *arg, const char *message)
{
	(void)arg;
	(void)message; /* warnings are no result */
}

static int open_connection(struct forge_checked_server *s,
			   const struct forge_check_decl *d)
{
	static const char *const keys[] = { "connect_timeout", "application_name",
					    "client_encoding", "dbname", NULL };
	char seconds[24];
	const char *values[] = { seconds, "forge-health", "UTF8", d->url, NULL };
	uint64_t begin = forge_now_usec();

	/* Half of the time, so that libpq can say which server does not answer. */
	(void)snprintf(seconds, sizeof(seconds), "%llu",
		       (unsigned long long)(d->timeout_usec / 2000000 + 1));
	s->conn = pPQconnectdbParams(keys, values, 1);
	if (!s->conn) {
		forge_check_say(s->ret, false, "out of memory");
		return -1;
	}
	if (pPQstatus(s->conn) != CONNECTION_OK) {
		char why[300];
		reason_of(s, NULL, why);
		forge_check_say(s->ret, false, "%s", why);
		return -1;
	}
	(void)pPQsetNoticeProcessor(s->conn, no_notice, NULL);
	json_object_set_new(s->ret->numbers, "connect_seconds",
			    forge_json_seconds(forge_now_usec() - begin));
	return prepare_session(s, d);
}

/* ---- facts about the database ---- */

/* Who is connected besides us. What the server does not show to this user is null. */
static json_t *connections_of(const PGresult *res)
{
	static const char *const keys[] = { "pid",	   "address", "port",
					    "application", "user",    "since" };
	json_t *list = json_array();

	for (int row = 0; row < pPQntuples(res); row++) {
		json_t *one = json_object();
		for (size_t i = 0; i < FORGE_ARRAY_SIZE(keys); i++) {
			const char *text = forge_checked_value(res, row, (int)i);
			bool is_number = i == 0 || i == 2;
			json_object_set_new(
				one, keys[i],
				pPQgetisnull(res, row, (int)i) ? json_null()
				: is_number ? json_integer(strtoll(text, NULL, 10))
					    : forge_json_text(text));
		}
		json_array_append_new(list, one);
	}
	return list;
}

/*
 * For attribution. A backend reports its writes when it is idle, at the latest after ten seconds, and when it
 * ends: the number may be late, and never too large.
 */
static int note_activity(struct forge_checked_server *s)
{
	PGresult *writes = forge_checked_ask(
		s,
		"SELECT tup_inserted + tup_updated + tup_deleted, stats_reset "
		"FROM pg_catalog.pg_stat_database "
		"WHERE datname = pg_catalog.current_database()",
		0, NULL);
	PGresult *others = forge_checked_ask(
		s,
		"SELECT pid, pg_catalog.host(client_addr), client_port, "
		"application_name, usename, pg_catalog.to_char(backend_start "
		"AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"') "
		"FROM pg_catalog.pg_stat_activity "
		"WHERE datname = pg_catalog.current_database() "
		"AND pid <> pg_catalog.pg_backend_pid() "
		"AND coalesce(backend_type, 'client backend') = 'client backend' "
		"ORDER BY backend_start DESC LIMIT " CONNECTIONS_MAX,
		0, NULL);
	int rc = 0;

	if (!forge_checked_has_rows(writes))
		rc = forge_checked_fail(s, writes, "pg_stat_database");
	else if (pPQresultStatus(others) != PGRES_TUPLES_OK)
		rc = forge_checked_fail(s, others, "pg_stat_activity");
	if (rc == 0) {
		json_object_set_new(
			s->ret->numbers, "writes",
			json_integer(
				strtoll(forge_checked_value(writes, 0, 0), NULL, 10)));
		json_object_set_new(s->ret->numbers, "stats_reset",
				    forge_json_text(forge_checked_value(writes, 0, 1)));
		json_object_set_new(s->ret->numbers, "connections",
				    connections_of(others));
	}
	pPQclear(writes);
	pPQclear(others);
	return rc;
}

/* ---- who may have written ---- */

/* Version 15: statistics are in shared memory. Before, messages about them could be lost. */
#define SESSIONS_VERSION 150000

/*
 * Processes that are no client, and write no rows of their own. Any other process that is not a client (a worker of
 * replication, of an extension) may write at any time. In recovery that is the process "startup".
 */
#define HARMLESS                                                                         \
	"('client backend', 'autovacuum launcher', 'autovacuum worker', "                \
	"'logical replication launcher', 'parallel worker', 'background writer', "       \
	"'checkpointer', 'walwriter', 'archiver', 'logger', 'walsummarizer', "           \
	"'io worker')"

/*
 * Who else is there: address and port of the clients of this database, kinds of other processes. The workers of a
 * subscription come and go without a session, so each subscription counts as one.
 */
#define OTHERS                                                                           \
	"SELECT pg_catalog.host(client_addr), client_port, "                             \
	"CASE WHEN backend_type IN " HARMLESS " THEN NULL ELSE backend_type END "        \
	"FROM pg_catalog.pg_stat_activity WHERE pid <> pg_catalog.pg_backend_pid() AND " \
	"((datname = pg_catalog.current_database() AND "                                 \
	"backend_type IN ('client backend', 'walsender')) OR backend_type NOT "          \
	"IN " HARMLESS ") AND NOT (backend_type = 'walsender' AND datname IS NULL) "     \
	"UNION ALL SELECT NULL, NULL, 'subscription' "                                   \
	"FROM pg_catalog.pg_stat_subscription LIMIT " CONNECTIONS_MAX

/*
 * The sum only grows while the second column stays as it is: no start of the server, no crash (which resets the statistics
 * of the background writer), no other reset, no database that was dropped.
 */
#define SESSIONS                                                                         \
	"SELECT pg_catalog.sum(sessions), "                                              \
	"pg_catalog.md5(pg_catalog.concat_ws(' ', "                                      \
	"pg_catalog.pg_postmaster_start_time(), "                                        \
	"(SELECT stats_reset FROM pg_catalog.pg_stat_bgwriter), "                        \
	"pg_catalog.string_agg(pg_catalog.concat(datid, '/', stats_reset), ' ' "         \
	"ORDER BY datid))), "                                                            \
	"pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'), "                         \
	"pg_catalog.pg_is_in_recovery() "                                                \
	"FROM pg_catalog.pg_stat_database"

static json_t *others_of(const PGresult *res)
{
	json_t *list = json_array();

	for (int row = 0; row < pPQntuples(res); row++) {
		const char *address = forge_checked_value(res, row, 0);
		const char *worker = forge_checked_value(res, row, 2);
		json_array_append_new(
			list,
			json_pack("{s:o?, s:i, s:o?}", "address",
				  *address ? forge_json_text(address) : NULL, "port",
				  atoi(forge_checked_value(res, row, 1)), "worker",
				  *worker ? forge_json_text(worker) : NULL));
	}
	return list;
}

static json_t *sessions_of(const PGresult *sessions, const PGresult *others)
{
	return json_pack(
		"{s:I, s:o, s:b, s:o}", "count",
		(json_int_t)strtoll(forge_checked_value(sessions, 0, 0), NULL, 10),
		"epoch", forge_json_text(forge_checked_value(sessions, 0, 1)), "sees_all",
		strcmp(forge_checked_value(sessions, 0, 2), "t") == 0, "others",
		others_of(others));
}

/*
 * A session is in the activity until it has been counted. Before the run the count is read first: whoever comes after it
 * is counted later, and whoever was counted and can still write is in the activity. After the run the activity is read
 * first: whoever has left it is in the count. This session must have been counted for certain (count_us()).
 *
 * A standby has rows that sessions of another server wrote. There is no number then.
 */
static int note_sessions(struct forge_checked_server *s, const char *key, bool is_before)
{
	if (pPQserverVersion(s->conn) < SESSIONS_VERSION)
		return 0;
	PGresult *first = forge_checked_ask(s, is_before ? SESSIONS : OTHERS, 0, NULL);
	PGresult *second = forge_checked_ask(s, is_before ? OTHERS : SESSIONS, 0, NULL);
	PGresult *sessions = is_before ? first : second,
		 *others = is_before ? second : first;
	int rc = 0;

	if (pPQresultStatus(others) != PGRES_TUPLES_OK)
		rc = forge_checked_fail(s, others, "pg_stat_activity");
	else if (!forge_checked_has_rows(sessions))
		rc = forge_checked_fail(s, sessions, "pg_stat_database");
	else if (strcmp(forge_checked_value(sessions, 0, 3), "f") == 0)
		json_object_set_new(s->ret->numbers, key, sessions_of(sessions, others));
	else
		json_object_set_new(s->ret->numbers, "standby", json_true());
	pPQclear(first);
	pPQclear(second);
	return rc;
}

/* Without this, the statistics of a session that had to wait for a lock would be late. */
static int count_us(struct forge_checked_server *s)
{
	if (pPQserverVersion(s->conn) < SESSIONS_VERSION)
		return 0;
	PGresult *res = forge_checked_ask(
		s, "SELECT pg_catalog.pg_stat_force_next_flush()", 0, NULL);
	int rc = forge_checked_has_rows(res) ? 0
					     : forge_checked_fail(s, res, "statistics");

	pPQclear(res);
	return rc;
}

static void address_text(const struct sockaddr_storage *a, char ret[INET6_ADDRSTRLEN],
			 uint16_t *ret_port)
{
	*ret = '\0';
	*ret_port = 0;
	if (a->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)a;
		(void)inet_ntop(AF_INET, &in->sin_addr, ret, INET6_ADDRSTRLEN);
		*ret_port = ntohs(in->sin_port);
	} else if (a->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const void *)a;
		(void)inet_ntop(AF_INET6, &in->sin6_addr, ret, INET6_ADDRSTRLEN);
		*ret_port = ntohs(in->sin6_port);
	}
}

/*
 * numbers.server: where the server is, if the two ends of this connection are the same for both sides: nothing is between us that
 * hands connections on.
 */
static int note_server(struct forge_checked_server *s)
{
	struct sockaddr_storage a[2] = { { 0 } };
	socklen_t len[2] = { sizeof(a[0]), sizeof(a[1]) };
	char ours[2][INET6_ADDRSTRLEN];
	uint16_t port[2];
	int fd = pPQsocket(s->conn);

	PGresult *res = forge_checked_ask(
		s,
		"SELECT pg_catalog.host(pg_catalog.inet_server_addr()), "
		"pg_catalog.inet_server_port(), "
		"pg_catalog.host(pg_catalog.inet_client_addr()), "
		"pg_catalog.inet_client_port()",
		0, NULL);
	int rc =
		forge_checked_has_rows(res) ? 0 : forge_checked_fail(s, res, "addresses");
	bool is_direct = rc == 0 && getpeername(fd, (void *)&a[0], &len[0]) == 0 &&
			 getsockname(fd, (void *)&a[1], &len[1]) == 0;
	for (int i = 0; i < 2 && is_direct; i++) {
		address_text(&a[i], ours[i], &port[i]);
		is_direct = *ours[i] &&
			    strcmp(ours[i], forge_checked_value(res, 0, 2 * i)) == 0 &&
			    port[i] == atoi(forge_checked_value(res, 0, 2 * i + 1));
	}
	if (is_direct)
		json_object_set_new(
			s->ret->numbers, "server",
			json_pack("{s:s, s:i}", "address", ours[0], "port", port[0]));
	pPQclear(res);
	return rc;
}

/* ---- damage ---- */

/* Of all databases of the server: they are on the same disk. Before version 12 there is no count. */
static int check_failures(struct forge_checked_server *s)
{
	if (pPQserverVersion(s->conn) < 120000)
		return 0;
	PGresult *res = forge_checked_ask(
		s,
		"SELECT coalesce(datname::text, 'all'), checksum_failures, "
		"pg_catalog.to_char(checksum_last_failure AT TIME ZONE 'UTC', "
		"'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') "
		"FROM pg_catalog.pg_stat_database WHERE checksum_failures > 0 "
		"ORDER BY checksum_last_failure DESC",
		0, NULL);
	int rc = 0;

	if (pPQresultStatus(res) != PGRES_TUPLES_OK)
		rc = forge_checked_fail(s, res, "checksum failures");
	else if (pPQntuples(res) > 0)
		rc = -1;
	if (pPQntuples(res) > 0) {
		long long n = strtoll(forge_checked_value(res, 0, 1), NULL, 10);
		json_object_set_new(s->ret->numbers, "checksum_failures",
				    json_integer(n));
		forge_check_say(s->ret, false,
				"database %s: %lld checksum failure%s, the last at %s",
				forge_checked_value(res, 0, 0), n, n == 1 ? "" : "s",
				forge_checked_value(res, 0, 2));
	}
	pPQclear(res);
	return rc;
}

static int check_checksums(struct forge_checked_server *s, bool *ret_is_on)
{
	PGresult *res = forge_checked_ask(
		s, "SELECT pg_catalog.current_setting('data_checksums')", 0, NULL);
	int rc = forge_checked_has_rows(res)
			 ? 0
			 : forge_checked_fail(s, res, "data_checksums");

	if (rc == 0) {
		*ret_is_on = strcmp(forge_checked_value(res, 0, 0), "on") == 0;
		json_object_set_new(s->ret->numbers, "checksums",
				    json_boolean(*ret_is_on));
	}
	pPQclear(res);
	return rc < 0 ? rc : check_failures(s);
}

/* ---- the check ---- */

static void check_database(struct forge_checked_server *s,
			   const struct forge_check_decl *d)
{
	struct forge_checked_tables tables = { 0 };
	const char *version = pPQparameterStatus(s->conn, "server_version");
	bool has_checksums = false;
	/* What happens while the rows are counted is in the interval from one check to the next. */
	bool is_guard = d->count.n || d->contents.n;
	int rc = is_guard ? count_us(s) : 0;

	if (rc == 0 && is_guard)
		rc = note_sessions(s, "sessions_before", true);
	if (rc == 0 && is_guard)
		rc = note_server(s);
	if (rc == 0)
		rc = note_activity(s);
	version = version ? version : "";
	int len = (int)strcspn(version, " ");
	json_object_set_new(s->ret->numbers, "server_version",
			    json_stringn(version, (size_t)len));
	if (rc == 0)
		rc = forge_checked_tables_find(s, d, &tables);
	if (rc == 0)
		rc = forge_checked_tables_read(s, &tables);
	if (rc == 0 && is_guard)
		rc = note_sessions(s, "sessions_after", false);
	if (rc == 0 && d->is_thorough)
		rc = forge_checked_tables_verify(s, &tables);
	/* Last: what was read just now counts. */
	if (rc == 0)
		rc = check_checksums(s, &has_checksums);
	if (rc == 0)
		forge_check_say(s->ret, true,
				"PostgreSQL %.*s, database %s, %zu table%s found%s, %s",
				len, version, pPQdb(s->conn), tables.n,
				tables.n == 1 ? "" : "s",
				d->is_thorough ? " and verified" : "",
				has_checksums ? "no checksum failures" : "no checksums");
	forge_checked_tables_done(&tables);
}

FORGE_CHECK(forge_check_postgres)
{
	struct forge_checked_server s = { .ret = ret };
	struct forge_error err = FORGE_ERROR_INIT;
	char *said = NULL;

	(void)env; /* nothing of it is needed */
	if (forge_pq_load(&err) < 0) {
		forge_check_say(ret, false, "%s. %s", err.msg, err.hint);
		return;
	}
	PQconninfoOption *options = pPQconninfoParse(d->url, &said);
	if (!options) {
		report_bad_url(said, ret);
		pPQfreemem(said);
		return;
	}
	s.secrets[0] = option(options, "password");
	s.secrets[1] = option(options, "sslpassword");
	ret->numbers = json_object();
	if (open_connection(&s, d) == 0)
		check_database(&s, d);
	if (s.conn)
		pPQfinish(s.conn);
	pPQconninfoFree(options);
}
