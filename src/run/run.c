/* SPDX-License-Identifier: Apache-2.0 */
/* Resolves the request, makes the runtime ready and carries out the run. */
#include "run/run.h"

#include <stdlib.h>
#include <string.h>

#include "executor/executor.h"
#include "record/deliver.h"
#include "run/admit.h"
#include "run/advise.h"
#include "run/carry_out.h"
#include "run/export.h"
#include "run/postprocess.h"
#include "run/runtime_activation.h"
#include "run/runtime_ready.h"
#include "run/signals.h"

/* A request and all that is resolved from it. */
struct visit {
	struct forge_ready_run ready;
	struct forge_spec spec;
	struct forge_home home;
	char *store;
};

static int remake_environment(const struct forge_ready_run *run, struct forge_error *err)
{
	return forge_activate(run->cfg, run->req, run->home, run->store, run->spec, err);
}

static void visit_init(struct visit *v, const struct forge_config *cfg,
		       const struct forge_run_request *req)
{
	*v = (struct visit){ .home = FORGE_HOME_INIT };
	v->ready = (struct forge_ready_run){ .cfg = cfg,
					     .req = req,
					     .spec = &v->spec,
					     .home = &v->home,
					     .remake_environment = remake_environment,
					     .post_process = forge_post_process_of };
}

static void visit_done(struct visit *v)
{
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

int forge_run(const struct forge_config *cfg, const struct forge_run_request *req,
	      struct forge_run_result *ret, struct forge_error *err)
{
	struct forge_signals before;
	struct visit v;

	visit_init(&v, cfg, req);
	/* Nothing is made yet, and access to an input may hang: ^C ends the process. */
	int rc = resolve(&v, err);
	if (rc == 0 && req->wait_durable)
		rc = check_submission(&v, err);
	forge_signals_catch(&before);
	if (rc == 0)
		rc = make_ready(&v, err);
	if (rc == 0)
		rc = forge_carry_out(&v.ready, ret, err);
	visit_done(&v);
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
