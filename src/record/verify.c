/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the objects, has them checked, and names the runs that point to damaged ones. */
#include "record/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/entries.h"
#include "base/json.h"
#include "base/lock.h"
#include "record/deliver.h"
#include "record/foreign.h"
#include "record/record.h"
#include "spec/asked.h"
#include "state/damage.h"
#include "state/objects.h"
#include "state/reused.h"

/* A digest that was seen: as a file, or in a record. */
struct sighting {
	uint8_t digest[FORGE_SHA256_BYTES];
	uint64_t size;
	bool is_file;
};

struct verify {
	const struct forge_verify *how;
	const struct forge_home *home;
	struct sighting *at;
	size_t n, cap;
	json_t *damaged, *missing, *not_checked, *good_again;
};

static int out_of_memory(struct forge_error *err)
{
	return forge_fail(err, ENOMEM, "out of memory");
}

/* Takes value, also on failure. */
static int append(json_t *array, json_t *value)
{
	return json_array_append_new(array, value) < 0 ? -ENOMEM : 0;
}

static int add_sighting(struct verify *v, const char *digest, uint64_t size, bool is_file)
{
	if (v->n == v->cap) {
		size_t cap = v->cap ? 2 * v->cap : 256;
		struct sighting *grown = reallocarray(v->at, cap, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		v->at = grown;
		v->cap = cap;
	}
	struct sighting *s = &v->at[v->n++];
	forge_check_pack(digest, s->digest);
	s->size = size;
	s->is_file = is_file;
	return 0;
}

/* ---- references ---- */

/* A reference to an object. path: of the output or of the script. */
struct reference {
	const char *run_id, *analysis_id, *path, *digest;
	uint64_t size;
	bool is_script;
};
typedef int visit_reference(struct verify *v, const struct reference *r, void *arg);

/* Visits the outputs and the script of one record. */
static int each_in_record(struct verify *v, const json_t *record, visit_reference *visit,
			  void *arg)
{
	struct reference r = {
		.run_id = forge_json_string_or(record, "run_id", "?"),
		.analysis_id = forge_json_string_or(record, "analysis_id", "?"),
	};
	const char *script = forge_asked_script(record);
	const json_t *f;
	size_t i;
	int rc = 0;

	json_array_foreach (json_object_get(record, "outputs"), i, f) {
		const json_t *size = json_object_get(f, "size");
		r.digest = forge_json_string(f, "sha256");
		r.path = forge_json_string_or(f, "path", "?");
		r.size = json_is_integer(size) ? (uint64_t)json_integer_value(size)
					       : FORGE_SIZE_UNKNOWN;
		if (rc == 0 && forge_objects_is_digest(r.digest))
			rc = visit(v, &r, arg);
	}
	if (rc < 0 || !forge_objects_is_digest(script))
		return rc;
	const json_t *asked = json_object_get(json_object_get(record, "asked"), "script");
	r.digest = script;
	r.path = forge_json_string_or(asked, "path", "?");
	r.size = FORGE_SIZE_UNKNOWN;
	r.is_script = true;
	return visit(v, &r, arg);
}

static int not_checked(struct verify *v, const char *key, const char *name,
		       const char *problem)
{
	return append(v->not_checked, json_pack("{s:s, s:o}", key, name, "problem",
						forge_json_text(problem)));
}

struct visiting {
	struct verify *v;
	visit_reference *visit;
	void *arg;
};

static int visit_reused(void *arg, const char *name, time_t used, const json_t *entry)
{
	const struct visiting *w = arg;

	(void)name;
	(void)used;
	return each_in_record(w->v, json_object_get(entry, "result"), w->visit, w->arg);
}

/*
 * Visits the references of all runs in this FORGE_HOME, and of results of other users that are used here. says: reports
 * unreadable records.
 */
static int each_here(struct verify *v, bool says, visit_reference *visit, void *arg,
		     struct forge_error *err)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int rc = 0;

	(void)forge_entries_open(&d, v->home->runs_fd, "."); /* d keeps the error */
	for (const char *name; rc == 0 && (name = forge_entries_next(&d));) {
		struct forge_error why = FORGE_ERROR_INIT;
		forge_auto_json json_t *record = NULL;
		if (!forge_run_id_is_valid(name))
			continue;
		int got = forge_load_record(v->home, name, &record, &why);
		if (got == 0)
			rc = each_in_record(v, record, visit, arg);
		else if (says && !forge_is_no_record(got))
			rc = not_checked(v, "run_id", name, why.msg);
	}
	struct visiting w = { v, visit, arg };
	struct forge_error why = FORGE_ERROR_INIT;
	if (rc == 0)
		rc = forge_reused_each(v->home, visit_reused, &w, &why);
	if (why.code) {
		*err = why;
		return rc;
	}
	if (rc < 0)
		return out_of_memory(err);
	return d.error ? forge_fail_errno(err, -d.error, "read %s/runs", v->home->path)
		       : 0;
}

