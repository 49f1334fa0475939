/* SPDX-License-Identifier: Apache-2.0 */
/* Deferred deliveries to the store, and closing of dead runs in it. */
#include "record/deliver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/entries.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/proc.h"
#include "record/adopt.h"
#include "record/guarded.h"
#include "record/record.h"
#include "record/retry.h"
#include "state/slot.h"
#include "store/state.h"

int forge_store_choose(const char *explicit_url, const struct forge_config *cfg,
		       char **ret_url, struct forge_error *err)
{
	const char *env = getenv("FORGE_STORE");
	const char *url = explicit_url			     ? explicit_url
			  : env && *env			     ? env
			  : cfg && cfg->store && *cfg->store ? cfg->store
							     : NULL;
	forge_auto_free char *home = url ? NULL : forge_home_path();

	if (url) {
		int rc = forge_store_check_url(url, err);
		if (rc < 0)
			return rc;
	} else if (!home) {
		return forge_hint(err,
				  forge_fail(err, EINVAL, "no place for forge's state"),
				  "Set FORGE_HOME to an absolute path");
	}
	*ret_url = url ? strdup(url) : forge_asprintf("sqlite:%s/forge.db", home);
	return *ret_url ? 0 : forge_fail(err, ENOMEM, "out of memory");
}

/* Far more than a record can have. A larger file is an error, not a missing record. */
#define FILE_MAX (1u << 30)

static int read_run_file(const struct forge_home *home, const char *run_id,
			 const char *name, char **ret, size_t *ret_len)
{
	forge_auto_close int dir = forge_home_open_run(home, run_id);

	return dir < 0 ? dir : forge_read_file(dir, name, FILE_MAX, ret, ret_len);
}

int forge_load_record(const struct forge_home *home, const char *run_id, json_t **ret,
		      struct forge_error *err)
{
	forge_auto_free char *text = NULL;
	size_t len = 0;
	json_error_t why;
	int rc = read_run_file(home, run_id, "record.json", &text, &len);

	if (rc == -ENOENT || rc == -EINVAL)
		return forge_fail(err, ENOENT, "no run '%s' here", run_id);
	if (rc < 0)
		return forge_fail_errno(err, -rc, "read the record of %s", run_id);
	json_t *j = json_loadb(text, len, 0, &why);
	if (!j && json_error_code(&why) == json_error_out_of_memory)
		return forge_fail(err, ENOMEM, "read the record of %s: out of memory",
				  run_id);
	if (!json_is_object(j)) {
		json_decref(j);
		return forge_fail(err, EBADMSG, "the record of %s is torn", run_id);
	}
	*ret = j;
	return 0;
}

bool forge_is_no_record(int rc)
{
	return rc == -ENOENT || rc == -EBADMSG;
}

int forge_load_verdict(const struct forge_home *home, const char *run_id, json_t **ret,
		       struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	json_t *record = NULL;
	int rc = forge_load_record(home, run_id, &record, &why);

	*ret = NULL;
	if (rc < 0 && !forge_is_no_record(rc)) {
		if (err)
			*err = why;
		return rc;
	}
	if (forge_record_is_over(record))
		*ret = record;
	else
		json_decref(record);
	return 0;
}

int forge_load_events(const struct forge_home *home, const char *run_id, json_t **ret,
		      struct forge_error *err)
{
	forge_auto_free char *text = NULL;
	size_t len = 0;
	int rc = read_run_file(home, run_id, "events.jsonl", &text, &len);

	if (rc < 0 && rc != -ENOENT)
		return forge_fail_errno(err, -rc, "read the events of %s", run_id);
	json_t *a = json_array();
	for (char *line = text, *end;
	     line && (end = memchr(line, '\n', len - (size_t)(line - text)));
	     line = end + 1) {
		json_t *e = json_loadb(line, (size_t)(end - line), 0, NULL);
		if (json_is_object(e) && json_is_integer(json_object_get(e, "seq")))
			json_array_append_new(a, e);
		else
			json_decref(e);
	}
	if (!a)
		return forge_fail(err, ENOMEM, "out of memory");
	*ret = a;
	return 0;
}

