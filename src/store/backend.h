/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of a store backend. All statements use only SQL that both backends understand
 * (parameters are $1, $2 ...), so a backend is just a connection that runs statements. Only
 * files in src/store/ call through this table.
 *
 *  - ops never log and never exit: they fill err and return -errno;
 *  - -ENOTCONN: the server cannot be reached or the connection broke;
 *    -ENOENT from exec: a table does not exist; -EEXIST: a unique key is taken;
 *    -EBUSY: other processes kept the store locked for too long;
 *    -EINVAL, -E2BIG: the store will never accept these values;
 *  - close() accepts a half-opened store.
 */
#pragma once

#include <stdlib.h>

#include "store/store.h"

struct forge_sql_value {
	const char *text; /* NULL and !is_int: NULL */
	int64_t n;
	bool is_int;
};
#define SQL_TEXT(s) ((struct forge_sql_value){ .text = (s) })
#define SQL_INT(i)  ((struct forge_sql_value){ .n = (int64_t)(i), .is_int = true })

/* Columns as text, NULL for NULL; borrowed. Non-zero stops. */
typedef int forge_sql_visitor(const char *const *columns, void *arg);

/* The number in a column; -1: NULL. */
static inline int64_t forge_sql_number(const char *column)
{
	return column ? strtoll(column, NULL, 10) : -1;
}

struct forge_store_ops {
	const char *name;
	const char *const *schemes; /* URL beginnings, NULL-terminated */
	/* The end of CREATE TABLE for a table whose rows are stored in the order of the key. */
	const char *keyed_table;
	bool has_small_keys; /* a row of an index is limited to a few kilobytes */
	size_t size;	     /* of the backend's struct, which starts with forge_store */

	/* required */
	int (*open)(struct forge_store *st, const char *url, struct forge_error *err);
	void (*close)(struct forge_store *st);
	/*
	 * Runs one statement. Returns visit's first non-zero result, else the number of rows
	 * that it returned or, for a change, changed. visit may be NULL.
	 */
	int (*exec)(struct forge_store *st, const char *sql,
		    const struct forge_sql_value *v, size_t n, forge_sql_visitor *visit,
		    void *arg, struct forge_error *err);
	/* Begins a transaction that will write; durable: commit waits for the disk. */
	int (*begin)(struct forge_store *st, bool durable, struct forge_error *err);
	int (*commit)(struct forge_store *st, struct forge_error *err);
	void (*rollback)(struct forge_store *st);

	/*
	 * optional: compiles sql, a literal, for later use; NULL: the backend gains nothing
	 * from it
	 */
	void (*prepare)(struct forge_store *st, const char *sql);
	/* optional: forge_store_tidy(); NULL: nothing to do */
	void (*tidy)(struct forge_store *st);
	/* optional: forge_store_has_moved(); NULL: never */
	bool (*has_moved)(struct forge_store *st);
	/* optional: blocks other migrations until commit; NULL: begin does so already */
	int (*lock_schema)(struct forge_store *st, struct forge_error *err);
};

/* First member of every backend's own struct. */
struct forge_store {
	const struct forge_store_ops *ops;
};

extern const struct forge_store_ops forge_store_sqlite, forge_store_postgres;
/* list.c: how many runs are few enough to be sorted; tests set a smaller number. */
extern unsigned forge_list_few;
/* How long the server may take to answer; tests set a shorter time. */
extern unsigned forge_postgres_answer_msec;

/* One statement through the table; the number of values is counted. */
#define forge_sql(st, err, visit, arg, sql, ...)                                         \
	(st)->ops->exec((st), (sql), (const struct forge_sql_value[]){ __VA_ARGS__ },    \
			sizeof((const struct forge_sql_value[]){ __VA_ARGS__ }) /        \
				sizeof(struct forge_sql_value),                          \
			(visit), (arg), (err))

/*
 * apply.c: runs work in one transaction, and retries when another writer was faster. 0, or
 * work's -errno.
 */
typedef int forge_store_work(struct forge_store *st, const void *arg,
			     struct forge_error *err);
FORGE_MUST_CHECK int forge_store_transact(struct forge_store *st, bool durable,
					  forge_store_work *work, const void *arg,
					  struct forge_error *err);

/* apply.c: the outputs of a record, as rows of this run. */
FORGE_MUST_CHECK int forge_store_insert_outputs(struct forge_store *st,
						const char *run_id, const json_t *record,
						struct forge_error *err);

/* totals.c: the statement of forge_store_count_run(), for forge_store_warm(). */
extern const char forge_total_sql_run[];
/* A run has ended. Probes and post-processes do not count. */
FORGE_MUST_CHECK int forge_store_count_run(struct forge_store *st, const json_t *record,
					   struct forge_error *err);
FORGE_MUST_CHECK int forge_store_count_check_result(struct forge_store *st,
						    const char *kind, const char *name,
						    const char *verdict, int64_t usec,
						    struct forge_error *err);

/* health.c: the fresh results of a record's checks. */
FORGE_MUST_CHECK int forge_store_insert_health(struct forge_store *st,
					       const json_t *record,
					       struct forge_error *err);

/* schema.c: migrates from any older version to up_to (0: the newest that this program knows). */
FORGE_MUST_CHECK int forge_store_migrate(struct forge_store *st, unsigned up_to,
					 struct forge_error *err);
unsigned forge_store_schema_version(void);
