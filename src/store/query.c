/* SPDX-License-Identifier: Apache-2.0 */
/* Reads from the store: single runs, references, runtimes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/strv.h"
#include "store/backend.h"
#include "store/state.h"

struct found {
	char *text;
	unsigned n;
};

static int keep_first(const char *const *columns, void *arg)
{
	struct found *f = arg;

	if (f->n++ == 0 && !(f->text = strdup(columns[0] ? columns[0] : "")))
		return -ENOMEM;
	return 0;
}

int forge_store_find_key(struct forge_store *st, const char *user, const char *key,
			 char **ret_run_id, struct forge_error *err)
{
	struct found f = { 0 };
	int rc = forge_sql(st, err, keep_first, &f,
			   "SELECT run_id FROM runs WHERE idempotency_key = $1 AND "
			   "(username = $2 OR username IS NULL)",
			   SQL_TEXT(key), SQL_TEXT(user));

	if (rc == 0)
		return forge_fail(err, ENOENT, "no run has the key '%s'", key);
	if (rc > 0 && !forge_run_id_is_valid(f.text)) {
		free(f.text);
		return forge_fail(err, EUCLEAN, "the store has a run without an id");
	}
	if (rc > 0)
		*ret_run_id = f.text;
	return rc < 0 ? rc : 0;
}

/* Checks the id, which becomes the name of a directory. Takes f. */
static int take_id(struct found *f, char **ret_run_id, struct forge_error *err)
{
	if (!forge_run_id_is_valid(f->text)) {
		free(f->text);
		return forge_fail(err, EUCLEAN, "the store has a run without an id");
	}
	*ret_run_id = f->text;
	return 0;
}

/* Finds ids that begin with id, as a range that every collation orders the same way. */
static int find_beginning(struct forge_store *st, const char *id, char **ret_run_id,
			  struct forge_error *err)
{
	struct found f = { 0 };
	forge_auto_free char *end = forge_asprintf("%szzzzzzzzzzzzzzzzzzzzzzzzzz", id);

	if (!end)
		return forge_fail(err, ENOMEM, "out of memory");
	int rc = forge_sql(st, err, keep_first, &f,
			   "SELECT run_id FROM runs WHERE run_id >= $1 AND run_id <= $2 "
			   "ORDER BY run_id LIMIT 2",
			   SQL_TEXT(id), SQL_TEXT(end));
	if (rc == 1 || (rc > 1 && strcmp(f.text, id) == 0))
		return take_id(&f, ret_run_id, err);
	free(f.text);
	if (rc < 0)
		return rc;
	return rc == 0 ? forge_fail(err, ENOENT, "no run '%s'", id)
		       : forge_fail(err, ENOTUNIQ, "several runs begin with '%s'", id);
}

/* The first row that a statement finds: 1, or 0 when it finds none. */
static int find_newest(struct forge_store *st, const char *sql, const char *word,
		       const char *user, char **ret_run_id, struct forge_error *err)
{
	struct found f = { 0 };
	int rc = user ? forge_sql(st, err, keep_first, &f, sql, SQL_TEXT(word),
				  SQL_TEXT(user))
		      : forge_sql(st, err, keep_first, &f, sql, SQL_TEXT(word));

	if (rc <= 0)
		return rc;
	rc = take_id(&f, ret_run_id, err);
	return rc < 0 ? rc : 1;
}

int forge_store_find(struct forge_store *st, const char *word, const char *user,
		     char **ret_run_id, struct forge_error *err)
{
	int rc;

	if (strcmp(word, "last") == 0) {
		rc = find_newest(st,
				 "SELECT run_id FROM runs WHERE username = $1 AND "
				 "part_of IS NULL ORDER BY run_id DESC LIMIT 1",
				 user, NULL, ret_run_id, err);
		return rc == 0	? forge_fail(err, ENOENT, "%s has no run yet", user)
		       : rc < 0 ? rc
				: 0;
	}
	rc = find_newest(st, "SELECT run_id FROM runs WHERE run_id = $1", word, NULL,
			 ret_run_id, err);
	if (rc == 0)
		rc = find_newest(st,
				 "SELECT run_id FROM runs WHERE analysis_id = $1 AND "
				 "username = $2 ORDER BY run_id DESC LIMIT 1",
				 word, user, ret_run_id, err);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	/* The beginning of a run id goes before another user's analysis id. */
	struct forge_error none = FORGE_ERROR_INIT;
	rc = find_beginning(st, word, ret_run_id, &none);
	if (rc == -ENOENT) {
		rc = find_newest(st,
				 "SELECT run_id FROM runs WHERE analysis_id = $1 ORDER "
				 "BY run_id DESC LIMIT 1",
				 word, NULL, ret_run_id, err);
		if (rc != 0)
			return rc < 0 ? rc : 0;
		rc = -ENOENT;
	}
	if (rc < 0 && err)
		*err = none;
	return rc;
}