json_int_t forge_next_seq(const json_t *events)
{
	const json_t *last = json_array_get(events, json_array_size(events) - 1);

	return last ? json_integer_value(json_object_get(last, "seq")) + 1 : 0;
}

/* Starts with a newline: a dead supervisor may have left an incomplete last line. */
static int append_event(int fd, json_t *e)
{
	char *line = e ? json_dumps(e, JSON_COMPACT) : NULL;
	int rc = !line ? -ENOMEM : dprintf(fd, "\n%s\n", line) < 0 ? -errno : 0;

	free(line);
	json_decref(e);
	return rc;
}

static int open_events(const struct forge_home *home, const char *run_id)
{
	forge_auto_close int dir = forge_home_open_run(home, run_id);
	int fd = dir < 0 ? dir
			 : openat(dir, "events.jsonl",
				  O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC |
					  O_NOFOLLOW,
				  0600);

	return dir >= 0 && fd < 0 ? -errno : fd;
}

int forge_add_event(const struct forge_home *home, const char *run_id, json_t *e,
		    struct forge_error *err)
{
	forge_auto_close int fd = open_events(home, run_id);

	if (fd < 0)
		json_decref(e);
	int rc = fd < 0 ? fd : append_event(fd, e);
	return rc < 0 ? forge_fail_errno(err, -rc, "write the events of %s", run_id) : 0;
}

int forge_complete_events(const struct forge_home *home, const char *run_id,
			  const json_t *record, struct forge_error *err)
{
	const char *status = forge_json_string(record, "status");
	json_t *events = NULL, *e;
	bool is_there = false, has_begun = false;
	size_t i;
	int rc = forge_load_events(home, run_id, &events, err);

	if (rc < 0)
		return rc;
	json_array_foreach (events, i, e) {
		const char *s = forge_json_string(e, "status");
		is_there = is_there || forge_status_is_terminal(forge_status_of(s));
		has_begun = has_begun || s;
	}
	json_int_t seq = forge_next_seq(events);
	json_decref(events);
	if (is_there)
		return 0;
	/* A power cut may have lost the first event too. */
	if (!has_begun)
		rc = forge_add_event(
			home, run_id,
			forge_event_json(seq++, "repair", "assumed", "preparing", NULL),
			err);
	return rc < 0 ? rc
		      : forge_add_event(home, run_id,
					forge_event_json(seq, "repair", status, status,
							 "its supervisor is gone"),
					err);
}

