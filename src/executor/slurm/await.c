/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for the outcome of a job. The directory of the job is the truth; Slurm is asked from time to time, and
 * what it says explains why there is no outcome. A question without an answer decides nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/entries.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/parse.h"
#include "executor/outcome.h"
#include "executor/slurm/slurm.h"
#include "state/supervisor.h"

/* Why a run was taken back, in the claim. */
#define CANCELLED "was cancelled"
#define OVERDUE	  "was pending for too long"
/* Time beyond its grace period that a cancelled run may take on the node before scancel kills its job. */
#define CANCEL_MORE_USEC (15 * 1000000ull)
/* Pause between two questions to Slurm why a job was cancelled. */
#define STATE_USEC 200000u
/* Pause between two looks for outcome.json: it grows with the age of the run. */
#define LOOK_MIN_USEC 10000u
#define LOOK_MAX_USEC 1000000u

/* Copies what the command has printed since the last call to live_fd: the terminal of forge run. */
static void show_logs(struct forge_slurm *e)
{
	static const char *const names[] = { "stdout", "stderr" };
	char buf[65536];

	for (int i = 0; i < 2; i++) {
		if (e->job->live_fd[i] < 0)
			continue;
		forge_auto_close int fd =
			openat(e->dir.fd, names[i], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		ssize_t n;
		while (fd >= 0 && (n = pread(fd, buf, sizeof(buf), e->shown[i])) > 0) {
			e->shown[i] += n;
			if (forge_write_all(e->job->live_fd[i], buf, (size_t)n) < 0)
				break; /* the reader has gone */
		}
	}
}

/* Copies the whole logs into the record: a supervisor that was killed while it copied may have left a part. */
static void copy_logs(struct forge_slurm *e)
{
	static const char *const names[] = { "stdout", "stderr" };
	char buf[65536];

	for (int i = 0; i < 2; i++) {
		forge_auto_close int from =
			openat(e->dir.fd, names[i], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		int to = e->job->log_fd[i], rc = 0;
		ssize_t n = 0;
		if (from < 0)
			continue;
		if (ftruncate(to, 0) < 0 || lseek(to, 0, SEEK_SET) < 0)
			rc = -errno;
		while (rc == 0 && (n = read(from, buf, sizeof(buf))) > 0)
			rc = forge_write_all(to, buf, (size_t)n);
		if (n < 0)
			rc = -errno;
		if (rc < 0)
			forge_slurm_event(e, "log_failed", strerror(-rc));
	}
}

/* "node n1 job 12 time 1": the node has taken the job. */
static void note_progress(struct forge_slurm *e)
{
	char owner[FORGE_CLAIM_MAX] = "", node[64] = "";

	if (!e->has_node && forge_job_dir_owner(e->dir.fd, owner) == 0 &&
	    sscanf(owner, "node %63s", node) == 1) {
		e->has_node = true;
		forge_slurm_event(e, "claimed", node);
	}
	if (!e->has_started && forge_job_dir_has(e->dir.fd, "started")) {
		e->has_started = true;
		forge_slurm_event(e, "started", NULL);
	}
}

static void replay_events(const struct forge_slurm *e, const json_t *file)
{
	size_t i;
	const json_t *row;

	json_array_foreach (json_object_get(file, "events"), i, row) {
		const char *name = json_string_value(json_array_get(row, 0));
		if (name)
			forge_slurm_event(e, name,
					  json_string_value(json_array_get(row, 1)));
	}
}

static void set_text(char *to, size_t size, const json_t *file, const char *key)
{
	(void)snprintf(to, size, "%s", forge_json_string_or(file, key, ""));
}

static const char *explain_end(const struct forge_slurm *e, char *buf, size_t size)
{
	const struct forge_cluster_job *j = &e->found;

	if (!j->state[0])
		(void)snprintf(buf, size, "Slurm has no job %s any more", e->name);
	else
		(void)snprintf(buf, size, "Slurm job %s ended as %s (%s)%s%s", j->id,
			       j->state, j->reason, j->node[0] ? " on " : "", j->node);
	return buf;
}

/* Writes a time, in seconds of the epoch, into the slot too: the next supervisor counts from there. */
static void note_time(struct forge_slurm *e, const char *key, uint64_t *at, uint64_t now)
{
	*at = now;
	(void)!forge_slot_add(e->job->slot, json_pack("{s:I}", key, (json_int_t)now),
			      NULL);
}

/* Whether max_lag has passed since this was asked for the first time. */
static bool is_late(struct forge_slurm *e, const char *key, uint64_t *at)
{
	uint64_t now = (uint64_t)time(NULL);

	if (!*at)
		note_time(e, key, at, now);
	return now >= *at && (now - *at) * 1000000 >= e->max_lag_usec;
}

static void note_alive(struct forge_slurm *e)
{
	if (e->ended_at)
		note_time(e, "ended_at", &e->ended_at, 0);
}

/* States in which another attempt may succeed: the node was lost, or taken away. */
static bool is_lost(const char *state)
{
	static const char *const lost[] = { "NODE_FAIL", "BOOT_FAIL", "PREEMPTED",
					    "REVOKED" };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(lost); i++)
		if (strcmp(state, lost[i]) == 0)
			return true;
	return false;
}

/*
 * Slurm sends SIGTERM before it kills, whatever the reason: forge on the node takes that for a cancel, and the
 * command may die of it first. Only the state of the job says what it was. 1: there is none yet.
 */
static int check_cancel(struct forge_slurm *e, struct forge_outcome *o)
{
	bool is_signal = o->stop == FORGE_STOP_NONE && o->has_status &&
			 WIFSIGNALED(o->wait_status) &&
			 (WTERMSIG(o->wait_status) == SIGTERM ||
			  WTERMSIG(o->wait_status) == SIGKILL);

	if (o->stop != FORGE_STOP_CANCEL && !is_signal)
		return 0;
	if (e->n_signals || forge_job_dir_has(e->dir.fd, "cancel")) {
		o->stop = FORGE_STOP_CANCEL;
		return 0;
	}
	uint64_t now = forge_now_usec();
	if (now < e->state_at)
		return 1;
	e->state_at = now + STATE_USEC;
	int rc = forge_slurm_find(e);
	/* COMPLETING: that it was TIMEOUT or CANCELLED shows a moment later. */
	if ((rc < 0 || e->found.remote == FORGE_REMOTE_RUNNING) &&
	    !is_late(e, "outcome_at", &e->outcome_at))
		return 1;
	const char *state = e->found.state;
	if (strcmp(state, "TIMEOUT") == 0 || strcmp(state, "DEADLINE") == 0) {
		o->stop = FORGE_STOP_WALL;
	} else if (is_lost(state) || e->found.remote == FORGE_REMOTE_PENDING) {
		o->stop = FORGE_STOP_NONE;
		o->has_status = false;
	} else if (!is_signal || strncmp(state, "CANCELLED", 9) == 0) {
		o->stop = FORGE_STOP_CANCEL;
		return 0;
	} else {
		return 0; /* the command did that itself */
	}
	(void)explain_end(e, o->explanation, sizeof(o->explanation));
	return 0;
}

/* A chart is worth an event when it is missing, and no more. */
static void take_samples(const struct forge_slurm *e, const json_t *file)
{
	struct forge_error why = FORGE_ERROR_INIT;

	if (forge_samples_store(e->job->home, e->job->run_id,
				json_object_get(file, "samples"), &why) < 0)
		forge_slurm_event(e, "samples_failed", why.msg);
}

/* Reads outcome.json. 0: *ret has it. 1: it is not there yet. Negative: forge on the node refused the run, see err. */
static int take_outcome(struct forge_slurm *e, struct forge_outcome *ret,
			struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	struct forge_outcome found;
	forge_auto_json json_t *file = NULL;
	int rc = forge_job_dir_load(e->dir.fd, "outcome.json", &file, &why);

	/* One that cannot be read now may be readable later. */
	e->is_unreadable = rc < 0 && rc != -EBADMSG;
	if (rc < 0 || !file)
		return 1;
	note_progress(e);
	const json_t *refused = json_object_get(file, "refused");
	if (forge_outcome_restore(json_object_get(file, "outcome"), &found) < 0)
		return 1;
	if (check_cancel(e, &found) == 1)
		return 1;
	*ret = found;
	set_text(ret->cluster_job, sizeof(ret->cluster_job), file, "job");
	set_text(ret->node, sizeof(ret->node), file, "node");
	/* A signal on the node may have been Slurm's. */
	ret->is_interrupted = e->n_signals > 0 || forge_job_dir_has(e->dir.fd, "cancel");
	replay_events(e, file);
	take_samples(e, file);
	if (ret->has_started && !e->has_started) {
		e->has_started = true;
		forge_slurm_event(e, "started", NULL);
	}
	if (refused) {
		forge_error_restore(refused, err ? err : &why);
		int code = err ? err->code : why.code;
		(void)forge_wrap(err, 0, "node %s", ret->node);
		return code > 0 ? -code : -EIO;
	}
	return 0;
}

/* Appends the end of slurm.out: where forge is not on the node, the shell says so there. */
static void add_output(const struct forge_slurm *e, char *buf, size_t size)
{
	char text[512];
	ssize_t n = forge_read_at(e->dir.fd, "slurm.out", text, sizeof(text));
	size_t len = strlen(buf);

	if (n <= 0)
		return;
	while (n > 0 && text[n - 1] == '\n')
		text[--n] = '\0';
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < ' ')
			*p = ' ';
	(void)snprintf(buf + len, size - len, ": %.200s", text);
}