/* ---- references that only the store has ---- */

static bool has_directory(const struct forge_home *home, const char *run_id)
{
	struct stat st;

	return fstatat(home->runs_fd, run_id, &st, AT_SYMLINK_NOFOLLOW) == 0 ||
	       errno != ENOENT;
}

struct strays {
	const struct forge_home *home;
	json_t *rows; /* by run */
};

/* The record here is what counts: a row of the store may be of another user's making. */
static int take_stray(const struct forge_output_row *row, void *arg)
{
	struct strays *s = arg;

	if (!forge_objects_is_digest(row->digest) ||
	    !forge_run_id_is_valid(row->run_id) || has_directory(s->home, row->run_id))
		return 0;
	return append(s->rows,
		      json_pack("{s:s, s:o, s:o, s:s, s:I}", "run_id", row->run_id,
				"analysis_id", forge_json_text(row->analysis_id), "path",
				forge_json_text(row->path), "sha256", row->digest, "size",
				(json_int_t)row->size));
}

/* Whether the record in the store says that its files are in this FORGE_HOME. */
static int is_ours(struct verify *v, struct forge_store *st, const char *run_id,
		   struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	forge_auto_json json_t *record = NULL;
	int rc = forge_store_get(st, run_id, &record, &why);

	if (rc == -ENOENT || rc == -EUCLEAN)
		return 0; /* removed meanwhile, or it says nothing */
	if (rc < 0) {
		*err = why;
		return rc;
	}
	return forge_foreign_home(record) && !forge_foreign_is(v->home, record);
}

/* Visits the references of runs whose directory is lost, but which the store has. */
static int each_stray(struct verify *v, struct forge_store *st, const char *digest,
		      visit_reference *visit, void *arg, struct forge_error *err)
{
	forge_auto_json json_t *rows = json_array();
	struct strays s = { v->home, rows };
	char user[FORGE_USER_MAX], host[256] = "";
	const char *last = "";
	const json_t *row;
	size_t i;
	int ours = 0;

	if (!rows)
		return out_of_memory(err);
	(void)gethostname(host, sizeof(host) - 1); /* "" matches no host */
	int rc = forge_store_each_output(st, forge_user_name(user), host, digest,
					 take_stray, &s, err);
	json_array_foreach (rows, i, row) {
		struct reference r = { forge_json_string(row, "run_id"),
				       forge_json_string(row, "analysis_id"),
				       forge_json_string(row, "path"),
				       forge_json_string(row, "sha256"),
				       (uint64_t)json_integer_value(
					       json_object_get(row, "size")),
				       false };
		if (rc == 0 && strcmp(r.run_id, last) != 0) {
			rc = ours = is_ours(v, st, r.run_id, err);
			last = r.run_id;
		}
		if (rc >= 0)
			rc = ours > 0 && visit(v, &r, arg) < 0 ? out_of_memory(err) : 0;
	}
	return rc;
}

/* ---- which objects there are ---- */