int forge_write_record(const struct forge_home *home, const char *run_id,
		       const json_t *record, struct forge_error *err)
{
	forge_auto_close int dir = forge_home_open_run(home, run_id);
	forge_auto_free char *text =
		json_dumps(record, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	int rc = dir < 0 ? dir
		 : text ? forge_replace_file(dir, "record.json", text, strlen(text), true)
			: -ENOMEM;

	return rc < 0 ? forge_fail_errno(err, -rc, "write record of %s", run_id) : 0;
}

int forge_close_lost(const struct forge_home *home, const char *run_id,
		     const json_t *slot, json_t *record, struct forge_error *err)
{
	if (forge_guard_slot_files(slot))
		json_object_del(record, "guarded_since"); /* more is known than that */
	forge_record_set_lost(record);
	int rc = forge_guard_judge_lost(home, run_id, slot, record, err);
	if (rc < 0)
		return rc;
	forge_retry_after_loss(home, run_id, true, record);
	rc = forge_write_record(home, run_id, record, err);
	return rc < 0 ? rc : forge_complete_events(home, run_id, record, err);
}

/* *ret stays NULL when the run had no post-process. */
static int load_post_rows(const struct forge_home *home, const char *run_id, json_t **ret,
			  struct forge_error *err)
{
	forge_auto_free char *text = NULL;
	size_t len = 0;
	int rc = read_run_file(home, run_id, "post_process.json", &text, &len);

	if (rc < 0 && rc != -ENOENT)
		return forge_fail_errno(err, -rc, "read the post-process of %s", run_id);
	*ret = text ? json_loadb(text, len, 0, NULL) : NULL;
	return 0;
}

/*
 * The store already has another verdict: the run was closed as lost, or a power cut
 * damaged its directory. The verdict of the store stays, and the directory is changed to
 * it.
 */
static int adopt_verdict(const struct forge_home *home, struct forge_store *st,
			 const char *run_id, const json_t *ours, struct forge_error *err)
{
	json_t *row = NULL;
	int rc = forge_store_get(st, run_id, &row, err);

	if (rc < 0)
		return rc;
	json_t *record = forge_record_adopt(home, run_id, row, ours);
	rc = record ? forge_write_record(home, run_id, record, err)
		    : forge_fail(err, ENOMEM, "out of memory");
	json_decref(record);
	json_decref(row);
	return rc;
}

/* The record of a run may be lost, and the event of its end not: that stays an event, and is no second verdict. */
static void drop_other_ends(const json_t *record, json_t *events)
{
	const char *verdict = forge_json_string_or(record, "status", "");
	json_t *e;
	size_t i;

	if (!json_is_true(json_object_get(record, "is_remains")))
		return;
	json_array_foreach (events, i, e) {
		const char *status = forge_json_string_or(e, "status", "");
		if (strcmp(status, verdict) != 0 &&
		    forge_status_is_terminal(forge_status_of(status)))
			json_object_del(e, "status");
	}
}

int forge_deliver_run(const struct forge_home *home, struct forge_store *st,
		      const char *run_id, struct forge_error *err)
{
	json_t *record = NULL, *events = NULL, *post = NULL;
	int rc = forge_load_record(home, run_id, &record, err);

	if (rc == 0)
		rc = forge_load_events(home, run_id, &events, err);
	if (rc == 0)
		drop_other_ends(record, events);
	if (rc == 0)
		rc = load_post_rows(home, run_id, &post, err);
	json_t *batch = rc < 0 ? NULL
			       : json_pack("{s:O, s:O, s:O*}", "record", record, "events",
					   events, "post_process", post);
	if (rc == 0)
		rc = batch ? forge_store_settle(st, batch, true, err)
			   : forge_fail(err, ENOMEM, "out of memory");
	if (rc == -EALREADY) {
		if (err)
			*err = FORGE_ERROR_INIT;
		rc = adopt_verdict(home, st, run_id, record, err);
	}
	json_decref(batch);
	json_decref(record);
	json_decref(events);
	json_decref(post);
	return rc;
}

int forge_deliver_later(const struct forge_home *home, const char *run_id,
			const char *url, struct forge_error *err)
{
	int rc = forge_home_subdir(home, "undelivered", err);

	if (rc < 0)
		return rc;
	forge_auto_close int dir = rc;
	rc = forge_replace_file(dir, run_id, url, strlen(url), true);
	return rc < 0 ? forge_fail_errno(err, -rc, "write undelivered/%s", run_id) : 0;
}

/* 1: delivered, 0: the run is for another store. err may be filled in any case. */
static int deliver_one(const struct forge_home *home, struct forge_store *st, int dir,
		       const char *name, const char *url, struct forge_error *err)
{
	forge_auto_free char *wanted = NULL;
	size_t len = 0;
	int rc = forge_read_file(dir, name, 1 << 16, &wanted, &len);

	if (rc < 0)
		return forge_fail_errno(err, -rc, "read undelivered/%s", name);
	if (strcmp(wanted, url) != 0)
		return 0; /* until that store is opened */
	rc = forge_deliver_run(home, st, name, err);
	if (rc < 0)
		return rc;
	(void)unlinkat(dir, name, 0); /* on failure it is delivered again */
	return 1;
}

static int deliver_marked(const struct forge_home *home, struct forge_store *st,
			  const char *url, FILE *say)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int n = 0;

	(void)forge_entries_open(&d, home->fd,
				 "undelivered"); /* usually does not exist */
	for (const char *name; (name = forge_entries_next(&d));) {
		struct forge_error err = FORGE_ERROR_INIT;
		if (name[0] == '.')
			continue;
		int rc = deliver_one(home, st, forge_entries_fd(&d), name, url, &err);
		n += rc > 0;
		if (say && rc != 0)
			fprintf(say, "%s: %s%s\n", name,
				rc < 0 ? "not delivered: " : "delivered to the store",
				rc < 0 ? err.msg : "");
	}
	if (d.error && d.error != -ENOENT && say)
		fprintf(say, "undelivered: %s\n", strerror(-d.error));
	return n;
}

/* ---- runs that are open in the store but dead on this host ---- */

