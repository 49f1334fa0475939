/* SPDX-License-Identifier: Apache-2.0 */
/* Finds slots whose supervisor is dead and cleans up after them. */
#include "record/reconcile.h"

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
#include "base/fd.h"
#include "base/json.h"
#include "base/lock.h"
#include "executor/executor.h"
#include "record/attendant.h"
#include "record/deliver.h"
#include "record/record.h"
#include "record/retry_due.h"
#include "state/home.h"
#include "state/kept.h"
#include "state/samples.h"
#include "state/slot.h"
#include "store/state.h"

/* How long is waited to see whether a new supervisor can reach its run. */
#define ATTACH_MSEC 300

struct repair {
	const struct forge_home *home;
	FILE *say;
	bool dry_run;
	const char *run_id;
	json_t *slot;
	const struct forge_executor_ops *executor;
	int fd;		  /* the slot, locked; only for reading */
	int dir;	  /* the run's directory, -1: none */
	bool has_begun;	  /* there is something in it */
	bool is_lost;	  /* no supervisor has written a verdict */
	bool is_repaired; /* what could be removed is removed */
};

static void say(const struct repair *r, const char *what, const char *detail)
{
	if (r->say)
		fprintf(r->say, "%s: %s%s %s\n", r->run_id, r->dry_run ? "would " : "",
			what, detail);
}

static const char *const run_files[] = { "record.json", "events.jsonl", "stdout",
					 "stderr" };

/*
 * Before the first event is written, the run has been reported to no one and has made nothing. A file that
 * cannot be read may have content.
 */
static bool has_begun(int dir)
{
	struct stat st;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(run_files); i++)
		if (fstatat(dir, run_files[i], &st, AT_SYMLINK_NOFOLLOW) == 0
			    ? st.st_size > 0
			    : errno != ENOENT)
			return true;
	return false;
}

static void report(void *arg, const char *what, const char *detail)
{
	say(arg, what, detail);
}

/*
 * What a lost run had written may be hours of work, and no supervisor has collected it. Probes and
 * post-processes have nothing that was asked for.
 */
static bool keeps_results(const struct repair *r)
{
	const json_t *record = json_object_get(r->slot, "record");
	const json_t *asked = json_object_get(record, "asked");

	return r->is_lost && r->has_begun && asked &&
	       strcmp(forge_json_string_or(asked, "outputs", ""), "none") != 0 &&
	       json_array_size(json_object_get(record, "outputs")) == 0;
}

static struct forge_repair job_of(const struct repair *r)
{
	const json_t *asked =
		json_object_get(json_object_get(r->slot, "record"), "asked");

	return (struct forge_repair){
		.run_id = r->run_id,
		.slot = r->slot,
		/* A workdir is of no use when no record says where it is. */
		.keeps_workdir = json_is_true(json_object_get(r->slot, "keep")) &&
				 r->has_begun && json_object_get(r->slot, "record"),
		.keeps_results = keeps_results(r),
		/* A pattern may match hidden files. */
		.with_aside = json_is_array(json_object_get(asked, "outputs")),
		.dry_run = r->dry_run,
		.report = report,
		.arg = (void *)r,
	};
}

/* gc removes a kept workdir when its time comes. 1: the record has changed. */
static int note_kept(const struct repair *r, json_t *record, struct forge_error *err)
{
	forge_auto_kept struct forge_kept kept = { 0 };
	struct forge_repair job = job_of(r);

	if ((!json_is_true(json_object_get(r->slot, "keep")) &&
	     !(job.keeps_results && r->is_repaired)) ||
	    json_object_get(record, "workdir_kept"))
		return 0;
	int rc = r->executor->repair_kept(&job, &kept, err);
	if (rc == 1)
		rc = forge_kept_write(r->dir, kept.path, kept.dev, kept.ino, err);
	else
		return rc;
	if (rc < 0)
		return rc;
	json_object_set_new(record, "workdir", json_string(kept.path));
	json_object_set_new(record, "workdir_kept", json_true());
	json_object_set_new(
		record, "workdir_identity",
		json_pack("[I, I]", (json_int_t)kept.dev, (json_int_t)kept.ino));
	if (forge_record_is_over(record))
		forge_record_note_kept(record);
	return 1;
}

