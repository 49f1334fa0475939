/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executor "slurm": a run as a job of a Slurm cluster. On the node forge itself carries the run out, in
 * the same sandbox as here (node.c), and leaves an outcome in the directory of the job (job_dir.h). This
 * side submits the job, waits for the outcome, and asks Slurm only to explain why there is none.
 *
 * Nothing runs twice, whatever Slurm does: who makes the claim in the directory of the job owns the run.
 * A node that does not get it runs nothing; this side takes it before it gives a run up.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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
#include "executor/executor.h"
#include "executor/outcome.h"
#include "executor/slurm/cluster.h"
#include "executor/slurm/job_dir.h"
#include "executor/slurm/job_file.h"
#include "executor/workdir.h"
#include "sandbox/plan.h"
#include "state/supervisor.h"

/* Why a run was taken back, in the claim. */
#define CANCELLED "was cancelled"
#define OVERDUE	  "was pending for too long"
/* For forge itself on the node, beside what the run may have. */
#define MEMORY_MORE (64ull << 20)
/* Slurm ends a job only when forge on the node has not ended the run in time. */
#define TIME_MORE_USEC (60 * 1000000ull)
/* So long a run that was cancelled may take on the node beyond its grace period. */
#define CANCEL_MORE_USEC (15 * 1000000ull)
/* A job that no node can ever take is not waited for longer than this. */
#define HOPELESS_SEC 60
/* How often is asked why a job was cancelled. */
#define STATE_USEC 200000u
/* How often is looked for the outcome. */
#define LOOK_MIN_USEC 10000u
#define LOOK_MAX_USEC 1000000u

struct slurm {
	struct forge_execution base;
	const struct forge_job *job;
	const struct forge_executor_decl *decl;
	/* As in the slot: the configuration may say something else when another supervisor goes on. */
	char *conf; /* SLURM_CONF, NULL: as in the environment */
	uint64_t poll_usec, max_lag_usec;
	uint64_t max_pending_sec; /* 0: no bound */
	uint64_t submitted_at;	  /* seconds of the epoch */
	char name[FORGE_JOB_NAME_MAX];
	struct forge_job_dir dir;
	struct forge_workdir workdir;
	struct forge_cluster_job found; /* at the last question */
	char cluster[64];
	char pending[128];	/* what was reported last, and when */
	uint64_t pending_since; /* seconds of the epoch */
	int signals;
	int n_signals;
	uint64_t ask_at; /* the next question to Slurm */
	uint64_t
		ended_at; /* Slurm said that it ended, seconds of the epoch; 0: it goes on */
	uint64_t
		state_at; /* the next question what became of a job that has an outcome */
	uint64_t
		outcome_at; /* its outcome was there, seconds of the epoch; 0: it was not */
	uint64_t kill_at; /* it was asked to end, and must have by then; 0: it was not */
	off_t shown[2];	  /* of its logs, to the live readers */
	bool is_open, is_submitted, is_new, has_node, has_started;
	bool is_unreadable; /* the outcome may be there */
	bool is_over;	    /* nothing of it runs, or ever will */
};

static struct slurm *of(struct forge_execution *e)
{
	return (struct slurm *)e;
}

static void event(const struct slurm *e, const char *name, const char *detail)
{
	e->job->on_event(e->job->arg, name, detail);
}

/* ---- what is submitted ---- */

static int add_option(struct forge_strv *argv, const char *name, const char *value)
{
	if (!value)
		return 0;
	forge_auto_free char *option = forge_asprintf("%s=%s", name, value);
	return option ? forge_strv_add(argv, option) : -ENOMEM;
}

/* Rounded up: the cluster must not have less than the run may use. */
static int add_resources(const struct forge_limits *l, struct forge_strv *argv)
{
	char text[32];
	int rc = 0;

	(void)snprintf(text, sizeof(text), "0"); /* all that the node has */
	if (l->memory_bytes != FORGE_UNLIMITED)
		(void)snprintf(text, sizeof(text), "%lluM",
			       (unsigned long long)((l->memory_bytes + MEMORY_MORE +
						     (1u << 20) - 1) >>
						    20));
	rc = add_option(argv, "--mem", text);
	if (rc == 0 && l->cpus_milli != FORGE_UNLIMITED) {
		(void)snprintf(text, sizeof(text), "%llu",
			       (unsigned long long)((l->cpus_milli + 999) / 1000));
		rc = add_option(argv, "--cpus-per-task", text);
	}
	if (rc == 0 && l->wall_usec != FORGE_UNLIMITED) {
		uint64_t usec = l->wall_usec + TIME_MORE_USEC +
				(l->grace_usec == FORGE_UNLIMITED ? 0 : l->grace_usec);
		(void)snprintf(text, sizeof(text), "%llu",
			       (unsigned long long)((usec + 59999999) / 60000000));
		rc = add_option(argv, "--time", text);
	}
	return rc;
}

/*
 * Options of the configuration come first: of two that contradict each other sbatch takes the last. With
 * --export=NONE the node would run the user's login shell for an environment, which may take long or fail;
 * ALL is what client.h lets through.
 */
