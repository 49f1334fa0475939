/* SPDX-License-Identifier: Apache-2.0 */
/* Builds and writes records. */
#include "record/record.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/proc.h"
#include "base/sha256.h"
#include "config-build.h"
#include "record/adopt.h"
#include "store/state.h"
#include "store/store.h"

static json_t *limits_json(const struct forge_limits *l)
{
	json_t *o = json_object();

	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *row = &forge_limit_rows[i];
		uint64_t v = forge_limit_value(l, row);
		json_t *j;
		if (row->type == FORGE_LIMIT_DURATION)
			j = forge_json_seconds(v);
		else if (row->type == FORGE_LIMIT_CPUS)
			j = v == FORGE_UNLIMITED ? json_null()
						 : json_real((double)v / 1000);
		else
			j = forge_json_number(v);
		json_object_set_new(o, row->json, j);
	}
	return o;
}

/*
 * By the uid: $USER can have any value, and cron sets none. From the file alone: other sources of
 * names (LDAP) can take seconds, and are asked over a network.
 */
const char *forge_user_name(char buf[FORGE_USER_MAX])
{
	uid_t uid = getuid();
	forge_auto_file FILE *f = uid == 0 ? NULL : fopen("/etc/passwd", "re");

	if (uid == 0)
		return "root";
	(void)snprintf(buf, FORGE_USER_MAX, "%u", uid);
	for (struct passwd *p; f && (p = fgetpwent(f));)
		if (p->pw_uid == uid) {
			(void)snprintf(buf, FORGE_USER_MAX, "%s", p->pw_name);
			break;
		}
	return buf;
}

static json_t *supervisor_json(const struct forge_home *home)
{
	char boot[FORGE_BOOT_ID_MAX], machine[FORGE_BOOT_ID_MAX];

	return json_pack("{s:i, s:I, s:I, s:s, s:s, s:I, s:o}", "pid", (int)getpid(),
			 "uid", (json_int_t)getuid(), "start_time",
			 (json_int_t)forge_proc_start_time(getpid()), "boot_id",
			 forge_boot_id(boot), "machine_id", forge_machine_id(machine),
			 "pid_namespace", (json_int_t)forge_pid_namespace(), "home",
			 forge_json_text(home->path));
}

/*
 * A digest of the request: a key that is given again means the first run only if this digest is the same.
 * Limits and priority are not part of it: they say how, not what.
 */
static json_t *request_json(const struct forge_spec *s)
{
	bool is_named = strcmp(s->analysis_id, s->run_id) != 0;
	json_t *j = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:s?, s:s?, s:b}",
			      "command", forge_json_texts(&s->argv), "env",
			      forge_json_texts(s->asked_env), "inputs",
			      forge_json_texts(&s->inputs), "names",
			      forge_json_texts(&s->input_names), "outputs",
			      s->collects == FORGE_OUTPUTS_DECLARED
				      ? forge_json_texts(&s->outputs)
				      : json_string(forge_outputs_names[s->collects]),
			      "post_process", forge_json_texts(&s->post_process),
			      "analysis", is_named ? s->analysis_id : NULL, "runtime",
			      s->has_runtime ? s->runtime.decl->name : NULL, "network",
			      !s->own_network);
	forge_auto_free char *text =
		j ? json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	char digest[FORGE_DIGEST_MAX];
	struct forge_sha256 h;

	json_decref(j);
	if (!text)
		return NULL;
	forge_sha256_init(&h);
	forge_sha256_add(&h, text, strlen(text));
	return json_string(forge_sha256_done(&h, digest));
}

/* The rules that the run has, and how often each was used up to now. */
static json_t *retry_json(const struct forge_retry_chain *chain)
{
	json_t *o = json_object();

	for (int i = 0; i < FORGE_RETRY_COUNT; i++) {
		const struct forge_retry_rule *rule = &chain->policy.rules[i];
		char text[FORGE_RETRY_TEXT_MAX];
		if (rule->times)
			json_object_set_new(o, forge_retry_names[i],
					    json_pack("{s:s, s:i, s:i}", "rule",
						      forge_retry_format(text, i, rule),
						      "times", (int)rule->times, "used",
						      (int)chain->used[i]));
	}
	return o;
}

