/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of SQLite databases that other programs use: kind sqlite. Nothing on the disk is changed or made, neither
 * the file nor its log, its shared memory or its journal: a file of ours beside the database of another user could
 * keep that user's programs from writing.
 *
 * A database with a write-ahead log is opened in one of two ways. While a program has it open, there is a log, and we
 * read the log and its shared memory like any other reader, but without writing to them (readonly_shm). Without a
 * log no program has it open, and everything is in the file. SQLite would make an empty log, so that case is
 * read as "immutable". If a log or another content appears meanwhile, the result is not used.
 */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/parse.h"
#include "base/strv.h"
#include "health/kinds.h"

/* ---- a file system that only reads ---- */

static sqlite3_vfs *usual;

/* A read-only connection would still open its log for writing, and make it. Temporary files have no name. */
static int open_to_read(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
			int *ret_flags)
{
	(void)vfs; /* ours; the usual one does the work */
	if (name)
		flags = (flags & ~(SQLITE_OPEN_CREATE | SQLITE_OPEN_READWRITE |
				   SQLITE_OPEN_DELETEONCLOSE)) |
			SQLITE_OPEN_READONLY;
	return usual->xOpen(usual, name, file, flags, ret_flags);
}

static int delete_nothing(sqlite3_vfs *vfs, const char *name, int sync_dir)
{
	(void)vfs;
	(void)name;
	(void)sync_dir; /* nothing is deleted */
	return SQLITE_IOERR_DELETE;
}

static const char *reading_vfs(void)
{
	static sqlite3_vfs reading;

	usual = sqlite3_vfs_find(NULL);
	if (!usual)
		return NULL;
	reading = *usual;
	reading.zName = "forge-read";
	reading.xOpen = open_to_read;
	reading.xDelete = delete_nothing;
	return sqlite3_vfs_register(&reading, 0) == SQLITE_OK ? reading.zName : NULL;
}

/* ---- the file ---- */

/* What can be seen of a database from outside. */
struct look {
	struct stat st;
	bool has_log;
	bool is_wal; /* its header says so */
};

/* 0 or -errno. */
static int look_at(const char *path, struct look *ret)
{
	forge_auto_free char *log = forge_asprintf("%s-wal", path);
	forge_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	unsigned char versions[2] = { 0, 0 };

	if (!log)
		return -ENOMEM;
	if (fd < 0 || fstat(fd, &ret->st) < 0)
		return -errno;
	if (!S_ISREG(ret->st.st_mode))
		return -EMEDIUMTYPE;
	ret->is_wal = pread(fd, versions, 2, 18) == 2 && versions[1] == 2;
	ret->has_log = access(log, F_OK) == 0;
	return 0;
}

static bool is_same(const struct look *a, const struct look *b)
{
	return a->is_wal == b->is_wal && a->has_log == b->has_log &&
	       a->st.st_ino == b->st.st_ino && a->st.st_size == b->st.st_size &&
	       a->st.st_mtim.tv_sec == b->st.st_mtim.tv_sec &&
	       a->st.st_mtim.tv_nsec == b->st.st_mtim.tv_nsec;
}

/* A log is there while a program has the database open, and after one was killed. */
static bool is_unused(const struct look *l)
{
	return l->is_wal && !l->has_log;
}

/* A name may contain what has a meaning in a URI. */
static char *make_uri(const char *path, const char *options)
{
	char *uri = malloc(strlen(path) * 3 + strlen(options) + 8);
	char *p = uri;

	if (!uri)
		return NULL;
	p += snprintf(p, 6, "file:");
	for (; *path; path++)
		p += strchr("%?#", *path) ? snprintf(p, 4, "%%%02X", (unsigned)*path)
					  : snprintf(p, 2, "%c", *path);
	(void)snprintf(p, strlen(options) + 2, "?%s", options);
	return uri;
}

/* ---- the check ---- */

struct checked {
	char problem[256]; /* "": none */
	bool is_passing;   /* the problem may be gone soon */
	int64_t tables;
};

static void note_error(sqlite3 *db, const struct look *look, struct checked *ret)
{
	int code = sqlite3_extended_errcode(db);
	int error = sqlite3_system_errno(db);
	bool is_locked_out = (code & 0xff) == SQLITE_CANTOPEN && look->has_log;
	bool is_starting =
		code == SQLITE_READONLY_RECOVERY || code == SQLITE_READONLY_CANTINIT;

	/* A program makes and removes log and memory one after the other. */
	ret->is_passing = is_starting || (is_locked_out && error == ENOENT);
	if (is_locked_out)
		(void)snprintf(ret->problem, sizeof(ret->problem),
			       "its write-ahead log (-wal, -shm) cannot be read%s%s",
			       error ? ": " : "", error ? strerror(error) : "");
	else if (is_starting || code == SQLITE_READONLY_ROLLBACK)
		(void)snprintf(ret->problem, sizeof(ret->problem),
			       "a program was killed while it wrote: the database must "
			       "be opened by that program again before it can be read");
	else
		(void)snprintf(ret->problem, sizeof(ret->problem), "%s%s%s",
			       sqlite3_errmsg(db), error ? ": " : "",
			       error ? strerror(error) : "");
}

