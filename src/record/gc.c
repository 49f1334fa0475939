/* SPDX-License-Identifier: Apache-2.0 */
/* Removes old logs, workdirs, staging directories, digests and unreferenced objects. */
#include "record/gc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/entries.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/parse.h"
#include "base/rmtree.h"
#include "record/adopt.h"
#include "record/deliver.h"
#include "record/reconcile.h"
#include "record/record.h"
#include "record/remains.h"
#include "record/retry_due.h"
#include "record/shared_result.h"
#include "spec/asked.h"
#include "state/damage.h"
#include "state/home.h"
#include "state/kept.h"
#include "state/objects.h"
#include "state/queue.h"
#include "state/reused.h"
#include "state/samples.h"
#include "state/slot.h"
#include "store/state.h"
#include "store/store.h"

#define CACHE_SECONDS (30 * 86400)

struct gc {
	const struct forge_config *cfg;
	struct forge_home home;
	struct forge_store *store; /* NULL: unreachable */
	const char *url;
	FILE *say;
	int log_fd;
	bool dry_run;
	time_t now;
	int done;
	struct forge_strv references; /* digests, sorted before use */
	struct forge_strv failures;   /* one message each */
	bool is_blind; /* a record could not be read, and may point to any object */
};

/* A failure does not stop the rest of the work; it is reported at the end. */
FORGE_PRINTF(2, 3) static void failed(struct gc *g, const char *fmt, ...)
{
	char text[600];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	(void)!forge_strv_add(&g->failures, text); /* out of memory: not reported */
}

/* At the end of a listing; a directory that does not exist counts as empty. */
static void check_end(struct gc *g, const struct forge_entries *d, const char *name)
{
	if (d->error && d->error != -ENOENT)
		failed(g, "read %s: %s", name, strerror(-d->error));
}

static void check_unlink(struct gc *g, int dir, const char *name)
{
	if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
		failed(g, "remove %s: %s", name, strerror(errno));
}

int forge_gc_open_log(const struct forge_home *home)
{
	return openat(home->fd, "gc.jsonl",
		      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
}

void forge_gc_log(int log_fd, const char *what, const char *name, uint64_t bytes)
{
	char now[FORGE_TIME_MAX];
	json_t *j = json_pack("{s:s, s:s, s:o, s:I}", "time", forge_format_now(now),
			      "what", what, "name", forge_json_text(name), "bytes",
			      (json_int_t)bytes);
	char *line = j ? json_dumps(j, JSON_COMPACT) : NULL;

	if (line && log_fd >= 0)
		(void)dprintf(log_fd, "%s\n", line);
	free(line);
	json_decref(j);
}

/* Reports and logs a change. False: dry run, the change must not be made. */
static bool may_change(struct gc *g, const char *what, const char *name, uint64_t bytes)
{
	char size[FORGE_FORMAT_MAX];

	g->done++;
	if (g->say)
		fprintf(g->say, "%s%s %s (%s)\n", g->dry_run ? "would " : "", what, name,
			forge_format_size(size, bytes));
	if (g->dry_run)
		return false;
	forge_gc_log(g->log_fd, what, name, bytes);
	return true;
}

static bool is_older(const struct gc *g, time_t then, uint64_t usec)
{
	return usec != FORGE_UNLIMITED && g->now > then &&
	       (uint64_t)(g->now - then) * 1000000 > usec;
}

static bool is_dead(pid_t pid)
{
	return pid <= 0 || (kill(pid, 0) < 0 && errno == ESRCH);
}

/* Files of forge_replace_file(), named ".<name>.<pid>", whose process was killed. */
static void sweep_unfinished(struct gc *g, int dir, const char *in)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	(void)forge_entries_open(&d, dir, in); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));) {
		const char *dot = strrchr(name, '.');
		if (name[0] != '.' || dot == name || !dot[1] ||
		    dot[1 + strspn(dot + 1, "0123456789")] ||
		    !is_dead((pid_t)strtol(dot + 1, NULL, 10)))
			continue;
		if (may_change(g, "remove unfinished", name, 0))
			check_unlink(g, forge_entries_fd(&d), name);
	}
	check_end(g, &d, in);
}

static bool is_dead_entry(void *arg, const char *name)
{
	return may_change(arg, "remove from the queue", name, 0);
}

