/* SPDX-License-Identifier: Apache-2.0 */
/* Removes staging directories, old digests and health checks, and unreferenced objects; gc_runs.c: the runs. */
#include "record/gc_state.h"

#include <errno.h>
#include <fcntl.h>
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
#include "base/fd.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/parse.h"
#include "base/rmtree.h"
#include "record/deliver.h"
#include "record/reconcile.h"
#include "record/retry_due.h"
#include "state/damage.h"
#include "state/objects.h"
#include "state/queue.h"
#include "state/reused.h"

#define CACHE_SECONDS (30 * 86400)

void forge_gc_failed(struct forge_gc *g, const char *fmt, ...)
{
	char text[600];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	(void)!forge_strv_add(&g->failures, text); /* out of memory: not reported */
}

void forge_gc_check_end(struct forge_gc *g, const struct forge_entries *d,
			const char *name)
{
	if (d->error && d->error != -ENOENT)
		forge_gc_failed(g, "read %s: %s", name, strerror(-d->error));
}

void forge_gc_unlink(struct forge_gc *g, int dir, const char *name)
{
	if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
		forge_gc_failed(g, "remove %s: %s", name, strerror(errno));
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

bool forge_gc_may_change(struct forge_gc *g, const char *what, const char *name,
			 uint64_t bytes)
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

bool forge_gc_is_older(const struct forge_gc *g, time_t then, uint64_t usec)
{
	return usec != FORGE_UNLIMITED && g->now > then &&
	       (uint64_t)(g->now - then) * 1000000 > usec;
}

static bool is_dead(pid_t pid)
{
	return pid <= 0 || (kill(pid, 0) < 0 && errno == ESRCH);
}

void forge_gc_sweep_unfinished(struct forge_gc *g, int dir, const char *in)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	(void)forge_entries_open(&d, dir, in); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));) {
		const char *dot = strrchr(name, '.');
		if (name[0] != '.' || dot == name || !dot[1] ||
		    dot[1 + strspn(dot + 1, "0123456789")] ||
		    !is_dead((pid_t)strtol(dot + 1, NULL, 10)))
			continue;
		if (forge_gc_may_change(g, "remove unfinished", name, 0))
			forge_gc_unlink(g, forge_entries_fd(&d), name);
	}
	forge_gc_check_end(g, &d, in);
}

static bool is_dead_entry(void *arg, const char *name)
{
	return forge_gc_may_change(arg, "remove from the queue", name, 0);
}

/* ---- results of other users ---- */

/* What points to the objects of a result that was taken from another user. */
static int look_at_reused(void *arg, const char *name, time_t used, const json_t *entry)
{
	struct forge_gc *g = arg;
	struct forge_error err = FORGE_ERROR_INIT;
	bool is_old = forge_gc_is_older(g, used, g->cfg->keep.reused_usec);

	if ((entry && !is_old) ||
	    !forge_gc_may_change(
		    g, entry ? "forget another user's result" : "remove damaged", name,
		    0))
		return forge_gc_keep_outputs(g, json_object_get(entry, "result"));
	if (forge_reused_remove(&g->home, name, &err) < 0)
		forge_gc_failed(g, "%s", err.msg);
	return 0;
}

static int sweep_reused(struct forge_gc *g, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	int rc = forge_reused_each(&g->home, look_at_reused, g, &why);

	if (rc == -ENOMEM)
		return forge_fail(err, ENOMEM, "out of memory");
	if (rc < 0) {
		g->is_blind = true;
		forge_gc_failed(g, "%s", why.msg);
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
	return forge_strv_add(&((struct forge_gc *)arg)->references, digest);
}

static bool is_referenced(const struct forge_gc *g, const char *dir, const char *name)
{
	char digest[NAME_MAX + 16], *key = digest;

	(void)snprintf(digest, sizeof(digest), "sha256:%s%s", dir, name);
	return g->references.n &&
	       bsearch(&key, g->references.v, g->references.n, sizeof(char *), compare);
}

static void sweep_object_dir(struct forge_gc *g, int objects, const char *in)
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
		if (!forge_gc_is_older(g, st.st_ctime, g->cfg->keep.objects_usec))
			continue;
		(void)snprintf(shown, sizeof(shown), "%s%s", in, name);
		if (forge_gc_may_change(g, "remove object", shown, (uint64_t)st.st_size))
			forge_gc_unlink(g, forge_entries_fd(&d), name);
	}
	forge_gc_check_end(g, &d, in);
	forge_gc_sweep_unfinished(g, objects, in);
}

