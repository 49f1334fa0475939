/* SPDX-License-Identifier: Apache-2.0 */
/* Logs, kept workdirs, staging directories, forgotten digests and objects nobody points to. */
#include "run/gc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
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
#include "base/parse.h"
#include "base/rmtree.h"
#include "run/admit.h"
#include "run/deliver.h"
#include "run/home.h"
#include "run/live.h"
#include "run/objects.h"
#include "run/reconcile.h"
#include "run/record.h"
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
};

/* Says and records it. True: do it. */
static bool doing(struct gc *g, const char *what, const char *name, uint64_t bytes)
{
	char size[FORGE_FORMAT_MAX], now[FORGE_TIME_MAX];

	g->done++;
	if (g->say)
		fprintf(g->say, "%s%s %s (%s)\n", g->dry_run ? "would " : "", what, name,
			forge_format_size(size, bytes));
	if (g->dry_run)
		return false;
	json_t *j = json_pack("{s:s, s:s, s:o, s:I}", "time", forge_format_now(now),
			      "what", what, "name", forge_json_text(name), "bytes",
			      (json_int_t)bytes);
	char *line = j ? json_dumps(j, JSON_COMPACT) : NULL;
	if (line && g->log_fd >= 0)
		(void)dprintf(g->log_fd, "%s\n", line);
	free(line);
	json_decref(j);
	return true;
}