static int make_argv(const struct forge_job *job, const struct forge_job_dir *dir,
		     struct forge_strv *ret)
{
	static const char *const fixed[] = { "--parsable", "--no-requeue", "--export=ALL",
					     "--nodes=1", "--ntasks=1" };
	char name[FORGE_JOB_NAME_MAX];
	forge_auto_free char *out = forge_asprintf("%s/slurm.out", dir->path);
	int rc = out ? forge_strv_add(ret, "sbatch") : -ENOMEM;

	forge_strv_foreach (option, &job->executor->options)
		if (rc == 0)
			rc = forge_strv_add(ret, option);
	if (rc == 0)
		rc = add_option(ret, "--partition", job->executor->partition);
	if (rc == 0)
		rc = add_option(ret, "--account", job->executor->account);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(fixed) && rc == 0; i++)
		rc = forge_strv_add(ret, fixed[i]);
	if (rc == 0)
		rc = add_option(ret, "--job-name", forge_cluster_name(job->run_id, name));
	if (rc == 0)
		rc = add_option(ret, "--chdir", dir->path);
	if (rc == 0)
		rc = add_option(ret, "--output", out);
	if (rc == 0)
		rc = add_resources(job->limits, ret);
	return rc;
}

/* For a shell, between single quotes. */
static char *quote(const char *text)
{
	size_t len = 3;

	for (const char *p = text; *p; p++)
		len += *p == '\'' ? 4 : 1;
	char *quoted = malloc(len), *to = quoted;
	if (!quoted)
		return NULL;
	*to++ = '\'';
	for (const char *p = text; *p; p++) {
		if (*p == '\'') {
			memcpy(to, "'\\''", 4);
			to += 4;
		} else {
			*to++ = *p;
		}
	}
	memcpy(to, "'", 2);
	return quoted;
}

static char *make_script(const struct forge_job *job, const struct forge_job_dir *dir)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[n < 0 ? 0 : n] = '\0';
	forge_auto_free char *forge =
		quote(job->executor->forge ? job->executor->forge : self);
	forge_auto_free char *path = quote(dir->path);
	return forge && path
		       ? forge_asprintf("#!/bin/sh\n"
					"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:"
					"/usr/bin:/sbin:/bin\n"
					"export PATH\n"
					"exec %s __node %s\n",
					forge, path)
		       : NULL;
}

/* ---- from open to start ---- */

static int slurm_probe(const struct forge_executor_decl *decl, char *buf, size_t size,
		       struct forge_error *err)
{
	struct stat st;
	int rc = forge_cluster_probe(decl->slurm_conf, decl->partition, buf, size, err);

	if (rc == 0 && stat(decl->dir, &st) < 0 && errno != ENOENT)
		rc = forge_fail_errno(err, errno, "%s", decl->dir);
	return rc;
}

static int check_job(const struct forge_job *job, struct forge_error *err)
{
	if (job->image)
		return forge_hint(
			err,
			forge_fail(err, EINVAL,
				   "executor %s: a runtime of kind image cannot be used",
				   job->executor->name),
			"Use a runtime in a directory that the nodes have, too");
	/* The directories of other runs are in there. */
	forge_strv_foreach (path, job->read_only)
		if (forge_path_is_below(job->executor->dir, path) ||
		    forge_path_is_below(path, job->executor->dir))
			return forge_fail(err, EINVAL,
					  "'%s' overlaps executors.%s.dir (%s), which no "
					  "run may see",
					  path, job->executor->name, job->executor->dir);
	return 0;
}

static int slurm_explain(const struct forge_job *job, json_t **ret,
			 struct forge_error *err)
{
	struct forge_job_dir dir FORGE_CLEANUP(forge_job_dir_done) = FORGE_JOB_DIR_INIT;
	forge_auto_strv struct forge_strv argv = { 0 };
	int rc = check_job(job, err);

	if (rc == 0)
		rc = forge_job_dir_name(job->executor->dir, job->run_id, &dir, err);
	if (rc < 0)
		return rc;
	forge_auto_free char *script = make_script(job, &dir);
	if (!script || make_argv(job, &dir, &argv) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	*ret = json_pack("{s:o, s:s, s:o}", "sbatch", forge_json_texts(&argv), "script",
			 script, "job", forge_job_file(job, dir.place));
	return *ret ? 0 : forge_fail(err, EINVAL, "a path is not valid UTF-8");
}

static int slurm_open(struct forge_execution *base,
		      const struct forge_executor_decl *decl,
		      const struct forge_config *cfg, unsigned slot,
		      struct forge_error *err)
{
	struct slurm *e = of(base);

