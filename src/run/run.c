/* SPDX-License-Identifier: Apache-2.0 */
/* The one door: resolve, prepare, run, judge, record, clean. */
#include "run/run.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/rmtree.h"
#include "executor/executor.h"
#include "run/active.h"
#include "run/home.h"
#include "run/judge.h"
#include "run/record.h"
#include "run/spec.h"
#include "run/workdir.h"
#include "sandbox/ids.h"

/* Everything a run holds between the door and the record. */
struct run {
	const struct forge_config *cfg;
	const struct forge_run_request *req;
	struct forge_spec spec;
	struct forge_home home;
	struct forge_ids ids;
	struct forge_active active;
	struct forge_workdir workdir;
	struct forge_record record;
	bool has_started;  /* the command ran: there is something to keep */
	bool needs_repair; /* something could not be removed: the next repair tries again */
};

static void run_done(struct run *r)
{
	forge_record_close(&r->record);
	forge_workdir_close(&r->workdir);
	if (r->needs_repair)
		forge_active_leave(&r->active);
	else
		forge_active_close(&r->active);
	forge_ids_done(&r->ids);
	forge_home_close(&r->home);
	forge_spec_done(&r->spec);
}

static void run_init(struct run *r, const struct forge_config *cfg,
		     const struct forge_run_request *req)
{
	*r = (struct run){ .cfg = cfg, .req = req };
	r->home = FORGE_HOME_INIT;
	r->ids.lock_fd = -1;
	r->active = FORGE_ACTIVE_INIT;
	r->workdir.fd = -1;
	r->record = FORGE_RECORD_INIT;
}

static void on_event(void *arg, const char *event, const char *detail)
{
	struct run *r = arg;

	if (strcmp(event, "cgroup_left") == 0)
		r->needs_repair = true;
	if (strcmp(event, "started") == 0)
		r->has_started = true;
	if (r->record.json)
		forge_record_event(&r->record, event, detail);
}

static int open_record(void *arg, struct forge_error *err)
{
	struct run *r = arg;
	int rc = forge_record_open(&r->home, &r->spec, &r->record, err);

	return rc < 0 ? rc : forge_active_note_record(&r->active, r->record.json, err);
}

static void fill_job(struct run *r, struct forge_job *job)
{
	*job = (struct forge_job){
		.run_id = r->spec.run_id,
		.argv = r->spec.argv.v,
		.env = &r->spec.env,
		.read_only = &r->spec.read_only,
		.aliases = &r->spec.aliases,
		.workdir = r->spec.workdir,
		.workdir_fd = r->workdir.fd,
		.host_uid = r->ids.uid,
		.host_gid = r->ids.gid,
		.privileged = r->ids.privileged,
		.own_network = r->spec.own_network,
		.pass_stdin = r->req->pass_stdin,
		.limits = &r->spec.limits,
		.config = r->cfg,
		.log_fd = r->record.log_fd,
		.live_fd = { r->req->stdout_fd, r->req->stderr_fd },
		.on_building = open_record,
		.on_event = on_event,
		.arg = r,
	};
}

/* A slot, and the uid that goes with it. */
static int claim(struct run *r, struct forge_error *err)
{
	struct forge_error e = FORGE_ERROR_INIT;
	int rc;

	for (unsigned first = 0;; first = r->active.slot + 1) {
		rc = forge_active_claim(&r->home, first, r->cfg->uid_count, &r->active,
					&e);
		if (rc == 0)
			rc = forge_ids_choose(r->cfg->uid_base, r->active.slot, &r->ids,
					      &e);
		if (rc != -EAGAIN || r->active.fd < 0)
			break;
		forge_active_leave(
			&r->active); /* empty; its uid is taken by another home */
	}
	if (rc < 0 && err)
		*err = e;
	return rc;
}

/* Order matters for repair: the intention is on disk before anything it names exists. */
static int prepare(struct run *r, struct forge_error *err)
{
	int rc = forge_home_open(true, &r->home, err);

	if (rc == 0)
		rc = claim(r, err);
	if (rc == 0)
		rc = forge_active_intend(&r->active, r->spec.run_id, r->spec.workdir,
					 r->req->keep, err);
	if (rc == 0)
		rc = forge_workdir_make(r->spec.workdir, &r->workdir, err);
	if (rc == 0)
		rc = forge_active_note_workdir(&r->active, &r->workdir, err);
	if (rc == 0)
		rc = forge_workdir_fill(&r->workdir, &r->spec.links, r->ids.uid,
					r->ids.gid, err);
	return rc;
}