/* ---- runs: their logs and kept workdirs ---- */

struct run_logs {
	char id[FORGE_RUN_ID_MAX];
	time_t ended;
	uint64_t bytes;
};

/* The size of both logs and the samples together. A missing one counts as 0. */
static int sizes_of_logs(int dir, uint64_t *ret)
{
	static const char *const names[] = { "stdout", "stderr", FORGE_SAMPLES_FILE };
	struct stat st;

	*ret = 0;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(names); i++) {
		if (fstatat(dir, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
			*ret += (uint64_t)st.st_size;
		else if (errno != ENOENT)
			return -errno;
	}
	return 0;
}

static void note_change(struct gc *g, const char *run_id, json_t *record,
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
	if (rc == 0 && g->store)
		(void)!forge_deliver_run(&g->home, g->store, run_id,
					 NULL); /* a failure is retried next time */
	if (rc < 0)
		failed(g, "%s: %s", run_id, err.msg);
	json_decref(events);
}

static void remove_logs(struct gc *g, const char *run_id, uint64_t bytes)
{
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *record;

	if (forge_load_record(&g->home, run_id, &record, &err) < 0) {
		failed(g, "%s", err.msg);
		return;
	}
	if (may_change(g, "remove logs of", run_id, bytes)) {
		forge_auto_close int dir = forge_home_open_run(&g->home, run_id);
		if (dir >= 0) {
			check_unlink(g, dir, "stdout");
			check_unlink(g, dir, "stderr");
			check_unlink(g, dir, FORGE_SAMPLES_FILE);
		}
		json_object_set_new(record, "logs_removed", json_true());
		note_change(g, run_id, record, "logs_removed");
	}
	json_decref(record);
}

/* Trusts kept.json only: the path in the record may have come from a store. */
static void remove_workdir(struct gc *g, const char *run_id, int dir, json_t *record,
			   time_t ended)
{
	forge_auto_kept struct forge_kept kept = { 0 };
	struct forge_error err = FORGE_ERROR_INIT;
	struct stat st;
	/* Only a removal says false, before it begins. */
	bool was_begun = json_is_false(json_object_get(record, "workdir_kept"));
	int rc = forge_kept_read(dir, &kept, &err);

	if (rc == 1 && !was_begun && !is_older(g, ended, g->cfg->keep.workdirs_usec))
		return;
	if (rc == 1 && lstat(kept.path, &st) < 0 && errno != ENOENT)
		rc = forge_fail_errno(&err, errno, "look at %s", kept.path);
	if (rc < 0)
		failed(g, "%s: %s", run_id, err.msg);
	if (rc != 1)
		return;
	/* The user removed it, or a gc that was killed before it could record that. */
	bool is_gone = lstat(kept.path, &st) < 0 || st.st_dev != kept.dev ||
		       st.st_ino != kept.ino;
	if (!may_change(g, is_gone ? "forget workdir" : "remove workdir", kept.path, 0))
		return;
	/* First: of a gc that is killed half of the files may stay, and nothing may go on from those. */
	if (json_is_true(json_object_get(record, "workdir_kept"))) {
		json_object_set_new(record, "workdir_kept", json_false());
		note_change(g, run_id, record, "workdir_removed");
	}
	if (!is_gone && forge_rmtree(kept.path, kept.dev, kept.ino, NULL, &err) < 0) {
		failed(g, "%s: %s", run_id, err.msg);
		return;
	}
	forge_kept_forget(dir);
}

static int by_age(const void *a, const void *b)
{
	const struct run_logs *x = a, *y = b;

	return x->ended < y->ended ? 1 : x->ended > y->ended ? -1 : strcmp(y->id, x->id);
}

static int keep_outputs(struct gc *g, const json_t *record)
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

static int keep_references(struct gc *g, const json_t *record)
{
	if (keep_outputs(g, record) < 0)
		return -ENOMEM;
	const char *script = forge_asked_script(record);
	return script ? forge_strv_add(&g->references, script) : 0;
}

/*
 * Replaces a record that a power cut damaged by the verdict of the store, which is
 * durable there. ours: what is left of the record, NULL: nothing. Returns NULL if the
 * store has no verdict either.
 */
static json_t *restore_record(struct gc *g, const char *run_id, const json_t *ours)
{
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *row = NULL, *record = NULL;

	if (!g->store || forge_store_get(g->store, run_id, &row, NULL) < 0)
		return NULL;
	if (forge_record_is_over(row))
		record = forge_record_adopt(&g->home, run_id, row, ours);
	json_decref(row);
	if (record && may_change(g, "restore the record of", run_id, 0) &&
	    forge_write_record(&g->home, run_id, record, &err) < 0)
		failed(g, "%s", err.msg);
	return record;
}

/*
 * A run without a record was never confirmed to the user. It is removed if it has no logs; otherwise what it wrote is
 * kept, with the record that this returns.
 */
static json_t *adopt_remains(struct gc *g, const char *run_id, int dir)
{
	forge_auto_free char *path = forge_asprintf("%s/runs/%s", g->home.path, run_id);
	struct forge_error err = FORGE_ERROR_INIT;
	uint64_t bytes = 0;
	struct stat st;

	/* The store may know it. */
	if (!g->store || !path || fstat(dir, &st) < 0 || sizes_of_logs(dir, &bytes) < 0)
		return NULL;
	if (bytes > 0) {
		json_t *record = forge_record_of_remains(&g->home, run_id);
		if (faccessat(dir, "stdout", F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			json_object_set_new(record, "logs_removed", json_true());
		return record;
	}
	if (may_change(g, "remove what never began:", run_id, 0) &&
	    forge_rmtree(path, st.st_dev, st.st_ino, NULL, &err) < 0)
		failed(g, "%s", err.msg);
	return NULL;
}

/*
 * A live run has a slot. A run that a power cut ended may have none, because slots are
 * not synced: it is closed as lost, unless the store has it, or removed if nothing of it
 * is left. A run that began while the store was unreachable has a record, which gets the
 * verdict. The caller must have opened the directory before this looks at the slots.
 */
static json_t *close_forgotten(struct gc *g, const char *run_id, int dir)
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
		failed(g, "%s", err.msg);
	if (!record || forge_record_is_over(record) ||
	    !may_change(g, "close as lost", run_id, 0))
		return record;
	rc = forge_close_lost(&g->home, run_id, NULL, record, &err);
	if (rc < 0)
		failed(g, "%s", err.msg);
	else if (g->store)
		(void)!forge_deliver_run(&g->home, g->store, run_id,
					 NULL); /* a failure is retried next time */
	else
		(void)!forge_deliver_later(&g->home, run_id, g->url, NULL);
	return record;
}

/* NULL: there is no record, or it cannot be read, which sets is_blind. */
static json_t *load(struct gc *g, const char *run_id, int dir)
{
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *record = NULL;
	int rc = forge_load_record(&g->home, run_id, &record, &err);

	if (rc < 0 && !forge_is_no_record(rc)) {
		g->is_blind = true;
		failed(g, "%s", err.msg);
		return NULL;
	}
	if (forge_record_is_over(record))
		return record;
	json_t *better = restore_record(g, run_id, record);
	if (!better)
		better = close_forgotten(g, run_id, dir);
	if (!better)
		return record;
	json_decref(record);
	return better;
}

/*
 * The store was replaced, by an older copy or by nothing: what was recorded for it is stored again. Records say which store
 * they are for.
 */
static void store_again(struct gc *g, const char *run_id, const json_t *record)
{
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *row = NULL;
	char mark[FORGE_STORE_MARK_MAX];

	if (!g->store || strcmp(forge_json_string_or(record, "store", "-"),
				forge_store_mark(g->url, mark)) != 0)
		return;
	int rc = forge_store_get(g->store, run_id, &row, NULL);
	json_decref(row);
	/* One that has just ended is about to be stored. */
	if (rc == -ENOENT && !forge_slot_exists(&g->home, run_id) &&
	    may_change(g, "store again", run_id, 0) &&
	    forge_deliver_run(&g->home, g->store, run_id, &err) < 0)
		failed(g, "%s", err.msg);
}

/*
 * Collects the references of one run and removes its kept workdir if too old. *ret: its
 * logs; its id is empty when there are none to remove.
 */
static int look_at_run(struct gc *g, const char *run_id, struct run_logs *ret)
{
	forge_auto_close int dir = forge_home_open_run(&g->home, run_id);
	struct stat st = { .st_mtime = g->now };

	*ret = (struct run_logs){ .bytes = 0 };
	if (dir == -ENOENT || dir == -ENOTDIR || dir == -EINVAL)
		return 0; /* removed meanwhile, or not the directory of a run */
	if (dir < 0) {
		g->is_blind = true;
		failed(g, "open %s/runs/%s: %s", g->home.path, run_id, strerror(-dir));
		return 0;
	}
	json_t *record = load(g, run_id, dir);
	(void)fstatat(dir, "record.json", &st,
		      AT_SYMLINK_NOFOLLOW); /* on failure its age is 0 */
	int rc = keep_references(g, record);
	if (rc == 0 && forge_record_is_over(record)) {
		(void)snprintf(ret->id, sizeof(ret->id), "%s", run_id);
		ret->ended = st.st_mtime;
		if (sizes_of_logs(dir, &ret->bytes) < 0 ||
		    json_is_true(json_object_get(record, "logs_removed")))
			ret->id[0] = '\0';
		store_again(g, run_id, record);
		remove_workdir(g, run_id, dir, record, st.st_mtime);
		/* Of before it was shared, or when the supervisor could not. */
		int shared =
			g->dry_run ? 0 : forge_shared_result_write(&g->home, dir, record);
		if (shared < 0)
			failed(g, "share the result of %s: %s", run_id,
			       strerror(-shared));
		sweep_unfinished(g, dir, ".");
	}
	json_decref(record);
	return rc;
}

static int sweep_runs(struct gc *g, struct forge_error *err)
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
	check_end(g, &d, "runs");
	g->is_blind |= d.error != 0;
	if (n)
		qsort(logs, n, sizeof(*logs), by_age);
	for (size_t i = 0; i < n; i++) {
		total += logs[i].bytes;
		if (is_older(g, logs[i].ended, g->cfg->keep.logs_usec) ||
		    (g->cfg->keep.logs_bytes != FORGE_UNLIMITED &&
		     total > g->cfg->keep.logs_bytes))
			remove_logs(g, logs[i].id, logs[i].bytes);
	}
	return 0;
}

/* ---- results of other users ---- */

/* What points to the objects of a result that was taken from another user. */
static int look_at_reused(void *arg, const char *name, time_t used, const json_t *entry)
{
	struct gc *g = arg;
	struct forge_error err = FORGE_ERROR_INIT;
	bool is_old = is_older(g, used, g->cfg->keep.reused_usec);

	if ((entry && !is_old) ||
	    !may_change(g, entry ? "forget another user's result" : "remove damaged",
			name, 0))
		return keep_outputs(g, json_object_get(entry, "result"));
	if (forge_reused_remove(&g->home, name, &err) < 0)
		failed(g, "%s", err.msg);
	return 0;
}

static int sweep_reused(struct gc *g, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	int rc = forge_reused_each(&g->home, look_at_reused, g, &why);

	if (rc == -ENOMEM)
		return forge_fail(err, ENOMEM, "out of memory");
	if (rc < 0) {
		g->is_blind = true;
		failed(g, "%s", why.msg);
	}
	return 0;
}

/* ---- objects ---- */

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_reference(const char *digest, void *arg)
{
	return forge_strv_add(&((struct gc *)arg)->references, digest);
}

static bool is_referenced(const struct gc *g, const char *dir, const char *name)
{
	char digest[NAME_MAX + 16], *key = digest;

	(void)snprintf(digest, sizeof(digest), "sha256:%s%s", dir, name);
	return g->references.n &&
	       bsearch(&key, g->references.v, g->references.n, sizeof(char *), compare);
}

static void sweep_object_dir(struct gc *g, int objects, const char *in)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	(void)forge_entries_open(&d, objects, in); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));) {
		char shown[NAME_MAX + 16];
		struct stat st;
		if (name[0] == '.' || is_referenced(g, in, name) ||
		    fstatat(forge_entries_fd(&d), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		/* By ctime: the run can have set any mtime. */
		if (!is_older(g, st.st_ctime, g->cfg->keep.objects_usec))
			continue;
		(void)snprintf(shown, sizeof(shown), "%s%s", in, name);
		if (may_change(g, "remove object", shown, (uint64_t)st.st_size))
			check_unlink(g, forge_entries_fd(&d), name);
	}
	check_end(g, &d, in);
	sweep_unfinished(g, objects, in);
}

/* Removes the marks of damaged objects that are gone. The caller holds the lock of objects. */
static void sweep_marks(struct gc *g)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	(void)forge_entries_open(&d, g->home.fd, "damaged"); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));) {
		char digest[FORGE_MARK_MAX], path[FORGE_STORED_MAX];
		struct stat st;
		if (!forge_damage_digest_of(name, digest) ||
		    fstatat(g->home.fd, forge_objects_path(path, digest), &st,
			    AT_SYMLINK_NOFOLLOW) == 0 ||
		    errno != ENOENT)
			continue;
		if (may_change(g, "remove the mark of", path, 0))
			check_unlink(g, forge_entries_fd(&d), name);
	}
	check_end(g, &d, "damaged");
	sweep_unfinished(g, g->home.fd, "damaged");
}