	(void)cfg; /* user ids are those of the node */
	(void)slot;
	(void)err;
	e->is_open = true;
	e->decl = decl;
	e->dir = FORGE_JOB_DIR_INIT;
	e->workdir.fd = -1;
	e->signals = -1;
	return 0;
}

/* All that look(), attach() and repair() need is in it. */
static int slurm_plan(const struct forge_job *job, json_t **ret, struct forge_error *err)
{
	const struct forge_executor_decl *d = job->executor;
	struct forge_job_dir dir FORGE_CLEANUP(forge_job_dir_done) = FORGE_JOB_DIR_INIT;
	char name[FORGE_JOB_NAME_MAX];
	const char *conf = d->slurm_conf ? d->slurm_conf : getenv("SLURM_CONF");
	int rc = check_job(job, err);

	if (rc == 0)
		rc = forge_job_dir_name(d->dir, job->run_id, &dir, err);
	if (rc < 0)
		return rc;
	*ret = json_pack("{s:s, s:s, s:s, s:s, s:s*, s:I, s:I, s:I}", "workdir",
			 dir.place, "shared_dir", d->dir, "log_dir", dir.path, "job_name",
			 forge_cluster_name(job->run_id, name), "slurm_conf", conf,
			 "poll_usec", (json_int_t)d->poll_usec, "max_lag_usec",
			 (json_int_t)d->max_lag_usec, "max_pending_sec",
			 (json_int_t)(d->max_pending_usec / 1000000));
	return *ret ? 0 : forge_fail(err, EINVAL, "a path is not valid UTF-8");
}

static uint64_t number_of(const json_t *slot, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(slot, key));
}

/* From the plan, or from the slot that has it. */
static int take_plan(struct slurm *e, const struct forge_job *job, const json_t *plan,
		     struct forge_error *err)
{
	const char *conf = forge_json_string(plan, "slurm_conf");

	e->job = job;
	e->poll_usec = number_of(plan, "poll_usec");
	e->max_lag_usec = number_of(plan, "max_lag_usec");
	e->max_pending_sec = number_of(plan, "max_pending_sec");
	e->submitted_at = number_of(plan, "submitted_at");
	e->ended_at = number_of(plan, "ended_at");
	e->outcome_at = number_of(plan, "outcome_at");
	e->pending_since = number_of(plan, "pending_since");
	(void)snprintf(e->pending, sizeof(e->pending), "%s",
		       forge_json_string_or(plan, "pending", ""));
	(void)forge_cluster_name(job->run_id, e->name);
	free(e->conf);
	e->conf = conf ? strdup(conf) : NULL;
	if (conf && !e->conf)
		return forge_fail(err, ENOMEM, "out of memory");
	return forge_job_dir_name(forge_json_string_or(plan, "shared_dir", "/"),
				  job->run_id, &e->dir, err);
}

static int check_mark(struct slurm *e, struct forge_error *err)
{
	forge_auto_close int seen = forge_home_subdir(e->job->home, "watchers", err);
	forge_auto_free char *name = forge_asprintf("%s.mark", e->job->executor->name);

	if (seen < 0)
		return seen;
	return name ? forge_job_dir_prepare(&e->dir, seen, name, err)
		    : forge_fail(err, ENOMEM, "out of memory");
}

static int slurm_make_workdir(struct forge_execution *base, const struct forge_job *job,
			      struct forge_error *err)
{
	struct slurm *e = of(base);
	struct forge_error taken = FORGE_ERROR_INIT;
	json_t *plan = NULL;
	int rc = slurm_plan(job, &plan, err);

	if (rc == 0)
		rc = take_plan(e, job, plan, err);
	json_decref(plan);
	if (rc == 0)
		rc = check_mark(e, err);
	if (rc == 0)
		rc = forge_slot_add(job->slot, json_pack("{s:s}", "mark", e->dir.mark),
				    err);
	if (rc < 0)
		return rc;
	rc = forge_workdir_make(e->dir.place, job->home, job->slot->number, &e->workdir,
				&taken);
	if (rc < 0) {
		if (err)
			*err = taken;
		return rc == -EEXIST ? -EIO : rc; /* another name would not help */
	}
	rc = forge_slot_add(job->slot,
			    json_pack("{s:I, s:I, s:I}", "dev",
				      (json_int_t)e->workdir.dev, "ino",
				      (json_int_t)e->workdir.ino, "inner",
				      (json_int_t)e->workdir.inner),
			    err);
	return rc < 0 ? rc : forge_job_dir_make(&e->dir, err);
}

