/* SPDX-License-Identifier: Apache-2.0 */
/* A team's PostgreSQL. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/pq.h"
#include "base/strv.h"
#include "store/backend.h"

struct postgres_store {
	struct forge_store base;
	PGconn *conn;
	bool is_patient; /* the user's URL sets how long a statement may take */
	bool is_mute; /* the server did not answer in time: no more requests are sent */
};
_Static_assert(offsetof(struct postgres_store, base) == 0, "base must come first");

static struct postgres_store *self(struct forge_store *st)
{
	return (struct postgres_store *)st;
}

/* libpq's messages end in newlines and have them inside. */
static void one_line(char *text)
{
	size_t len = strlen(text);

	while (len > 0 && text[len - 1] == '\n')
		text[--len] = '\0';
	for (char *p = text; *p; p++)
		if (*p == '\n' || *p == '\t')
			*p = ' ';
}

static int errno_of(const char *sqlstate)
{
	static const struct {
		const char *state;
		int code;
	} known[] = {
		{ "42P01", ENOENT }, { "23505", EEXIST },    { "53100", ENOSPC },
		{ "25006", EROFS },  { "55P03", EBUSY },     { "40001", EBUSY },
		{ "40P01", EBUSY },  { "57014", ETIMEDOUT }, { "42501", EACCES },
		{ "57P", ENOTCONN }, { "08", ENOTCONN },     { "53", EBUSY },
	};

	for (size_t i = 0; sqlstate && i < FORGE_ARRAY_SIZE(known); i++)
		if (strncmp(sqlstate, known[i].state, strlen(known[i].state)) == 0)
			return known[i].code;
	return EINVAL;
}

/* The message names the missing right; the hint says how to grant it. */
static int hint_grant(struct postgres_store *s, const char *said, struct forge_error *err)
{
	const char *role = pPQuser(s->conn);

	if (strstr(said, "for schema"))
		return forge_hint(err, -EACCES,
				  "The owner of the database can give it: GRANT USAGE, "
				  "CREATE ON SCHEMA public TO %s (docs/TEAM.md)",
				  role);
	return forge_hint(err, -EACCES,
			  "The owner of the tables can give it: GRANT SELECT, INSERT, "
			  "UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO %s "
			  "(docs/TEAM.md)",
			  role);
}

static int fail(struct postgres_store *s, PGresult *res, struct forge_error *err)
{
	char text[300];

	if (s->is_mute)
		return forge_fail(err, ETIMEDOUT, "postgres: the server does not answer");
	int code = pPQstatus(s->conn) != CONNECTION_OK
			   ? ENOTCONN
			   : errno_of(pPQresultErrorField(res, PG_DIAG_SQLSTATE));
	const char *said = res ? pPQresultErrorMessage(res) : pPQerrorMessage(s->conn);

	(void)snprintf(text, sizeof(text), "%s",
		       said && *said ? said : "connection lost");
	one_line(text);
	int rc = forge_fail(err, code, "postgres: %s", text);
	return code == EACCES ? hint_grant(s, text, err) : rc;
}

static void no_notice(void *arg, const char *message)
{
	(void)arg;
	(void)message; /* "relation exists, skipping": nothing a user can act on */
}

/* Longer than the server itself takes to end a statement; tests set a shorter time. */
unsigned forge_postgres_answer_msec = 45000;

/* Waits until the socket can be read or, with has_more, written. False: not in time. */
static bool wait_for_server(struct postgres_store *s, bool has_more, uint64_t deadline)
{
	struct pollfd p = { .fd = pPQsocket(s->conn),
			    .events = (short)(POLLIN | (has_more ? POLLOUT : 0)) };
	uint64_t now = forge_now_usec();
	int left = now < deadline ? (int)((deadline - now) / 1000) + 1 : 0;
	int n = poll(&p, 1, s->is_patient ? -1 : left);

	return n > 0 || (n < 0 && errno == EINTR);
}

/*
 * Returns the answer to the last request: that of the last statement, when it had several.
 * libpq's own calls wait forever for a server that is frozen, which keepalives on a socket of
 * this machine do not notice. NULL: there is no answer.
 */
static PGresult *take_answer(struct postgres_store *s)
{
	uint64_t deadline = forge_now_usec() + forge_postgres_answer_msec * 1000ull;
	PGresult *last = NULL;

	for (;;) {
		int more = pPQflush(s->conn);
		if (more == 0 && !pPQisBusy(s->conn)) {
			PGresult *next = pPQgetResult(s->conn);
			if (!next)
				return last;
			pPQclear(last);
			last = next;
			continue;
		}
		s->is_mute = more >= 0 && !wait_for_server(s, more == 1, deadline);
		if (more < 0 || s->is_mute || !pPQconsumeInput(s->conn)) {
			pPQclear(last);
			return NULL;
		}
	}
}

static int run(struct postgres_store *s, const char *sql, struct forge_error *err)
{
	PGresult *res = !s->is_mute && pPQsendQuery(s->conn, sql) ? take_answer(s) : NULL;
	ExecStatusType state = pPQresultStatus(res);
	int rc = state == PGRES_COMMAND_OK || state == PGRES_TUPLES_OK
			 ? 0
			 : fail(s, res, err);

	pPQclear(res);
	return rc;
}

