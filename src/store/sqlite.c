/* SPDX-License-Identifier: Apache-2.0 */
/* The embedded store: one file in write-ahead mode. */
#include <errno.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/strv.h"
#include "store/backend.h"

/* How long to wait for other writers; with hundreds at once the last one waits for all others. */
#define BUSY_MAX_USEC (30 * 1000000ull)
/*
 * Pages in the log before they are moved into the file. Every first opener reads the log, so it
 * is kept short. Each move waits for the disk twice, so forge_store_tidy() does it when no user
 * waits. If that is never called, a commit moves them.
 */
#define TIDY_PAGES	 64
#define CHECKPOINT_PAGES 1024
#define CACHED_MAX	 32

struct sqlite_store {
	struct forge_store base;
	sqlite3 *db;
	uint64_t busy_since;
	int log_pages;	 /* after the last commit */
	bool is_durable; /* the present value of PRAGMA synchronous */
	/* Statements already compiled, by the address of their text. */
	struct {
		const char *sql;
		sqlite3_stmt *stmt;
	} cached[CACHED_MAX];
	size_t n_cached;
};
_Static_assert(offsetof(struct sqlite_store, base) == 0, "base must come first");

static struct sqlite_store *self(struct forge_store *st)
{
	return (struct sqlite_store *)st;
}

static int errno_of(struct sqlite_store *s)
{
	int code = sqlite3_errcode(s->db);

	switch (code & 0xff) {
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return EBUSY;
	case SQLITE_FULL:
		return ENOSPC;
	case SQLITE_READONLY:
		return EROFS;
	case SQLITE_CANTOPEN:
	case SQLITE_IOERR:
		return sqlite3_system_errno(s->db) ? sqlite3_system_errno(s->db) : EIO;
	case SQLITE_NOMEM:
		return ENOMEM;
	case SQLITE_TOOBIG:
		return E2BIG;
	case SQLITE_CONSTRAINT:
		return sqlite3_extended_errcode(s->db) == SQLITE_CONSTRAINT_UNIQUE ||
				       sqlite3_extended_errcode(s->db) ==
					       SQLITE_CONSTRAINT_PRIMARYKEY
			       ? EEXIST
			       : EINVAL;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return EUCLEAN;
	case SQLITE_ERROR:
		return strncmp(sqlite3_errmsg(s->db), "no such table", 13) == 0 ? ENOENT
										: EINVAL;
	default:
		return EIO;
	}
}

static int fail(struct sqlite_store *s, struct forge_error *err)
{
	int code = errno_of(s);

	return forge_fail(err, code, "sqlite: %s%s%s", sqlite3_errmsg(s->db),
			  code == EIO || code == EINVAL ? "" : ": ",
			  code == EIO || code == EINVAL ? "" : strerror(code));
}

/* Sleeps for short, different times, so that many writers do not wake at the same moment. */
static int on_busy(void *arg, int tries)
{
	struct sqlite_store *s = arg;
	uint64_t now = forge_now_usec();

	if (tries == 0)
		s->busy_since = now;
	if (now - s->busy_since > BUSY_MAX_USEC)
		return 0;
	unsigned long most = tries < 4 ? 500 : 4000;
	struct timespec ts = {
		.tv_nsec = (long)(200 + (now ^ (unsigned)getpid()) % most) * 1000
	};
	(void)nanosleep(&ts, NULL); /* an early wake-up is harmless */
	return 1;
}

static int run(struct sqlite_store *s, const char *sql, struct forge_error *err)
{
	return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(s, err);
}

/* In write-ahead mode NORMAL does not wait for the disk, FULL does at each commit. */
static int set_durable(struct sqlite_store *s, bool durable, struct forge_error *err)
{
	if (s->is_durable == durable)
		return 0;
	s->is_durable = durable;
	return run(s,
		   durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL",
		   err);
}

/* Replaces SQLite's own hook, which does not report the length of the log. */
static int on_commit(void *arg, sqlite3 *db, const char *name, int pages)
{
	struct sqlite_store *s = arg;

	s->log_pages = pages;
	if (pages >= CHECKPOINT_PAGES)
		(void)sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL,
						NULL);
	return SQLITE_OK;
}

/*
 * The log must be truncated, not only copied. Which pages were copied is remembered in shared
 * memory, which is gone when the last process closes the file; then the log would grow forever.
 */