/*
 * Whether a job that no node has claimed, and that Slurm says has ended, was lost: forgotten, its node died or hung, or forge
 * there was killed before it could claim the run. Nothing was run, and another attempt may succeed. Otherwise forge cannot
 * work on that node. Negative: not known yet.
 */
static int is_lost_unclaimed(struct forge_slurm *e)
{
	const char *state = e->found.state;

	if (!*state || is_lost(state) || strcmp(state, "TIMEOUT") == 0 ||
	    strcmp(state, "DEADLINE") == 0)
		return 1;
	if (strcmp(state, "FAILED") != 0)
		return 0;
	int rc = forge_slurm_was_killed(e);
	return rc < 0 && is_late(e, "ended_at", &e->ended_at) ? 0 : rc;
}

/*
 * No node has claimed the run, and none will: this side has the claim. 0: *ret is complete; 1: not known yet; negative: the
 * run was refused.
 */
static int end_unclaimed(struct forge_slurm *e, struct forge_outcome *ret,
			 struct forge_error *err)
{
	const char *state = e->found.state;

	(void)explain_end(e, ret->explanation, sizeof(ret->explanation));
	if (strncmp(state, "CANCELLED", 9) == 0) {
		ret->stop = FORGE_STOP_CANCEL;
		return 0;
	}
	int lost = is_lost_unclaimed(e);
	if (lost != 0)
		return lost < 0 ? 1 : 0;
	add_output(e, ret->explanation, sizeof(ret->explanation));
	return forge_hint(err, forge_fail(err, EREMOTEIO, "%s", ret->explanation),
			  "Is %s shared with the node, and forge there? "
			  "`forge executor check %s` tries it",
			  e->dir.dir, e->decl ? e->decl->name : "NAME");
}