/* Removes the marks of damaged objects that are gone. The caller holds the lock of objects. */
static void sweep_marks(struct forge_gc *g)
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
		if (forge_gc_may_change(g, "remove the mark of", path, 0))
			forge_gc_unlink(g, forge_entries_fd(&d), name);
	}
	forge_gc_check_end(g, &d, "damaged");
	forge_gc_sweep_unfinished(g, g->home.fd, "damaged");
}

/*
 * A run that collects outputs holds the lock from before it publishes an object until its
 * record is written. So an object without a record under the exclusive lock is
 * unreferenced. Records come from the run directories and from the store. If either
 * cannot be read, any object may be referenced.
 */
static int sweep_objects(struct forge_gc *g, struct forge_error *err)
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
	forge_gc_check_end(g, &d, "objects");
	return 0;
}

/* ---- staging directories and caches ---- */

/*
 * A run on a cluster or in a container goes on without its supervisor, and needs the inputs that were staged for it: its
 * slot names them.
 */
static bool is_staged_for_slot(const struct forge_gc *g, const char *name)
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
static void sweep_staging(struct forge_gc *g)
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
		if (path && forge_gc_may_change(g, "remove staging", name, 0) &&
		    forge_rmtree(path, st.st_dev, st.st_ino, NULL, &err) < 0)
			forge_gc_failed(g, "%s", err.msg);
	}
	forge_gc_check_end(g, &d, "staging");
}

static void sweep_cache(struct forge_gc *g)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	(void)forge_entries_open(&d, g->home.fd, "cache"); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));) {
		struct stat st;
		if (name[0] == '.' ||
		    fstatat(forge_entries_fd(&d), name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    g->now - st.st_mtime < CACHE_SECONDS)
			continue;
		if (forge_gc_may_change(g, "forget digest", name, (uint64_t)st.st_size))
			forge_gc_unlink(g, forge_entries_fd(&d), name);
	}
	forge_gc_check_end(g, &d, "cache");
}

static int lock_at(int dir, const char *name, struct forge_error *err)
{
	int fd = forge_lock_file(dir, name, FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_WAIT_FOREVER,
				 -1);

	return fd < 0 ? forge_fail_errno(err, -fd, "lock %s", name) : fd;
}

static int deliver(struct forge_gc *g, const char *url)
{
	int n = forge_deliver_pending(g->store, url, g->say);

	forge_retry_ask_store(&g->home, g->store);
	return n;
}

/* Results of checks in the store. */
static void sweep_checks(struct forge_gc *g)
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
	if (n > 0 && forge_gc_may_change(g, "remove old results of checks:", number, 0))
		n = forge_store_drop_checks(g->store, before, host, &why);
	if (n < 0)
		forge_gc_failed(g, "%s", why.msg);
}

static int sweep(struct forge_gc *g, const char *url, struct forge_error *err)
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
	forge_gc_sweep_unfinished(g, g->home.fd, "cache");
	forge_gc_sweep_unfinished(g, g->home.fd, "undelivered");
	forge_gc_sweep_unfinished(g, g->home.fd, "retries");
	forge_gc_sweep_unfinished(g, g->home.fd, "reused");
	if (forge_queue_sweep(&g->home, is_dead_entry, g, &why) < 0)
		forge_gc_failed(g, "%s", why.msg);
	sweep_checks(g);
	forge_gc_list_stored(g);
	forge_auto_close int lock = lock_at(g->home.fd, "objects.lock", err);
	if (lock < 0)
		return lock;
	int rc = forge_gc_sweep_runs(g, err);
	if (rc == 0)
		rc = sweep_reused(g, err);
	if (rc == 0)
		rc = sweep_objects(g, err);
	sweep_marks(g);
	return rc;
}

/* Prints each failure; the error has their number and the first. */
static int report_failures(struct forge_gc *g, struct forge_error *err)
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
	struct forge_gc g = { .cfg = cfg,
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
		forge_gc_failed(&g, "%s", why.msg);
	if (rc == 0)
		rc = report_failures(&g, err);
	if (g.log_fd >= 0)
		close(g.log_fd);
	forge_store_close(g.store);
	forge_strv_done(&g.references);
	forge_strv_done(&g.failures);
	free(g.stored);
	forge_home_close(&g.home);
	return rc < 0 ? rc : repaired + g.done;
}