struct open_runs {
	struct forge_strv ids;
	const char *boot_id;
};

static int note_dead(const struct forge_run_row *row, void *arg)
{
	struct open_runs *o = arg;

	/* An invalid id names no directory of ours. */
	if (!forge_run_id_is_valid(row->run_id))
		return 0;
	if (row->boot_id && strcmp(row->boot_id, o->boot_id) == 0 && row->pid > 0 &&
	    forge_proc_start_time((pid_t)row->pid) == (uint64_t)row->pid_start)
		return 0;
	return forge_strv_add(&o->ids, row->run_id);
}

/*
 * Compares the uid, which is the same in a login shell and under cron. Records of an
 * older forge have only a name.
 */
static bool is_ours(const json_t *record)
{
	const json_t *uid = json_object_get(json_object_get(record, "supervisor"), "uid");
	const char *user = forge_json_string(record, "user");
	const char *env = getenv("USER");
	char name[FORGE_USER_MAX];

	if (geteuid() == 0)
		return true;
	if (json_is_integer(uid))
		return (uid_t)json_integer_value(uid) == getuid();
	return user && (strcmp(user, forge_user_name(name)) == 0 ||
			(env && strcmp(user, env) == 0));
}

/*
 * Whether this process can know that the supervisor is dead. It cannot for a pid of
 * another namespace in this boot, nor for another boot of another machine that only has
 * the same name (localhost).
 */
static bool can_judge(const json_t *record, const char *boot_id)
{
	char ours[FORGE_BOOT_ID_MAX];
	const json_t *supervisor = json_object_get(record, "supervisor");
	const char *boot = forge_json_string(supervisor, "boot_id");
	const char *machine = forge_json_string(supervisor, "machine_id");
	json_int_t ns = json_integer_value(json_object_get(supervisor, "pid_namespace"));

	if (boot && strcmp(boot, boot_id) == 0)
		return ns == 0 || (uint64_t)ns == forge_pid_namespace();
	return !machine || !*machine || strcmp(machine, forge_machine_id(ours)) == 0;
}

/* How long a run of another FORGE_HOME may take to report its verdict. */
#define FOREIGN_SECONDS (30 * 86400)

/*
 * Whether a run belongs to another FORGE_HOME of this host. The record there may have a
 * verdict that the store lacks, and a forge command there has to deliver it. Only the
 * name of that home is compared: a path from the store must not be opened. After a month
 * without a delivery that home is taken for gone.
 */
static bool is_elsewhere(const struct forge_home *home, const json_t *record,
			 const char *run_id)
{
	const char *there =
		forge_json_string(json_object_get(record, "supervisor"), "home");
	char oldest[FORGE_RUN_ID_MAX];
	struct timespec now;

	forge_auto_close int here = forge_home_open_run(home, run_id);
	if (!there || strcmp(there, home->path) == 0 || here >= 0)
		return false;
	clock_gettime(CLOCK_REALTIME, &now);
	/* Ids sort by the time they were made. */
	(void)forge_run_id_at(oldest, (uint64_t)(now.tv_sec - FOREIGN_SECONDS) * 1000);
	return strcmp(run_id, oldest) >= 0;
}

/*
 * The event "lost" comes after all events of the run's directory, so that a later repair
 * of the directory adds nothing new.
 */
static json_t *lost_events(const struct forge_home *home, struct forge_store *st,
			   const char *run_id)
{
	json_t *events = NULL, *known = NULL;

	if (forge_load_events(home, run_id, &events, NULL) < 0 ||
	    forge_store_events(st, run_id, &known, NULL) < 0) {
		json_decref(events);
		return NULL;
	}
	json_int_t seq = forge_next_seq(json_array_size(events) ? events : known);
	json_decref(known);
	json_array_append_new(events, forge_event_json(seq, "repair", "lost", "lost",
						       "its supervisor is gone"));
	return events;
}