static int open_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* A job has no terminal: what there is to read is read before it is submitted. */
static int spool_stdin(struct slurm *e, struct forge_error *err)
{
	char buf[65536];
	uint64_t total = 0;
	forge_auto_close int to =
		openat(e->dir.fd, "stdin", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (to < 0)
		return forge_fail_errno(err, errno, "make stdin of the job");
	for (;;) {
		struct pollfd p[] = { { .fd = STDIN_FILENO, .events = POLLIN },
				      { .fd = e->signals, .events = POLLIN } };
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return forge_fail_errno(err, errno, "wait for standard input");
		if (p[1].revents)
			return forge_fail(err, ECANCELED,
					  "cancelled while its standard input was read");
		ssize_t n = p[0].revents ? read(STDIN_FILENO, buf, sizeof(buf)) : -1;
		/* What a file system reports only now must not be a shorter input. */
		if (n == 0)
			return fsync(to) < 0 ? forge_fail_errno(err, errno,
								"write stdin of the job")
					     : 0;
		if (n < 0 && (!p[0].revents || errno == EINTR || errno == EAGAIN))
			continue;
		int rc = n < 0 ? -errno : forge_write_all(to, buf, (size_t)n);
		if (rc < 0)
			return forge_fail_errno(err, -rc, "read standard input");
		total += (uint64_t)n;
		if (total > e->job->limits->disk_bytes)
			return forge_fail(err, EFBIG,
					  "its standard input is larger than --disk");
	}
}

static int slurm_prepare(struct forge_execution *base, struct forge_outcome *ret,
			 struct forge_error *err)
{
	struct slurm *e = of(base);
	int rc = 0;

	*ret = FORGE_OUTCOME_INIT;
	e->signals = open_signals();
	if (e->job->pass_stdin)
		rc = spool_stdin(e, err);
	return rc < 0 ? rc
		      : forge_job_dir_store(e->dir.fd, "job.json",
					    forge_job_file(e->job, e->dir.place), err);
}

/* Takes the run from whatever job there may be. 1: it is ours. 0: a node has it. Negative: not known. */
static int take_back(struct slurm *e, const char *why)
{
	char text[FORGE_CLAIM_MAX], owner[FORGE_CLAIM_MAX] = "";

	(void)snprintf(text, sizeof(text), FORGE_CLAIM_BACK "%s", why);
	int rc = forge_job_dir_claim(e->dir.fd, text, owner);
	/* Another supervisor, which was killed, may have taken it for another reason. */
	if (rc == 0 || strncmp(owner, FORGE_CLAIM_BACK, strlen(FORGE_CLAIM_BACK)) == 0)
		return 1;
	return rc == -EEXIST && owner[0] ? 0 : rc < 0 && rc != -EEXIST ? rc : -EIO;
}

/* 1: the job is there. 0: it is not. Negative: not known. */
static int find(struct slurm *e)
{
	struct forge_error why = FORGE_ERROR_INIT;
	int rc = forge_cluster_find(e->conf, e->name, &e->found, &why);

	return rc < 0 ? rc : e->found.state[0] != '\0';
}

/*
 * sbatch has given up, and the job may have come into being all the same, or may do so any moment. When it
 * does not show up in time, the run is taken back, so that the job does nothing if it comes later.
 */
static int find_after_all(struct slurm *e, struct forge_error *err)
{
	uint64_t end = forge_now_usec() + e->max_lag_usec;
	struct pollfd p = { .fd = e->signals, .events = POLLIN };

	event(e, "submit_unclear", err->msg);
	do {
		if (find(e) == 1)
			return 0;
	} while (poll(&p, 1, 1000) == 0 && forge_now_usec() < end);
	if (take_back(e, "was not submitted") == 0)
		return 0; /* a node has it */
	return -err->code;
}

static int slurm_start(struct forge_execution *base, struct forge_error *err)
{
	struct slurm *e = of(base);
	struct forge_error why = FORGE_ERROR_INIT;
	forge_auto_strv struct forge_strv argv = { 0 };
	forge_auto_free char *script = make_script(e->job, &e->dir);
	char detail[64];

	if (!script || make_argv(e->job, &e->dir, &argv) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	e->submitted_at = (uint64_t)time(NULL);
	/* From here on there may be a job: another supervisor would look for it by its name. */
	int rc = forge_slot_add(e->job->slot,
				json_pack("{s:I, s:I}", "start_usec",
					  (json_int_t)forge_now_usec(), "submitted_at",
					  (json_int_t)e->submitted_at),
				err);
	if (rc < 0)
		return rc;
	rc = forge_cluster_submit(e->conf, &argv, script, e->found.id, &why);
	if (rc == 1)
		rc = find_after_all(e, &why);
	if (rc < 0) {
		e->is_over = true;
		if (err)
			*err = why;
		return rc;
	}
	e->is_submitted = e->is_new = true;
	(void)snprintf(detail, sizeof(detail), "Slurm job %s", e->found.id);
	event(e, "submitted", detail);
	return 0;
}

/* ---- until it ends ---- */

/* What the job printed since the last call, for those who watch. */
static void show_logs(struct slurm *e)
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

/* Another supervisor may have been killed while it copied: from the beginning. */
static void copy_logs(struct slurm *e)
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
			event(e, "log_failed", strerror(-rc));
	}
}

/* "node n1 job 12 time 1": the node has taken the job. */
static void note_progress(struct slurm *e)
{
	char owner[FORGE_CLAIM_MAX] = "", node[64] = "";

	if (!e->has_node && forge_job_dir_owner(e->dir.fd, owner) == 0 &&
	    sscanf(owner, "node %63s", node) == 1) {
		e->has_node = true;
		event(e, "claimed", node);
	}
	if (!e->has_started && forge_job_dir_has(e->dir.fd, "started")) {
		e->has_started = true;
		event(e, "started", NULL);
	}
}

static void replay_events(const struct slurm *e, const json_t *file)
{
	size_t i;
	const json_t *row;

	json_array_foreach (json_object_get(file, "events"), i, row) {
		const char *name = json_string_value(json_array_get(row, 0));
		if (name)
			event(e, name, json_string_value(json_array_get(row, 1)));
	}
}

