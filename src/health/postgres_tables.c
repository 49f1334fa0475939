/* SPDX-License-Identifier: Apache-2.0 */
/* The tables that a check of kind postgres names: do they exist, what is in them, can all of them be read? */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "health/postgres.h"

/*
 * A table and its rows, and whether all rows are its own: those of views, foreign tables and the like, and of parents, may
 * change without a session of this server. Names with a dot in them are found too, so the parts are not taken apart.
 */
#define FIND_TABLE                                                                       \
	"SELECT c.oid, pg_catalog.format('%I.%I', n.nspname, c.relname), "               \
	"c.relkind = 'r' AND NOT c.relhassubclass "                                      \
	"FROM pg_catalog.pg_class c "                                                    \
	"JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "                      \
	"WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND "                              \
	"((c.relname::text = $1::text AND pg_catalog.pg_table_is_visible(c.oid)) "       \
	"OR n.nspname::text || '.' || c.relname::text = $1::text) "                      \
	"ORDER BY c.relname::text = $1::text DESC LIMIT 1"

/*
 * The same rows give the same text, whatever the settings of the role are. From here on every name that is sent has
 * its schema, and no function of another user is found.
 */
#define FIX_SETTINGS                                                                     \
	"SELECT set_config('search_path', 'pg_catalog', false), "                        \
	"set_config('DateStyle', 'ISO, YMD', false), "                                   \
	"set_config('IntervalStyle', 'postgres', false), "                               \
	"set_config('TimeZone', 'UTC', false), "                                         \
	"set_config('bytea_output', 'hex', false), "                                     \
	"set_config('lc_monetary', 'C', false), "                                        \
	"set_config('extra_float_digits', '3', false)"

/* The order of rows does not matter to a sum, and two equal rows do not cancel out. */
#define FINGERPRINT                                                                      \
	"SELECT count(*), coalesce(sum(hashtextextended((t.*)::text COLLATE \"C\", "     \
	"0)::numeric), 0)::text FROM %s AS t"

/* Valid B-trees of a table, of its partitions and of the table for its long values. */
#define FIND_INDEXES                                                                     \
	"SELECT i.indexrelid, i.indexrelid::regclass::text FROM pg_index i "             \
	"JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam "       \
	"WHERE a.amname = 'btree' AND c.relkind = 'i' AND c.relpersistence = 'p' "       \
	"AND i.indisvalid AND i.indisready AND i.indrelid IN ("                          \
	"SELECT $1::oid UNION SELECT relid FROM pg_partition_tree($1::oid) "             \
	"UNION SELECT reltoastrelid FROM pg_class WHERE oid = $1::oid)"

void forge_checked_tables_done(struct forge_checked_tables *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->v[i].sql);
		free(t->v[i].oid);
	}
	free(t->v);
	*t = (struct forge_checked_tables){ 0 };
}

/* ---- finding ---- */

/* 1: found. 0: there is none. -1: reported. */
static int find_table(struct forge_checked_server *s, const char *name,
		      struct forge_checked_tables *t)
{
	struct forge_checked_table *one = &t->v[t->n];
	PGresult *res = forge_checked_ask(s, FIND_TABLE, 1, &name);
	int rc = pPQresultStatus(res) != PGRES_TUPLES_OK
			 ? forge_checked_fail(s, res, "table %.64s", name)
			 : pPQntuples(res) > 0;

	if (rc == 1) {
		*one = (struct forge_checked_table){
			.name = name,
			.oid = strdup(forge_checked_value(res, 0, 0)),
			.sql = strdup(forge_checked_value(res, 0, 1)),
			.is_plain = strcmp(forge_checked_value(res, 0, 2), "t") == 0,
		};
		t->n++;
		if (!one->oid || !one->sql) {
			forge_check_say(s->ret, false, "out of memory");
			rc = -1;
		}
	}
	pPQclear(res);
	return rc;
}

/* A table is in the list once, although several keys may name it. */
static struct forge_checked_table *known(struct forge_checked_tables *t, const char *name)
{
	for (size_t i = 0; i < t->n; i++)
		if (strcmp(t->v[i].name, name) == 0)
			return &t->v[i];
	return NULL;
}

static int fix_settings(struct forge_checked_server *s)
{
	PGresult *res = forge_checked_ask(s, FIX_SETTINGS, 0, NULL);
	int rc = forge_checked_has_rows(res) ? 0 : forge_checked_fail(s, res, "settings");

	pPQclear(res);
	return rc;
}