/* The verdict was written before the workdir was kept or removed, or by a process that knew nothing of it. */
static int complete_record(const struct repair *r, json_t *verdict,
			   struct forge_error *err)
{
	int rc = forge_complete_events(r->home, r->run_id, verdict, err);

	if (rc < 0)
		return rc;
	rc = note_kept(r, verdict, err);
	return rc == 1 ? forge_write_record(r->home, r->run_id, verdict, err) : rc;
}

/*
 * Killed while it made its directory: there are only empty files. After a power cut there may be points of what it used, which no
 * process waits for, and nothing else.
 */
static void remove_unbegun(const struct repair *r)
{
	if (r->dir < 0 || r->dry_run)
		return;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(run_files); i++)
		(void)unlinkat(r->dir, run_files[i], 0); /* maybe not there yet */
	(void)unlinkat(r->dir, FORGE_SAMPLES_FILE, 0);
	(void)unlinkat(r->home->runs_fd, r->run_id, AT_REMOVEDIR);
}

/* A run without a verdict gets the verdict "lost": how it ended is not known. */
static int close_lost(const struct repair *r, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	json_t *planned = json_object_get(r->slot, "record"), *own = NULL;
	int rc = 0;

	/* The slot is not synced: a power cut may have left only what is in the directory. */
	if (!planned) {
		rc = forge_load_record(r->home, r->run_id, &own, &why);
		if (rc < 0 && !forge_is_no_record(rc)) {
			if (err)
				*err = why;
			return rc;
		}
		planned = own;
		rc = 0;
	}
	/* ... or not even that, and the store knows more. */
	if (json_is_object(planned)) {
		say(r, "close record", "as lost");
		/* Another name than the record's, when that was taken. */
		json_object_set(planned, "workdir", json_object_get(r->slot, "workdir"));
		if (!r->dry_run)
			rc = note_kept(r, planned, err);
		if (rc >= 0 && !r->dry_run)
			rc = forge_close_lost(r->home, r->run_id, r->slot, planned, err);
	}
	json_decref(own);
	return rc;
}

static int close_record(const struct repair *r, struct forge_error *err)
{
	json_t *verdict;
	int rc = forge_load_verdict(r->home, r->run_id, &verdict, err);

	if (rc < 0)
		return rc;
	if (!r->has_begun)
		remove_unbegun(r);
	else if (!verdict)
		rc = close_lost(r, err);
	else if (!r->dry_run)
		rc = complete_record(r, verdict, err);
	json_decref(verdict);
	return rc;
}