static int see_reference(struct verify *v, const struct reference *r, void *arg)
{
	(void)arg;
	return add_sighting(v, r->digest, r->size, false);
}

static int list_directory(struct verify *v, int objects, const char *in)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int rc = 0;

	(void)forge_entries_open(&d, objects, in); /* d keeps the error */
	for (const char *name; rc == 0 && (name = forge_entries_next(&d));) {
		char digest[FORGE_DIGEST_MAX];
		struct stat st = { .st_size = 0 };
		if (snprintf(digest, sizeof(digest), "sha256:%s%.64s", in, name) >=
			    (int)sizeof(digest) ||
		    !forge_objects_is_digest(digest))
			continue; /* not one of ours */
		/* Only for the order: the check reports what is wrong. */
		(void)fstatat(forge_entries_fd(&d), name, &st, AT_SYMLINK_NOFOLLOW);
		rc = add_sighting(v, digest, (uint64_t)st.st_size, true);
	}
	if (rc == 0 && d.error && d.error != -ENOENT) {
		char path[16];
		(void)snprintf(path, sizeof(path), "objects/%.2s", in);
		rc = not_checked(v, "directory", path, strerror(-d.error));
	}
	return rc;
}

static int list_objects(struct verify *v, struct forge_error *err)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int rc = 0;

	(void)forge_entries_open(&d, v->home->fd, "objects"); /* d keeps the error */
	for (const char *name; rc == 0 && (name = forge_entries_next(&d));)
		if (strlen(name) == 2 && strspn(name, "0123456789abcdef") == 2)
			rc = list_directory(v, forge_entries_fd(&d), name);
	if (rc < 0)
		return out_of_memory(err);
	return d.error && d.error != -ENOENT
		       ? forge_fail_errno(err, -d.error, "read %s/objects", v->home->path)
		       : 0;
}

/* The objects of the given runs. Those of another FORGE_HOME are its owner's to check. */
static int see_given(struct verify *v, struct forge_error *err)
{
	const json_t *record;
	size_t i;
	int rc = 0;

	json_array_foreach (v->how->records, i, record) {
		char text[600];
		if (rc < 0)
			break;
		if (!forge_foreign_is(v->home, record)) {
			rc = each_in_record(v, record, see_reference, NULL);
			continue;
		}
		(void)snprintf(text, sizeof(text),
			       "its files are %.64s's, in the FORGE_HOME %.400s",
			       forge_json_string_or(record, "user", "?"),
			       forge_foreign_home(record));
		rc = not_checked(v, "run_id", forge_json_string(record, "run_id"), text);
	}
	return rc < 0 ? out_of_memory(err) : 0;
}

static int open_store(const struct verify *v, struct forge_store **ret,
		      struct forge_error *err)
{
	*ret = NULL;
	return v->how->url ? forge_store_open(v->how->url, ret, err) : 0;
}

static int see_all(struct verify *v, struct forge_error *err)
{
	forge_auto_store struct forge_store *st = NULL;

	/* Files first: a run that ends meanwhile stores its files before its record. */
	int rc = list_objects(v, err);
	if (rc == 0)
		rc = each_here(v, true, see_reference, NULL, err);
	if (rc == 0)
		rc = open_store(v, &st, err);
	return rc == 0 && st ? each_stray(v, st, NULL, see_reference, NULL, err) : rc;
}

/* By digest, the file before the records. */
static int compare_sightings(const void *a, const void *b)
{
	const struct sighting *x = a, *y = b;
	int order = memcmp(x->digest, y->digest, sizeof(x->digest));

	return order ? order : (int)y->is_file - (int)x->is_file;
}

static void look_at_size(const struct verify *v, struct forge_check_item *item)
{
	char digest[FORGE_DIGEST_MAX], path[FORGE_STORED_MAX];
	struct stat st;

	forge_check_unpack(item->digest, digest);
	if (fstatat(v->home->fd, forge_objects_path(path, digest), &st,
		    AT_SYMLINK_NOFOLLOW) == 0)
		item->size = (uint64_t)st.st_size;
}

