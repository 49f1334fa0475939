/* SPDX-License-Identifier: Apache-2.0 */
/* Resolves the request, makes the runtime ready and carries out the run. */
#include "run/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "executor/executor.h"
#include "record/deliver.h"
#include "record/retry.h"
#include "record/retry_due.h"
#include "run/admit.h"
#include "run/advise.h"
#include "run/carry_out.h"
#include "run/export.h"
#include "run/health_env.h"
#include "run/postprocess.h"
#include "run/runtime_activation.h"
#include "run/runtime_ready.h"
#include "run/signals.h"

/* A request and all that is resolved from it. */
struct visit {
	struct forge_ready_run ready;
	struct forge_spec spec;
	struct forge_home home;
	struct forge_retry_file retry;
	char *store;
};

static int remake_environment(const struct forge_ready_run *run, struct forge_error *err)
{
	return forge_activate(run->cfg, run->req, run->home, run->store, run->spec, err);
}

static void visit_init(struct visit *v, const struct forge_config *cfg,
		       const struct forge_run_request *req)
{
	*v = (struct visit){ .home = FORGE_HOME_INIT, .retry = FORGE_RETRY_FILE_INIT };
	v->ready = (struct forge_ready_run){ .cfg = cfg,
					     .req = req,
					     .spec = &v->spec,
					     .home = &v->home,
					     .remake_environment = remake_environment,
					     .post_process = forge_post_process_of,
					     .check_env = forge_health_env,
					     .ret_retry = &v->retry };
}

static void visit_done(struct visit *v)
{
	forge_retry_file_release(&v->retry);
	forge_home_close(&v->home);
	forge_spec_done(&v->spec);
	free(v->store);
}

/* Reports errors of --copy before the run, if they show by then: later is too late. */
static int check_copy(const struct forge_run_request *req, struct forge_error *err)
{
	int rc = req->copy_to ? forge_export_check(req->copy_to, NULL, true, err) : 0;

	forge_strv_foreach (pattern, &req->outputs)
		if (rc == 0 && req->copy_to && !strpbrk(pattern, "*?"))
			rc = forge_export_check(req->copy_to, pattern, req->copy_replaces,
						err);
	return rc < 0 ? forge_wrap(err, rc, "--copy") : 0;
}

static int resolve(struct visit *v, struct forge_error *err)
{
	const struct forge_run_request *req = v->ready.req;
	int rc = forge_spec_resolve(v->ready.cfg, req, &v->spec, err);

	if (rc == 0)
		rc = check_copy(req, err);
	return rc < 0 ? rc : forge_advise_prepare(&v->spec, req, err);
}

/* A caller of submit has exited when the run begins: an impossible run is refused now. */
static int check_submission(const struct visit *v, struct forge_error *err)
{
	struct forge_need need = forge_admit_need(v->ready.cfg, &v->spec, 0);
	int rc = forge_advise_missing(&v->spec, v->ready.req, err);

	const struct forge_executor_ops *ops =
		forge_executor_find(v->spec.executor->kind);
	/* On a cluster, the cluster decides. */
	if (rc < 0 || (ops && ops->caps & FORGE_EXECUTOR_REMOTE))
		return rc;
	return forge_admit_check(v->ready.cfg, &need, err);
}

static int choose_store(struct visit *v, struct forge_error *err)
{
	int rc = forge_store_choose(v->ready.req->store, v->ready.cfg, &v->store, err);

	v->ready.store = v->store;
	return rc;
}

static int make_ready(struct visit *v, struct forge_error *err)
{
	const struct forge_ready_run *r = &v->ready;
	int rc = forge_home_open(true, &v->home, err);

	if (rc == 0)
		rc = choose_store(v, err);
	if (rc == 0)
		rc = forge_ready_runtime(r->cfg, r->req, &v->home, v->store, &v->spec,
					 err);
	return rc < 0 ? rc : remake_environment(r, err);
}

/* The last part of one attempt. *ret_retry is locked if there is to be another one. */
static int carry_out(struct visit *v, struct forge_run_result *ret,
		     struct forge_retry_file *ret_retry, struct forge_error *err)
{
	int rc = make_ready(v, err);

	if (rc == 0)
		rc = forge_carry_out(&v->ready, ret, err);
	if (rc == 0) {
		*ret_retry = v->retry;
		v->retry = FORGE_RETRY_FILE_INIT;
	}
	return rc;
}

static void note_attempt(const struct forge_run_request *req, const json_t *record,
			 const struct forge_again *again)
{
	const struct forge_limit_row *raised = NULL;
	char with[FORGE_RETRY_WITH_MAX], text[256];

	if (!req->on_note)
		return;
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++)
		if (json_object_get(json_object_get(record, "retried_with"),
				    forge_limit_rows[i].json))
			raised = &forge_limit_rows[i];
	(void)forge_retry_describe(with, raised, &again->limits);
	(void)snprintf(text, sizeof(text),
		       "%.20s: %.20s; retrying%s%s (attempt %u of %u)",
		       forge_json_string_or(record, "status", "lost"),
		       forge_json_string_or(record, "reason", "host_lost"),
		       raised ? " with " : "", with, again->chain.attempt,
		       forge_retry_attempts_max(&again->chain.policy));
	req->on_note(req->arg, text);
}