/*
 * A run that collects outputs holds the lock from before it publishes an object until its
 * record is written. So an object without a record under the exclusive lock is
 * unreferenced. Records come from the run directories and from the store. If either
 * cannot be read, any object may be referenced.
 */
static int sweep_objects(struct gc *g, struct forge_error *err)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	if (!g->store || g->is_blind) {
		if (g->say)
			fprintf(g->say, "objects are left alone: %s\n",
				g->is_blind ? "a record cannot be read"
					    : "the store cannot be reached");
		return 0;
	}
	if (forge_entries_open(&d, g->home.fd, "objects") == -ENOENT)
		return 0;
	int rc = forge_store_each_object(g->store, add_reference, g, err);
	if (rc < 0)
		return rc;
	if (g->references.n)
		qsort(g->references.v, g->references.n, sizeof(char *), compare);
	for (const char *name; (name = forge_entries_next(&d));)
		if (strlen(name) == 2 && name[0] != '.')
			sweep_object_dir(g, forge_entries_fd(&d), name);
	check_end(g, &d, "objects");
	return 0;
}

/* ---- staging directories and caches ---- */

/*
 * A run on a cluster or in a container goes on without its supervisor, and needs the inputs that were staged for it: its
 * slot names them.
 */
static bool is_staged_for_slot(const struct gc *g, const char *name)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	bool is_used = false;

	if (strncmp(name, "step.", 5) != 0)
		return false;
	(void)forge_entries_open(&d, g->home.fd, "active"); /* d keeps the error */
	for (const char *slot; !is_used && (slot = forge_entries_next(&d));) {
		forge_auto_free char *text = NULL;
		size_t len;
		int rc = forge_read_file(forge_entries_fd(&d), slot, 64u << 20, &text,
					 &len);
		/* One that cannot be read may be the one. */
		is_used = rc < 0 ? rc != -ENOENT : strstr(text, name) != NULL;
	}
	return is_used || d.error;
}

