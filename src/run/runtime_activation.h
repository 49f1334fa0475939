/* SPDX-License-Identifier: Apache-2.0 */
/* The activated environment of a run. Scripts of a runtime are sourced in a sandbox, once for each content. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "config/config.h"
#include "run/result.h"
#include "spec/spec.h"
#include "state/home.h"

/*
 * The activated environment: env is changed. Scripts of the environment are sourced once, in a
 * sandbox; what they change is remembered by their content. workdir: of the run to come. Lines for the
 * user are added to warnings.
 */
FORGE_MUST_CHECK int forge_runtime_enter(const struct forge_config *cfg,
					 const struct forge_home *home, const char *store,
					 const struct forge_runtime *rt,
					 const char *workdir, struct forge_strv *env,
					 struct forge_strv *warnings,
					 struct forge_error *err);
/* s->env, complete: with the runtime activated, and what the configuration and the request set. */
FORGE_MUST_CHECK int forge_activate(const struct forge_config *cfg,
				    const struct forge_run_request *req,
				    const struct forge_home *home, const char *store,
				    struct forge_spec *s, struct forge_error *err);

/* A quiet run in a runtime, to find out about it. */
struct forge_run_request forge_probe_request(const struct forge_runtime *rt,
					     const char *store, char **argv,
					     uint64_t wall_usec);
/*
 * Carries out such a run, whose runtime need not be known to be healthy. Returns as forge_run() does.
 */
FORGE_MUST_CHECK int forge_probe_run(const struct forge_config *cfg,
				     const struct forge_run_request *req,
				     const struct forge_home *home, const char *store,
				     struct forge_run_result *ret,
				     struct forge_error *err);
/* False: the run was cancelled or rejected, and so says nothing about the runtime. */
bool forge_probe_is_about_runtime(const json_t *record);
