/* SPDX-License-Identifier: Apache-2.0 */
/* forge logs: shows the output of a run, and follows it. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "cli/session.h"
#include "executor/executor.h"
#include "record/deliver.h"
#include "record/foreign.h"
#include "record/log.h"
#include "record/reconcile.h"
#include "record/record.h"
#include "state/slot.h"
#include "state/supervisor.h"

/* How often the log of a run on a cluster is looked at. */
#define REMOTE_MSEC 300

static bool is_following, only_out, only_err, want_events;
static unsigned lines;

static const struct forge_opt *logs_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_FLAG('f', "follow", &is_following, "Go on until the run is over"),
		FORGE_UINT('n', "lines", "N", &lines, "Begin with the last N lines"),
		FORGE_FLAG(0, "stdout", &only_out, "Only its standard output"),
		FORGE_FLAG(0, "stderr", &only_err, "Only its standard error"),
		FORGE_FLAG(0, "events", &want_events,
			   "What forge did with it, as JSON lines"),
		FORGE_STORE_ROW,
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

struct stream {
	int from, to; /* -1: not wanted */
};

/* theirs: the other FORGE_HOME that has the log, NULL: this one has it. */
static int open_log(const struct forge_session *s, const struct forge_home *theirs,
		    const json_t *record, const char *name, struct stream *ret, int to,
		    struct forge_error *err)
{
	int fd = forge_log_open(&s->home, theirs, record, name, err);

	*ret = (struct stream){ .from = fd < 0 ? -1 : fd, .to = to };
	return fd < 0 ? fd : 0;
}

/* The offset of the last n lines. */
static off_t tail_start(int fd, unsigned n)
{
	char buf[65536];
	struct stat st;

	if (fstat(fd, &st) < 0)
		return 0;
	off_t at = st.st_size;
	bool is_last_byte = true;
	while (at > 0) {
		size_t len = at > (off_t)sizeof(buf) ? sizeof(buf) : (size_t)at;
		if (pread(fd, buf, len, at - (off_t)len) != (ssize_t)len)
			return 0;
		for (size_t i = len; i-- > 0; is_last_byte = false)
			if (buf[i] == '\n' && !is_last_byte && --n == 0)
				return at - (off_t)len + (off_t)i + 1;
		at -= (off_t)len;
	}
	return 0;
}

