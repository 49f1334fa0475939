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
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "executor/slurm/job_file.h"
#include "executor/slurm/slurm.h"
#include "executor/slurm/submission.h"

static struct forge_slurm *of(struct forge_execution *e)
{
	return (struct forge_slurm *)e;
}

/* ---- from open to start ---- */

static int slurm_probe(const struct forge_executor_decl *decl, char *buf, size_t size,
		       struct forge_error *err)
{
	struct stat st;
	int rc = forge_cluster_probe(decl->slurm_conf, decl->partition, buf, size, err);

	if (rc == 0 && stat(decl->dir, &st) < 0)
		rc = forge_hint(
			err, forge_fail_errno(err, errno, "%s", decl->dir),
			"It must be a directory that the nodes of the cluster share");
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
	forge_auto_free char *script = forge_submission_script(job, &dir);
	if (!script || forge_submission_argv(job, &dir, &argv) < 0)
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
	struct forge_slurm *e = of(base);

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
static int take_plan(struct forge_slurm *e, const struct forge_job *job,
		     const json_t *plan, struct forge_error *err)
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

static int check_mark(struct forge_slurm *e, struct forge_error *err)
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
	struct forge_slurm *e = of(base);
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
static int spool_stdin(struct forge_slurm *e, struct forge_error *err)
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
	struct forge_slurm *e = of(base);
	int rc = 0;

	*ret = FORGE_OUTCOME_INIT;
	e->signals = open_signals();
	if (e->job->pass_stdin)
		rc = spool_stdin(e, err);
	return rc < 0 ? rc
		      : forge_job_dir_store(e->dir.fd, "job.json",
					    forge_job_file(e->job, e->dir.place), err);
}

int forge_slurm_take_back(struct forge_slurm *e, const char *why)
{
	char text[FORGE_CLAIM_MAX], owner[FORGE_CLAIM_MAX] = "";

	(void)snprintf(text, sizeof(text), FORGE_CLAIM_BACK "%s", why);
	int rc = forge_job_dir_claim(e->dir.fd, text, owner);
	/* Another supervisor, which was killed, may have taken it for another reason. */
	if (rc == 0 || strncmp(owner, FORGE_CLAIM_BACK, strlen(FORGE_CLAIM_BACK)) == 0)
		return 1;
	return rc == -EEXIST && owner[0] ? 0 : rc < 0 && rc != -EEXIST ? rc : -EIO;
}

int forge_slurm_find(struct forge_slurm *e)
{
	struct forge_error why = FORGE_ERROR_INIT;
	int rc = forge_cluster_find(e->conf, e->name, &e->found, &why);

	return rc < 0 ? rc : e->found.state[0] != '\0';
}

/*
 * sbatch has given up, and the job may have come into being all the same, or may do so any moment. When it
 * does not show up in time, the run is taken back, so that the job does nothing if it comes later.
 */
static int find_after_all(struct forge_slurm *e, struct forge_error *err)
{
	uint64_t end = forge_now_usec() + e->max_lag_usec;
	struct pollfd p = { .fd = e->signals, .events = POLLIN };

	forge_slurm_event(e, "submit_unclear", err->msg);
	do {
		if (forge_slurm_find(e) == 1)
			return 0;
	} while (poll(&p, 1, 1000) == 0 && forge_now_usec() < end);
	if (forge_slurm_take_back(e, "was not submitted") == 0)
		return 0; /* a node has it */
	return -err->code;
}

static int slurm_start(struct forge_execution *base, struct forge_error *err)
{
	struct forge_slurm *e = of(base);
	struct forge_error why = FORGE_ERROR_INIT;
	forge_auto_strv struct forge_strv argv = { 0 };
	forge_auto_free char *script = forge_submission_script(e->job, &e->dir);
	char detail[64];

	if (!script || forge_submission_argv(e->job, &e->dir, &argv) < 0)
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
	forge_slurm_event(e, "submitted", detail);
	return 0;
}

/* Device numbers change when a file system is mounted again; the mark says that it is the same one. */
static int reopen_workdir(struct forge_slurm *e, const json_t *slot,
			  struct forge_error *err)
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
	struct forge_slurm *e = of(base);

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

static int slurm_wait(struct forge_execution *base, struct forge_outcome *ret,
		      struct forge_error *err)
{
	return forge_slurm_await(of(base), ret, err);
}

void forge_slurm_cancel(struct forge_slurm *e, enum forge_cluster_cancel how)
{
	struct forge_error why = FORGE_ERROR_INIT;

	if (forge_cluster_cancel(e->conf, e->name, how, &why) < 0)
		forge_slurm_event(e, "cancel_failed", why.msg);
}

/* ---- its directories ---- */

static int slurm_workdir_fd(const struct forge_execution *base)
{
	return ((const struct forge_slurm *)base)->workdir.fd;
}

static bool slurm_drop_empty(struct forge_execution *base)
{
	return forge_workdir_drop_empty(&of(base)->workdir);
}