/* A supervisor that was killed after it wrote the verdict may not have synced it to the disk. */
static int sync_record(const struct repair *r)
{
	forge_auto_close int fd = openat(r->dir, "record.json",
					 O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 || fdatasync(fd) < 0 || fsync(r->dir) < 0 ||
			       fsync(r->home->runs_fd) < 0
		       ? -errno
		       : 0;
}

/* The slot is about to be emptied; the store hears of the run's end by this. */
static int mark_undelivered(const struct repair *r, struct forge_error *err)
{
	const char *url = forge_json_string(r->slot, "store");
	json_t *verdict = NULL;
	int rc = url ? forge_load_verdict(r->home, r->run_id, &verdict, err) : 0;

	if (rc < 0 || !verdict)
		return rc;
	json_decref(verdict);
	rc = sync_record(r);
	if (rc < 0)
		return forge_fail_errno(err, -rc, "write record of %s", r->run_id);
	return forge_deliver_later(r->home, r->run_id, url, err);
}

/* A verdict that cannot be read is no proof that the outputs were collected. */
static bool is_lost(const struct repair *r)
{
	json_t *verdict = NULL;
	int rc = forge_load_verdict(r->home, r->run_id, &verdict, NULL);
	bool is_it = rc < 0 || !verdict ||
		     strcmp(forge_json_string_or(verdict, "status", ""), "lost") == 0;

	json_decref(verdict);
	return is_it;
}

/* Everything that the slot names. */
static int repair_run(struct repair *r, struct forge_error *err)
{
	r->dir = forge_home_open_run(r->home, r->run_id);
	/* Not to be seen now is not the same as never made: then nothing would be kept of it. */
	if (r->dir < 0 && r->dir != -ENOENT)
		return forge_fail_errno(err, -r->dir, "open %s/runs/%s", r->home->path,
					r->run_id);
	r->has_begun = r->dir >= 0 && has_begun(r->dir);
	r->is_lost = is_lost(r);
	/* What cannot be removed yet (a process that cannot be killed) does not delay the verdict. */
	struct forge_repair job = job_of(r);
	int rc = r->executor->repair(&job, err);
	r->is_repaired = rc == 0;
	int closed = close_record(r, rc < 0 ? NULL : err);
	if (closed == 0 && !r->dry_run)
		closed = mark_undelivered(r, rc < 0 ? NULL : err);
	if (r->dir >= 0)
		close(r->dir);
	return rc < 0 ? rc : closed;
}

static int repair_one(struct repair *r, struct forge_error *err)
{
	int rc = forge_slot_read(r->fd, &r->slot);

	if (rc < 0)
		return forge_fail_errno(err, -rc, "read a slot in %s/active",
					r->home->path);
	r->run_id = forge_json_string(r->slot, "run_id");
	r->executor = forge_executor_of_slot(r->slot);
	/* An empty slot: the supervisor died before it made anything. */
	if (r->run_id && !r->executor)
		rc = forge_fail(err, ENOSYS, "this version has no executor '%s'",
				forge_json_string(r->slot, "executor_kind"));
	else if (r->run_id)
		rc = repair_run(r, err);
	if (rc < 0)
		(void)forge_wrap(err, rc, "%s", r->run_id);
	json_decref(r->slot);
	return rc;
}

static int empty_slot(const struct forge_home *home, const char *name,
		      struct forge_error *err)
{
	forge_auto_close int fd =
		openat(home->active_fd, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0 || ftruncate(fd, 0) < 0)
		return forge_fail_errno(err, errno, "empty active/%s", name);
	return 1;
}

/*
 * A run that outlives its supervisor is not repaired while it may go on: a new supervisor takes the slot, or
 * the watcher of its executor looks after it, whose name is then in *ret_watched, a new string.
 */
static bool is_resumable(const struct forge_home *home, int fd, char **ret_watched)
{
	json_t *slot = NULL, *verdict = NULL;
	bool is_it = false;

	if (forge_slot_read(fd, &slot) == 0 && slot) {
		const struct forge_executor_ops *ops = forge_executor_of_slot(slot);
		is_it = ops && (ops->caps & FORGE_EXECUTOR_OUTLIVES) &&
			json_object_get(slot, "saved") &&
			json_object_get(slot, "start_usec") &&
			!json_is_true(json_object_get(slot, "is_gone"));
		/* One that has its verdict is only to be cleaned up after. */
		const char *run_id = forge_json_string(slot, "run_id");
		if (is_it && run_id &&
		    forge_load_verdict(home, run_id, &verdict, NULL) == 0 && verdict)
			is_it = false;
		if (is_it && (ops->caps & FORGE_EXECUTOR_REMOTE))
			*ret_watched = strdup(forge_json_string_or(slot, "executor", ""));
	}
	json_decref(verdict);
	json_decref(slot);
	return is_it;
}

/* One that cannot reach the run ends at once, and has written why into the slot. */
static int check_supervisor(int fd, struct forge_error *err)
{
	json_t *slot = NULL;
	int rc = 0;

	if (forge_lock_fd(fd, FORGE_LOCK_EXCLUSIVE, ATTACH_MSEC, -1) < 0)
		return 0;		   /* it has the run */
	(void)!forge_slot_read(fd, &slot); /* NULL: the run is over */
	const char *why = forge_json_string(slot, "attach_error");
	if (why)
		rc = forge_fail(err, EAGAIN, "%s: it cannot be reached now: %.250s",
				forge_json_string_or(slot, "run_id", ""), why);
	json_decref(slot);
	(void)flock(fd, LOCK_UN);
	return rc;
}

/* 1: repaired, 0: free or alive, negative: failed. */
/* A run that was left to a watcher, which is there. There may be thousands. */
static bool is_watched(const struct forge_home *home, int fd)
{
	json_t *first = NULL;

	if (forge_slot_read_first(fd, "\"start_usec\"", &first) < 0 || !first)
		return false;
	if (forge_slot_has(fd, "\"is_gone\"")) {
		json_decref(first);
		return false; /* a watcher has nothing to do with it any more */
	}
	bool is_it = forge_slot_is_remote(first) &&
		     forge_attendant_has_watcher(
			     home, forge_json_string_or(first, "executor", ""));
	json_decref(first);
	return is_it;
}

static int look_at(const struct forge_home *home, const char *name, FILE *out,
		   bool dry_run, bool is_watcher, unsigned *live, struct forge_error *err)
{
	struct stat st;

	/* The common case needs no lock: the slot is empty. */
	if (fstatat(home->active_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT
			       ? 0
			       : forge_fail_errno(err, errno, "look at active/%s", name);
	if (st.st_size == 0)
		return 0;
	/* A disk that has become read-only is no reason to doubt that it lives. */
	forge_auto_close int fd = openat(home->active_fd, name,
					 O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return forge_fail_errno(err, errno, "open active/%s", name);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		++*live; /* its supervisor lives */
		return 0;
	}
	if (fstat(fd, &st) < 0 || st.st_size == 0)
		return 0; /* it has just ended, or another repair was faster */
	if (!is_watcher && is_watched(home, fd)) {
		++*live;
		return 0;
	}
	forge_auto_free char *watched = NULL;
	if (is_resumable(home, fd, &watched)) {
		++*live;
		/* The new supervisor needs the lock. */
		(void)flock(fd, LOCK_UN);
		if (dry_run)
			return 0;
		if (watched)
			return forge_attendant_watch(home, watched, err);
		int rc = forge_attendant_start(home, name, err);
		return rc < 0 ? rc : check_supervisor(fd, err);
	}
	struct repair r = { .home = home, .say = out, .dry_run = dry_run, .fd = fd };
	int rc = repair_one(&r, err);
	if (rc < 0)
		return rc;
	return dry_run ? 1 : empty_slot(home, name, err);
}

/*
 * With hundreds of runs at once looking at each slot is what every new one would spend its time
 * with. Then one look in a fifth of a second is enough for all.
 */
#define CROWD	   32
#define CROWD_NSEC 200000000
#define CROWD_FILE "crowd"

static bool somebody_just_looked(const struct forge_home *home)
{
	struct stat st;
	struct timespec now;

	if (fstatat(home->fd, CROWD_FILE, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	clock_gettime(CLOCK_REALTIME, &now);
	int64_t age = (now.tv_sec - st.st_mtim.tv_sec) * 1000000000ll + now.tv_nsec -
		      st.st_mtim.tv_nsec;
	return age >= 0 && age < CROWD_NSEC;
}

/* The file is there only while there is a crowd. */
static void note_crowd(const struct forge_home *home, unsigned live)
{
	if (live <= CROWD) {
		(void)unlinkat(home->fd, CROWD_FILE, 0); /* mostly not there */
		return;
	}
	forge_auto_close int fd = openat(
		home->fd, CROWD_FILE, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0)
		(void)futimens(fd, NULL);
}

/* Where failed repairs are reported: all of them in a list, or only the first. */
struct complaint {
	struct forge_strv *all; /* NULL: only the first, in *err */
	struct forge_error *err;
};

static void complain(const struct complaint *c, bool is_first,
		     const struct forge_error *why)
{
	if (c->all)
		(void)!forge_strv_add(c->all, why->msg); /* *err has the first */
	if (is_first && c->err)
		*c->err = *why;
}

/* Every slot, and how many of them are in use. */
static int look_at_all(const struct forge_home *home, FILE *out, bool dry_run,
		       unsigned *live, const struct complaint *c)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int n = 0, first = 0;

	(void)forge_entries_open(&d, home->active_fd, "."); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));) {
		struct forge_error why = FORGE_ERROR_INIT;
		/* Slots are numbers; nothing else is ours to touch. */
		if (name[strspn(name, "0123456789")] != '\0')
			continue;
		/* One that cannot be repaired must not keep the others from it. */
		int rc = look_at(home, name, out, dry_run, false, live, &why);
		if (rc < 0) {
			complain(c, !first, &why);
			first = first ? first : rc;
		}
		n += rc > 0;
	}
	if (d.error) {
		struct forge_error why = FORGE_ERROR_INIT;
		(void)forge_fail_errno(&why, -d.error, "read %s/active", home->path);
		complain(c, !first, &why);
		first = first ? first : d.error;
	}
	return first && !c->all ? first : n;
}

struct retries {
	FILE *say;
	bool dry_run;
};

/* 1: the attempt after this run has a supervisor. */
static int start_next(const struct forge_home *home, const char *run_id, void *arg,
		      struct forge_error *err)
{
	const struct retries *r = arg;

	if (r->say)
		fprintf(r->say, "%s: %sstart the next attempt\n", run_id,
			r->dry_run ? "would " : "");
	int rc = r->dry_run ? 0 : forge_attendant_retry(home, run_id, err);
	return rc < 0 ? rc : 1;
}

static int reconcile(const struct forge_home *home, FILE *out, bool dry_run,
		     const struct complaint *c)
{
	unsigned live = 0;
	struct forge_error why = FORGE_ERROR_INIT;
	struct retries retries = { out, dry_run };
	int rc = look_at_all(home, out, dry_run, &live, c);

	note_crowd(home, live);
	/* After the slots: a run that is lost only now may have a next attempt. */
	int started = forge_retry_each_due(home, dry_run, start_next, &retries, &why);
	if (started < 0)
		complain(c, rc >= 0, &why);
	return rc < 0 ? rc : started >= 0 ? rc + started : c->all ? rc : started;
}

static int open_and_reconcile(FILE *out, bool dry_run, const struct complaint *c)
{
	forge_auto_home struct forge_home home = FORGE_HOME_INIT;
	int rc = forge_home_open(false, &home, c->err);

	if (rc == -ENOENT || (rc < 0 && !out))
		return 0; /* nothing ever ran, or the run that follows will say so */
	return rc < 0 ? rc : reconcile(&home, out, dry_run, c);
}

int forge_reconcile(FILE *out, bool dry_run, struct forge_error *err)
{
	return open_and_reconcile(out, dry_run, &(struct complaint){ .err = err });
}

int forge_reconcile_all(FILE *out, bool dry_run, struct forge_strv *failures,
			struct forge_error *err)
{
	struct forge_error first = FORGE_ERROR_INIT;
	struct complaint c = { .all = failures, .err = &first };
	int rc = open_and_reconcile(out, dry_run, &c);

	if (rc < 0 && err)
		*err = first;
	return rc;
}

int forge_reconcile_slot(unsigned slot, struct forge_error *err)
{
	forge_auto_home struct forge_home home = FORGE_HOME_INIT;
	unsigned live = 0;
	char name[16];
	int rc = forge_home_open(false, &home, err);

	(void)snprintf(name, sizeof(name), "%u", slot);
	return rc < 0 ? rc : look_at(&home, name, NULL, false, true, &live, err);
}

int forge_reconcile_cheaply(struct forge_error *err)
{
	forge_auto_home struct forge_home home = FORGE_HOME_INIT;

	if (forge_home_open(false, &home, NULL) < 0 || somebody_just_looked(&home))
		return 0; /* the run that follows will say what is wrong with it */
	return reconcile(&home, NULL, false, &(struct complaint){ .err = err });
}