/* One item for each digest. Of several recorded sizes one that is not the file's is taken. */
static int make_items(struct verify *v, struct forge_check_item **ret, size_t *ret_n)
{
	struct forge_check_item *items = calloc(v->n + 1, sizeof(*items)), *item = NULL;
	size_t n = 0;

	if (!items)
		return -ENOMEM;
	if (v->n)
		qsort(v->at, v->n, sizeof(*v->at), compare_sightings);
	for (size_t i = 0; i < v->n; i++) {
		const struct sighting *s = &v->at[i];
		if (!item || memcmp(item->digest, s->digest, sizeof(s->digest)) != 0) {
			item = &items[n++];
			memcpy(item->digest, s->digest, sizeof(s->digest));
			item->recorded = FORGE_SIZE_UNKNOWN;
			if (s->is_file)
				item->size = s->size;
			else
				look_at_size(v, item);
		}
		if (!s->is_file && s->size != FORGE_SIZE_UNKNOWN &&
		    (item->recorded == FORGE_SIZE_UNKNOWN || s->size != item->size))
			item->recorded = s->size;
	}
	*ret = items;
	*ret_n = n;
	return 0;
}

/* ---- the runs that point to them ---- */

static int by_digest(const void *a, const void *b)
{
	return strcmp(((const struct forge_checked *)a)->digest,
		      ((const struct forge_checked *)b)->digest);
}

struct naming {
	struct forge_check_result *bad; /* sorted */
	json_t **runs;			/* for each of them */
};

static int name_run(struct verify *v, const struct reference *r, void *arg)
{
	const struct naming *n = arg;
	struct forge_checked key = { .problem = "" };

	(void)v;
	(void)snprintf(key.digest, sizeof(key.digest), "%s", r->digest);
	const struct forge_checked *at =
		bsearch(&key, n->bad->at, n->bad->n, sizeof(key), by_digest);
	if (!at)
		return 0;
	json_t *run = json_pack("{s:s, s:o, s:o}", "run_id", r->run_id, "analysis_id",
				forge_json_text(r->analysis_id), "path",
				forge_json_text(r->path));
	if (run && r->is_script)
		json_object_set_new(run, "script", json_true());
	return append(n->runs[at - n->bad->at], run);
}

static int name_runs(struct verify *v, struct naming *n, struct forge_error *err)
{
	forge_auto_store struct forge_store *st = NULL;
	int rc = each_here(v, false, name_run, n, err);

	if (rc == 0)
		rc = open_store(v, &st, err);
	for (size_t i = 0; i < n->bad->n && rc == 0 && st; i++)
		rc = each_stray(v, st, n->bad->at[i].digest, name_run, n, err);
	return rc;
}

/* Takes runs. An object that is gone, and to which no record points, is no loss. */
static int report(struct verify *v, const struct forge_checked *c, json_t *runs)
{
	json_t *to = NULL;

	switch (c->state) {
	case FORGE_CHECK_GOOD:
	case FORGE_CHECK_GOOD_AGAIN:
		json_decref(runs);
		return c->state == FORGE_CHECK_GOOD
			       ? 0
			       : append(v->good_again, json_string(c->digest));
	case FORGE_CHECK_ABSENT:
		to = json_array_size(runs) ? v->missing : NULL;
		break;
	case FORGE_CHECK_DAMAGED:
	case FORGE_CHECK_MISRECORDED:
		to = v->damaged;
		break;
	case FORGE_CHECK_UNKNOWN:
		to = v->not_checked;
		break;
	}
	if (!to) {
		json_decref(runs);
		return 0;
	}
	json_t *j = json_pack("{s:s, s:s, s:o}", "sha256", c->digest, "problem",
			      c->problem, "runs", runs);
	if (j && c->state == FORGE_CHECK_DAMAGED && *c->found)
		json_object_set_new(j, "found", json_string(c->found));
	if (j && c->mark_error)
		json_object_set_new(j, "not_marked",
				    json_string(strerror(-c->mark_error)));
	return append(to, j);
}

