/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/health only: a PostgreSQL server that is being checked, for the two files of kind postgres. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/pq.h"
#include "base/strv.h"
#include "health/kinds.h"

struct forge_checked_server {
	PGconn *conn;
	struct forge_check_report *ret; /* numbers is an object */
	const char *secrets[2];		/* passwords of the URL; "": none. Borrowed. */
};

/*
 * Reports a failure, once: the first problem stays. What precedes the reason is in fmt. res: the answer, or NULL for the
 * connection itself. Always returns -1.
 */
FORGE_PRINTF(3, 4)
int forge_checked_fail(struct forge_checked_server *s, const PGresult *res,
		       const char *fmt, ...);
/* Sends one statement with text parameters. The caller clears the answer. */
PGresult *forge_checked_ask(struct forge_checked_server *s, const char *sql, int n,
			    const char *const *values);
/* Did it give rows? */
bool forge_checked_has_rows(const PGresult *res);
/* A column of the first row or of another one; "" for NULL. */
const char *forge_checked_value(const PGresult *res, int row, int column);

/* Tables that a declaration names, all in one list. */
struct forge_checked_table {
	const char *name; /* as declared */
	char *sql;	  /* schema and name, quoted by the server */
	char *oid;
	bool is_counted, is_compared;
	bool is_plain; /* a table, and all of its rows are its own */
};
struct forge_checked_tables {
	struct forge_checked_table *v;
	size_t n;
};
void forge_checked_tables_done(struct forge_checked_tables *t);

/* All return 0, or -1 after a report. Finds all tables, with the search path of the user. */
int forge_checked_tables_find(struct forge_checked_server *s,
			      const struct forge_check_decl *d,
			      struct forge_checked_tables *ret);
/* numbers.count and numbers.contents; reads a little of the other tables. */
int forge_checked_tables_read(struct forge_checked_server *s,
			      const struct forge_checked_tables *t);
/* Reads all rows of all tables, and lets amcheck verify their indexes. */
int forge_checked_tables_verify(struct forge_checked_server *s,
				const struct forge_checked_tables *t);