static json_t *new_record(const struct forge_home *home, const struct forge_spec *s)
{
	char host[256] = "", now[FORGE_TIME_MAX], user[FORGE_USER_MAX];
	json_t *r = json_object();

	(void)gethostname(host, sizeof(host) - 1); /* "" will do */
	json_object_set_new(r, "run_id", json_string(s->run_id));
	json_object_set_new(r, "analysis_id", json_string(s->analysis_id));
	json_object_set_new(r, "status", json_null());
	json_object_set_new(r, "reason", json_null());
	json_object_set_new(r, "completion_notes", json_null());
	json_object_set_new(r, "exit_code", json_null());
	json_object_set_new(r, "signal", json_null());
	json_object_set_new(r, "command", forge_json_texts(&s->argv));
	json_object_set_new(r, "executor", json_string(s->executor->name));
	json_object_set_new(r, "host", forge_json_text(host));
	json_object_set_new(r, "user", forge_json_text(forge_user_name(user)));
	json_object_set_new(r, "created_at", json_string(forge_format_now(now)));
	json_object_set_new(r, "started_at", json_null());
	json_object_set_new(r, "ended_at", json_null());
	json_object_set_new(r, "profile", json_string(s->profile));
	json_object_set_new(r, "runtime",
			    s->runtime_json ? json_incref(s->runtime_json) : json_null());
	json_object_set_new(r, "limits", limits_json(&s->limits));
	json_object_set_new(r, "usage", json_object());
	json_object_set_new(r, "network", json_string(s->own_network ? "none" : "host"));
	json_object_set_new(r, "inputs", json_array());
	json_object_set_new(r, "outputs", json_array());
	json_object_set_new(r, "logs", forge_record_logs(home, s->run_id));
	json_object_set_new(r, "workdir", forge_json_text(s->workdir));
	json_object_set_new(r, "parent_run",
			    s->parent_run ? json_string(s->parent_run) : json_null());
	if (s->is_probe)
		json_object_set_new(r, "is_probe", json_true());
	json_object_set_new(r, "attempt",
			    json_integer(s->retry.attempt ? s->retry.attempt : 1));
	if (!forge_retry_is_empty(&s->retry.policy))
		json_object_set_new(r, "retry", retry_json(&s->retry));
	json_object_set_new(r, "priority", json_integer(s->priority));
	if (s->idempotency_key) {
		json_object_set_new(r, "idempotency_key",
				    forge_json_text(s->idempotency_key));
		json_object_set_new(r, "request", request_json(s));
	}
	json_object_set_new(r, "supervisor", supervisor_json(home));
	json_object_set_new(r, "forge_version", json_string(FORGE_VERSION));
	return r;
}

static int open_file(int dir, const char *name, int *ret)
{
	*ret = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
		      0600);
	return *ret < 0 ? -errno : 0;
}

int forge_record_new(const struct forge_home *home, const struct forge_spec *s,
		     struct forge_record *ret, struct forge_error *err)
{
	struct forge_record r = FORGE_RECORD_INIT;

	r.json = new_record(home, s);
	r.unsent = json_array();
	r.unwritten = json_array();
	*ret = r;
	return r.json && r.unsent && r.unwritten
		       ? 0
		       : forge_fail(err, ENOMEM, "out of memory");
}

static void write_event(const struct forge_record *r, json_t *e)
{
	char *line = json_dumps(e, JSON_COMPACT);

	if (!line)
		return;
	size_t len = strlen(line);
	line[len] = '\n'; /* in place of its NUL: one write a line */
	(void)!forge_write_all(r->events_fd, line,
			       len + 1); /* a full disk must not stop a run */
	free(line);
}

static bool is_over(const struct forge_record *r)
{
	return forge_status_is_terminal(
		forge_status_of(forge_json_string(r->json, "status")));
}

/*
 * A verdict without its line is repaired by writing the line; a line without its verdict would be
 * one whose rest is lost. So the record comes first.
 */
static void write_events(struct forge_record *r)
{
	size_t i;
	json_t *e;

	json_array_foreach (r->unwritten, i, e)
		write_event(r, e);
	json_array_clear(r->unwritten);
}

int forge_record_make_files(struct forge_record *r, const struct forge_home *home,
			    struct forge_error *err)
{
	const char *run_id = forge_json_string(r->json, "run_id");