/* A node had it and left no outcome: what Slurm says is all there is. */
static void end_without_outcome(struct forge_slurm *e, struct forge_outcome *ret)
{
	const char *state = e->found.state;
	struct stat st;

	ret->has_started = e->has_started;
	/* About: from the start of the command until now. */
	if (fstatat(e->dir.fd, "started", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    time(NULL) >= st.st_mtim.tv_sec)
		ret->wall_usec = (uint64_t)(time(NULL) - st.st_mtim.tv_sec) * 1000000;
	(void)explain_end(e, ret->explanation, sizeof(ret->explanation));
	if (strncmp(state, "CANCELLED", 9) == 0)
		ret->stop = FORGE_STOP_CANCEL;
	else if (strcmp(state, "OUT_OF_MEMORY") == 0)
		ret->stop = FORGE_STOP_MEMORY;
	else if (strcmp(state, "TIMEOUT") == 0 || strcmp(state, "DEADLINE") == 0)
		ret->stop = FORGE_STOP_WALL;
}

/* 0: given up. 1: it goes on. */
static int check_pending(struct forge_slurm *e, struct forge_outcome *ret)
{
	char detail[128], text[FORGE_FORMAT_MAX];

	(void)forge_cluster_describe(&e->found, detail, sizeof(detail));
	/* "None": the scheduler has not looked at it yet. */
	if (strcmp(e->pending, detail) != 0 && strcmp(e->found.reason, "None") != 0) {
		(void)snprintf(e->pending, sizeof(e->pending), "%s", detail);
		e->pending_since = (uint64_t)time(NULL);
		forge_slurm_event(e, "pending", detail);
	}
	if (!forge_cluster_is_overdue(e->submitted_at, e->pending_since,
				      e->max_pending_sec, e->found.reason) ||
	    forge_slurm_take_back(e, OVERDUE) != 1)
		return 1;
	forge_slurm_cancel(e, FORGE_CLUSTER_DROP);
	ret->stop = FORGE_STOP_PENDING;
	(void)snprintf(ret->explanation, sizeof(ret->explanation),
		       "Slurm job %s was pending for %s (%s)", e->found.id,
		       forge_format_duration(
			       text, ((uint64_t)time(NULL) - e->submitted_at) * 1000000),
		       e->found.reason);
	return 0;
}

/*
 * Opens the directory of the job again and lists it. A network file system may remember for a while that a file was
 * missing; listing the directory makes it ask the server.
 */
static void look_anew(struct forge_slurm *e)
{
	char mark[sizeof(e->dir.mark)];
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	(void)snprintf(mark, sizeof(mark), "%s", e->dir.mark);
	int before = e->dir.fd;
	e->dir.fd = -1;
	if (forge_job_dir_open(&e->dir, mark, NULL) < 0) {
		e->dir.fd = before;
		return;
	}
	close(before);
	(void)forge_entries_open(&d, e->dir.fd, "."); /* reading it is all */
	while (forge_entries_next(&d))
		;
}

/* As wait(), for a job that Slurm says has ended, or does not have. 1: its outcome may still come. */
static int check_ended(struct forge_slurm *e, struct forge_outcome *ret,
		       struct forge_error *err)
{
	int rc = forge_slurm_take_back(e, "ended without a node");

	/* This supervisor, or an earlier one, has made the claim: no node will run it. */
	if (rc == 1) {
		if (e->n_signals)
			ret->stop = FORGE_STOP_CANCEL;
		return e->n_signals ? 0 : end_unclaimed(e, ret, err);
	}
	/* A directory that cannot be read may have the outcome. */
	if (rc < 0 || e->is_unreadable || !is_late(e, "ended_at", &e->ended_at))
		return 1;
	look_anew(e);
	rc = take_outcome(e, ret, err);
	if (rc != 1 || e->is_unreadable)
		return rc;
	note_progress(e);
	end_without_outcome(e, ret);
	return 0;
}

/* Passes signals on to forge on the node. The second one makes it kill the run without grace; more change nothing. */
static void pass_signals_on(struct forge_slurm *e)
{
	int wanted = e->is_urgent || e->n_signals > 1 ? 2 : e->n_signals;

	while (e->n_asked < wanted &&
	       forge_slurm_cancel(e, e->n_asked == 0 ? FORGE_CLUSTER_ASK
						     : FORGE_CLUSTER_INSIST) == 0)
		e->n_asked++;
}

/* Asks Slurm. As wait(). */
static int ask(struct forge_slurm *e, struct forge_outcome *ret, struct forge_error *err)
{
	uint64_t now = forge_now_usec();

	if (now < e->ask_at)
		return 1;
	e->ask_at = now + e->poll_usec;
	if (forge_slurm_find(e) < 0)
		return 1;   /* nothing is known, so nothing is decided */
	pass_signals_on(e); /* those that scancel failed for */
	if (e->kill_at && now >= e->kill_at)
		forge_slurm_cancel(e, FORGE_CLUSTER_KILL);
	/* A job that has ended is asked about more often, until its outcome is there. */
	switch (e->found.remote) {
	case FORGE_REMOTE_PENDING:
		note_alive(e);
		return check_pending(e, ret);
	case FORGE_REMOTE_ENDED:
		e->ask_at = now + (e->poll_usec < 1000000 ? e->poll_usec : 1000000);
		return check_ended(e, ret, err);
	case FORGE_REMOTE_UNKNOWN:
	case FORGE_REMOTE_RUNNING:
		break;
	}
	note_alive(e);
	return 1;
}

/* A run that no node has ends here and now; forge on the node ends one that runs. 0: it has ended. */
static int on_signal(struct forge_slurm *e, struct forge_outcome *ret)
{
	struct signalfd_siginfo si;
	int n = 0;

	while (read(e->signals, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		n++;
		e->is_urgent |= si.ssi_code == SI_QUEUE && si.ssi_int == FORGE_SIGNAL_NOW;
	}
	if (n == 0)
		return 1;
	if (e->n_signals == 0)
		forge_slurm_event(e, "cancelled", NULL);
	e->n_signals += n;
	if (forge_slurm_take_back(e, CANCELLED) == 1) {
		forge_slurm_cancel(e, FORGE_CLUSTER_DROP);
		ret->stop = FORGE_STOP_CANCEL;
		return 0;
	}
	/* With this file, a supervisor that takes over knows that forge, and not Slurm, ended the run. */
	forge_auto_close int mark =
		openat(e->dir.fd, "cancel", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	(void)mark;
	pass_signals_on(e);
	if (!e->kill_at)
		e->kill_at =
			forge_now_usec() + e->job->limits->grace_usec + CANCEL_MORE_USEC;
	return 1;
}

static int look_again(struct forge_slurm *e, uint64_t since)
{
	uint64_t now = forge_now_usec(), pause = (now - since) / 50;
	struct pollfd p = { .fd = e->signals, .events = POLLIN };

	pause = pause < LOOK_MIN_USEC ? LOOK_MIN_USEC : pause;
	pause = pause > LOOK_MAX_USEC ? LOOK_MAX_USEC : pause;
	return poll(&p, 1, (int)(pause / 1000)) > 0;
}

/*
 * Another supervisor may have taken the run back, and have been killed before it recorded that: this one then gives the
 * same verdict. 1: the run was not taken back.
 */
static int check_taken(struct forge_slurm *e, struct forge_outcome *ret,
		       struct forge_error *err)
{
	char owner[FORGE_CLAIM_MAX] = "";

	if (forge_job_dir_owner(e->dir.fd, owner) < 0 ||
	    strncmp(owner, FORGE_CLAIM_BACK, strlen(FORGE_CLAIM_BACK)) != 0)
		return 1;
	forge_slurm_cancel(e, FORGE_CLUSTER_DROP);
	if (strcmp(owner, FORGE_CLAIM_BACK CANCELLED) == 0) {
		ret->stop = FORGE_STOP_CANCEL;
		return 0;
	}
	if (strcmp(owner, FORGE_CLAIM_BACK OVERDUE) == 0) {
		ret->stop = FORGE_STOP_PENDING;
		(void)snprintf(ret->explanation, sizeof(ret->explanation),
			       "its Slurm job %s", OVERDUE);
		return 0;
	}
	return forge_slurm_find(e) < 0 ? 1 : end_unclaimed(e, ret, err);
}

static int wait_for_end(struct forge_slurm *e, struct forge_outcome *ret,
			struct forge_error *err)
{
	uint64_t since = forge_now_usec();
	int rc = e->is_new ? 1 : check_taken(e, ret, err);

	/* A job that was submitted a moment ago has not started yet. */
	e->ask_at = e->is_new ? since + e->poll_usec / 2 : since;
	while (rc == 1) {
		show_logs(e);
		note_progress(e);
		rc = take_outcome(e, ret, err);
		if (rc == 1)
			rc = on_signal(e, ret);
		if (rc == 1)
			rc = ask(e, ret, err);
		if (rc == 1 && e->job->only_looks && !e->n_signals)
			return 1;
		if (rc == 1)
			(void)look_again(e, since);
	}
	return rc;
}

int forge_slurm_await(struct forge_slurm *e, struct forge_outcome *ret,
		      struct forge_error *err)
{
	int rc = wait_for_end(e, ret, err);

	if (rc == 1)
		return 1;
	e->is_over = true;
	ret->is_interrupted |= e->n_signals > 0;
	show_logs(e);
	copy_logs(e);
	(void)snprintf(ret->cluster, sizeof(ret->cluster), "Slurm");
	if (!ret->cluster_job[0])
		(void)snprintf(ret->cluster_job, sizeof(ret->cluster_job), "%s",
			       e->found.id);
	return rc;
}