/* Its maker holds a lock on each directory; those of killed ones are removed. */
static void sweep_staging(struct gc *g)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int rc = forge_entries_open(&d, g->home.fd, "staging");

	/* A post-process is just making one, which has no lock yet: skip this time. */
	if (rc == 0 && flock(forge_entries_fd(&d), LOCK_EX | LOCK_NB) < 0)
		return;
	for (const char *name; (name = forge_entries_next(&d));) {
		struct forge_error err = FORGE_ERROR_INIT;
		struct stat st;
		if (name[0] == '.')
			continue;
		forge_auto_close int fd =
			openat(forge_entries_fd(&d), name,
			       O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0 || fstat(fd, &st) < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 ||
		    is_staged_for_slot(g, name))
			continue;
		forge_auto_free char *path =
			forge_asprintf("%s/staging/%s", g->home.path, name);
		if (path && may_change(g, "remove staging", name, 0) &&
		    forge_rmtree(path, st.st_dev, st.st_ino, NULL, &err) < 0)
			failed(g, "%s", err.msg);
	}
	check_end(g, &d, "staging");
}

static void sweep_cache(struct gc *g)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	(void)forge_entries_open(&d, g->home.fd, "cache"); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));) {
		struct stat st;
		if (name[0] == '.' ||
		    fstatat(forge_entries_fd(&d), name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    g->now - st.st_mtime < CACHE_SECONDS)
			continue;
		if (may_change(g, "forget digest", name, (uint64_t)st.st_size))
			check_unlink(g, forge_entries_fd(&d), name);
	}
	check_end(g, &d, "cache");
}

