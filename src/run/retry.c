/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a run that is about the next attempt; and attempts that repair starts. */
#include "run/retry.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "config/budget.h"
#include "record/deliver.h"
#include "record/retry.h"
#include "record/retry_due.h"
#include "run/run.h"
#include "run/run_state.h"
#include "spec/again.h"
#include "state/slot.h"

/* ---- in the supervisor of a run ---- */

int forge_run_arm_retry(struct run *r, struct forge_error *err)
{
	/* The standard input of the first attempt was read, and is gone: the verdict says so. */
	if (forge_retry_is_empty(&r->spec->retry.policy) || r->req->pass_stdin)
		return 0;
	return forge_retry_file_make(r->home, r->spec->run_id,
				     forge_again_json(r->spec, r->req, r->cfg, r->store),
				     &r->retry, err);
}

void forge_run_disarm_previous(struct run *r)
{
	if (r->req->again && r->req->again->file)
		forge_retry_file_remove(r->req->again->file);
}

/* The user wants it to end: by a signal that was handled or waits, or by forge kill. */
static bool is_interrupted(const struct run *r, const struct forge_outcome *o)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
	sigset_t pending;

	if (o->is_interrupted || !forge_retry_file_is_there(&r->retry))
		return true;
	for (size_t i = 0; sigpending(&pending) == 0 && i < FORGE_ARRAY_SIZE(ends); i++)
		if (sigismember(&pending, ends[i]))
			return true;
	return false;
}

/* The most that one run may have on this host. */
static struct forge_limits most_allowed(const struct run *r)
{
	struct forge_limits most = r->cfg->caps;
	struct forge_budget b;

	forge_budget_of(r->cfg, &b);
	/* On a cluster, the cluster decides. */
	if (!(r->executor->caps & FORGE_EXECUTOR_REMOTE) &&
	    (!most.memory_bytes || b.memory_bytes < most.memory_bytes))
		most.memory_bytes = b.memory_bytes;
	if (!most.pids || most.pids > 4194304)
		most.pids = 4194304; /* the kernel's own */
	return most;
}

static const char *withheld(const struct run *r)
{
	return r->retry.fd >= 0 ? forge_again_withheld(r->retry.content) : NULL;
}

/* Why the attempt that was chosen cannot be; NULL: it can. */
static const char *find_obstacle(struct run *r, const struct forge_outcome *o,
				 const struct forge_retry_choice *choice,
				 struct forge_error *why)
{
	struct forge_need need = forge_admit_need(r->cfg, r->spec, r->slot.number);

	if (r->req->pass_stdin)
		return "its standard input cannot be given again";
	if (is_interrupted(r, o))
		return "it was cancelled";
	if (choice->limits.memory_bytes > need.memory_bytes)
		need.memory_bytes = choice->limits.memory_bytes;
	/* This process has not made the request: it knows only what the retry file has. */
	const char *secret = r->ready->remake_environment ? NULL : withheld(r);
	if (secret) {
		(void)forge_fail(why, ENODATA, "the value of %.64s is kept nowhere",
				 secret);
		return why->msg;
	}
	if (r->executor->caps & FORGE_EXECUTOR_REMOTE)
		return NULL;
	return forge_admit_check(r->cfg, &need, why) < 0 ? why->msg : NULL;
}

static void take_decision(struct run *r, const struct forge_retry_choice *choice,
			  struct forge_verdict *v)
{
	char next[FORGE_RUN_ID_MAX], with[FORGE_RETRY_WITH_MAX];

	if (forge_make_run_id(next) < 0)
		return;
	r->is_retried = true;
	forge_retry_note(r->record.json, next, choice);
	(void)forge_retry_describe(with, choice->raised, &choice->limits);
	forge_judge_add(v, "Retried as run %s%s%s.", next, choice->raised ? " with " : "",
			with);
	forge_record_event(&r->record, "retried", next);
}

void forge_run_choose_retry(struct run *r, const struct forge_outcome *o,
			    struct forge_verdict *v)
{
	struct forge_retry_chain chain = r->spec->retry;
	struct forge_limits limits = r->spec->limits, most = most_allowed(r);
	struct forge_error why = FORGE_ERROR_INIT;
	struct forge_retry_choice choice;

