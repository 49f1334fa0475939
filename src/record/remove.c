/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes a run first from FORGE_HOME, then from the store: one that is half removed is
 * still found there.
 */
#include "record/remove.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/entries.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/rmtree.h"
#include "record/deliver.h"
#include "record/gc.h"
#include "record/record.h"
#include "spec/asked.h"
#include "state/damage.h"
#include "state/kept.h"
#include "state/objects.h"
#include "state/quarantine.h"
#include "state/reused.h"
#include "state/slot.h"

static int note_digests(struct forge_removal *r, const json_t *record, bool outputs_only)
{
	const char *script = forge_asked_script(record);
	size_t i;
	const json_t *f;
	int rc = 0;

	json_array_foreach (json_object_get(record, "outputs"), i, f) {
		const char *digest = forge_json_string(f, "sha256");
		if (rc == 0 && forge_objects_is_digest(digest))
			rc = forge_strv_add(&r->digests, digest);
	}
	if (rc == 0 && !outputs_only && forge_objects_is_digest(script))
		rc = forge_strv_add(&r->digests, script);
	return rc;
}

/* Trusts kept.json only, as gc does. */
static int remove_kept(int dir, int log, struct forge_error *err)
{
	forge_auto_kept struct forge_kept kept = { 0 };
	struct stat st;
	int rc = forge_kept_read(dir, &kept, err);

	if (rc <= 0)
		return rc;
	if (lstat(kept.path, &st) < 0 && errno != ENOENT)
		return forge_fail_errno(err, errno, "look at %s", kept.path);
	forge_gc_log(log, "remove workdir", kept.path, 0);
	return forge_rmtree(kept.path, kept.dev, kept.ino, NULL, err);
}

static int remove_directory(const struct forge_home *home, const char *run_id, int log,
			    struct forge_error *err)
{
	forge_auto_free char *path = forge_asprintf("%s/runs/%s", home->path, run_id);
	forge_auto_close int dir = forge_home_open_run(home, run_id);
	struct stat st;

	if (dir == -ENOENT)
		return 0;
	if (!path)
		return forge_fail(err, ENOMEM, "out of memory");
	if (dir < 0 || fstat(dir, &st) < 0)
		return forge_fail_errno(err, dir < 0 ? -dir : errno, "open %s", path);
	int rc = remove_kept(dir, log, err);
	if (rc < 0)
		return rc;
	forge_gc_log(log, "remove run", run_id, 0);
	return forge_rmtree(path, st.st_dev, st.st_ino, NULL, err);
}

struct parts {
	struct forge_strv ids;
};

static int add_part(const struct forge_run_row *row, void *arg)
{
	struct parts *p = arg;

	return forge_strv_add(&p->ids, row->run_id);
}

/*
 * Whether run id is a post-process of the run "of", by the record in this FORGE_HOME:
 * other users can write the row in the store.
 */
static bool is_part(const struct forge_home *home, const char *id, const char *of,
		    json_t **ret_record)
{
	*ret_record = NULL;
	if (!forge_run_id_is_valid(id) || forge_slot_exists(home, id) ||
	    forge_load_record(home, id, ret_record, NULL) < 0)
		return false;
	const char *parent = forge_store_part_of(*ret_record);
	return parent && strcmp(parent, of) == 0;
}

/* Removes the post-processes of a run, which could not be found without it. */
static int remove_parts(const struct forge_home *home, struct forge_store *st,
			const char *run_id, int log, struct forge_removal *r,
			struct forge_error *err)
{
	struct parts parts = { .ids = { 0 } };
	const struct forge_run_filter f = { .part_of = run_id, .with_parts = true };
	int rc = forge_store_list(st, &f, add_part, &parts, err);

	rc = rc < 0 ? rc : 0;
	for (size_t i = 0; i < parts.ids.n && rc == 0; i++) {
		const char *id = parts.ids.v[i];
		json_t *record;
		if (is_part(home, id, run_id, &record)) {
			if (note_digests(r, record, false) < 0)
				rc = forge_fail(err, ENOMEM, "out of memory");
			if (rc == 0)
				rc = remove_directory(home, id, log, err);
			if (rc == 0)
				rc = forge_store_remove(st, id, err);
		}
		json_decref(record);
	}
	forge_strv_done(&parts.ids);
	return rc;
}

/* Moves outputs in the record to "outputs_removed", with their digests. */
static int move_outputs(json_t *record, bool (*is_chosen)(void *arg, const char *path),
			void *arg)
{
	const json_t *outputs = json_object_get(record, "outputs");
	json_t *removed = json_incref(json_object_get(record, "outputs_removed"));
	json_t *left = json_array(), *o;
	size_t i;

	if (!json_is_array(removed)) {
		json_decref(removed);
		removed = json_array();
	}
	json_array_foreach (outputs, i, o) {
		forge_auto_free char *path =
			forge_json_name_decode(forge_json_string_or(o, "path", ""));
		bool is_dropped = is_chosen && path && is_chosen(arg, path);
		/* What a user removes has no mark. */
		if (is_dropped)
			json_object_set_new(o, "temporary", json_true());
		json_array_append(!is_chosen || is_dropped ? removed : left, o);
	}
	if (!left || !removed) {
		json_decref(left);
		json_decref(removed);
		return -ENOMEM;
	}
	if (json_array_size(removed))
		json_object_set(record, "outputs_removed", removed);
	json_object_set_new(record, "outputs", left);
	json_decref(removed);
	return 0;
}