/* Copies everything that was written since the last call. */
static int copy(const struct stream *s)
{
	char buf[65536];
	ssize_t n;

	while (s->from >= 0 && (n = read(s->from, buf, sizeof(buf))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		int rc = n < 0 ? -errno : forge_write_all(s->to, buf, (size_t)n);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int copy_both(const struct stream streams[2])
{
	int rc = copy(&streams[0]);

	return rc < 0 ? rc : copy(&streams[1]);
}

/* Whether the run has a next attempt: then its supervisor may go on when it is over. */
static bool is_retried(struct forge_session *s, const char *run_id)
{
	json_t *record = NULL;
	bool is_it = forge_load_verdict(&s->home, run_id, &record, NULL) == 0 &&
		     json_object_get(record, "retried_by");

	json_decref(record);
	return is_it;
}

/* The watch is set before the log is read, so no change is missed. */
static int follow(struct forge_session *s, const json_t *record,
		  const struct stream streams[2], struct forge_error *err)
{
	const char *run_id = forge_json_string(record, "run_id");
	struct forge_supervisor_ref live = FORGE_SUPERVISOR_REF_INIT;
	forge_auto_free char *dir = forge_asprintf("%s/runs/%s", s->home.path, run_id);
	forge_auto_close int inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	int rc = 0;

	/* record.json, with the verdict, is moved to its name. */
	if (!dir || inotify < 0 ||
	    inotify_add_watch(inotify, dir, IN_MODIFY | IN_MOVED_TO) < 0)
		return forge_fail_errno(err, errno, "watch %s", dir ? dir : run_id);
	bool is_live = forge_supervisor_find(&s->home, run_id, &live, NULL) == 0;
	do {
		char events[4096];
		struct pollfd p[] = { { .fd = inotify, .events = POLLIN },
				      { .fd = live.pidfd, .events = POLLIN } };
		is_live = is_live && !is_retried(s, run_id);
		rc = copy_both(streams);
		if (rc == 0 && is_live && poll(p, 2, -1) > 0)
			is_live = !p[1].revents;
		while (read(inotify, events, sizeof(events)) > 0)
			;
	} while (rc == 0 && is_live);
	forge_supervisor_close(&live);
	if (rc == 0)
		rc = copy_both(streams);
	return rc < 0 && rc != -EPIPE ? forge_fail_errno(err, -rc, "write the log") : 0;
}

/*
 * The log of a run on a cluster is in a directory that it shares with the nodes, until the run is over; then
 * it is with the record. A stream goes on at the same place.
 */
static void switch_to(struct stream *s, int fd)
{
	off_t at = lseek(s->from, 0, SEEK_CUR);

	if (lseek(fd, at, SEEK_SET) < 0) {
		close(fd);
		return;
	}
	close(s->from);
	s->from = fd;
}

/* True: the run is on a cluster and not over, and the streams are its logs there, as far as there are any. */
static bool use_remote(struct forge_session *s, const json_t *record,
		       struct stream streams[2])
{
	static const char *const names[] = { "stdout", "stderr" };
	json_t *slot = NULL;

	(void)!forge_slot_find(&s->home, forge_json_string(record, "run_id"),
			       &slot); /* NULL: it is over */
	bool is_remote = forge_run_log_dir(slot) != NULL;
	for (int i = 0; i < 2 && is_remote; i++) {
		int fd = streams[i].from >= 0 ? forge_log_open_remote(slot, names[i]) : -1;
		if (fd >= 0)
			switch_to(&streams[i], fd);
	}
	json_decref(slot);
	return is_remote;
}

static int follow_remote(struct forge_session *s, const json_t *record,
			 struct stream streams[2], struct forge_error *err)
{
	json_t *now = json_incref((json_t *)record);
	struct stream own[2] = { { -1, -1 }, { -1, -1 } };
	int rc = 0;

	while (rc == 0 && !forge_record_is_over(now)) {
		(void)use_remote(s, now, streams);
		rc = copy_both(streams);
		if (rc < 0)
			(void)forge_fail_errno(err, -rc, "write the log");
		if (rc == 0) {
			(void)poll(NULL, 0, REMOTE_MSEC);
			(void)!forge_reconcile_cheaply(NULL); /* is the watcher there? */
			rc = forge_session_reload(s, &now, err);
		}
	}
	for (int i = 0; i < 2 && rc == 0; i++) {
		if (streams[i].from < 0 || open_log(s, NULL, now, i ? "stderr" : "stdout",
						    &own[i], streams[i].to, err) < 0)
			continue;
		switch_to(&streams[i], own[i].from);
	}
	if (rc == 0)
		rc = copy_both(streams);
	json_decref(now);
	return rc == -EPIPE ? 0 : rc;
}

/* For a run of another FORGE_HOME, only the store says whether it has ended. */
static int follow_foreign(struct forge_session *s, const json_t *record,
			  const struct stream streams[2], struct forge_error *err)
{
	json_t *now = json_incref((json_t *)record);
	bool is_over;
	int rc = 0;

	do {
		is_over = forge_record_is_over(now);
		rc = copy_both(streams);
		if (rc < 0)
			(void)forge_fail_errno(err, -rc, "write the log");
		if (rc == 0 && !is_over) {
			(void)poll(NULL, 0, 500);
			rc = forge_session_reload(s, &now, err);
		}
	} while (rc == 0 && !is_over);
	json_decref(now);
	return rc == -EPIPE ? 0 : rc;
}

static int show_events(struct forge_session *s, const json_t *record,
		       struct forge_error *err)
{
	forge_auto_json json_t *events = NULL;
	size_t i;
	json_t *e;

	if (!s->store)
		return forge_fail(err, ENOTCONN, "events are in the store");
	int rc = forge_store_events(s->store, forge_json_string(record, "run_id"),
				    &events, err);
	json_array_foreach (events, i, e) {
		(void)json_dumpf(e, stdout, JSON_COMPACT);
		putchar('\n');
	}
	return rc;
}

static int show_logs(struct forge_session *s, const json_t *record,
		     struct forge_error *err)
{
	struct stream streams[2] = { { -1, -1 }, { -1, -1 } };
	forge_auto_home struct forge_home other = FORGE_HOME_INIT;
	const struct forge_home *theirs =
		forge_foreign_is(&s->home, record) ? &other : NULL;
	int rc = theirs ? forge_foreign_open(record, "logs", &other, err) : 0;

	if (rc == 0 && !only_err)
		rc = open_log(s, theirs, record, "stdout", &streams[0], STDOUT_FILENO,
			      err);
	if (rc == 0 && !only_out)
		rc = open_log(s, theirs, record, "stderr", &streams[1],
			      only_err ? STDOUT_FILENO : STDERR_FILENO, err);
	bool is_remote = rc == 0 && !theirs && use_remote(s, record, streams);
	for (int i = 0; i < 2 && lines; i++)
		if (streams[i].from >= 0)
			(void)lseek(streams[i].from, tail_start(streams[i].from, lines),
				    SEEK_SET);
	if (rc == 0 && is_following &&
	    strcmp(forge_json_string(record, "status"), "queued") == 0)
		fprintf(stderr,
			"forge: run %s is queued; its log follows when it starts\n",
			forge_json_string(record, "run_id"));
	if (rc == 0 && is_following) {
		rc = theirs	 ? follow_foreign(s, record, streams, err)
		     : is_remote ? follow_remote(s, record, streams, err)
				 : follow(s, record, streams, err);
	} else if (rc == 0) {
		rc = copy_both(streams);
		if (rc < 0)
			(void)forge_fail_errno(err, -rc, "write the log");
	}
	for (int i = 0; i < 2; i++)
		if (streams[i].from >= 0)
			close(streams[i].from);
	return rc;
}

/* The attempts after a run that was followed to its end. */
static int follow_attempts(struct forge_session *s, json_t **record,
			   struct forge_error *err)
{
	int rc = forge_session_reload(s, record, err);

	while (rc == 0 && (rc = forge_session_next(s, record, err)) != 0) {
		if (rc == -EAGAIN) {
			(void)poll(NULL, 0, 20);
			rc = forge_session_reload(s, record, err);
			continue;
		}
		if (rc < 0)
			break;
		fprintf(stderr, "forge: attempt %lld is run %s\n",
			(long long)json_integer_value(
				json_object_get(*record, "attempt")),
			forge_json_string(*record, "run_id"));
		rc = show_logs(s, *record, err);
		if (rc == 0)
			rc = forge_session_reload(s, record, err);
	}
	return rc;
}

static int cmd_logs(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_session struct forge_session s = FORGE_SESSION_INIT;
	forge_auto_strv struct forge_strv ids = { 0 };
	forge_session_rule = FORGE_SESSION_LOOKS;
	int rc = forge_session_runs(&s, &forge_cmd_logs, argc, argv, false, &ids, &err);

	if (rc > 0)
		return rc;
	for (size_t i = 0; i < ids.n && rc == 0; i++) {
		forge_auto_json json_t *record = NULL;
		rc = forge_session_record(&s, ids.v[i], &record, &err);
		if (rc < 0)
			break;
		/* A heading as of tail, on stderr: stdout has only the runs' output. */
		if (ids.n > 1)
			fprintf(stderr, "%s==> %s <==\n", i ? "\n" : "", ids.v[i]);
		rc = want_events ? show_events(&s, record, &err)
				 : show_logs(&s, record, &err);
		if (rc == 0 && is_following && !want_events)
			rc = follow_attempts(&s, &record, &err);
		(void)fflush(stdout); /* before the next heading; main() checks */
	}
	return rc < 0 ? forge_session_fail(&err) : FORGE_EXIT_OK;
}

const struct forge_cmd forge_cmd_logs = {
	.name = "logs",
	.synopsis = "[OPTIONS] RUN...",
	.help = "Show what a run printed",
	.about = "Its standard output goes to ours, its standard error to ours. With -f, "
		 "what is\n"
		 "there first, then what comes, until the run and the attempts after it "
		 "are over.",
	.first = "RUN",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_logs,
	.opts = logs_opts,
};