/* What was raised counts as if it had been typed, for forge rerun and forge diff. */
static void raise_limits(const json_t *record, const struct forge_again *again,
			 struct forge_limits *limits)
{
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *row = &forge_limit_rows[i];
		if (json_object_get(json_object_get(record, "retried_with"), row->json))
			*forge_limit_slot(limits, row) =
				forge_limit_value(&again->limits, row);
	}
}

/*
 * The attempt could not be started. The record of the run before says so, unless the next command can try
 * again. Either way the result is that of the run before.
 */
static int fail_attempt(const struct forge_again *again, json_t *record, int rc,
			struct forge_error *err)
{
	forge_auto_home struct forge_home home = FORGE_HOME_INIT;

	/* When the record cannot be changed, repair tries again. */
	if (!forge_retry_may_pass(rc) && forge_home_open(false, &home, NULL) == 0 &&
	    !forge_retry_has_begun(&home, again->run_id) &&
	    forge_retry_give_up(&home, again->file, err->msg, NULL) == 0 && record)
		forge_retry_take_back(record, err->msg);
	(void)forge_wrap(err, 0, "attempt %u of run %s", again->chain.attempt,
			 again->previous);
	return -ECANCELED;
}

/* One attempt after another, until one is not retried. Takes the file. */
static int go_on(const struct forge_config *cfg, const struct forge_run_request *req,
		 struct forge_retry_file *file, const json_t *record,
		 struct forge_run_result *ret, struct forge_error *err)
{
	struct forge_run_request next = *req;
	struct forge_again again;
	json_t *last = json_incref((json_t *)record);
	int rc = 0;

	/* The key is that of the first attempt. */
	next.idempotency_key = NULL;
	while (rc == 0 && file->fd >= 0) {
		struct forge_run_result done = { 0 };
		struct forge_retry_file held = FORGE_RETRY_FILE_INIT;
		struct visit v;

		rc = forge_retry_again(last, file, &again, err);
		if (rc < 0)
			break;
		next.again = &again;
		raise_limits(last, &again, &next.limits);
		visit_init(&v, cfg, &next);
		/* forge kill came after the decision. */
		rc = forge_retry_file_is_there(file)
			     ? 0
			     : forge_fail(err, ECANCELED, "it was cancelled");
		if (rc == 0) {
			note_attempt(req, last, &again);
			rc = resolve(&v, err);
		}
		if (rc == 0)
			rc = carry_out(&v, &done, &held, err);
		visit_done(&v);
		if (rc < 0 && !done.record)
			rc = fail_attempt(&again, last, rc, err);
		forge_retry_file_release(
			file); /* removed when the attempt was recorded */
		*file = held;
		if (!done.record)
			continue;
		json_decref(ret->record);
		*ret = done;
		json_decref(last);
		last = json_incref(done.record);
	}
	forge_retry_file_release(file);
	json_decref(last);
	return rc;
}

int forge_run_again(const struct forge_config *cfg, const struct forge_run_request *req,
		    struct forge_retry_file *file, const json_t *record,
		    struct forge_run_result *ret, struct forge_error *err)
{
	struct forge_signals before;

	forge_signals_catch(&before);
	int rc = go_on(cfg, req, file, record, ret, err);
	forge_signals_release(&before);
	return rc;
}

/* The run has a verdict, and that is the result; that no attempt follows is a warning. */
static int go_on_or_warn(const struct forge_config *cfg,
			 const struct forge_run_request *req,
			 struct forge_retry_file *file, struct forge_run_result *ret,
			 struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	json_t *first = json_incref(ret->record);
	int rc = go_on(cfg, req, file, first, ret, &why);

	json_decref(first);
	if (rc == -ECANCELED && req->on_warning)
		req->on_warning(req->arg, &why);
	if (rc < 0 && rc != -ECANCELED && err)
		*err = why;
	return rc == -ECANCELED ? 0 : rc;
}

int forge_run(const struct forge_config *cfg, const struct forge_run_request *req,
	      struct forge_run_result *ret, struct forge_error *err)
{
	struct forge_retry_file retry = FORGE_RETRY_FILE_INIT;
	struct forge_signals before;
	struct visit v;

	visit_init(&v, cfg, req);
	/* Nothing is made yet, and access to an input may hang: ^C ends the process. */
	int rc = resolve(&v, err);
	if (rc == 0 && req->wait_durable)
		rc = check_submission(&v, err);
	forge_signals_catch(&before);
	if (rc == 0)
		rc = carry_out(&v, ret, &retry, err);
	visit_done(&v);
	if (rc == 0 && retry.fd >= 0)
		rc = go_on_or_warn(cfg, req, &retry, ret, err);
	forge_signals_release(&before);
	return rc;
}

int forge_run_explain(const struct forge_config *cfg, const struct forge_run_request *req,
		      json_t **ret, struct forge_error *err)
{
	struct visit v;

	visit_init(&v, cfg, req);
	int rc = resolve(&v, err);
	/* Scripts of a runtime may have to run; without a runtime nothing is made. */
	if (rc == 0 && v.spec.has_runtime)
		rc = forge_home_open(true, &v.home, err);
	if (rc == 0)
		rc = choose_store(&v, err);
	if (rc == 0)
		rc = remake_environment(&v.ready, err);
	if (rc == 0)
		rc = forge_carry_out_explain(&v.ready, ret, err);
	visit_done(&v);
	return rc;
}
