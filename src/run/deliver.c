/* SPDX-License-Identifier: Apache-2.0 */
/* Late deliveries. */
#include "run/deliver.h"

#include <dirent.h>
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
#include "base/fd.h"
#include "base/proc.h"
#include "run/live.h"
#include "run/record.h"
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

/* A whole file of ours, NULL when it cannot be had. */
static char *read_file(int dir, const char *name, size_t *ret_len)
{
	struct stat st;
	forge_auto_close int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size > (1 << 30))
		return NULL;
	char *text = malloc((size_t)st.st_size + 1);
	ssize_t n = text ? pread(fd, text, (size_t)st.st_size, 0) : -1;
	if (n < 0) {
		free(text);
		return NULL;
	}
	text[n] = '\0';
	*ret_len = (size_t)n;
	return text;
}

static int open_run(const struct forge_home *home, const char *run_id)
{
	return openat(home->runs_fd, run_id,
		      O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

int forge_load_record(const struct forge_home *home, const char *run_id, json_t **ret,
		      struct forge_error *err)
{
	size_t len = 0;
	forge_auto_close int dir = open_run(home, run_id);
	forge_auto_free char *text = dir < 0 ? NULL : read_file(dir, "record.json", &len);
	json_t *j = text ? json_loadb(text, len, 0, NULL) : NULL;

	if (!json_is_object(j)) {
		json_decref(j);
		return forge_fail(err, ENOENT, "no run '%s' here", run_id);
	}
	*ret = j;
	return 0;
}

json_t *forge_load_verdict(const struct forge_home *home, const char *run_id)
{
	json_t *record;

	if (forge_load_record(home, run_id, &record, NULL) < 0)
		return NULL;
	const char *status = json_string_value(json_object_get(record, "status"));
	if (forge_status_is_terminal(forge_status_of(status)))
		return record;
	json_decref(record);
	return NULL;
}

json_t *forge_load_events(const struct forge_home *home, const char *run_id)
{
	size_t len = 0;
	forge_auto_close int dir = open_run(home, run_id);
	forge_auto_free char *text =
		dir < 0 ? NULL : read_file(dir, "events.jsonl", &len);
	json_t *a = json_array();

	for (char *line = text, *end; line && (end = strchr(line, '\n'));
	     line = end + 1) {
		json_t *e = json_loadb(line, (size_t)(end - line), 0, NULL);
		if (json_is_object(e) && json_is_integer(json_object_get(e, "seq")))
			json_array_append_new(a, e);
		else
			json_decref(e);
	}
	return a;
}

/* Takes e. A torn last line of a dead one's must not swallow ours. */
static void append_event(int fd, json_t *e)
{
	char *line = json_dumps(e, JSON_COMPACT);

	if (fd >= 0 && line)
		(void)dprintf(fd, "\n%s\n", line);
	free(line);
	json_decref(e);
}

void forge_complete_events(const struct forge_home *home, const char *run_id,
			   const json_t *record)
{
	const char *status = json_string_value(json_object_get(record, "status"));
	json_t *events = forge_load_events(home, run_id), *e;
	json_int_t seq = 0;
	bool is_there = false, has_begun = false;
	size_t i;

	json_array_foreach (events, i, e) {
		const char *s = json_string_value(json_object_get(e, "status"));
		is_there = is_there || forge_status_is_terminal(forge_status_of(s));
		has_begun = has_begun || s;
		seq = json_integer_value(json_object_get(e, "seq")) + 1;
	}
	json_decref(events);
	if (is_there)
		return;
	forge_auto_close int dir = open_run(home, run_id);
	forge_auto_close int fd =
		openat(dir, "events.jsonl",
		       O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	/* A power cut may have taken the first line too. */
	if (!has_begun)
		append_event(fd, forge_event_json(seq++, "repair", "assumed", "preparing",
						  NULL));
	append_event(fd, forge_event_json(seq, "repair", status, status,
					  "its supervisor is gone"));
}

int forge_write_record(const struct forge_home *home, const char *run_id,
		       const json_t *record, struct forge_error *err)
{
	forge_auto_close int dir = open_run(home, run_id);
	forge_auto_free char *text =
		json_dumps(record, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	int rc = dir < 0 ? -errno
		 : text ? forge_replace_file(dir, "record.json", text, strlen(text), true)
			: -ENOMEM;

	return rc < 0 ? forge_fail_errno(err, -rc, "write record of %s", run_id) : 0;
}

int forge_close_lost(const struct forge_home *home, const char *run_id, json_t *record,
		     struct forge_error *err)
{
	forge_record_set_lost(record);
	int rc = forge_write_record(home, run_id, record, err);
	if (rc == 0)
		forge_complete_events(home, run_id, record);
	return rc;
}

static json_t *load_post_rows(const struct forge_home *home, const char *run_id)
{
	size_t len = 0;
	forge_auto_close int dir = open_run(home, run_id);
	forge_auto_free char *text =
		dir < 0 ? NULL : read_file(dir, "post_process.json", &len);

	return text ? json_loadb(text, len, 0, NULL) : NULL;
}

/*
 * The store had its verdict first: the run was taken for lost, or a power cut took what its directory
 * said. That verdict stays, and the directory follows.
 */
static void adopt_verdict(const struct forge_home *home, struct forge_store *st,
			  const char *run_id)
{
	static const char *const local[] = { "workdir_kept", "workdir_identity" };
	json_t *record = NULL, *ours = NULL;

	if (forge_store_get(st, run_id, &record, NULL) < 0)
		return;
	/* What still lies here is known here only. */
	if (forge_load_record(home, run_id, &ours, NULL) == 0)
		for (size_t i = 0; i < FORGE_ARRAY_SIZE(local); i++)
			if (json_object_get(ours, local[i]))
				json_object_set(record, local[i],
						json_object_get(ours, local[i]));
	json_decref(ours);
	(void)!forge_write_record(home, run_id, record, NULL); /* the store has it */
	json_decref(record);
}

int forge_deliver_run(const struct forge_home *home, struct forge_store *st,
		      const char *run_id, struct forge_error *err)
{
	json_t *record;
	int rc = forge_load_record(home, run_id, &record, err);

	if (rc < 0)
		return rc;
	json_t *batch = json_pack("{s:o, s:o, s:o*}", "record", record, "events",
				  forge_load_events(home, run_id), "post_process",
				  load_post_rows(home, run_id));
	rc = batch ? forge_store_apply(st, batch, true, err)
		   : forge_fail(err, ENOMEM, "out of memory");
	json_decref(batch);
	if (rc != -EALREADY)
		return rc;
	adopt_verdict(home, st, run_id);
	return 0;
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

static DIR *open_pending(const struct forge_home *home)
{
	int fd = openat(home->fd, "undelivered",
			O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? NULL : fdopendir(fd);
}

bool forge_deliver_is_due(const struct forge_home *home)
{
	forge_auto_dir DIR *d = open_pending(home);

	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] != '.')
			return true;
	return false;
}

static int deliver_marked(const struct forge_home *home, struct forge_store *st,
			  const char *url, FILE *say)
{
	forge_auto_dir DIR *d = open_pending(home);
	int n = 0;

	for (struct dirent *e; d && (e = readdir(d));) {
		size_t len = 0;
		if (e->d_name[0] == '.')
			continue;
		forge_auto_free char *wanted = read_file(dirfd(d), e->d_name, &len);
		if (!wanted || strcmp(wanted, url) != 0)
			continue; /* of another store: when that one is opened */
		struct forge_error err = FORGE_ERROR_INIT;
		if (forge_deliver_run(home, st, e->d_name, &err) < 0) {
			if (say)
				fprintf(say, "%s: not delivered: %s\n", e->d_name,
					err.msg);
			continue;
		}
		(void)unlinkat(dirfd(d), e->d_name, 0); /* else it is told once more */
		if (say)
			fprintf(say, "%s: delivered to the store\n", e->d_name);
		n++;
	}
	return n;
}

/* ---- what the store believes to be running here ---- */

struct open_runs {
	struct forge_strv ids;
	const char *boot_id;
};

static int note_dead(const struct forge_run_row *row, void *arg)
{
	struct open_runs *o = arg;

	if (row->boot_id && strcmp(row->boot_id, o->boot_id) == 0 && row->pid > 0 &&
	    forge_proc_start_time((pid_t)row->pid) == (uint64_t)row->pid_start)
		return 0;
	return forge_strv_add(&o->ids, row->run_id);
}

/*
 * A pid of another namespace of this boot says nothing to us; nor does another boot when it was
 * that of another machine, which only has the same name (localhost).
 */
static bool can_judge(const json_t *record, const char *boot_id)
{
	char ours[FORGE_BOOT_ID_MAX];
	const json_t *who = json_object_get(record, "supervisor");
	const char *boot = json_string_value(json_object_get(who, "boot_id"));
	const char *machine = json_string_value(json_object_get(who, "machine_id"));
	json_int_t ns = json_integer_value(json_object_get(who, "pid_namespace"));

	if (boot && strcmp(boot, boot_id) == 0)
		return ns == 0 || (uint64_t)ns == forge_pid_namespace();
	return !machine || !*machine || strcmp(machine, forge_machine_id(ours)) == 0;
}

static bool has_verdict(const struct forge_home *home, const char *run_id)
{
	json_t *record = NULL;

	if (forge_load_record(home, run_id, &record, NULL) < 0)
		return false;
	const char *status = json_string_value(json_object_get(record, "status"));
	bool is_over = forge_status_is_terminal(forge_status_of(status));
	json_decref(record);
	return is_over;
}

/*
 * A run of another FORGE_HOME here may be over, with its verdict kept there for later. By the path
 * of its logs; what is read there is only about that run. True when it was delivered.
 */
static bool deliver_foreign(struct forge_store *st, const json_t *record,
			    const char *run_id)
{
	const char *path = json_string_value(
		json_object_get(json_object_get(record, "logs"), "events"));
	forge_auto_free char *tail = forge_asprintf("/%s/events.jsonl", run_id);
	size_t len = path ? strlen(path) : 0, cut = tail ? strlen(tail) : 0;

	if (!tail || len <= cut || strcmp(path + len - cut, tail) != 0)
		return false;
	forge_auto_free char *runs = strndup(path, len - cut);
	forge_auto_close int fd =
		runs ? open(runs, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) : -1;
	if (fd < 0)
		return false;
	struct forge_home other = { .fd = -1, .runs_fd = fd, .active_fd = -1 };
	return has_verdict(&other, run_id) &&
	       forge_deliver_run(&other, st, run_id, NULL) == 0;
}

/*
 * Whether the run's own record may say more than the store knows, in another FORGE_HOME of this
 * host: then it is for a forge command there to tell it.
 */
static bool is_elsewhere(const struct forge_home *home, const json_t *record,
			 const char *run_id)
{
	const char *there = json_string_value(
		json_object_get(json_object_get(record, "supervisor"), "home"));

	if (!there || strcmp(there, home->path) == 0 ||
	    faccessat(home->runs_fd, run_id, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return false;
	forge_auto_free char *dir = forge_asprintf("%s/runs/%s", there, run_id);
	return dir && (access(dir, F_OK) == 0 || errno == EACCES);
}

/* After all that its directory has, so that a repair of that says nothing new. */
static json_t *lost_events(const struct forge_home *home, struct forge_store *st,
			   const char *run_id)
{
	json_t *events = forge_load_events(home, run_id), *known = NULL;

	if (forge_store_events(st, run_id, &known, NULL) < 0) {
		json_decref(events);
		return NULL;
	}
	const json_t *all = json_array_size(events) ? events : known;
	const json_t *last = json_array_get(all, json_array_size(all) - 1);
	json_int_t seq = last ? json_integer_value(json_object_get(last, "seq")) + 1 : 0;
	json_decref(known);
	json_array_append_new(events, forge_event_json(seq, "repair", "lost", "lost",
						       "its supervisor is gone"));
	return events;
}

/* True when it was done. */
static bool close_as_lost(const struct forge_home *home, struct forge_store *st,
			  const char *run_id, const char *boot_id)
{
	json_t *record = NULL, *events = NULL;

	if (forge_store_get(st, run_id, &record, NULL) < 0 ||
	    !can_judge(record, boot_id)) {
		json_decref(record);
		return false;
	}
	bool is_foreign = deliver_foreign(st, record, run_id);
	if (is_foreign || is_elsewhere(home, record, run_id) ||
	    !(events = lost_events(home, st, run_id))) {
		json_decref(record);
		return is_foreign;
	}
	forge_record_set_lost(record);
	json_t *batch = json_pack("{s:o, s:o}", "record", record, "events", events);
	bool is_done = forge_store_apply(st, batch, true, NULL) ==
		       0; /* else the next one tries */
	json_decref(batch);
	return is_done;
}

/* Its slot, or its own record, when there is one, knows better. */
static bool close_one(const struct forge_home *home, struct forge_store *st,
		      const char *run_id, const char *boot_id)
{
	if (forge_live_has_slot(home, run_id))
		return false;
	json_t *record = NULL;
	bool is_here = forge_load_record(home, run_id, &record, NULL) == 0, is_done;
	const char *status = json_string_value(json_object_get(record, "status"));
	if (is_here && !forge_status_is_terminal(forge_status_of(status)) &&
	    (!can_judge(record, boot_id) ||
	     forge_close_lost(home, run_id, record, NULL) < 0))
		is_done = false;
	else
		is_done = is_here ? forge_deliver_run(home, st, run_id, NULL) == 0
				  : close_as_lost(home, st, run_id, boot_id);
	json_decref(record);
	return is_done;
}

/*
 * A dead supervisor usually leaves its slot, and repair.c has closed it by now. Without one (the
 * power went before the slot reached the disk) the row is all there is. Whose processes we may
 * not see (hidepid) we do not judge; root sees all.
 */
static int close_dead(const struct forge_home *home, struct forge_store *st, FILE *say)
{
	char host[256] = "", boot[FORGE_BOOT_ID_MAX], user[FORGE_USER_MAX];
	struct open_runs dead = { .boot_id = forge_boot_id(boot) };

	(void)gethostname(host, sizeof(host) - 1); /* "" matches nothing */
	struct forge_run_filter f = { .host = host,
				      .user = geteuid() == 0 ? NULL
							     : forge_user_name(user),
				      .open_only = true };
	int n = 0;
	if (forge_store_list(st, &f, note_dead, &dead, NULL) >= 0)
		forge_strv_foreach (id, &dead.ids) {
			if (!close_one(home, st, id, dead.boot_id))
				continue;
			if (say)
				fprintf(say, "%s: closed in the store\n", id);
			n++;
		}
	forge_strv_done(&dead.ids);
	return n;
}

/* With the lock held: when it was last done is the file's time. */
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
	/* One at a time: the others find it done. */
	forge_auto_close int lock =
		openat(home.fd, "undelivered.lock",
		       O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0 || flock(lock, hurry == WAIT ? LOCK_EX : LOCK_EX | LOCK_NB) < 0 ||
	    (hurry == IF_DUE && is_fresh(lock)))
		return 0;
	int n = deliver_marked(&home, st, url, say) + close_dead(&home, st, say);
	(void)!pwrite(lock, "x", 1, 0); /* a full disk: then it is done more often */
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