/* Keeps or removes the workdir, and says what was done. A failure is left for repair. */
static int clean(struct run *r, struct forge_error *err)
{
	struct forge_workdir *w = &r->workdir;
	struct forge_rmtree_stats stats = { 0 };
	char detail[160];

	if (w->fd < 0)
		return 0;
	if (r->req->keep && r->has_started) {
		int rc = r->ids.privileged ? forge_chown_tree(w->path, getuid(), getgid(),
							      w->dev, w->ino, err)
					   : 0;
		if (rc == 0 && r->record.json) {
			forge_record_event(&r->record, "workdir_kept", w->path);
			json_object_set_new(r->record.json, "workdir_kept", json_true());
		}
		return rc;
	}
	int rc = forge_rmtree(w->path, w->dev, w->ino, &stats, err);
	if (rc == 0 && r->record.json) {
		(void)snprintf(detail, sizeof(detail),
			       "%" PRIu64 " files, %" PRIu64 " directories, %" PRIu64
			       " bytes",
			       stats.files, stats.dirs, stats.bytes);
		forge_record_event(&r->record, "workdir_removed", detail);
	}
	return rc;
}

/* After this the active file has done its work; without it, it stays for the next repair. */
static int finish(struct run *r, const struct forge_outcome *o,
		  const struct forge_verdict *v, struct forge_error *err)
{
	forge_record_set_outcome(&r->record, o, v);
	forge_record_event(&r->record, v->status, v->reason);
	struct forge_error late = FORGE_ERROR_INIT;
	if (clean(r, &late) < 0) {
		r->needs_repair = true;
		forge_record_event(&r->record, "cleanup_failed", late.msg);
		json_object_set_new(r->record.json, "cleanup_error",
				    json_string(late.msg));
	}
	return forge_record_write(&r->record, err);
}

/*
 * Signals arrive at the supervisor's descriptor; a broken pipe or a log at the caller's file
 * size limit is an error code. Stopped by the terminal, nobody would watch the limits. What
 * the caller ignores (nohup) stays ignored.
 */
static void catch_signals(sigset_t *ret_before)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
	static const int ignored[] = { SIGPIPE, SIGXFSZ, SIGTSTP, SIGTTIN, SIGTTOU };
	struct sigaction ign = { .sa_handler = SIG_IGN }, now;
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(ends); i++)
		if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
			sigaddset(&set, ends[i]);
	(void)sigprocmask(SIG_BLOCK, &set, ret_before);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(ignored); i++)
		(void)sigaction(ignored[i], &ign, NULL);
}

static int execute(struct run *r, struct forge_run_result *ret, struct forge_error *err)
{
	struct forge_outcome outcome = { 0 };
	struct forge_verdict verdict;
	struct forge_error refused = FORGE_ERROR_INIT;
	struct forge_job job;

	fill_job(r, &job);
	bool is_refused = forge_executor_local.run(&job, &outcome, &refused) < 0;
	/* A refusal before there was a record is worth one too. */
	int rc = r->record.json ? 0 : open_record(r, err);
	if (rc < 0) {
		r->needs_repair =
			clean(r, NULL) < 0; /* the first error is the one to tell */
		return rc;
	}
	if (is_refused)
		forge_judge_refused(&refused, &verdict);
	else
		forge_judge(&outcome, &r->spec.limits, &verdict);
	rc = finish(r, &outcome, &verdict, err);
	ret->record = json_incref(r->record.json);
	ret->exit_status = verdict.exit_status;
	return rc;
}

int forge_run(const struct forge_config *cfg, const struct forge_run_request *req,
	      struct forge_run_result *ret, struct forge_error *err)
{
	struct run r;
	sigset_t before;

	run_init(&r, cfg, req);
	catch_signals(&before);
	int rc = forge_spec_resolve(cfg, req, &r.spec, err);
	if (rc == 0)
		rc = prepare(&r, err);
	if (rc == 0)
		rc = execute(&r, ret, err);
	else
		r.needs_repair = clean(&r, NULL) < 0; /* the first error is told */
	run_done(&r);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	return rc;
}

int forge_run_explain(const struct forge_config *cfg, const struct forge_run_request *req,
		      json_t **ret, struct forge_error *err)
{
	struct run r;
	struct forge_job job;

	run_init(&r, cfg, req);
	int rc = forge_spec_resolve(cfg, req, &r.spec, err);
	if (rc == 0)
		rc = forge_ids_choose(cfg->uid_base, 0, &r.ids, err);
	if (rc == -EAGAIN)
		rc = 0; /* the first is in use; it is only shown */
	fill_job(&r, &job);
	if (rc == 0)
		rc = forge_executor_local.explain(&job, ret, err);
	run_done(&r);
	return rc;
}