static bool has_name(const json_t *names, const char *name)
{
	size_t i;
	const json_t *one;

	json_array_foreach (names, i, one)
		if (strcmp(json_string_value(one), name) == 0)
			return true;
	return false;
}

static const char *join_names(const json_t *names, char buf[200])
{
	size_t i, len = 0;
	const json_t *one;

	json_array_foreach (names, i, one)
		if (len < 200)
			len += (size_t)snprintf(buf + len, 200 - len, "%s%s",
						i ? ", " : "", json_string_value(one));
	return buf;
}

int forge_checked_tables_find(struct forge_checked_server *s,
			      const struct forge_check_decl *d,
			      struct forge_checked_tables *ret)
{
	const struct forge_strv *lists[] = { &d->tables, &d->count, &d->contents };
	json_t *missing = json_array();
	int rc = 0;

	/* Also for the comparison with the time before a run. */
	json_object_set_new(s->ret->numbers, "missing", missing);
	ret->v = calloc(d->tables.n + d->count.n + d->contents.n + 1, sizeof(*ret->v));
	if (!ret->v) {
		forge_check_say(s->ret, false, "out of memory");
		return -1;
	}
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(lists); i++)
		forge_strv_foreach (name, lists[i]) {
			rc = known(ret, name) ? 1 : find_table(s, name, ret);
			if (rc < 0)
				return rc;
			struct forge_checked_table *one = known(ret, name);
			if (one) {
				one->is_counted |= i == 1;
				one->is_compared |= i == 2;
			} else if (!has_name(missing, name)) {
				json_array_append_new(missing, forge_json_text(name));
			}
		}
	if (json_array_size(missing)) {
		char names[200];
		forge_check_say(s->ret, false, "database %s has no table %s",
				pPQdb(s->conn), join_names(missing, names));
		return -1;
	}
	json_object_del(s->ret->numbers, "missing");
	return fix_settings(s);
}

/* ---- reading ---- */

/* Sends sql with the name of the table in place of %s. */
static PGresult *ask_about(struct forge_checked_server *s, const char *sql,
			   const struct forge_checked_table *t)
{
	const char *hole = strstr(sql, "%s");
	forge_auto_free char *text =
		forge_asprintf("%.*s%s%s", (int)(hole - sql), sql, t->sql, hole + 2);

	return text ? forge_checked_ask(s, text, 0, NULL) : NULL;
}

static json_t *map_of(struct forge_checked_server *s, const char *key)
{
	json_t *map = json_object_get(s->ret->numbers, key);

	if (!map) {
		map = json_object();
		json_object_set_new(s->ret->numbers, key, map);
	}
	return map;
}

/* numbers.contents[name] is "rows:sum". */
static int note_contents(struct forge_checked_server *s,
			 const struct forge_checked_table *t)
{
	PGresult *res = ask_about(s, FINGERPRINT, t);
	int rc = forge_checked_has_rows(res)
			 ? 0
			 : forge_checked_fail(s, res, "table %.64s", t->name);

	if (rc == 0 && t->is_compared) {
		forge_auto_free char *text =
			forge_asprintf("%s:%s", forge_checked_value(res, 0, 0),
				       forge_checked_value(res, 0, 1));
		json_object_set_new(map_of(s, "contents"), t->name,
				    forge_json_text(text ? text : ""));
	}
	pPQclear(res);
	return rc;
}

static int note_count(struct forge_checked_server *s, const struct forge_checked_table *t)
{
	PGresult *res = ask_about(s, "SELECT count(*) FROM %s", t);
	int rc = forge_checked_has_rows(res)
			 ? 0
			 : forge_checked_fail(s, res, "table %.64s", t->name);

	if (rc == 0)
		json_object_set_new(
			map_of(s, "count"), t->name,
			json_integer(strtoll(forge_checked_value(res, 0, 0), NULL, 10)));
	pPQclear(res);
	return rc;
}

/* Is there a file with a first page? That this user may not read it is no damage. */
static int touch(struct forge_checked_server *s, const struct forge_checked_table *t)
{
	PGresult *res = ask_about(s, "SELECT FROM %s LIMIT 1", t);
	const char *state = pPQresultErrorField(res, PG_DIAG_SQLSTATE);
	int rc = pPQresultStatus(res) == PGRES_TUPLES_OK ||
				 (state && strcmp(state, "42501") == 0)
			 ? 0
			 : forge_checked_fail(s, res, "table %.64s", t->name);

	pPQclear(res);
	return rc;
}