	/* A run that another supervisor began has its chain in the file only. */
	if (r->retry.fd >= 0)
		forge_again_restore_chain(r->retry.content, &chain, &limits);
	if (forge_retry_is_empty(&chain.policy))
		return;
	const struct forge_retry_case c = {
		.status = v->status,
		.reason = v->reason,
		.chain = &chain,
		.limits = &limits,
		.most = &most,
		.is_inodes = strcmp(v->reason, "disk") == 0 &&
			     limits.inodes != FORGE_UNLIMITED &&
			     o->inodes_peak != UINT64_MAX &&
			     o->inodes_peak >= limits.inodes,
		.is_host_full = o->oom_elsewhere,
		.is_hopeless = o->is_too_deep || o->kernel_memory_bytes,
	};
	forge_retry_choose(&c, &choice);
	const char *obstacle =
		choice.is_retried ? find_obstacle(r, o, &choice, &why) : NULL;
	if (choice.is_retried && !obstacle)
		take_decision(r, &choice, v);
	else if (obstacle || *choice.why_not)
		forge_judge_add(v, "Not retried: %s.",
				obstacle ? obstacle : choice.why_not);
}

void forge_run_end_retry(struct run *r)
{
	bool has_verdict = forge_record_is_over(r->record.json) && !r->needs_repair;

	if (r->is_retried && r->ready->ret_retry) {
		*r->ready->ret_retry = r->retry;
		r->retry = FORGE_RETRY_FILE_INIT;
	} else if (!r->is_retried && (has_verdict || r->record.dir_fd < 0)) {
		forge_retry_file_remove(&r->retry);
	}
	forge_retry_file_release(&r->retry);
}

/* ---- started by repair ---- */

/* As the run before was started: in the same directory, with the same variables and files. */
static int load_config(const struct forge_again_request *r, struct forge_config **ret,
		       struct forge_error *err)
{
	if (r->cwd && chdir(r->cwd) < 0)
		return forge_fail_errno(err, errno, "the directory %s", r->cwd);
	return forge_config_load(r->config, ret, err);
}

static int go_on(struct forge_retry_file *file, const json_t *record,
		 struct forge_error *err)
{
	forge_auto_config struct forge_config *cfg = NULL;
	struct forge_again_request again;
	struct forge_run_result result = { 0 };
	/* The file is passed on, and its content with it. */
	json_t *content = json_incref(file->content);
	const char *secret = forge_again_withheld(content);
	int rc = forge_again_restore(content, &again, err);

	if (rc == 0 && secret)
		rc = forge_fail(err, ENODATA,
				"its supervisor died, and the value of %.64s was not "
				"kept",
				secret);
	if (rc == 0 && forge_again_restore_environment(content) < 0)
		rc = forge_fail(err, ENOMEM, "out of memory");
	if (rc == 0)
		rc = load_config(&again, &cfg, err);
	if (rc == 0) {
		/* As submitted: on a cluster the attempt needs no supervisor. */
		again.req.wait_durable = true;
		rc = forge_run_again(cfg, &again.req, file, record, &result, err);
		rc = rc == -ECANCELED ? 0 : rc;
	}
	json_decref(result.record);
	forge_again_done(&again);
	json_decref(content);
	return rc;
}

/* Between the look at the file and its lock another process may have started the attempt. */
static int check_due(const struct forge_home *home, struct forge_retry_file *file,
		     const json_t *record, struct forge_error *err)
{
	struct forge_again again;
	int rc = forge_retry_again(record, file, &again, err);

	if (rc < 0)
		return rc;
	return forge_slot_exists(home, again.run_id) ||
			       forge_retry_has_begun(home, again.run_id)
		       ? forge_fail(err, ENOENT, "attempt %s was started already",
				    again.run_id)
		       : 0;
}

int forge_retry_start(const char *run_id, void (*on_taken)(void *arg), void *arg,
		      struct forge_error *err)
{
	forge_auto_home struct forge_home home = FORGE_HOME_INIT;
	struct forge_retry_file file = FORGE_RETRY_FILE_INIT;
	json_t *record = NULL;
	int rc = forge_home_open(false, &home, err);

	if (rc == 0)
		rc = forge_retry_file_claim(&home, run_id, 0, &file);
	if (rc < 0)
		return rc;
	rc = forge_load_record(&home, run_id, &record, err);
	if (rc == -ENOENT)
		rc = 0; /* the file may say that it is due */
	on_taken(arg);
	if (rc == 0)
		rc = check_due(&home, &file, record, err);
	if (rc == 0) {
		rc = go_on(&file, record, err);
		/* It was not even passed on: what it needs is not there. */
		if (rc < 0 && file.fd >= 0 && !forge_retry_may_pass(rc))
			(void)!forge_retry_give_up(&home, &file, err->msg,
						   NULL); /* repair tries again */
	}
	forge_retry_file_release(&file);
	json_decref(record);
	return rc;
}