static int slurm_keep(struct forge_execution *base, struct forge_kept *ret,
		      struct forge_error *err)
{
	struct forge_slurm *e = of(base);

	return forge_workdir_keep_as(&e->workdir, e->job->run_id, ret, err);
}

static int slurm_clean(struct forge_execution *base, struct forge_rmtree_stats *ret,
		       struct forge_error *err)
{
	struct forge_slurm *e = of(base);

	return e->workdir.fd < 0 ? 0
				 : forge_workdir_remove(&e->workdir, e->job->home,
							e->job->slot->number, ret, err);
}

/* A job that is still there when its run is given up finds no directory, and does nothing. */
static int slurm_end(struct forge_execution *base, struct forge_error *err)
{
	struct forge_slurm *e = of(base);

	if (!e->is_open || e->dir.fd < 0)
		return 0;
	if (e->is_submitted && !e->is_over &&
	    forge_slurm_take_back(e, "was given up") != 1)
		forge_slurm_cancel(e, FORGE_CLUSTER_KILL);
	return forge_job_dir_remove(&e->dir, err);
}

static void slurm_close(struct forge_execution *base)
{
	struct forge_slurm *e = of(base);

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
		(void)forge_cluster_describe(j, r->why, sizeof(r->why));
	/* The reason is new: it has its time from now on. */
	uint64_t since = strcmp(before, r->why) == 0 ? r->since : 0;
	if (forge_cluster_is_overdue(number_of(r->plan, "submitted_at"), since,
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
static int end_job(const struct forge_repair *r, struct forge_slurm *e,
		   struct forge_error *err)
{
	char name[FORGE_JOB_NAME_MAX];

	if (forge_job_dir_has(e->dir.fd, "outcome.json") ||
	    !json_object_get(r->slot, "start_usec") ||
	    forge_slurm_take_back(e, "was lost") == 1)
		return 0;
	r->report(r->arg, "cancel", forge_cluster_name(r->run_id, name));
	return r->dry_run ? 0
			  : forge_cluster_cancel(e->conf, name, FORGE_CLUSTER_KILL, err);
}

static int open_for_repair(const struct forge_repair *r, const struct forge_job *job,
			   struct forge_slurm *e, struct forge_error *err)
{
	const char *mark = forge_json_string(r->slot, "mark");
	struct forge_error why = FORGE_ERROR_INIT;

	*e = (struct forge_slurm){ .dir = FORGE_JOB_DIR_INIT,
				   .workdir.fd = -1,
				   .signals = -1 };
	int rc = take_plan(e, job, r->slot, err);
	if (rc < 0)
		return rc;
	/* Nothing was made without a mark. */
	rc = mark ? forge_job_dir_open(&e->dir, mark, &why) : -ENOENT;
	if (rc < 0 && rc != -ENOENT && err)
		*err = why;
	return rc;
}

/* The mark says that it is the same file system, whatever its number is now. NULL: out of memory. */
static json_t *slot_of_today(const struct forge_repair *r)
{
	json_t *slot = json_copy((json_t *)r->slot);
	struct stat st;

	if (slot && json_object_get(slot, "mark") && json_object_get(slot, "dev") &&
	    lstat(forge_json_string_or(slot, "workdir", ""), &st) == 0)
		json_object_set_new(slot, "dev", json_integer((json_int_t)st.st_dev));
	return slot;
}

static int slurm_repair(const struct forge_repair *r, struct forge_error *err)
{
	const struct forge_job job = { .run_id = r->run_id };
	struct forge_slurm e;
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
	struct forge_repair now = *r;
	forge_auto_json json_t *slot = slot_of_today(r);
	now.slot = slot ? slot : r->slot;
	if (rc == 0 && json_object_get(r->slot, "mark"))
		rc = forge_workdir_repair(&now, err);
	forge_job_dir_done(&e.dir);
	free(e.conf);
	return rc;
}

static int slurm_repair_kept(const struct forge_repair *r, struct forge_kept *ret,
			     struct forge_error *err)
{
	struct forge_repair now = *r;
	forge_auto_json json_t *slot = slot_of_today(r);

	now.slot = slot ? slot : r->slot;
	return forge_workdir_repair_kept(&now, ret, err);
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

static int slurm_health(struct forge_execution *execution, json_t **ret,
			struct forge_error *err)
{
	struct forge_slurm *e = (struct forge_slurm *)execution;
	forge_auto_json json_t *file = NULL;
	int rc = forge_job_dir_load(e->dir.fd, "outcome.json", &file, err);

	if (rc == 0)
		*ret = json_incref(json_object_get(file, "health"));
	return rc;
}

const struct forge_executor_ops forge_executor_slurm = {
	.kind = "slurm",
	.caps = FORGE_EXECUTOR_OUTLIVES | FORGE_EXECUTOR_REMOTE,
	.size = sizeof(struct forge_slurm),
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
	.repair_kept = slurm_repair_kept,
	.usage = slurm_usage,
	.health = slurm_health,
};