static int end_statement(struct forge_checked_server *s, const char *sql)
{
	PGresult *res = forge_checked_ask(s, sql, 0, NULL);
	int rc = pPQresultStatus(res) == PGRES_COMMAND_OK
			 ? 0
			 : forge_checked_fail(s, res, "transaction");

	pPQclear(res);
	return rc;
}

/* For attribution: numbers.plain, which is false when a guarded relation is not a table with rows of its own. */
static void note_plain(struct forge_checked_server *s,
		       const struct forge_checked_tables *t)
{
	bool is_plain = true;

	for (size_t i = 0; i < t->n; i++)
		if (t->v[i].is_counted || t->v[i].is_compared)
			is_plain &= t->v[i].is_plain;
	json_object_set_new(s->ret->numbers, "plain", json_boolean(is_plain));
}

/* Numbers of several tables belong to one moment. */
int forge_checked_tables_read(struct forge_checked_server *s,
			      const struct forge_checked_tables *t)
{
	int rc = 0;

	json_object_set_new(s->ret->numbers, "tables", json_integer((json_int_t)t->n));
	note_plain(s, t);
	for (size_t i = 0; i < t->n && rc == 0; i++)
		rc = touch(s, &t->v[i]);
	if (rc == 0)
		rc = end_statement(s, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY");
	for (size_t i = 0; i < t->n && rc == 0; i++) {
		if (t->v[i].is_counted)
			rc = note_count(s, &t->v[i]);
		if (rc == 0 && t->v[i].is_compared)
			rc = note_contents(s, &t->v[i]);
	}
	return rc < 0 ? rc : end_statement(s, "COMMIT");
}

/* ---- verifying ---- */

/* The schema of amcheck, quoted; NULL: reported. */
static char *find_amcheck(struct forge_checked_server *s)
{
	PGresult *res =
		forge_checked_ask(s,
				  "SELECT quote_ident(n.nspname) FROM pg_extension e "
				  "JOIN pg_namespace n ON n.oid = e.extnamespace WHERE "
				  "e.extname = 'amcheck'",
				  0, NULL);
	char *schema = NULL;

	if (forge_checked_has_rows(res))
		schema = strdup(forge_checked_value(res, 0, 0));
	else if (pPQresultStatus(res) != PGRES_TUPLES_OK)
		(void)forge_checked_fail(s, res, "amcheck");
	else
		forge_check_say(s->ret, false,
				"thorough needs the extension amcheck, which is not "
				"installed in database %s: CREATE EXTENSION amcheck",
				pPQdb(s->conn));
	pPQclear(res);
	return schema;
}

static int check_indexes(struct forge_checked_server *s, const char *amcheck,
			 const struct forge_checked_table *t, size_t *n)
{
	const char *oid = t->oid;
	PGresult *list = forge_checked_ask(s, FIND_INDEXES, 1, &oid);
	/* true: every row must be in the index. */
	forge_auto_free char *sql =
		forge_asprintf("SELECT %s.bt_index_check($1::regclass, true)", amcheck);
	int rc = pPQresultStatus(list) == PGRES_TUPLES_OK && sql
			 ? 0
			 : forge_checked_fail(s, list, "indexes of %.64s", t->name);

	for (int row = 0; rc == 0 && row < pPQntuples(list); row++) {
		const char *index = forge_checked_value(list, row, 0);
		PGresult *res = forge_checked_ask(s, sql, 1, &index);
		if (!forge_checked_has_rows(res))
			rc = forge_checked_fail(s, res, "index %.80s",
						forge_checked_value(list, row, 1));
		pPQclear(res);
		(*n)++;
	}
	pPQclear(list);
	return rc;
}

int forge_checked_tables_verify(struct forge_checked_server *s,
				const struct forge_checked_tables *t)
{
	forge_auto_free char *amcheck = find_amcheck(s);
	size_t indexes = 0;
	int rc = amcheck ? 0 : -1;

	/* All values of all rows: every page is read, also of long values, and its checksum verified. */
	for (size_t i = 0; i < t->n && rc == 0; i++)
		rc = t->v[i].is_compared ? 0 : note_contents(s, &t->v[i]);
	for (size_t i = 0; i < t->n && rc == 0; i++)
		rc = check_indexes(s, amcheck, &t->v[i], &indexes);
	json_object_set_new(s->ret->numbers, "indexes",
			    json_integer((json_int_t)indexes));
	return rc;
}
