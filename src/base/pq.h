/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libpq, opened at run time, and only when a server is asked: it loads a dozen libraries, which a run on SQLite
 * should not pay for. Each function has its usual name with a p before it: pPQfinish().
 */
#pragma once

#include <libpq-fe.h>

#include "base/error.h"

/* Every function of libpq in use: name, result, parameters. */
#define FORGE_PQ_FUNCTIONS(X)                                                            \
	X(PQconnectdbParams, PGconn *,                                                   \
	  (const char *const *keywords, const char *const *values, int expand))          \
	X(PQstatus, ConnStatusType, (const PGconn *conn))                                \
	X(PQuser, char *, (const PGconn *conn))                                          \
	X(PQerrorMessage, char *, (const PGconn *conn))                                  \
	X(PQparameterStatus, const char *, (const PGconn *conn, const char *name))       \
	X(PQfinish, void, (PGconn * conn))                                               \
	X(PQsetnonblocking, int, (PGconn * conn, int on))                                \
	X(PQsendQuery, int, (PGconn * conn, const char *sql))                            \
	X(PQsendQueryParams, int,                                                        \
	  (PGconn * conn, const char *sql, int n, const Oid *types,                      \
	   const char *const *values, const int *lengths, const int *formats,            \
	   int binary))                                                                  \
	X(PQexecParams, PGresult *,                                                      \
	  (PGconn * conn, const char *sql, int n, const Oid *types,                      \
	   const char *const *values, const int *lengths, const int *formats,            \
	   int binary))                                                                  \
	X(PQconninfoParse, PQconninfoOption *, (const char *text, char **message))       \
	X(PQconninfoFree, void, (PQconninfoOption * options))                            \
	X(PQfreemem, void, (void *p))                                                    \
	X(PQdb, char *, (const PGconn *conn))                                            \
	X(PQserverVersion, int, (const PGconn *conn))                                    \
	X(PQflush, int, (PGconn * conn))                                                 \
	X(PQsocket, int, (const PGconn *conn))                                           \
	X(PQconsumeInput, int, (PGconn * conn))                                          \
	X(PQisBusy, int, (PGconn * conn))                                                \
	X(PQgetResult, PGresult *, (PGconn * conn))                                      \
	X(PQresultStatus, ExecStatusType, (const PGresult *res))                         \
	X(PQresultErrorMessage, char *, (const PGresult *res))                           \
	X(PQresultErrorField, char *, (const PGresult *res, int field))                  \
	X(PQclear, void, (PGresult * res))                                               \
	X(PQntuples, int, (const PGresult *res))                                         \
	X(PQnfields, int, (const PGresult *res))                                         \
	X(PQgetvalue, char *, (const PGresult *res, int row, int column))                \
	X(PQgetisnull, int, (const PGresult *res, int row, int column))                  \
	X(PQcmdTuples, char *, (PGresult * res))                                         \
	X(PQsetNoticeProcessor, PQnoticeProcessor,                                       \
	  (PGconn * conn, PQnoticeProcessor proc, void *arg))

#define FORGE_PQ_DECLARE(name, result, params) extern result(*p##name) params;
FORGE_PQ_FUNCTIONS(FORGE_PQ_DECLARE)
#undef FORGE_PQ_DECLARE

/* Must succeed before any of them is called. Later calls cost nothing. */
FORGE_MUST_CHECK int forge_pq_load(struct forge_error *err);