static DIR *open_dir(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? NULL : fdopendir(fd);
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

/* ".<name>.<pid>": of forge_replace_file(), by somebody who was killed. */
static void sweep_unfinished(struct gc *g, DIR *d)
{
	for (struct dirent *e; d && (e = readdir(d));) {
		const char *dot = strrchr(e->d_name, '.');
		if (e->d_name[0] != '.' || dot == e->d_name || !dot[1] ||
		    dot[1 + strspn(dot + 1, "0123456789")] ||
		    !is_dead((pid_t)strtol(dot + 1, NULL, 10)))
			continue;
		if (doing(g, "remove unfinished", e->d_name, 0))
			(void)unlinkat(dirfd(d), e->d_name, 0); /* seen again next time */
	}
}

static bool is_dead_entry(void *arg, const char *name)
{
	return doing(arg, "remove from the queue", name, 0);
}

/* ---- runs: their logs and kept workdirs ---- */

struct run_logs {
	char id[FORGE_RUN_ID_MAX];
	time_t ended;
	uint64_t bytes;
};

static uint64_t size_at(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_size
								 : 0;
}

static void note_change(struct gc *g, const char *run_id, json_t *record,
			const char *event)
{
	forge_auto_close int dir = openat(
		g->home.runs_fd, run_id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	json_t *events = forge_load_events(&g->home, run_id);
	json_t *last = json_array_get(events, json_array_size(events) - 1);
	json_int_t seq = last ? json_integer_value(json_object_get(last, "seq")) + 1 : 0;
	json_t *e = forge_event_json(seq, "gc", event, NULL, NULL);
	char *line = json_dumps(e, JSON_COMPACT);
	forge_auto_close int fd =
		dir < 0 ? -1
			: openat(dir, "events.jsonl", O_WRONLY | O_APPEND | O_CLOEXEC);

	if (fd >= 0 && line)
		(void)dprintf(fd, "%s\n", line);
	(void)!forge_write_record(&g->home, run_id, record,
				  NULL); /* seen again next time */
	if (g->store)
		(void)!forge_deliver_run(&g->home, g->store, run_id,
					 NULL); /* or next time */
	free(line);
	json_decref(e);
	json_decref(events);
}

static void remove_logs(struct gc *g, const char *run_id, uint64_t bytes)
{
	json_t *record;

	if (forge_load_record(&g->home, run_id, &record, NULL) < 0)
		return;
	if (doing(g, "remove logs of", run_id, bytes)) {
		forge_auto_close int dir =
			openat(g->home.runs_fd, run_id,
			       O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		(void)unlinkat(dir, "stdout", 0); /* gone is what is wanted */
		(void)unlinkat(dir, "stderr", 0);
		json_object_set_new(record, "logs_removed", json_true());
		note_change(g, run_id, record, "logs_removed");
	}
	json_decref(record);
}

static void remove_workdir(struct gc *g, const char *run_id, json_t *record, time_t ended)
{
	const char *path = json_string_value(json_object_get(record, "workdir"));
	const json_t *id = json_object_get(record, "workdir_identity");
	dev_t dev = (dev_t)json_integer_value(json_array_get(id, 0));
	ino_t ino = (ino_t)json_integer_value(json_array_get(id, 1));
	struct stat st;

	if (!json_is_true(json_object_get(record, "workdir_kept")) || !path ||
	    !is_older(g, ended, g->cfg->keep.workdirs_usec))
		return;
	/* Removed by its user, or by a gc that was killed before it could note that. */
	bool is_gone = lstat(path, &st) < 0 ? errno == ENOENT
					    : st.st_dev != dev || st.st_ino != ino;
	if (!doing(g, is_gone ? "forget workdir" : "remove workdir", path, 0) ||
	    (!is_gone && forge_rmtree(path, dev, ino, NULL, NULL) < 0))
		return;
	json_object_set_new(record, "workdir_kept", json_false());
	note_change(g, run_id, record, "workdir_removed");
}

static int by_age(const void *a, const void *b)
{
	const struct run_logs *x = a, *y = b;

	return x->ended < y->ended ? 1 : x->ended > y->ended ? -1 : strcmp(y->id, x->id);
}

static int keep_references(struct gc *g, const json_t *record)
{
	size_t i;
	const json_t *f;

	json_array_foreach (json_object_get(record, "outputs"), i, f) {
		const char *digest = json_string_value(json_object_get(f, "sha256"));
		if (digest && forge_strv_add(&g->references, digest) < 0)
			return -ENOMEM;
	}
	return 0;
}

static bool is_over(const json_t *record)
{
	const char *status = json_string_value(json_object_get(record, "status"));

	return forge_status_is_terminal(forge_status_of(status));
}

/*
 * The verdict is durable in the store; what the directory says may have been lost with the power. Then
 * it is written anew from there. NULL: the store does not know of an end either.
 */
static json_t *restore_record(struct gc *g, const char *run_id)
{
	json_t *record = NULL;

	if (!g->store || forge_store_get(g->store, run_id, &record, NULL) < 0)
		return NULL;
	if (!is_over(record)) {
		json_decref(record);
		return NULL;
	}
	if (doing(g, "restore the record of", run_id, 0))
		(void)!forge_write_record(&g->home, run_id, record,
					  NULL); /* or next time */
	return record;
}

/*
 * A run is told apart from what the power left of one by its slot, which is not synced. Begun while the
 * store was away, it has a record: that gets its end. Never confirmed to anybody, it has a
 * directory with nothing in it. The caller has looked at the directory before we do at the slots.
 */
static json_t *close_forgotten(struct gc *g, const char *run_id, int dir)
{
	json_t *record = NULL, *stored = NULL;
	struct stat st;

	if (forge_live_has_slot(&g->home, run_id) ||
	    (g->store && forge_store_get(g->store, run_id, &stored, NULL) != -ENOENT)) {
		json_decref(stored);
		return NULL;
	}
	/* Only now: whoever has just ended has written its verdict and then left its slot. */
	if (forge_load_record(&g->home, run_id, &record, NULL) < 0) {
		forge_auto_free char *path =
			forge_asprintf("%s/runs/%s", g->home.path, run_id);
		if (g->store && path && fstat(dir, &st) == 0 &&
		    size_at(dir, "stdout") + size_at(dir, "stderr") == 0 &&
		    doing(g, "remove what never began:", run_id, 0))
			(void)!forge_rmtree(path, st.st_dev, st.st_ino, NULL, NULL);
		return NULL;
	}
	if (is_over(record) || !doing(g, "close as lost", run_id, 0))
		return record;
	if (forge_close_lost(&g->home, run_id, record, NULL) == 0) {
		if (g->store)
			(void)!forge_deliver_run(&g->home, g->store, run_id,
						 NULL); /* or next time */
		else
			(void)!forge_deliver_later(&g->home, run_id, g->url, NULL);
	}
	return record;
}

/* One run: its references, its kept workdir; what its logs weigh goes into *ret. */
static int look_at_run(struct gc *g, const char *run_id, struct run_logs *ret)
{
	forge_auto_close int dir = openat(
		g->home.runs_fd, run_id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st = { .st_mtime = g->now };
	json_t *record = NULL;

	*ret = (struct run_logs){ .bytes = 0 };
	if (dir < 0)
		return 0;
	(void)!forge_load_record(&g->home, run_id, &record,
				 NULL); /* NULL: none, or torn */
	if (!is_over(record)) {
		json_t *better = restore_record(g, run_id);
		if (!better)
			better = close_forgotten(g, run_id, dir);
		if (better) {
			json_decref(record);
			record = better;
		}
	}
	(void)fstatat(dir, "record.json", &st,
		      AT_SYMLINK_NOFOLLOW); /* else it is of now */
	int rc = keep_references(g, record);
	if (rc == 0 && is_over(record)) {
		(void)snprintf(ret->id, sizeof(ret->id), "%s", run_id);
		ret->ended = st.st_mtime;
		ret->bytes = size_at(dir, "stdout") + size_at(dir, "stderr");
		if (json_is_true(json_object_get(record, "logs_removed")))
			ret->id[0] = '\0';
		remove_workdir(g, run_id, record, st.st_mtime);
		forge_auto_dir DIR *d = open_dir(dir, ".");
		sweep_unfinished(g, d);
	}
	json_decref(record);
	return rc;
}

static int sweep_runs(struct gc *g, struct forge_error *err)
{
	forge_auto_dir DIR *d = open_dir(g->home.runs_fd, ".");
	forge_auto_free struct run_logs *logs = NULL;
	size_t n = 0, cap = 0;
	uint64_t total = 0;

	for (struct dirent *e; d && (e = readdir(d));) {
		struct run_logs one;
		if (e->d_name[0] == '.')
			continue;
		if (look_at_run(g, e->d_name, &one) < 0)
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

static void sweep_object_dir(struct gc *g, int objects, const char *name)
{
	forge_auto_dir DIR *d = open_dir(objects, name);

	for (struct dirent *e; d && (e = readdir(d));) {
		char shown[NAME_MAX + 16];
		struct stat st;
		if (e->d_name[0] == '.' || is_referenced(g, name, e->d_name) ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		/* ctime: the run itself can have set any mtime. */
		if (!is_older(g, st.st_ctime, g->cfg->keep.objects_usec))
			continue;
		(void)snprintf(shown, sizeof(shown), "%s%s", name, e->d_name);
		if (doing(g, "remove object", shown, (uint64_t)st.st_size))
			(void)unlinkat(dirfd(d), e->d_name, 0); /* seen again next time */
	}
}

/*
 * Whoever collects holds the lock from before it publishes until its record is written, so what
 * has no record under the exclusive lock has none. Records come from the directory and from the
 * store: a store that cannot be asked may point to anything.
 */
static int sweep_objects(struct gc *g, struct forge_error *err)
{
	if (!g->store) {
		if (g->say)
			fputs("objects are left alone: the store cannot be reached\n",
			      g->say);
		return 0;
	}
	forge_auto_dir DIR *d = open_dir(g->home.fd, "objects");
	if (!d)
		return 0;
	int rc = forge_store_each_object(g->store, add_reference, g, err);
	if (rc < 0)
		return rc;
	if (g->references.n)
		qsort(g->references.v, g->references.n, sizeof(char *), compare);
	for (struct dirent *e; (e = readdir(d));)
		if (strlen(e->d_name) == 2 && e->d_name[0] != '.')
			sweep_object_dir(g, dirfd(d), e->d_name);
	return 0;
}

/* ---- small things ---- */

/* Of a post-process that was killed; a living one holds a lock on it. */
static void sweep_staging(struct gc *g)
{
	forge_auto_dir DIR *d = open_dir(g->home.fd, "staging");

	/* One is just being made, and has no lock yet: another time. */
	if (!d || flock(dirfd(d), LOCK_EX | LOCK_NB) < 0)
		return;
	for (struct dirent *e; (e = readdir(d));) {
		struct stat st;
		if (e->d_name[0] == '.')
			continue;
		forge_auto_close int fd =
			openat(dirfd(d), e->d_name,
			       O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0 || fstat(fd, &st) < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
			continue;
		forge_auto_free char *path =
			forge_asprintf("%s/staging/%s", g->home.path, e->d_name);
		if (path && doing(g, "remove staging", e->d_name, 0))
			(void)!forge_rmtree(path, st.st_dev, st.st_ino, NULL, NULL);
	}
}

static void sweep_cache(struct gc *g)
{
	forge_auto_dir DIR *d = open_dir(g->home.fd, "cache");

	for (struct dirent *e; d && (e = readdir(d));) {
		struct stat st;
		if (e->d_name[0] == '.' ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    g->now - st.st_mtime < CACHE_SECONDS)
			continue;
		if (doing(g, "forget digest", e->d_name, (uint64_t)st.st_size))
			(void)unlinkat(dirfd(d), e->d_name, 0); /* seen again next time */
	}
}

static int lock_at(int dir, const char *name, struct forge_error *err)
{
	int fd = openat(dir, name, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	while (fd >= 0 && flock(fd, LOCK_EX) < 0)
		if (errno != EINTR) {
			int code = errno;
			close(fd);
			return forge_fail_errno(err, code, "lock %s", name);
		}
	return fd < 0 ? forge_fail_errno(err, errno, "open %s", name) : fd;
}

static int sweep(struct gc *g, const char *url, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	forge_auto_close int turn = lock_at(g->home.fd, "gc.lock", err);

	if (turn < 0)
		return turn;
	g->log_fd = openat(g->home.fd, "gc.jsonl",
			   O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (forge_store_open(url, &g->store, &why) == 0 && !g->dry_run)
		g->done += forge_deliver_pending(g->store, url, g->say);
	else if (!g->store && g->say)
		fprintf(g->say, "%s\n", why.msg);
	sweep_staging(g);
	sweep_cache(g);
	forge_auto_dir DIR *cache = open_dir(g->home.fd, "cache");
	sweep_unfinished(g, cache);
	forge_auto_dir DIR *undelivered = open_dir(g->home.fd, "undelivered");
	sweep_unfinished(g, undelivered);
	int rc = forge_admit_sweep(&g->home, is_dead_entry, g, err);
	if (rc < 0)
		return rc;
	forge_auto_close int lock = lock_at(g->home.fd, "objects.lock", err);
	if (lock < 0)
		return lock;
	rc = sweep_runs(g, err);
	return rc < 0 ? rc : sweep_objects(g, err);
}

int forge_gc(const struct forge_config *cfg, const char *store_url, FILE *say,
	     bool dry_run, struct forge_error *err)
{
	struct gc g = { .cfg = cfg,
			.home = FORGE_HOME_INIT,
			.url = store_url,
			.say = say,
			.log_fd = -1,
			.dry_run = dry_run,
			.now = time(NULL) };
	int repaired = forge_reconcile(say, dry_run, err);

	if (repaired < 0)
		return repaired;
	int rc = forge_home_open(false, &g.home, err);
	if (rc == -ENOENT)
		return 0; /* nothing ever ran */
	if (rc == 0)
		rc = sweep(&g, store_url, err);
	if (g.log_fd >= 0)
		close(g.log_fd);
	forge_store_close(g.store);
	forge_strv_done(&g.references);
	forge_home_close(&g.home);
	return rc < 0 ? rc : repaired + g.done;
}