static int drop_outputs(const struct forge_home *home, struct forge_store *st,
			const json_t *given,
			bool (*is_chosen)(void *arg, const char *path), void *arg,
			struct forge_error *err)
{
	const char *run_id = forge_json_string(given, "run_id");
	json_t *record = NULL, *events = NULL;
	/*
	 * The record of this FORGE_HOME if there is one: other users may have changed the
	 * one in the store.
	 */
	int rc = forge_load_record(home, run_id, &record, err);

	if (rc < 0 && !forge_is_no_record(rc))
		return rc;
	if (rc < 0) {
		if (err)
			*err = FORGE_ERROR_INIT;
		record = json_deep_copy(given);
		rc = record ? 0 : forge_fail(err, ENOMEM, "out of memory");
	}
	if (rc < 0)
		return rc;
	if (move_outputs(record, is_chosen, arg) < 0) {
		json_decref(record);
		return forge_fail(err, ENOMEM, "out of memory");
	}
	forge_auto_close int dir = forge_home_open_run(home, run_id);
	if (dir >= 0) {
		rc = forge_load_events(home, run_id, &events, err);
		if (rc == 0)
			rc = forge_add_event(home, run_id,
					     forge_event_json(forge_next_seq(events),
							      "rm", "outputs_removed",
							      NULL, NULL),
					     err);
		if (rc == 0)
			rc = forge_write_record(home, run_id, record, err);
	}
	if (rc == 0)
		rc = forge_store_drop_outputs(st, run_id, record, err);
	json_decref(events);
	json_decref(record);
	return rc;
}

/* Should this process be killed, half of the files may stay: nothing may go on from those. */
static int note_not_kept(const struct forge_home *home, struct forge_store *st,
			 const char *run_id, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	forge_auto_json json_t *record = NULL;
	int rc = forge_load_record(home, run_id, &record, &why);

	if (forge_is_no_record(rc))
		return 0;
	if (rc < 0) {
		*err = why;
		return rc;
	}
	if (!json_is_true(json_object_get(record, "workdir_kept")))
		return 0;
	json_object_set_new(record, "workdir_kept", json_false());
	rc = forge_write_record(home, run_id, record, err);
	return rc < 0 ? rc : forge_deliver_run(home, st, run_id, err);
}

int forge_remove_run(const struct forge_home *home, struct forge_store *st,
		     const json_t *record, bool outputs_only, struct forge_removal *r,
		     struct forge_error *err)
{
	const char *run_id = forge_json_string(record, "run_id");
	forge_auto_close int log = forge_gc_open_log(home);

	if (forge_slot_exists(home, run_id))
		return forge_hint(err,
				  forge_fail(err, EBUSY, "run %s is not over", run_id),
				  "`forge kill %s` ends it", run_id);
	if (json_is_true(json_object_get(record, "quarantine")))
		return forge_hint(
			err, forge_fail(err, EBUSY, "run %s is in quarantine", run_id),
			"`forge health clear %s --note TEXT` ends that", run_id);
	if (note_digests(r, record, outputs_only) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	if (outputs_only)
		return drop_outputs(home, st, record, NULL, NULL, err);
	int rc = remove_parts(home, st, run_id, log, r, err);
	if (rc == 0)
		rc = note_not_kept(home, st, run_id, err);
	if (rc == 0)
		rc = remove_directory(home, run_id, log, err);
	/* A mark without a record: nothing could clear it later. */
	if (rc == 0)
		rc = forge_quarantine_remove(home, run_id, err);
	return rc < 0 ? rc : forge_store_remove(st, run_id, err);
}

int forge_remove_outputs(const struct forge_home *home, struct forge_store *st,
			 const char *run_id,
			 bool (*is_chosen)(void *arg, const char *path), void *arg,
			 struct forge_removal *r, struct forge_error *err)
{
	forge_auto_json json_t *record = NULL;
	const json_t *o;
	size_t i;
	int rc = forge_load_record(home, run_id, &record, err);