static void sqlite_tidy(struct forge_store *st)
{
	struct sqlite_store *s = self(st);

	if (s->log_pages < TIDY_PAGES)
		return;
	(void)sqlite3_busy_handler(s->db, NULL, NULL); /* if busy, skip it */
	(void)sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL,
					NULL);
	(void)sqlite3_busy_handler(s->db, on_busy, s);
}

static bool sqlite_has_moved(struct forge_store *st)
{
	int moved = 0;

	return sqlite3_file_control(self(st)->db, "main", SQLITE_FCNTL_HAS_MOVED,
				    &moved) == SQLITE_OK &&
	       moved;
}

/*
 * The log of a file that was moved away would be applied to a new, empty one, and neither would be readable after
 * the file is back.
 */
static int check_log(const char *path, struct forge_error *err)
{
	forge_auto_free char *log = forge_asprintf("%s-wal", path);
	struct stat file, left;

	if (!log)
		return forge_fail(err, ENOMEM, "out of memory");
	if (stat(path, &file) == 0 || errno != ENOENT || stat(log, &left) < 0 ||
	    left.st_size == 0)
		return 0;
	/* Another process may have made both just now. */
	if (stat(path, &file) == 0 || errno != ENOENT)
		return 0;
	return forge_hint(
		err,
		forge_fail(err, ENOENT, "%s is gone, and its log %s is not", path, log),
		"Put the file back; to begin with an empty store, remove the log");
}