/* Adds a line of the pragma's answer; "ok" is none. */
static void add_problem(struct checked *c, const char *line)
{
	static const char head[] = "*** in database main ***\n";
	size_t len = strlen(c->problem);

	if (!line || strcmp(line, "ok") == 0)
		return;
	if (strncmp(line, head, strlen(head)) == 0)
		line += strlen(head);
	(void)snprintf(c->problem + len, sizeof(c->problem) - len, "%s%s",
		       len ? "; " : "", line);
}

static void check_pages(sqlite3 *db, bool is_thorough, const struct look *look,
			struct checked *ret)
{
	/* 3: as many problems are looked for, to say what is damaged. */
	const char *sql =
		is_thorough ? "PRAGMA integrity_check(3)" : "PRAGMA quick_check(3)";
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &s, NULL);

	while (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
		add_problem(ret, (const char *)sqlite3_column_text(s, 0));
		rc = SQLITE_OK;
	}
	if (rc != SQLITE_DONE && !*ret->problem)
		note_error(db, look, ret);
	sqlite3_finalize(s);
}

/* The first column of the first row, or -1. */
static int64_t number(sqlite3 *db, const char *sql, const char *name)
{
	sqlite3_stmt *s = NULL;
	int64_t n = -1;

	if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK &&
	    (!name || sqlite3_bind_text(s, 1, name, -1, SQLITE_STATIC) == SQLITE_OK) &&
	    sqlite3_step(s) == SQLITE_ROW)
		n = sqlite3_column_int64(s, 0);
	sqlite3_finalize(s);
	return n;
}

static void check_tables(sqlite3 *db, const struct forge_strv *tables,
			 const struct look *look, struct checked *ret)
{
	ret->tables = number(db,
			     "SELECT count(*) FROM sqlite_master WHERE type = 'table' "
			     "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
			     NULL);
	if (ret->tables < 0) {
		note_error(db, look, ret);
		return;
	}
	forge_strv_foreach (table, tables) {
		size_t len = strlen(ret->problem);
		sqlite3_int64 n = number(
			db,
			"SELECT count(*) FROM sqlite_master WHERE type IN ('table', "
			"'view') AND name = ?1 COLLATE NOCASE",
			table);
		/* A question without an answer says nothing of the table. */
		if (n < 0) {
			note_error(db, look, ret);
			return;
		}
		if (n == 0)
			(void)snprintf(ret->problem + len, sizeof(ret->problem) - len,
				       "%s%s", len ? ", " : "it has no table ", table);
	}
}

static void check_once(const struct forge_check_decl *d, const struct look *look,
		       struct checked *ret)
{
	forge_auto_free char *uri =
		make_uri(d->path, is_unused(look) ? "mode=ro&immutable=1"
						  : "mode=ro&readonly_shm=1");
	const char *vfs = reading_vfs();
	sqlite3 *db = NULL;

	*ret = (struct checked){ .problem = "" };
	if (!uri || !vfs) {
		(void)snprintf(ret->problem, sizeof(ret->problem), "out of memory");
		return;
	}
	int rc = sqlite3_open_v2(uri, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, vfs);
	if (rc != SQLITE_OK) {
		note_error(db, look, ret);
		sqlite3_close(db);
		return;
	}
	/* Less than all of the time, to be able to say that others have it locked. */
	(void)sqlite3_busy_timeout(db, (int)(d->timeout_usec / 1000 / 5 * 4));
	(void)sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	(void)sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	(void)sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	(void)sqlite3_exec(db, "PRAGMA temp_store = 2", NULL, NULL, NULL); /* no files */
	check_tables(db, &d->tables, look, ret);
	if (!*ret->problem)
		check_pages(db, d->is_thorough, look, ret);
	sqlite3_close(db);
}

/* Would another look at the database perhaps give another result? */
static bool is_stale(const char *path, const struct look *before, const struct checked *c)
{
	struct look after;

	if (!*c->problem || look_at(path, &after) < 0)
		return false;
	return c->is_passing ||
	       ((is_unused(before) || is_unused(&after)) && !is_same(before, &after));
}

FORGE_CHECK(forge_check_sqlite)
{
	struct look look;
	struct checked c = { .problem = "it is empty" };
	char size[FORGE_FORMAT_MAX];

	(void)env; /* nothing of it is needed */
	/* Programs open and close it meanwhile. */
	for (int tries = 0; tries < 50; tries++) {
		int rc = look_at(d->path, &look);
		if (rc < 0) {
			forge_check_say(ret, false, "%s: %s", d->path,
					forge_regular_problem(rc));
			return;
		}
		/* For SQLite that is a database without tables, for its user one that was truncated. */
		if (look.st.st_size == 0)
			break;
		check_once(d, &look, &c);
		if (!is_stale(d->path, &look, &c))
			break;
		(void)usleep(20000);
	}
	ret->numbers =
		json_pack("{s:I, s:I, s:b}", "size_bytes", (json_int_t)look.st.st_size,
			  "tables", (json_int_t)c.tables, "write_ahead_log", look.is_wal);
	if (*c.problem)
		forge_check_say(ret, false, "%s: %s", d->path, c.problem);
	else
		forge_check_say(ret, true, "ok, %lld table%s, %s", (long long)c.tables,
				c.tables == 1 ? "" : "s",
				forge_format_size(size, (uint64_t)look.st.st_size));
}