/*
 * What was missing may have been removed with its records, or have come back. Under the lock
 * nothing is removed: rm removes records before objects, and gc only objects without records.
 */
static int look_again(struct verify *v, struct forge_check_result *bad, int *lock,
		      struct forge_error *err)
{
	for (size_t i = 0; i < bad->n; i++) {
		struct forge_check_item item = { .recorded = FORGE_SIZE_UNKNOWN };
		if (bad->at[i].state != FORGE_CHECK_ABSENT)
			continue;
		if (*lock < 0)
			*lock = forge_lock_file(v->home->fd, "objects.lock",
						FORGE_LOCK_SHARED,
						FORGE_LOCK_WAIT_FOREVER, -1);
		if (*lock < 0)
			return forge_fail_errno(err, -*lock, "lock objects.lock");
		forge_check_pack(bad->at[i].digest, item.digest);
		forge_check_object(v->home, &item, &bad->at[i]);
	}
	return 0;
}

static int report_all(struct verify *v, struct forge_check_result *bad,
		      struct forge_error *err)
{
	forge_auto_close int lock = -1;
	forge_auto_free json_t **runs = calloc(bad->n + 1, sizeof(json_t *));
	struct naming naming = { bad, runs };
	int rc = runs ? look_again(v, bad, &lock, err) : out_of_memory(err);

	if (rc < 0 || bad->n == 0)
		return rc;
	qsort(bad->at, bad->n, sizeof(*bad->at), by_digest);
	for (size_t i = 0; i < bad->n; i++) {
		runs[i] = json_array();
		if (!runs[i])
			rc = out_of_memory(err);
	}
	if (rc == 0)
		rc = name_runs(v, &naming, err);
	for (size_t i = 0; i < bad->n; i++) {
		if (rc < 0)
			json_decref(runs[i]);
		else if (report(v, &bad->at[i], runs[i]) < 0)
			rc = out_of_memory(err);
	}
	return rc;
}

static int check(struct verify *v, struct forge_check_result *result,
		 struct forge_error *err)
{
	const struct forge_check how = { v->home, v->how->progress };
	forge_auto_free struct forge_check_item *items = NULL;
	size_t n = 0;
	int rc = v->how->records ? see_given(v, err) : see_all(v, err);

	if (rc == 0 && make_items(v, &items, &n) < 0)
		rc = out_of_memory(err);
	free(v->at);
	v->at = NULL;
	if (rc == 0 && forge_check_objects(&how, items, n, result) < 0)
		rc = out_of_memory(err);
	return rc < 0 ? rc : report_all(v, result, err);
}

int forge_verify(const struct forge_verify *how, json_t **ret, struct forge_error *err)
{
	struct verify v = { .how = how,
			    .home = how->home,
			    .damaged = json_array(),
			    .missing = json_array(),
			    .not_checked = json_array(),
			    .good_again = json_array() };
	struct forge_check_result result = { .at = NULL };
	int rc = check(&v, &result, err);

	json_t *j = json_pack(
		"{s:I, s:I, s:o, s:o, s:o, s:o}", "checked", (json_int_t)result.checked,
		"bytes", (json_int_t)result.bytes, "damaged", v.damaged, "missing",
		v.missing, "not_checked", v.not_checked, "good_again", v.good_again);
	forge_check_result_done(&result);
	if (rc == 0 && !j)
		rc = out_of_memory(err);
	if (rc < 0) {
		json_decref(j);
		return rc;
	}
	*ret = j;
	return 0;
}

void forge_verify_note(const struct forge_home *home, json_t *record)
{
	json_t *f;
	size_t i;

	json_array_foreach (json_object_get(record, "outputs"), i, f) {
		const char *digest = forge_json_string(f, "sha256");
		if (forge_objects_is_digest(digest) &&
		    forge_damage_is_marked(home->fd, digest) == 1)
			json_object_set_new(f, "damaged", json_true());
	}
}