static int lock_at(int dir, const char *name, struct forge_error *err)
{
	int fd = forge_lock_file(dir, name, FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_WAIT_FOREVER,
				 -1);

	return fd < 0 ? forge_fail_errno(err, -fd, "lock %s", name) : fd;
}

static int deliver(struct gc *g, const char *url)
{
	int n = forge_deliver_pending(g->store, url, g->say);

	forge_retry_ask_store(&g->home, g->store);
	return n;
}

/* Results of checks in the store. */
static void sweep_checks(struct gc *g)
{
	struct forge_error why = FORGE_ERROR_INIT;
	char before[FORGE_TIME_MAX], number[32], host[256] = "";

	if (!g->store || g->cfg->keep.health_usec == FORGE_UNLIMITED)
		return;
	(void)forge_format_time(before,
				g->now - (time_t)(g->cfg->keep.health_usec / 1000000));
	(void)gethostname(host, sizeof(host) - 1); /* "" matches nothing */
	int n = forge_store_count_checks(g->store, before, host, &why);
	(void)snprintf(number, sizeof(number), "%d", n);
	if (n > 0 && may_change(g, "remove old results of checks:", number, 0))
		n = forge_store_drop_checks(g->store, before, host, &why);
	if (n < 0)
		failed(g, "%s", why.msg);
}