/* File names can be any text; a database with another encoding could never store some runs. */
static int check_encoding(struct postgres_store *s, struct forge_error *err)
{
	const char *encoding = pPQparameterStatus(s->conn, "server_encoding");

	if (encoding && strcmp(encoding, "UTF8") == 0)
		return 0;
	int rc = forge_fail(err, EINVAL,
			    "postgres: the database's encoding is %s, it must be UTF8",
			    encoding ? encoding : "unknown");
	return forge_hint(
		err, rc,
		"Make one with: createdb --encoding=UTF8 --template=template0 NAME");
}

/*
 * No wait is unlimited: connecting may take five seconds; the kernel notices a server that
 * vanished after ten; a statement may take thirty, which the user's URL can change;
 * take_answer() notices a server that is frozen.
 */
static int postgres_open(struct forge_store *st, const char *url, struct forge_error *err)
{
	static const char *const keys[] = {
		"connect_timeout",  "application_name",
		"keepalives_idle",  "keepalives_interval",
		"keepalives_count", "tcp_user_timeout",
		"options",	    "client_encoding",
		"dbname",	    NULL,
	};
	const char *values[] = {
		"5",
		"forge",
		"5",
		"2",
		"2",
		"10000",
		"-c statement_timeout=30000 -c lock_timeout=20000 -c "
		"client_min_messages=warning",
		"UTF8", /* our texts are UTF-8, whatever $PGCLIENTENCODING says */
		url,
		NULL,
	};
	struct postgres_store *s = self(st);
	int rc = forge_pq_load(err);

	if (rc < 0)
		return rc;
	s->is_patient = strstr(url, "statement_timeout") != NULL;
	s->conn = pPQconnectdbParams(keys, values, 1);
	if (!s->conn)
		return forge_fail(err, ENOMEM, "out of memory");
	if (pPQstatus(s->conn) != CONNECTION_OK)
		return fail(s, NULL, err);
	if (pPQsetnonblocking(s->conn, 1) < 0)
		return fail(s, NULL, err);
	(void)pPQsetNoticeProcessor(s->conn, no_notice, NULL);
	return check_encoding(s, err);
}

static void postgres_close(struct forge_store *st)
{
	if (self(st)->conn)
		pPQfinish(self(st)->conn);
}

static int each_row(PGresult *res, forge_sql_visitor *visit, void *arg)
{
	const char *columns[32];
	int rows = pPQntuples(res), n = pPQnfields(res);

	for (int row = 0; visit && row < rows; row++) {
		for (int i = 0; i < n && i < 32; i++)
			columns[i] = pPQgetisnull(res, row, i) ? NULL
							       : pPQgetvalue(res, row, i);
		int rc = visit(columns, arg);
		if (rc)
			return rc;
	}
	return rows;
}

#define VALUES_MAX 32
static int postgres_exec(struct forge_store *st, const char *sql,
			 const struct forge_sql_value *v, size_t n,
			 forge_sql_visitor *visit, void *arg, struct forge_error *err)
{
	struct postgres_store *s = self(st);
	const char *texts[VALUES_MAX];
	char numbers[VALUES_MAX][24];

	for (size_t i = 0; i < n; i++) {
		texts[i] = v[i].text;
		if (v[i].is_int) {
			(void)snprintf(numbers[i], sizeof(numbers[i]), "%lld",
				       (long long)v[i].n);
			texts[i] = numbers[i];
		}
	}
	bool is_sent = !s->is_mute && pPQsendQueryParams(s->conn, sql, (int)n, NULL,
							 texts, NULL, NULL, 0);
	PGresult *res = is_sent ? take_answer(s) : NULL;
	ExecStatusType state = pPQresultStatus(res);
	int rc = state == PGRES_TUPLES_OK    ? each_row(res, visit, arg)
		 : state == PGRES_COMMAND_OK ? (int)strtol(pPQcmdTuples(res), NULL, 10)
					     : fail(s, res, err);
	pPQclear(res);
	return rc;
}

static int postgres_begin(struct forge_store *st, bool durable, struct forge_error *err)
{
	return run(self(st),
		   /*
		 * Set here, whatever the server's default is: apply.c checks again what it
		 * changes.
		 */
		   durable ? "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL "
			     "synchronous_commit = on"
			   : "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL "
			     "synchronous_commit = off",
		   err);
}

static void postgres_rollback(struct forge_store *st)
{
	/* A lost connection has rolled back by itself. */
	(void)run(self(st), "ROLLBACK", NULL);
}

static int postgres_commit(struct forge_store *st, struct forge_error *err)
{
	return run(self(st), "COMMIT", err);
}

/* The number is arbitrary but must always be the same. */
static int postgres_lock_schema(struct forge_store *st, struct forge_error *err)
{
	return run(self(st), "SELECT pg_advisory_xact_lock(7020656)", err);
}

static const char *const schemes[] = { "postgresql:", "postgres:", NULL };

const struct forge_store_ops forge_store_postgres = {
	.name = "postgres",
	.schemes = schemes,
	.keyed_table = "",
	.has_small_keys = true,
	.size = sizeof(struct postgres_store),
	.open = postgres_open,
	.close = postgres_close,
	.exec = postgres_exec,
	.begin = postgres_begin,
	.commit = postgres_commit,
	.rollback = postgres_rollback,
	.lock_schema = postgres_lock_schema,
};