/* True: the run is closed in the store. */
static bool close_as_lost(const struct forge_home *home, struct forge_store *st,
			  const char *run_id, const char *boot_id)
{
	json_t *record = NULL, *events = NULL;

	if (forge_store_get(st, run_id, &record, NULL) < 0 || !is_ours(record) ||
	    !can_judge(record, boot_id) || is_elsewhere(home, record, run_id) ||
	    !(events = lost_events(home, st, run_id))) {
		json_decref(record);
		return false;
	}
	forge_record_set_lost(record);
	forge_retry_after_loss(home, run_id, false, record);
	json_t *batch = json_pack("{s:o, s:o}", "record", record, "events", events);
	bool is_done = forge_store_settle(st, batch, true, NULL) ==
		       0; /* on failure the next delivery retries */
	json_decref(batch);
	return is_done;
}

/*
 * A slot or a record in this FORGE_HOME is more reliable than the store. A record that
 * cannot be read may have a verdict: then nothing is closed.
 */
static bool close_one(const struct forge_home *home, struct forge_store *st,
		      const char *run_id, const char *boot_id)
{
	if (forge_slot_exists(home, run_id))
		return false;
	json_t *record = NULL;
	int rc = forge_load_record(home, run_id, &record, NULL);
	if (forge_is_no_record(rc))
		return close_as_lost(home, st, run_id, boot_id);
	if (rc < 0)
		return false;
	bool can_close = forge_record_is_over(record) ||
			 (can_judge(record, boot_id) &&
			  forge_close_lost(home, run_id, NULL, record, NULL) == 0);
	json_decref(record);
	return can_close && forge_deliver_run(home, st, run_id, NULL) == 0;
}

/*
 * A dead supervisor usually leaves its slot, and reconcile.c has closed the run by now.
 * Without a slot (the power went before it reached the disk) there is only the row in the
 * store. Runs of other users, whose processes may be hidden (hidepid), are left to those
 * users; root can see all processes.
 */
static int close_dead(const struct forge_home *home, struct forge_store *st, FILE *say)
{
	char host[256] = "", boot[FORGE_BOOT_ID_MAX];
	struct open_runs dead = { .boot_id = forge_boot_id(boot) };

	(void)gethostname(host, sizeof(host) - 1); /* "" matches nothing */
	struct forge_run_filter f = { .host = host,
				      .with_parts = true,
				      .open_only = true };
	int n = 0, rc = forge_store_list(st, &f, note_dead, &dead, NULL);
	/* Runs on a cluster have no supervisor, but have slots: there may be thousands. */
	forge_auto_json json_t *slots = dead.ids.n ? forge_slot_ids(home) : NULL;
	if (rc >= 0)
		forge_strv_foreach (id, &dead.ids) {
			if (json_object_get(slots, id) ||
			    !close_one(home, st, id, dead.boot_id))
				continue;
			if (say)
				fprintf(say, "%s: closed in the store\n", id);
			n++;
		}
	forge_strv_done(&dead.ids);
	return n;
}

/*
 * Whether the last delivery was within a second: the lock file's mtime says when. The
 * lock must be held.
 */
static bool is_fresh(int lock)
{
	struct stat st;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return fstat(lock, &st) == 0 && st.st_size > 0 &&
	       now.tv_sec >= st.st_mtim.tv_sec && now.tv_sec - st.st_mtim.tv_sec <= 1;
}

enum hurry { IF_DUE, NOW, WAIT };

static int deliver(struct forge_store *st, const char *url, FILE *say, enum hurry hurry)
{
	forge_auto_home struct forge_home home = FORGE_HOME_INIT;

	if (forge_home_open(false, &home, NULL) < 0)
		return 0;
	/* One process at a time; the others skip, or wait and find the work done. */
	forge_auto_close int lock =
		openat(home.fd, "undelivered.lock",
		       O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0 || flock(lock, hurry == WAIT ? LOCK_EX : LOCK_EX | LOCK_NB) < 0 ||
	    (hurry == IF_DUE && is_fresh(lock)))
		return 0;
	int n = deliver_marked(&home, st, url, say) + close_dead(&home, st, say);
	(void)!pwrite(lock, "x", 1, 0); /* on a full disk deliveries are more frequent */
	return n;
}

int forge_deliver_pending(struct forge_store *st, const char *url, FILE *say)
{
	return deliver(st, url, say, say ? WAIT : NOW);
}

void forge_deliver_if_due(struct forge_store *st, const char *url)
{
	(void)deliver(st, url, NULL, IF_DUE); /* a count */
}