static int open_file(struct sqlite_store *s, const char *path, struct forge_error *err)
{
	/* Rows name commands and paths, so only the owner may read the file. */
	mode_t before = umask(077);
	int rc = sqlite3_open_v2(
		path, &s->db,
		SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
	(void)umask(before);
	if (rc != SQLITE_OK && !s->db)
		return forge_fail(err, ENOMEM, "out of memory");
	return rc != SQLITE_OK ? forge_wrap(err, fail(s, err), "%s", path) : 0;
}

/*
 * Only for a fresh file: the mode is stored in it. When other processes do the same at this
 * moment, SQLite returns "busy" without calling on_busy() first.
 */
static int set_wal(struct sqlite_store *s, const char *path, struct forge_error *err)
{
	struct forge_error e = FORGE_ERROR_INIT;
	struct stat file;
	int rc = -EBUSY;

	if (stat(path, &file) < 0 || file.st_size > 0)
		return 0;
	for (int tries = 0; rc == -EBUSY && on_busy(s, tries); tries++)
		rc = run(s, "PRAGMA journal_mode = WAL", &e);
	if (rc < 0 && err)
		*err = e;
	return rc;
}

static int sqlite_store_open(struct forge_store *st, const char *url,
			     struct forge_error *err)
{
	struct sqlite_store *s = self(st);
	const char *path = url + strlen("sqlite:");

	if (strncmp(path, "//", 2) == 0)
		path += 2;
	if (path[0] != '/')
		return forge_fail(err, EINVAL, "'%s': the path must be absolute", url);
	int rc = check_log(path, err);
	if (rc == 0)
		rc = open_file(s, path, err);
	if (rc < 0)
		return rc;
	(void)sqlite3_extended_result_codes(s->db, 1);
	(void)sqlite3_busy_handler(s->db, on_busy, s);
	/*
	 * Otherwise the last process to close would move the log into the file and wait for the
	 * disk.
	 */
	(void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	(void)sqlite3_wal_hook(s->db, on_commit, s);
	s->is_durable = true; /* SQLite's default; makes the next call change it */
	rc = run(s, "PRAGMA cache_size = -512; PRAGMA foreign_keys = ON", err);
	if (rc == 0)
		rc = set_durable(s, false, err);
	if (rc == 0)
		rc = set_wal(s, path, err);
	return rc < 0 ? forge_wrap(err, rc, "%s", path) : 0;
}

static void sqlite_store_close(struct forge_store *st)
{
	struct sqlite_store *s = self(st);

	for (size_t i = 0; i < s->n_cached; i++)
		(void)sqlite3_finalize(s->cached[i].stmt);
	(void)sqlite3_close(s->db); /* NULL is fine */
}

/* Statements are our own literals, so their address identifies them. *ret_keep: do not finalize. */
static int compile(struct sqlite_store *s, const char *sql, sqlite3_stmt **ret,
		   bool *ret_keep, struct forge_error *err)
{
	for (size_t i = 0; i < s->n_cached; i++)
		if (s->cached[i].sql == sql &&
		    strcmp(sqlite3_sql(s->cached[i].stmt), sql) == 0) {
			*ret = s->cached[i].stmt;
			*ret_keep = true;
			return 0;
		}
	if (sqlite3_prepare_v2(s->db, sql, -1, ret, NULL) != SQLITE_OK)
		return fail(s, err);
	*ret_keep = s->n_cached < CACHED_MAX;
	if (*ret_keep) {
		s->cached[s->n_cached].sql = sql;
		s->cached[s->n_cached++].stmt = *ret;
	}
	return 0;
}

static void sqlite_prepare(struct forge_store *st, const char *sql)
{
	sqlite3_stmt *stmt;
	bool keep;

	if (compile(self(st), sql, &stmt, &keep, NULL) == 0 && !keep)
		(void)sqlite3_finalize(stmt);
}

static void bind_values(sqlite3_stmt *stmt, const struct forge_sql_value *v, size_t n)
{
	char name[8];

	for (size_t i = 0; i < n; i++) {
		(void)snprintf(name, sizeof(name), "$%zu", i + 1);
		int at = sqlite3_bind_parameter_index(stmt, name);
		if (v[i].is_int)
			(void)sqlite3_bind_int64(stmt, at, v[i].n);
		else if (v[i].text)
			(void)sqlite3_bind_text(stmt, at, v[i].text, -1, SQLITE_STATIC);
		else
			(void)sqlite3_bind_null(stmt, at);
	}
}

static int each_row(struct sqlite_store *s, sqlite3_stmt *stmt, forge_sql_visitor *visit,
		    void *arg, struct forge_error *err)
{
	const char *columns[32];
	int rows = 0, n = sqlite3_column_count(stmt), state;

	while ((state = sqlite3_step(stmt)) == SQLITE_ROW) {
		for (int i = 0; i < n && i < 32; i++)
			columns[i] = (const char *)sqlite3_column_text(stmt, i);
		rows++;
		int rc = visit ? visit(columns, arg) : 0;
		if (rc)
			return rc;
	}
	if (state != SQLITE_DONE)
		return fail(s, err);
	return n > 0 ? rows : sqlite3_changes(s->db);
}

static int sqlite_exec(struct forge_store *st, const char *sql,
		       const struct forge_sql_value *v, size_t n,
		       forge_sql_visitor *visit, void *arg, struct forge_error *err)
{
	struct sqlite_store *s = self(st);
	sqlite3_stmt *stmt = NULL;
	bool keep = false;
	int rc = compile(s, sql, &stmt, &keep, err);

	if (rc < 0)
		return rc;
	bind_values(stmt, v, n);
	rc = each_row(s, stmt, visit, arg, err);
	if (keep) {
		(void)sqlite3_reset(stmt); /* repeats the error of the last step */
		(void)sqlite3_clear_bindings(stmt);
	} else {
		(void)sqlite3_finalize(stmt);
	}
	return rc;
}

static int sqlite_begin(struct forge_store *st, bool durable, struct forge_error *err)
{
	struct sqlite_store *s = self(st);
	int rc = set_durable(s, durable, err);

	/* Takes the write lock at once: upgrading to it later could only fail with "busy". */
	return rc < 0 ? rc : run(s, "BEGIN IMMEDIATE", err);
}

static void sqlite_rollback(struct forge_store *st)
{
	if (!sqlite3_get_autocommit(self(st)->db)) /* an error may have rolled back */
		(void)sqlite3_exec(self(st)->db, "ROLLBACK", NULL, NULL, NULL);
}

static int sqlite_commit(struct forge_store *st, struct forge_error *err)
{
	int rc = run(self(st), "COMMIT", err);

	if (rc < 0)
		sqlite_rollback(st);
	return rc;
}

static const char *const schemes[] = { "sqlite:", NULL };

const struct forge_store_ops forge_store_sqlite = {
	.name = "sqlite",
	.schemes = schemes,
	.keyed_table = " WITHOUT ROWID",
	.size = sizeof(struct sqlite_store),
	.open = sqlite_store_open,
	.close = sqlite_store_close,
	.exec = sqlite_exec,
	.begin = sqlite_begin,
	.commit = sqlite_commit,
	.rollback = sqlite_rollback,
	.prepare = sqlite_prepare,
	.tidy = sqlite_tidy,
	.has_moved = sqlite_has_moved,
};