	if (rc < 0 || forge_slot_exists(home, run_id))
		return rc < 0 && !forge_is_no_record(rc) ? rc : 0;
	json_array_foreach (json_object_get(record, "outputs"), i, o) {
		forge_auto_free char *path =
			forge_json_name_decode(forge_json_string_or(o, "path", ""));
		const char *digest = forge_json_string(o, "sha256");
		if (path && is_chosen(arg, path) && forge_objects_is_digest(digest) &&
		    forge_strv_add(&r->digests, digest) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
	}
	return drop_outputs(home, st, record, is_chosen, arg, err);
}

/* ---- objects ---- */

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts and drops duplicates: files under several names can be equal. */
static void sort_digests(struct forge_strv *v)
{
	size_t n = 0;

	if (v->n)
		qsort(v->v, v->n, sizeof(char *), compare);
	for (size_t i = 0; i < v->n; i++) {
		if (n && strcmp(v->v[n - 1], v->v[i]) == 0)
			free(v->v[i]);
		else
			v->v[n++] = v->v[i];
	}
	v->n = n;
	if (v->v)
		v->v[n] = NULL;
}

/* Marks a digest that another run needs. */
static void mark_needed(struct forge_removal *r, const char *digest, bool *is_needed)
{
	char **at = r->digests.n ? bsearch(&digest, r->digests.v, r->digests.n,
					   sizeof(char *), compare)
				 : NULL;

	if (at)
		is_needed[at - r->digests.v] = true;
}

struct marking {
	struct forge_removal *removal;
	bool *is_needed;
};

static void mark_outputs(const struct marking *m, const json_t *record)
{
	const json_t *f;
	size_t i;

	json_array_foreach (json_object_get(record, "outputs"), i, f)
		if (forge_json_string(f, "sha256"))
			mark_needed(m->removal, forge_json_string(f, "sha256"),
				    m->is_needed);
}

static int mark_reused(void *arg, const char *name, time_t used, const json_t *entry)
{
	(void)name;
	(void)used;
	mark_outputs(arg, json_object_get(entry, "result"));
	return 0;
}

/* Marks the digests in all records here: a run can be in another store or in none. */
static int mark_needed_by_runs(const struct forge_home *home, struct forge_removal *r,
			       bool *is_needed, struct forge_error *err)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	struct marking m = { r, is_needed };
	int marked = forge_reused_each(home, mark_reused, &m, err);

	if (marked < 0)
		return marked;
	(void)forge_entries_open(&d, home->runs_fd, "."); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));) {
		json_t *record = NULL;
		if (name[0] == '.')
			continue;
		int rc = forge_load_record(home, name, &record, err);
		if (rc < 0 && !forge_is_no_record(rc))
			return rc;
		mark_outputs(&m, record);
		if (forge_asked_script(record))
			mark_needed(r, forge_asked_script(record), is_needed);
		json_decref(record);
	}
	return d.error ? forge_fail_errno(err, -d.error, "read %s/runs", home->path) : 0;
}

static int remove_object(const struct forge_home *home, const char *digest, int log,
			 struct forge_removal *r, struct forge_error *err)
{
	char path[FORGE_STORED_MAX];
	struct stat st;

	(void)forge_objects_path(path, digest);
	if (fstatat(home->fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0
				       : forge_fail_errno(err, errno, "look at %s", path);
	forge_gc_log(log, "remove object", digest, (uint64_t)st.st_size);
	if (unlinkat(home->fd, path, 0) < 0 && errno != ENOENT)
		return forge_fail_errno(err, errno, "remove %s", path);
	forge_auto_close int marks = forge_damage_lock(home->fd, false);
	if (marks >= 0)
		(void)!forge_damage_unmark(marks, digest); /* else gc removes it */
	r->objects++;
	r->bytes += (uint64_t)st.st_size;
	return 0;
}

/* How long to wait for a run that is collecting; then the objects are left to gc. */
#define LOCK_MSEC 5000

/*
 * A run that collects outputs holds the lock from before it publishes an object until its
 * record is written.
 */
int forge_remove_objects(const struct forge_home *home, struct forge_store *st,
			 struct forge_removal *r, struct forge_error *err)
{
	int rc = 0;

	sort_digests(&r->digests);
	if (r->digests.n == 0)
		return 0;
	forge_auto_free bool *is_needed = calloc(r->digests.n, sizeof(bool));
	if (!is_needed)
		return forge_fail(err, ENOMEM, "out of memory");
	forge_auto_close int lock = forge_lock_file(home->fd, "objects.lock",
						    FORGE_LOCK_EXCLUSIVE, LOCK_MSEC, -1);
	/* A record that cannot be read may point to any object. */
	if (lock < 0 || mark_needed_by_runs(home, r, is_needed, NULL) < 0) {
		r->is_left = true;
		return 0;
	}
	forge_auto_close int log = forge_gc_open_log(home);
	for (size_t i = 0; i < r->digests.n && rc >= 0; i++) {
		if (is_needed[i])
			continue;
		rc = forge_store_has_object(st, r->digests.v[i], err);
		if (rc == 0)
			rc = remove_object(home, r->digests.v[i], log, r, err);
	}
	return rc < 0 ? rc : 0;
}

void forge_removal_done(struct forge_removal *r)
{
	forge_strv_done(&r->digests);
}