	if (mkdirat(home->runs_fd, run_id, 0700) < 0)
		return forge_fail_errno(err, errno, "make %s/runs/%s", home->path,
					run_id);
	r->dir_fd = openat(home->runs_fd, run_id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = r->dir_fd < 0 ? -errno
			       : open_file(r->dir_fd, "events.jsonl", &r->events_fd);
	if (r->dir_fd < 0)
		(void)unlinkat(home->runs_fd, run_id,
			       AT_REMOVEDIR); /* it is made again to record the failure */
	if (rc == 0)
		rc = open_file(r->dir_fd, "stdout", &r->log_fd[0]);
	if (rc == 0)
		rc = open_file(r->dir_fd, "stderr", &r->log_fd[1]);
	if (rc == 0) {
		forge_home_share(home, r->dir_fd);
		forge_home_share(home, r->log_fd[0]);
		forge_home_share(home, r->log_fd[1]);
	}
	if (rc < 0)
		return forge_fail_errno(err, -rc, "make files in %s/runs/%s", home->path,
					run_id);
	/* Judged before there was a record: the verdict's line waits for that. */
	if (!is_over(r))
		write_events(r);
	return 0;
}

static int append_to(int dir, const char *name, int *ret)
{
	/* Not O_APPEND: splice(2) refuses such a file. This process is its only writer. */
	*ret = openat(dir, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	return *ret < 0 || lseek(*ret, 0, SEEK_END) < 0 ? -errno : 0;
}

int forge_record_reopen(const struct forge_home *home, json_t *json, const json_t *events,
			json_int_t next_seq, struct forge_record *ret,
			struct forge_error *err)
{
	struct forge_record r = FORGE_RECORD_INIT;
	const char *run_id = forge_json_string(json, "run_id");
	size_t i;
	const json_t *e;

	r.json = json_incref(json);
	r.unsent = json_deep_copy(events);
	r.unwritten = json_array();
	r.seq = next_seq;
	r.dir_fd = forge_home_open_run(home, run_id);
	*ret = r;
	int rc = r.dir_fd < 0 ? r.dir_fd
			      : append_to(r.dir_fd, "events.jsonl", &ret->events_fd);
	if (rc == 0)
		rc = append_to(r.dir_fd, "stdout", &ret->log_fd[0]);
	if (rc == 0)
		rc = append_to(r.dir_fd, "stderr", &ret->log_fd[1]);
	if (rc < 0)
		return forge_fail_errno(err, -rc, "open the files of run %s", run_id);
	/* The slot has the record as it was when the run began; the events know more. */
	json_array_foreach (events, i, e) {
		const char *status = forge_json_string(e, "status");
		if (status)
			json_object_set_new(json, "status", json_string(status));
		if (status && strcmp(status, "running") == 0)
			json_object_set(json, "started_at", json_object_get(e, "time"));
	}
	return 0;
}

json_t *forge_event_json(json_int_t seq, const char *actor, const char *event,
			 const char *status, const char *detail)
{
	char now[FORGE_TIME_MAX];
	json_t *o = json_pack("{s:I, s:s, s:s, s:s}", "seq", seq, "time",
			      forge_format_now(now), "actor", actor, "event", event);

	if (status)
		json_object_set_new(o, "status", json_string(status));
	if (detail)
		json_object_set_new(o, "detail", forge_json_text(detail));
	return o;
}

static void add_event(struct forge_record *r, const char *event, const char *status,
		      const char *detail)
{
	json_t *e = forge_event_json(r->seq++, "supervisor", event, status, detail);

	json_array_append(r->unsent, e);
	/* One that is a verdict, and what follows it, comes after the record: see write_events(). */
	if (r->events_fd < 0 || json_array_size(r->unwritten) > 0 ||
	    forge_status_is_terminal(forge_status_of(status)))
		json_array_append(r->unwritten, e);
	else
		write_event(r, e);
	json_decref(e);
}

void forge_record_event(struct forge_record *r, const char *event, const char *detail)
{
	add_event(r, event, NULL, detail);
}

void forge_record_status(struct forge_record *r, const char *status, const char *detail)
{
	char now[FORGE_TIME_MAX];

	assert(forge_status_may_follow(
		forge_status_of(forge_json_string(r->json, "status")),
		forge_status_of(status)));
	json_object_set_new(r->json, "status", json_string(status));
	if (strcmp(status, "running") == 0)
		json_object_set_new(r->json, "started_at",
				    json_string(forge_format_now(now)));
	/* "started" is the older word for it, which readers of events know. */
	add_event(r, strcmp(status, "running") == 0 ? "started" : status, status, detail);
}

json_t *forge_record_take_batch(struct forge_record *r)
{
	json_t *batch = json_pack("{s:O, s:o}", "record", r->json, "events", r->unsent);

	r->unsent = json_array();
	return batch;
}

/* A run for which nothing was made has no isolation. */
static json_t *isolation_json(const struct forge_outcome *o, bool own_network,
			      bool was_made)
{
	json_t *missing = json_array();
	char landlock[32] = "none";

	for (unsigned i = 0; i < FORGE_MECH_COUNT; i++)
		if (o->missing & (1u << i))
			json_array_append_new(missing,
					      json_string(forge_mechanism_names[i]));
	if (!was_made)
		return json_pack("{s:s, s:o, s:{}}", "level", "none", "missing", missing,
				 "mechanisms");
	if (o->landlock_abi > 0)
		(void)snprintf(landlock, sizeof(landlock), "ABI %d", o->landlock_abi);
	/* Beside what the engine has of its own. */
	if (o->engine[0])
		return json_pack("{s:s, s:o, s:{s:s, s:s, s:s, s:s, s:s}}", "level",
				 "container", "missing", missing, "mechanisms", "engine",
				 o->engine, "cgroup",
				 o->cgroup_manager ? o->cgroup_manager : "none",
				 "seccomp", "filter, and the engine's", "landlock",
				 landlock, "disk", "measured");
	return json_pack("{s:s, s:o, s:{s:s, s:s, s:s, s:s, s:s}}", "level",
			 o->missing ? "partial" : "full", "missing", missing,
			 "mechanisms", "namespaces",
			 own_network ? "user mount pid network ipc uts cgroup"
				     : "user mount pid ipc uts cgroup",
			 "cgroup", o->cgroup_manager ? o->cgroup_manager : "none",
			 "seccomp", "filter", "landlock", landlock, "disk",
			 o->has_quota ? "project quota" : "measured");
}

static json_t *usage_json(const struct forge_outcome *o)
{
	json_t *u = json_object();

	json_object_set_new(u, "wall_seconds", forge_json_seconds(o->wall_usec));
	json_object_set_new(u, "cpu_seconds", forge_json_seconds(o->cpu_usec));
	json_object_set_new(u, "memory_peak_bytes",
			    forge_json_number(o->memory_peak_bytes));
	json_object_set_new(u, "pids_peak", forge_json_number(o->pids_peak));
	json_object_set_new(u, "pids_refused", forge_json_number(o->pids_refused));
	json_object_set_new(u, "sockets_refused", forge_json_number(o->sockets_refused));
	json_object_set_new(u, "disk_peak_bytes", forge_json_number(o->disk_peak_bytes));
	json_object_set_new(u, "inodes_peak", forge_json_number(o->inodes_peak));
	json_object_set_new(u, "io_read_bytes", forge_json_number(o->io_read_bytes));
	json_object_set_new(u, "io_write_bytes", forge_json_number(o->io_write_bytes));
	json_object_set_new(u, "stdout_bytes", forge_json_number(o->stream_bytes[0]));
	json_object_set_new(u, "stderr_bytes", forge_json_number(o->stream_bytes[1]));
	json_object_set_new(u, "stdout_truncated", json_boolean(o->is_truncated[0]));
	json_object_set_new(u, "stderr_truncated", json_boolean(o->is_truncated[1]));
	return u;
}

void forge_record_set_outcome(struct forge_record *r, const struct forge_outcome *o,
			      const struct forge_verdict *v)
{
	const char *network = forge_json_string(r->json, "network");
	bool was_made = o->cgroup_manager && strcmp(v->status, "rejected") != 0;
	char now[FORGE_TIME_MAX];

	json_object_set_new(r->json, "reason", json_string(v->reason));
	json_object_set_new(r->json, "completion_notes", forge_json_text(v->notes));
	json_object_set_new(r->json, "exit_code",
			    v->exit_code >= 0 ? json_integer(v->exit_code) : json_null());
	json_object_set_new(r->json, "signal",
			    v->signal ? json_integer(v->signal) : json_null());
	json_object_set_new(r->json, "ended_at", json_string(forge_format_now(now)));
	json_object_set_new(r->json, "exit_status", json_integer(v->exit_status));
	json_object_set_new(r->json, "usage", usage_json(o));
	if (o->cluster[0])
		json_object_set_new(r->json, "cluster",
				    json_pack("{s:s, s:s, s:s}", "name", o->cluster,
					      "job", o->cluster_job, "node", o->node));
	if (o->image[0])
		json_object_set_new(
			r->json, "image",
			json_pack("{s:s, s:s}", "name", o->image, "id", o->image_id));
	json_object_set_new(
		r->json, "isolation",
		isolation_json(o, network && strcmp(network, "none") == 0, was_made));
}

int forge_record_write(struct forge_record *r, struct forge_error *err)
{
	char *s = json_dumps(r->json, JSON_INDENT(2) | JSON_REAL_PRECISION(9));

	if (!s)
		return forge_fail(err, ENOMEM, "out of memory");
	int rc = forge_replace_file(r->dir_fd, "record.json", s, strlen(s), false);
	free(s);
	if (rc == 0)
		write_events(r);
	return rc < 0 ? forge_fail_errno(err, -rc, "write the record") : 0;
}

int forge_record_sync(struct forge_record *r, struct forge_error *err)
{
	forge_auto_close int fd = openat(r->dir_fd, "record.json",
					 O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);

	/* Its content, then its name: the rename may have reached the disk without either. */
	if (fd < 0 || fdatasync(fd) < 0 || fsync(r->dir_fd) < 0)
		return forge_fail_errno(err, errno, "write the record");
	return 0;
}

int forge_record_sync_logs(struct forge_record *r, const struct forge_home *home,
			   struct forge_error *err)
{
	bool has_any = false;
	int rc = 0;

	for (int i = 0; i < 2 && rc == 0; i++) {
		/* An empty one is soon made again, and costs a wait for the disk. */
		if (r->log_fd[i] < 0 || lseek(r->log_fd[i], 0, SEEK_CUR) <= 0)
			continue;
		has_any = true;
		rc = fdatasync(r->log_fd[i]) < 0 ? -errno : 0;
	}
	if (has_any && rc == 0 && (fsync(r->dir_fd) < 0 || fsync(home->runs_fd) < 0))
		rc = -errno;
	return rc < 0 ? forge_fail_errno(err, -rc, "write the run's log") : 0;
}

void forge_record_close(struct forge_record *r)
{
	int fds[] = { r->dir_fd, r->events_fd, r->log_fd[0], r->log_fd[1] };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	json_decref(r->json);
	json_decref(r->unsent);
	json_decref(r->unwritten);
	*r = FORGE_RECORD_INIT;
}

void forge_record_note_kept(json_t *record)
{
	forge_auto_free char *sentence = forge_asprintf(
		"The workdir is kept: %s.", forge_json_string_or(record, "workdir", ""));

	if (sentence)
		forge_record_add_notes(record, sentence);
}

const char *forge_store_mark(const char *url, char buf[FORGE_STORE_MARK_MAX])
{
	forge_auto_free char *shown = forge_store_display(url); /* without a password */
	char digest[FORGE_DIGEST_MAX];
	struct forge_sha256 h;

	buf[0] = '\0';
	if (!shown)
		return buf;
	forge_sha256_init(&h);
	forge_sha256_add(&h, shown, strlen(shown));
	(void)snprintf(buf, FORGE_STORE_MARK_MAX, "%s",
		       strchr(forge_sha256_done(&h, digest), ':') + 1);
	return buf;
}

void forge_record_set_lost(json_t *record)
{
	char now[FORGE_TIME_MAX];
	bool is_kept = json_is_true(json_object_get(record, "workdir_kept"));

	json_object_set_new(record, "status", json_string("lost"));
	json_object_set_new(record, "reason", json_string("host_lost"));
	json_object_set_new(record, "exit_status", json_integer(137));
	json_object_set_new(
		record, "completion_notes",
		json_string(json_is_true(json_object_get(record, "is_remains"))
				    ? "Lost: the host stopped before the record of this "
				      "run was on "
				      "the disk; what it wrote to its logs is there."
			    : is_kept ? "Lost: the supervisor was killed; everything it "
					"ran was ended. Run it again."
				      : "Lost: the supervisor was killed; everything it "
					"ran was ended and cleaned up. Run it again."));
	if (is_kept)
		forge_record_note_kept(record);
	json_object_set_new(record, "ended_at", json_string(forge_format_now(now)));
	if (json_object_get(record, "guarded_since"))
		forge_record_add_notes(record,
				       "Whether it changed guarded files is not known.");
	json_object_del(record, "guarded_since");
}

bool forge_record_is_over(const json_t *record)
{
	return forge_status_is_terminal(
		forge_status_of(forge_json_string(record, "status")));
}

void forge_record_add_notes(json_t *record, const char *sentence)
{
	const char *notes = forge_json_string_or(record, "completion_notes", "");
	forge_auto_free char *both =
		forge_asprintf("%s%s%s", notes, *notes ? " " : "", sentence);

	if (both)
		json_object_set_new(record, "completion_notes", forge_json_text(both));
}