static void set_text(char *to, size_t size, const json_t *file, const char *key)
{
	(void)snprintf(to, size, "%s", forge_json_string_or(file, key, ""));
}

static const char *explain_end(const struct slurm *e, char *buf, size_t size)
{
	const struct forge_cluster_job *j = &e->found;

	if (!j->state[0])
		(void)snprintf(buf, size, "Slurm has no job %s any more", e->name);
	else
		(void)snprintf(buf, size, "Slurm job %s ended as %s (%s)%s%s", j->id,
			       j->state, j->reason, j->node[0] ? " on " : "", j->node);
	return buf;
}

/* Notes a time, in seconds of the epoch, also for the next supervisor, which else would count from the beginning. */
static void note_time(struct slurm *e, const char *key, uint64_t *at, uint64_t now)
{
	*at = now;
	(void)!forge_slot_add(e->job->slot, json_pack("{s:I}", key, (json_int_t)now),
			      NULL);
}

/* Whether max_lag has passed since this was asked for the first time. */
static bool is_late(struct slurm *e, const char *key, uint64_t *at)
{
	uint64_t now = (uint64_t)time(NULL);

	if (!*at)
		note_time(e, key, at, now);
	return now >= *at && (now - *at) * 1000000 >= e->max_lag_usec;
}

static void note_alive(struct slurm *e)
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
static int check_cancel(struct slurm *e, struct forge_outcome *o)
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
	int rc = find(e);
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

/* 0: here is the outcome. 1: not yet. Negative: it was not run, and err says why. */
static int take_outcome(struct slurm *e, struct forge_outcome *ret,
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
	if (ret->has_started && !e->has_started) {
		e->has_started = true;
		event(e, "started", NULL);
	}
	if (refused) {
		forge_error_restore(refused, err ? err : &why);
		int code = err ? err->code : why.code;
		(void)forge_wrap(err, 0, "node %s", ret->node);
		return code > 0 ? -code : -EIO;
	}
	return 0;
}

/* The last of what the job itself printed: forge is not there, or cannot start. */
static void add_output(const struct slurm *e, char *buf, size_t size)
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

/* The job never got to a node. 0: *ret is complete; negative: the run was refused. */
static int end_unstarted(struct slurm *e, struct forge_outcome *ret,
			 struct forge_error *err)
{
	const char *state = e->found.state;

	(void)explain_end(e, ret->explanation, sizeof(ret->explanation));
	if (strncmp(state, "CANCELLED", 9) == 0) {
		ret->stop = FORGE_STOP_CANCEL;
		return 0;
	}
	/* Forgotten, or its node died: another attempt may succeed. */
	if (!*state || is_lost(state))
		return 0;
	add_output(e, ret->explanation, sizeof(ret->explanation));
	return forge_hint(err, forge_fail(err, EREMOTEIO, "%s", ret->explanation),
			  "Is %s shared with the node, and forge there? "
			  "`forge executor check %s` tries it",
			  e->dir.dir, e->decl ? e->decl->name : "NAME");
}

/* A node had it and left no outcome: what Slurm says is all there is. */
static void end_without_outcome(struct slurm *e, struct forge_outcome *ret)
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

static bool is_hopeless(const char *reason)
{
	static const char *const words[] = {
		"PartitionConfig",   "BadConstraints", "DependencyNeverSatisfied",
		"InvalidAccount",    "InvalidQOS",     "PartitionNodeLimit",
		"PartitionTimeLimit"
	};

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(words); i++)
		if (strcmp(reason, words[i]) == 0)
			return true;
	return false;
}

/* A job may be pending for max_pending seconds (0: for ever), and a minute for a reason that does not pass. */
static bool is_overdue(uint64_t submitted_at, uint64_t reason_since, uint64_t max_pending,
		       const char *reason)
{
	uint64_t now = (uint64_t)time(NULL);

	if (is_hopeless(reason) && reason_since && now >= reason_since &&
	    now - reason_since >= HOPELESS_SEC)
		return true;
	return max_pending && now >= submitted_at && now - submitted_at >= max_pending;
}

static const char *describe_pending(const struct forge_cluster_job *j, char *buf,
				    size_t size)
{
	(void)snprintf(buf, size, "Slurm job %s is pending: %s", j->id, j->reason);
	return buf;
}

static void cancel(struct slurm *e, enum forge_cluster_cancel how)
{
	struct forge_error why = FORGE_ERROR_INIT;

	if (forge_cluster_cancel(e->conf, e->name, how, &why) < 0)
		event(e, "cancel_failed", why.msg); /* the next look tries again */
}

/* 0: given up. 1: it goes on. */
static int check_pending(struct slurm *e, struct forge_outcome *ret)
{
	char detail[128], text[FORGE_FORMAT_MAX];

	(void)describe_pending(&e->found, detail, sizeof(detail));
	/* "None": the scheduler has not looked at it yet. */
	if (strcmp(e->pending, detail) != 0 && strcmp(e->found.reason, "None") != 0) {
		(void)snprintf(e->pending, sizeof(e->pending), "%s", detail);
		e->pending_since = (uint64_t)time(NULL);
		event(e, "pending", detail);
	}
	if (!is_overdue(e->submitted_at, e->pending_since, e->max_pending_sec,
			e->found.reason) ||
	    take_back(e, OVERDUE) != 1)
		return 1;
	cancel(e, FORGE_CLUSTER_KILL);
	ret->stop = FORGE_STOP_PENDING;
	(void)snprintf(ret->explanation, sizeof(ret->explanation),
		       "Slurm job %s was pending for %s (%s)", e->found.id,
		       forge_format_duration(
			       text, ((uint64_t)time(NULL) - e->submitted_at) * 1000000),
		       e->found.reason);
	return 0;
}