static int sweep(struct gc *g, const char *url, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	forge_auto_close int turn = lock_at(g->home.fd, "gc.lock", err);

	if (turn < 0)
		return turn;
	g->log_fd = forge_gc_open_log(&g->home);
	if (forge_store_open(url, &g->store, &why) == 0 && !g->dry_run)
		g->done += deliver(g, url);
	else if (!g->store && g->say)
		fprintf(g->say, "%s\n", why.msg);
	sweep_staging(g);
	sweep_cache(g);
	sweep_unfinished(g, g->home.fd, "cache");
	sweep_unfinished(g, g->home.fd, "undelivered");
	sweep_unfinished(g, g->home.fd, "retries");
	sweep_unfinished(g, g->home.fd, "reused");
	if (forge_queue_sweep(&g->home, is_dead_entry, g, &why) < 0)
		failed(g, "%s", why.msg);
	sweep_checks(g);
	forge_auto_close int lock = lock_at(g->home.fd, "objects.lock", err);
	if (lock < 0)
		return lock;
	int rc = sweep_runs(g, err);
	if (rc == 0)
		rc = sweep_reused(g, err);
	if (rc == 0)
		rc = sweep_objects(g, err);
	sweep_marks(g);
	return rc;
}

/* Prints each failure; the error has their number and the first. */
static int report_failures(struct gc *g, struct forge_error *err)
{
	size_t n = g->failures.n;

	if (n == 0)
		return 0;
	if (g->say)
		forge_strv_foreach (text, &g->failures)
			fprintf(g->say, "not done: %s\n", text);
	return n == 1 ? forge_fail(err, EIO, "%s", g->failures.v[0])
		      : forge_fail(err, EIO,
				   "%zu things could not be done; the first: %s", n,
				   g->failures.v[0]);
}

int forge_gc(const struct forge_config *cfg, const char *store_url, FILE *say,
	     bool dry_run, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	struct gc g = { .cfg = cfg,
			.home = FORGE_HOME_INIT,
			.url = store_url,
			.say = say,
			.log_fd = -1,
			.dry_run = dry_run,
			.now = time(NULL) };
	int repaired = forge_reconcile_all(say, dry_run, &g.failures, err);
	int rc = repaired < 0 ? repaired : forge_home_open(false, &g.home, err);

	if (repaired >= 0 && rc == -ENOENT) {
		if (err)
			*err = FORGE_ERROR_INIT;
		return 0; /* nothing ever ran */
	}
	if (rc == 0 && sweep(&g, store_url, &why) < 0)
		failed(&g, "%s", why.msg);
	if (rc == 0)
		rc = report_failures(&g, err);
	if (g.log_fd >= 0)
		close(g.log_fd);
	forge_store_close(g.store);
	forge_strv_done(&g.references);
	forge_strv_done(&g.failures);
	forge_home_close(&g.home);
	return rc < 0 ? rc : repaired + g.done;
}