int forge_store_get(struct forge_store *st, const char *run_id, json_t **ret,
		    struct forge_error *err)
{
	struct found f = { 0 };
	int rc = forge_sql(st, err, keep_first, &f,
			   "SELECT record FROM runs WHERE run_id = $1", SQL_TEXT(run_id));

	if (rc == 0)
		return forge_fail(err, ENOENT, "no run '%s'", run_id);
	if (rc < 0)
		return rc;
	json_t *j = json_loads(f.text, 0, NULL);
	free(f.text);
	if (!json_is_string(json_object_get(j, "status"))) {
		json_decref(j);
		return forge_fail(err, EUCLEAN, "the record of %s is damaged", run_id);
	}
	/*
	 * The record may have another id than its row; the row's id is the one that was asked
	 * for.
	 */
	json_object_set_new(j, "run_id", json_string(run_id));
	*ret = j;
	return 0;
}

static int add_event(const char *const *c, void *arg)
{
	static const char *const keys[] = { "time", "actor", "event", "status",
					    "detail" };
	json_t *e = json_pack("{s:I}", "seq", (json_int_t)strtoll(c[0], NULL, 10));

	for (size_t i = 0; e && i < FORGE_ARRAY_SIZE(keys); i++)
		if (c[i + 1])
			json_object_set_new(e, keys[i], json_string(c[i + 1]));
	return json_array_append_new(arg, e) < 0 ? -ENOMEM : 0;
}

static int add_post(const char *const *c, void *arg)
{
	json_t *row = json_loads(c[0], 0, NULL);

	return json_array_append_new(arg, row) < 0 ? -EUCLEAN : 0;
}

static int collect(struct forge_store *st, const char *sql, const char *run_id,
		   forge_sql_visitor *visit, json_t **ret, struct forge_error *err)
{
	json_t *a = json_array();
	int rc = a ? forge_sql(st, err, visit, a, sql, SQL_TEXT(run_id))
		   : forge_fail(err, ENOMEM, "out of memory");

	if (rc < 0) {
		json_decref(a);
		return rc;
	}
	*ret = a;
	return 0;
}

int forge_store_events(struct forge_store *st, const char *run_id, json_t **ret,
		       struct forge_error *err)
{
	return collect(
		st,
		"SELECT seq, time, actor, event, status, detail FROM run_events WHERE "
		"run_id = $1 ORDER BY seq",
		run_id, add_event, ret, err);
}

int forge_store_post_records(struct forge_store *st, const char *run_id, json_t **ret,
			     struct forge_error *err)
{
	return collect(
		st,
		"SELECT data FROM post_process_records WHERE run_id = $1 ORDER BY seq",
		run_id, add_post, ret, err);
}

struct objects {
	int (*visit)(const char *digest, void *arg);
	void *arg;
};

static int visit_object(const char *const *columns, void *arg)
{
	const struct objects *o = arg;

	return columns[0] ? o->visit(columns[0], o->arg) : 0;
}

int forge_store_each_object(struct forge_store *st,
			    int (*visit)(const char *digest, void *arg), void *arg,
			    struct forge_error *err)
{
	struct objects o = { visit, arg };
	int rc = st->ops->exec(st, "SELECT DISTINCT sha256 FROM outputs", NULL, 0,
			       visit_object, &o, err);

	return rc < 0 ? rc : 0;
}

struct outputs {
	int (*visit)(const struct forge_output_row *row, void *arg);
	void *arg;
};

static int visit_output(const char *const *c, void *arg)
{
	const struct outputs *o = arg;
	const struct forge_output_row row = { c[0], c[1], c[2], c[3],
					      forge_sql_number(c[4]) };

	return row.path && row.digest ? o->visit(&row, o->arg) : 0;
}

static int visit_result(const char *const *c, void *arg)
{
	const struct outputs *o = arg;
	const struct forge_output_row row = { c[0], NULL, c[1], c[2],
					      forge_sql_number(c[3]) };

	return o->visit(&row, o->arg);
}

