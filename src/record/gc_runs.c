/* SPDX-License-Identifier: Apache-2.0 */
/* Garbage collection in runs/: what was forgotten is closed, old logs and kept workdirs are removed. */
#include "record/gc_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/rmtree.h"
#include "record/adopt.h"
#include "record/deliver.h"
#include "record/reconcile.h"
#include "record/record.h"
#include "record/remains.h"
#include "record/shared_result.h"
#include "spec/asked.h"
#include "state/kept.h"
#include "state/samples.h"
#include "state/slot.h"

struct run_logs {
	char id[FORGE_RUN_ID_MAX];
	time_t ended;
	uint64_t bytes;
};

static const char *const log_names[] = { "stdout", "stderr", FORGE_SAMPLES_FILE };
#define LOGS	       2 /* the first ones */
#define LOGS_AND_CHART 3

/* The size of the first n together. A missing one counts as 0. */
static int sizes_of(int dir, size_t n, uint64_t *ret)
{
	struct stat st;

	*ret = 0;
	for (size_t i = 0; i < n; i++) {
		if (fstatat(dir, log_names[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
			*ret += (uint64_t)st.st_size;
		else if (errno != ENOENT)
			return -errno;
	}
	return 0;
}

/* To the store, now or, if that fails, when it is next reachable. */
static int deliver(struct forge_gc *g, const char *run_id, struct forge_error *err)
{
	int rc = g->store ? forge_deliver_run(&g->home, g->store, run_id, err)
			  : forge_fail(err, EHOSTUNREACH, "the store is away");

	if (rc < 0 && rc != -ENOENT)
		(void)!forge_deliver_later(&g->home, run_id, g->url, NULL);
	return rc;
}

/* 0: the record says it, and so does the store. -EHOSTUNREACH: the store will. */
static int note_change(struct forge_gc *g, const char *run_id, json_t *record,
		       const char *event)
{
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *events = NULL;
	int rc = forge_load_events(&g->home, run_id, &events, &err);

	if (rc == 0)
		rc = forge_add_event(
			&g->home, run_id,
			forge_event_json(forge_next_seq(events), "gc", event, NULL, NULL),
			&err);
	if (rc == 0)
		rc = forge_write_record(&g->home, run_id, record, &err);
	if (rc < 0)
		forge_gc_failed(g, "%s: %s", run_id, err.msg);
	else if (deliver(g, run_id, NULL) < 0)
		rc = -EHOSTUNREACH;
	json_decref(events);
	return rc;
}

static void remove_logs(struct forge_gc *g, const char *run_id, uint64_t bytes)
{
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *record;

	if (forge_load_record(&g->home, run_id, &record, &err) < 0) {
		forge_gc_failed(g, "%s", err.msg);
		return;
	}
	if (forge_gc_may_change(g, "remove logs of", run_id, bytes)) {
		forge_auto_close int dir = forge_home_open_run(&g->home, run_id);
		if (dir >= 0) {
			forge_gc_unlink(g, dir, "stdout");
			forge_gc_unlink(g, dir, "stderr");
			forge_gc_unlink(g, dir, FORGE_SAMPLES_FILE);
		}
		json_object_set_new(record, "logs_removed", json_true());
		(void)note_change(g, run_id, record, "logs_removed");
	}
	json_decref(record);
}

/* Trusts kept.json only: the path in the record may have come from a store. */
static void remove_workdir(struct forge_gc *g, const char *run_id, int dir,
			   json_t *record, time_t ended)
{
	forge_auto_kept struct forge_kept kept = { 0 };
	struct forge_error err = FORGE_ERROR_INIT;
	struct stat st;
	/* Only a removal says false, before it begins. */
	bool was_begun = json_is_false(json_object_get(record, "workdir_kept"));
	int rc = forge_kept_read(dir, &kept, &err);

	if (rc == 1 && !was_begun &&
	    !forge_gc_is_older(g, ended, g->cfg->keep.workdirs_usec))
		return;
	if (rc == 1 && lstat(kept.path, &st) < 0 && errno != ENOENT)
		rc = forge_fail_errno(&err, errno, "look at %s", kept.path);
	if (rc < 0)
		forge_gc_failed(g, "%s: %s", run_id, err.msg);
	if (rc != 1)
		return;
	/* The user removed it, or a gc that was killed before it could record that. */
	bool is_gone = lstat(kept.path, &st) < 0 || st.st_dev != kept.dev ||
		       st.st_ino != kept.ino;
	if (!forge_gc_may_change(g, is_gone ? "forget workdir" : "remove workdir",
				 kept.path, 0))
		return;
	/*
	 * Before the removal: if gc is killed, half of the files may stay, and neither this record nor the row in the
	 * store may lead another run to them.
	 */
	rc = 0;
	if (was_begun) {
		rc = deliver(g, run_id, NULL);
	} else if (json_is_true(json_object_get(record, "workdir_kept"))) {
		json_object_set_new(record, "workdir_kept", json_false());
		rc = note_change(g, run_id, record, "workdir_removed");
	}
	if (rc < 0) {
		forge_gc_failed(
			g,
			"%s: its workdir stays until the store has that it is not kept",
			run_id);
		return;
	}
	if (!is_gone && forge_rmtree(kept.path, kept.dev, kept.ino, NULL, &err) < 0) {
		forge_gc_failed(g, "%s: %s", run_id, err.msg);
		return;
	}
	forge_kept_forget(dir);
}

static int by_age(const void *a, const void *b)
{
	const struct run_logs *x = a, *y = b;

	return x->ended < y->ended ? 1 : x->ended > y->ended ? -1 : strcmp(y->id, x->id);
}

int forge_gc_keep_outputs(struct forge_gc *g, const json_t *record)
{
	size_t i;
	const json_t *f;

	json_array_foreach (json_object_get(record, "outputs"), i, f) {
		const char *digest = forge_json_string(f, "sha256");
		if (digest && forge_strv_add(&g->references, digest) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int keep_references(struct forge_gc *g, const json_t *record)
{
	if (forge_gc_keep_outputs(g, record) < 0)
		return -ENOMEM;
	const char *script = forge_asked_script(record);
	return script ? forge_strv_add(&g->references, script) : 0;
}

/*
 * Replaces a record that a power cut damaged by the verdict of the store, which is
 * durable there. ours: what is left of the record, NULL: nothing. Returns NULL if the
 * store has no verdict either.
 */
static json_t *restore_record(struct forge_gc *g, const char *run_id, const json_t *ours)
{
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *row = NULL, *record = NULL;
	char mark[FORGE_STORE_MARK_MAX];

	if (!g->store || forge_store_get(g->store, run_id, &row, NULL) < 0)
		return NULL;
	bool is_known = !json_is_true(json_object_get(row, "is_remains"));
	if (forge_record_is_over(row) &&
	    (is_known || !json_is_true(json_object_get(ours, "is_remains"))))
		record = forge_record_adopt(&g->home, run_id, row, ours);
	json_decref(row);
	if (record) {
		if (is_known)
			json_object_del(record, "is_remains");
		json_object_set_new(record, "store",
				    json_string(forge_store_mark(g->url, mark)));
	}
	if (record && forge_gc_may_change(g, "restore the record of", run_id, 0) &&
	    forge_write_record(&g->home, run_id, record, &err) < 0)
		forge_gc_failed(g, "%s", err.msg);
	return record;
}

/*
 * A run without a record was never confirmed to the user. It is removed if it has no logs; otherwise what it wrote is
 * kept, with the record that this returns.
 */
static json_t *adopt_remains(struct forge_gc *g, const char *run_id, int dir)
{
	forge_auto_free char *path = forge_asprintf("%s/runs/%s", g->home.path, run_id);
	struct forge_error err = FORGE_ERROR_INIT;
	char mark[FORGE_STORE_MARK_MAX];
	uint64_t bytes = 0;
	struct stat st;

	/* The store may know it. */
	if (!g->store || !path || fstat(dir, &st) < 0 || sizes_of(dir, LOGS, &bytes) < 0)
		return NULL;
	if (bytes > 0) {
		json_t *record = forge_record_of_remains(&g->home, run_id);
		if (record)
			json_object_set_new(record, "store",
					    json_string(forge_store_mark(g->url, mark)));
		return record;
	}
	if (forge_gc_may_change(g, "remove what never began:", run_id, 0) &&
	    forge_rmtree(path, st.st_dev, st.st_ino, NULL, &err) < 0)
		forge_gc_failed(g, "%s", err.msg);
	return NULL;
}

/*
 * A live run has a slot. A run that a power cut ended may have none, because slots are
 * not synced: it is closed as lost, unless the store has it, or removed if nothing of it
 * is left. A run that began while the store was unreachable has a record, which gets the
 * verdict. The caller must have opened the directory before this looks at the slots.
 */
static json_t *close_forgotten(struct forge_gc *g, const char *run_id, int dir)
{
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *record = NULL, *stored = NULL;

	if (forge_slot_exists(&g->home, run_id) ||
	    (g->store && forge_store_get(g->store, run_id, &stored, NULL) != -ENOENT)) {
		json_decref(stored);
		return NULL;
	}
	/*
	 * Load the record after the slots: a supervisor writes its verdict before it
	 * releases its slot.
	 */
	int rc = forge_load_record(&g->home, run_id, &record, &err);
	if (forge_is_no_record(rc))
		record = adopt_remains(g, run_id, dir);
	else if (rc < 0)
		forge_gc_failed(g, "%s", err.msg);
	if (!record || forge_record_is_over(record) ||
	    !forge_gc_may_change(g, "close as lost", run_id, 0))
		return record;
	rc = forge_close_lost(&g->home, run_id, NULL, record, &err);
	if (rc < 0)
		forge_gc_failed(g, "%s", err.msg);
	else
		(void)!deliver(g, run_id, NULL);
	return record;
}

/* NULL: there is no record, or it cannot be read, which sets is_blind. */
static json_t *load(struct forge_gc *g, const char *run_id, int dir)
{
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *record = NULL;
	int rc = forge_load_record(&g->home, run_id, &record, &err);

	if (rc < 0 && !forge_is_no_record(rc)) {
		g->is_blind = true;
		forge_gc_failed(g, "%s", err.msg);
		return NULL;
	}
	/* Another store may have been asked when the record was made of what was left. */
	bool is_over = forge_record_is_over(record);
	if (is_over && !json_is_true(json_object_get(record, "is_remains")))
		return record;
	json_t *better = restore_record(g, run_id, record);
	if (!better && !is_over)
		better = close_forgotten(g, run_id, dir);
	if (!better)
		return record;
	json_decref(record);
	return better;
}

static int by_id(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* The key that the run was asked with has become that of a later one. The record keeps it. */
static int store_without_key(struct forge_gc *g, const char *run_id, const json_t *record,
			     struct forge_error *err)
{
	forge_auto_json json_t *changed = json_deep_copy(record);

	if (!changed ||
	    json_object_set_new(changed, "key_is_of_another", json_true()) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	*err = FORGE_ERROR_INIT;
	int rc = forge_write_record(&g->home, run_id, changed, err);
	return rc < 0 ? rc : forge_deliver_run(&g->home, g->store, run_id, err);
}

/*
 * The store was replaced, by an older copy or by nothing: what was recorded for it is stored again. Records say which store
 * they are for.
 */
static void store_again(struct forge_gc *g, const char *run_id, const json_t *record)
{
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *row = NULL;
	char mark[FORGE_STORE_MARK_MAX];

	if (!g->store || strcmp(forge_json_string_or(record, "store", "-"),
				forge_store_mark(g->url, mark)) != 0)
		return;
	if (g->n_stored &&
	    bsearch(run_id, g->stored, g->n_stored, sizeof(g->stored[0]), by_id))
		return;
	int rc = forge_store_get(g->store, run_id, &row, NULL);
	json_decref(row);
	/* One that has just ended is about to be stored. */
	if (rc != -ENOENT || forge_slot_exists(&g->home, run_id) ||
	    !forge_gc_may_change(g, "store again", run_id, 0))
		return;
	rc = forge_deliver_run(&g->home, g->store, run_id, &err);
	if (rc == -EEXIST && json_is_string(json_object_get(record, "idempotency_key")))
		rc = store_without_key(g, run_id, record, &err);
	/* `forge rm` may have removed it meanwhile. */
	forge_auto_close int dir = forge_home_open_run(&g->home, run_id);
	if (dir == -ENOENT) {
		err = FORGE_ERROR_INIT;
		rc = forge_store_remove(g->store, run_id, &err);
	}
	if (rc < 0 && rc != -ENOENT)
		forge_gc_failed(g, "%s: %s", run_id, err.msg);
}

struct stored {
	struct forge_gc *g;
	size_t cap;
};

static int add_stored(const struct forge_run_row *row, void *arg)
{
	struct stored *s = arg;
	struct forge_gc *g = s->g;

	if (g->n_stored == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 1024;
		char(*grown)[FORGE_RUN_ID_MAX] =
			reallocarray(g->stored, s->cap, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		g->stored = grown;
	}
	(void)snprintf(g->stored[g->n_stored++], FORGE_RUN_ID_MAX, "%s", row->run_id);
	return 0;
}

void forge_gc_list_stored(struct forge_gc *g)
{
	char user[FORGE_USER_MAX];
	const struct forge_run_filter filter = { .user = forge_user_name(user),
						 .with_parts = true };
	struct stored s = { .g = g };

	if (!g->store || forge_store_list(g->store, &filter, add_stored, &s, NULL) < 0)
		g->n_stored = 0;
	if (g->n_stored)
		qsort(g->stored, g->n_stored, sizeof(g->stored[0]), by_id);
}

/*
 * Collects the references of one run and removes its kept workdir if too old. *ret: its
 * logs; its id is empty when there are none to remove.
 */
static int look_at_run(struct forge_gc *g, const char *run_id, struct run_logs *ret)
{
	forge_auto_close int dir = forge_home_open_run(&g->home, run_id);
	struct stat st = { .st_mtime = g->now };

	*ret = (struct run_logs){ .bytes = 0 };
	if (dir == -ENOENT || dir == -ENOTDIR || dir == -EINVAL)
		return 0; /* removed meanwhile, or not the directory of a run */
	if (dir < 0) {
		g->is_blind = true;
		forge_gc_failed(g, "open %s/runs/%s: %s", g->home.path, run_id,
				strerror(-dir));
		return 0;
	}
	json_t *record = load(g, run_id, dir);
	(void)fstatat(dir, "record.json", &st,
		      AT_SYMLINK_NOFOLLOW); /* on failure its age is 0 */
	int rc = keep_references(g, record);
	if (rc == 0 && forge_record_is_over(record)) {
		(void)snprintf(ret->id, sizeof(ret->id), "%s", run_id);
		ret->ended = st.st_mtime;
		if (sizes_of(dir, LOGS_AND_CHART, &ret->bytes) < 0 ||
		    json_is_true(json_object_get(record, "logs_removed")))
			ret->id[0] = '\0';
		store_again(g, run_id, record);
		remove_workdir(g, run_id, dir, record, st.st_mtime);
		/* Of before it was shared, or when the supervisor could not. */
		int shared =
			g->dry_run ? 0 : forge_shared_result_write(&g->home, dir, record);
		if (shared < 0)
			forge_gc_failed(g, "share the result of %s: %s", run_id,
					strerror(-shared));
		forge_gc_sweep_unfinished(g, dir, ".");
	}
	json_decref(record);
	return rc;
}

int forge_gc_sweep_runs(struct forge_gc *g, struct forge_error *err)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	forge_auto_free struct run_logs *logs = NULL;
	size_t n = 0, cap = 0;
	uint64_t total = 0;

	(void)forge_entries_open(&d, g->home.runs_fd, "."); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));) {
		struct run_logs one;
		if (name[0] == '.')
			continue;
		if (look_at_run(g, name, &one) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
		if (!one.id[0])
			continue;
		if (n == cap) {
			cap = cap ? 2 * cap : 256;
			struct run_logs *grown = reallocarray(logs, cap, sizeof(*grown));
			if (!grown)
				return forge_fail(err, ENOMEM, "out of memory");
			logs = grown;
		}
		logs[n++] = one;
	}
	forge_gc_check_end(g, &d, "runs");
	g->is_blind |= d.error != 0;
	if (n)
		qsort(logs, n, sizeof(*logs), by_age);
	for (size_t i = 0; i < n; i++) {
		total += logs[i].bytes;
		if (forge_gc_is_older(g, logs[i].ended, g->cfg->keep.logs_usec) ||
		    (g->cfg->keep.logs_bytes != FORGE_UNLIMITED &&
		     total > g->cfg->keep.logs_bytes))
			remove_logs(g, logs[i].id, logs[i].bytes);
	}
	return 0;
}