/*
 * The directory as the file server has it: what this machine has looked for in vain may be remembered as
 * missing for a while.
 */
static void look_anew(struct slurm *e)
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
static int check_ended(struct slurm *e, struct forge_outcome *ret,
		       struct forge_error *err)
{
	int rc = take_back(e, "ended without a node");

	/* What another supervisor gave up stays so. */
	if (rc == 1) {
		if (e->n_signals)
			ret->stop = FORGE_STOP_CANCEL;
		return e->n_signals ? 0 : end_unstarted(e, ret, err);
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

/* Asks Slurm. As wait(). */
static int ask(struct slurm *e, struct forge_outcome *ret, struct forge_error *err)
{
	uint64_t now = forge_now_usec();

	if (now < e->ask_at)
		return 1;
	e->ask_at = now + e->poll_usec;
	if (find(e) < 0)
		return 1; /* nothing is known, so nothing is decided */
	if (e->kill_at && now >= e->kill_at)
		cancel(e, FORGE_CLUSTER_KILL);
	/* While it waits for an outcome it looks more often. */
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
static int on_signal(struct slurm *e, struct forge_outcome *ret)
{
	struct signalfd_siginfo si;
	bool is_urgent = false;
	int n = 0;

	while (read(e->signals, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		n++;
		is_urgent |= si.ssi_code == SI_QUEUE && si.ssi_int == FORGE_SIGNAL_NOW;
	}
	if (n == 0)
		return 1;
	if (e->n_signals == 0)
		event(e, "cancelled", NULL);
	/* A second signal lets forge on the node kill at once. */
	int times = is_urgent && e->n_signals == 0 ? 2 : 1;
	e->n_signals += n;
	if (take_back(e, CANCELLED) == 1) {
		cancel(e, FORGE_CLUSTER_KILL);
		ret->stop = FORGE_STOP_CANCEL;
		return 0;
	}
	/* Another supervisor must know who wanted that. */
	forge_auto_close int mark =
		openat(e->dir.fd, "cancel", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	(void)mark;
	for (int i = 0; i < times; i++)
		cancel(e, FORGE_CLUSTER_ASK);
	if (!e->kill_at)
		e->kill_at =
			forge_now_usec() + e->job->limits->grace_usec + CANCEL_MORE_USEC;
	return 1;
}

static int look_again(struct slurm *e, uint64_t since)
{
	uint64_t now = forge_now_usec(), pause = (now - since) / 50;
	struct pollfd p = { .fd = e->signals, .events = POLLIN };

	pause = pause < LOOK_MIN_USEC ? LOOK_MIN_USEC : pause;
	pause = pause > LOOK_MAX_USEC ? LOOK_MAX_USEC : pause;
	return poll(&p, 1, (int)(pause / 1000)) > 0;
}

/* A supervisor that took the run back may have been killed before it could record that. 1: nobody did. */
static int check_taken(struct slurm *e, struct forge_outcome *ret,
		       struct forge_error *err)
{
	char owner[FORGE_CLAIM_MAX] = "";

	if (forge_job_dir_owner(e->dir.fd, owner) < 0 ||
	    strncmp(owner, FORGE_CLAIM_BACK, strlen(FORGE_CLAIM_BACK)) != 0)
		return 1;
	cancel(e, FORGE_CLUSTER_KILL); /* the job would do nothing */
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
	return find(e) < 0 ? 1 : end_unstarted(e, ret, err);
}

static int wait_for_end(struct slurm *e, struct forge_outcome *ret,
			struct forge_error *err)
{
	uint64_t since = forge_now_usec();
	int rc = e->is_new ? 1 : check_taken(e, ret, err);

	/* Submitted a moment ago: it takes a while until there is something to be told. */
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

static int slurm_wait(struct forge_execution *base, struct forge_outcome *ret,
		      struct forge_error *err)
{
	struct slurm *e = of(base);
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

/* Device numbers change when a file system is mounted again; the mark says that it is the same one. */
static int reopen_workdir(struct slurm *e, const json_t *slot, struct forge_error *err)
{
	forge_auto_json json_t *now = json_copy((json_t *)slot);
	struct stat st;

	if (!now)
		return forge_fail(err, ENOMEM, "out of memory");
	if (lstat(e->dir.place, &st) == 0)
		json_object_set_new(now, "dev", json_integer((json_int_t)st.st_dev));
	return forge_workdir_reopen(now, e->dir.place, &e->workdir, err);
}

static int slurm_attach(struct forge_execution *base, const struct forge_job *job,
			const json_t *slot, struct forge_outcome *ret,
			struct forge_error *err)
{
	struct slurm *e = of(base);

	*ret = FORGE_OUTCOME_INIT;
	int rc = take_plan(e, job, slot, err);
	if (rc == 0)
		rc = forge_job_dir_open(&e->dir, forge_json_string_or(slot, "mark", ""),
					err);
	if (rc == -ENOENT)
		return -ESRCH;
	if (rc == 0)
		rc = reopen_workdir(e, slot, err);
	if (rc < 0) {
		/* It goes on as it was: end() must not touch it. */
		forge_job_dir_done(&e->dir);
		return rc == -ENOENT || rc == -ESTALE ? -ESRCH : rc;
	}
	e->is_submitted = true;
	e->signals = open_signals();
	/* What the record has is not reported again. */
	const char *status =
		forge_json_string_or(json_object_get(slot, "record"), "status", "");
	e->has_started =
		strcmp(status, "running") == 0 || strcmp(status, "collecting") == 0;
	e->has_node = e->has_started || strcmp(status, "preparing") == 0;
	return 0;
}

/* ---- its directories ---- */

static int slurm_workdir_fd(const struct forge_execution *base)
{
	return ((const struct slurm *)base)->workdir.fd;
}

static bool slurm_drop_empty(struct forge_execution *base)
{
	return forge_workdir_drop_empty(&of(base)->workdir);
}

static int slurm_keep(struct forge_execution *base, struct forge_kept *ret,
		      struct forge_error *err)
{
	struct slurm *e = of(base);

	return forge_workdir_keep_as(&e->workdir, e->job->run_id, ret, err);
}

static int slurm_clean(struct forge_execution *base, struct forge_rmtree_stats *ret,
		       struct forge_error *err)
{
	struct slurm *e = of(base);

	return e->workdir.fd < 0 ? 0
				 : forge_workdir_remove(&e->workdir, e->job->home,
							e->job->slot->number, ret, err);
}

/* A job that is still there when its run is given up finds no directory, and does nothing. */
static int slurm_end(struct forge_execution *base, struct forge_error *err)
{
	struct slurm *e = of(base);

	if (!e->is_open || e->dir.fd < 0)
		return 0;
	if (e->is_submitted && !e->is_over && take_back(e, "was given up") != 1)
		cancel(e, FORGE_CLUSTER_KILL);
	return forge_job_dir_remove(&e->dir, err);
}

static void slurm_close(struct forge_execution *base)
{
	struct slurm *e = of(base);

	if (!e->is_open)
		return;
	forge_workdir_close(&e->workdir);
	forge_job_dir_done(&e->dir);
	if (e->signals >= 0)
		close(e->signals);
	free(e->conf);
}

/* ---- for those who have only the slot ---- */

static bool has_file(const json_t *plan, const char *name)
{
	forge_auto_free char *path =
		forge_asprintf("%s/%s", forge_json_string_or(plan, "log_dir", ""), name);

	return path && access(path, F_OK) == 0;
}

/* A state that attach() has something to do about is FORGE_REMOTE_ENDED or, the first time, RUNNING. */
static void look_at(struct forge_remote *r, const struct forge_cluster_job *jobs,
		    size_t n)
{
	const char *name = forge_json_string_or(r->plan, "job_name", "");
	const struct forge_cluster_job *j = forge_cluster_pick(jobs, n, name);

	r->state = j ? j->remote : FORGE_REMOTE_ENDED;
	/* Slurm prepares the node, or forge there the sandbox. */
	if (r->state == FORGE_REMOTE_RUNNING && !has_file(r->plan, "started")) {
		r->state = FORGE_REMOTE_PENDING;
		(void)snprintf(r->why, sizeof(r->why), "Slurm job %s is %s on %s", j->id,
			       j->state, j->node);
		return;
	}
	if (r->state != FORGE_REMOTE_PENDING)
		return;
	char before[sizeof(r->why)];
	(void)snprintf(before, sizeof(before), "%s", r->why);
	r->why[0] = '\0';
	if (strcmp(j->reason, "None") != 0)
		(void)describe_pending(j, r->why, sizeof(r->why));
	/* The reason is new: it has its time from now on. */
	uint64_t since = strcmp(before, r->why) == 0 ? r->since : 0;
	if (is_overdue(number_of(r->plan, "submitted_at"), since,
		       number_of(r->plan, "max_pending_sec"), j->reason))
		r->state = FORGE_REMOTE_ENDED;
}

static int slurm_look(struct forge_remote *runs, size_t n, struct forge_error *err)
{
	forge_auto_free bool *is_asked = calloc(n + 1, sizeof(*is_asked));
	int rc = is_asked ? 0 : forge_fail(err, ENOMEM, "out of memory");

	for (size_t i = 0; i < n; i++) {
		runs[i].state = has_file(runs[i].plan, "outcome.json")
					? FORGE_REMOTE_ENDED
					: FORGE_REMOTE_UNKNOWN;
	}
	/* One question for each cluster. */
	for (size_t i = 0; is_asked && i < n; i++) {
		const char *conf = forge_json_string_or(runs[i].plan, "slurm_conf", "");
		forge_auto_free struct forge_cluster_job *jobs = NULL;
		size_t n_jobs = 0;
		if (is_asked[i] || runs[i].state == FORGE_REMOTE_ENDED)
			continue;
		int asked = forge_cluster_list(*conf ? conf : NULL, &jobs, &n_jobs, err);
		rc = asked < 0 ? asked : rc;
		for (size_t k = i; k < n; k++) {
			if (strcmp(conf, forge_json_string_or(runs[k].plan, "slurm_conf",
							      "")) != 0)
				continue;
			is_asked[k] = true;
			if (asked == 0 && runs[k].state != FORGE_REMOTE_ENDED)
				look_at(&runs[k], jobs, n_jobs);
		}
	}
	return rc;
}

/* Slurm must know that it is to end, before what would show that it runs is removed. */
static int end_job(const struct forge_repair *r, struct slurm *e, struct forge_error *err)
{
	char name[FORGE_JOB_NAME_MAX];

	if (forge_job_dir_has(e->dir.fd, "outcome.json") ||
	    !json_object_get(r->slot, "start_usec") || take_back(e, "was lost") == 1)
		return 0;
	r->report(r->arg, "cancel", forge_cluster_name(r->run_id, name));
	return r->dry_run ? 0
			  : forge_cluster_cancel(e->conf, name, FORGE_CLUSTER_KILL, err);
}

static int open_for_repair(const struct forge_repair *r, const struct forge_job *job,
			   struct slurm *e, struct forge_error *err)
{
	const char *mark = forge_json_string(r->slot, "mark");
	struct forge_error why = FORGE_ERROR_INIT;

	*e = (struct slurm){ .dir = FORGE_JOB_DIR_INIT, .workdir.fd = -1, .signals = -1 };
	int rc = take_plan(e, job, r->slot, err);
	if (rc < 0)
		return rc;
	/* Nothing was made without a mark. */
	rc = mark ? forge_job_dir_open(&e->dir, mark, &why) : -ENOENT;
	if (rc < 0 && rc != -ENOENT && err)
		*err = why;
	return rc;
}

static int slurm_repair(const struct forge_repair *r, struct forge_error *err)
{
	const struct forge_job job = { .run_id = r->run_id };
	struct slurm e;
	struct stat st;
	int rc = open_for_repair(r, &job, &e, err);

	if (rc == 0) {
		r->report(r->arg, "remove job directory", e.dir.path);
		rc = end_job(r, &e, err);
		if (rc == 0 && !r->dry_run)
			rc = forge_job_dir_remove(&e.dir, err);
	} else if (rc == -ENOENT) {
		rc = 0;
	} else if (json_object_get(r->slot, "start_usec") && !r->dry_run) {
		/* Its directory cannot be reached: the job at least is ended. */
		(void)!forge_cluster_cancel(e.conf, e.name, FORGE_CLUSTER_KILL, NULL);
	}
	/* The mark says that it is the same file system, whatever its number is now. */
	struct forge_repair now = *r;
	forge_auto_json json_t *slot = json_copy((json_t *)r->slot);
	if (slot && json_object_get(slot, "dev") && lstat(e.dir.place, &st) == 0)
		json_object_set_new(slot, "dev", json_integer((json_int_t)st.st_dev));
	now.slot = slot ? slot : r->slot;
	if (rc == 0 && json_object_get(r->slot, "mark"))
		rc = forge_workdir_repair(&now, err);
	forge_job_dir_done(&e.dir);
	free(e.conf);
	return rc;
}

static void slurm_usage(const json_t *slot, struct forge_usage_now *ret)
{
	const char *path = forge_json_string_or(slot, "log_dir", "");
	forge_auto_close int fd =
		open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	forge_auto_json json_t *now = NULL;

	if (fd < 0 || forge_job_dir_load(fd, "usage.json", &now, NULL) < 0 || !now)
		return;
	const json_t *memory = json_object_get(now, "memory_bytes");
	const json_t *cpu = json_object_get(now, "cpu_usec");
	if (json_is_integer(memory))
		ret->memory_bytes = (uint64_t)json_integer_value(memory);
	if (json_is_integer(cpu))
		ret->cpu_usec = (uint64_t)json_integer_value(cpu);
}

const struct forge_executor_ops forge_executor_slurm = {
	.kind = "slurm",
	.caps = FORGE_EXECUTOR_OUTLIVES | FORGE_EXECUTOR_REMOTE,
	.size = sizeof(struct slurm),
	.cannot = "",
	.probe = slurm_probe,
	.explain = slurm_explain,
	.open = slurm_open,
	.plan = slurm_plan,
	.make_workdir = slurm_make_workdir,
	.prepare = slurm_prepare,
	.start = slurm_start,
	.attach = slurm_attach,
	.look = slurm_look,
	.wait = slurm_wait,
	.workdir_fd = slurm_workdir_fd,
	.drop_empty = slurm_drop_empty,
	.keep = slurm_keep,
	.clean = slurm_clean,
	.end = slurm_end,
	.close = slurm_close,
	.repair = slurm_repair,
	.repair_kept = forge_workdir_repair_kept,
	.usage = slurm_usage,
};