int forge_store_find_result(struct forge_store *st, const char *step_key,
			    const char *user,
			    int (*visit)(const struct forge_output_row *row, void *arg),
			    void *arg, struct forge_error *err)
{
	struct outputs o = { visit, arg };

	return forge_sql(
		st, err, visit_result, &o,
		"SELECT r.run_id, o.path, o.sha256, o.size FROM runs r LEFT JOIN "
		"outputs o ON o.run_id = r.run_id WHERE r.run_id = (SELECT "
		"max(run_id) FROM runs WHERE step_key = $1 AND status = "
		"'succeeded' AND username = $2)",
		SQL_TEXT(step_key), SQL_TEXT(user));
}

int forge_store_each_output(struct forge_store *st, const char *user, const char *host,
			    const char *digest,
			    int (*visit)(const struct forge_output_row *row, void *arg),
			    void *arg, struct forge_error *err)
{
	static const char all[] =
		"SELECT o.run_id, r.analysis_id, o.path, o.sha256, o.size FROM outputs o "
		"JOIN runs r ON r.run_id = o.run_id WHERE r.username = $1 AND r.host = "
		"$2 ORDER BY o.run_id";
	static const char one[] =
		"SELECT o.run_id, r.analysis_id, o.path, o.sha256, o.size FROM outputs o "
		"JOIN runs r ON r.run_id = o.run_id WHERE r.username = $1 AND r.host = "
		"$2 AND o.sha256 = $3 ORDER BY o.run_id, o.path";
	struct outputs o = { visit, arg };
	int rc = digest ? forge_sql(st, err, visit_output, &o, one, SQL_TEXT(user),
				    SQL_TEXT(host), SQL_TEXT(digest))
			: forge_sql(st, err, visit_output, &o, all, SQL_TEXT(user),
				    SQL_TEXT(host));

	return rc < 0 ? rc : 0;
}

struct uses {
	int (*visit)(const struct forge_runtime_use *use, void *arg);
	void *arg;
};

static int visit_use(const char *const *c, void *arg)
{
	const struct uses *u = arg;
	struct forge_runtime_use use = { c[0], c[1], c[2], forge_sql_number(c[3]) };

	return u->visit(&use, u->arg);
}

int forge_store_runtime_history(struct forge_store *st, const char *name,
				int (*visit)(const struct forge_runtime_use *use,
					     void *arg),
				void *arg, struct forge_error *err)
{
	struct uses u = { visit, arg };

	/* Probes see contents that no run ever uses, and are not counted as runs. */
	return forge_sql(
		st, err, visit_use, &u,
		"SELECT digest, min(since), max(till), sum(n) FROM (SELECT "
		"runtime_digest "
		"AS digest, min(created_at) AS since, max(created_at) AS till, count(*) "
		"AS n "
		"FROM runs r WHERE runtime = $1 AND runtime_digest IS NOT NULL AND NOT "
		"EXISTS (SELECT 1 FROM run_events e WHERE e.run_id = r.run_id AND "
		"e.event = "
		"'runtime_probe') AND run_id NOT IN (SELECT run_id FROM health_checks "
		"WHERE name = $1) GROUP BY "
		"runtime_digest UNION ALL SELECT digest, first_seen, last_seen, 0 FROM "
		"runtimes WHERE name = $1) AS seen GROUP BY digest ORDER BY 3 DESC, 2 "
		"DESC",
		SQL_TEXT(name));
}

struct checks {
	const char *name, *digest;
	int (*visit)(const struct forge_runtime_check *check, void *arg);
	void *arg;
};

static int visit_check(const char *const *c, void *arg)
{
	const struct checks *k = arg;
	struct forge_runtime_check check = {
		.name = k->name,
		.digest = k->digest,
		.time = c[0],
		.run_id = c[1],
		.verdict = c[2],
		.problem = c[3] ? c[3] : "",
		.versions = c[4],
	};

	return k->visit(&check, k->arg);
}

int forge_store_runtime_checks(struct forge_store *st, const char *name,
			       const char *digest,
			       int (*visit)(const struct forge_runtime_check *check,
					    void *arg),
			       void *arg, struct forge_error *err)
{
	struct checks k = { name, digest, visit, arg };

	return forge_sql(
		st, err, visit_check, &k,
		"SELECT time, run_id, verdict, problem, details FROM "
		"health_checks WHERE name = $1 AND phase = 'runtime' AND digest = "
		"$2 ORDER BY time DESC",
		SQL_TEXT(name), SQL_TEXT(digest));
}
