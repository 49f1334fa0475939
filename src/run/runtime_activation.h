/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the environment of a run; sources scripts of a runtime once, in a sandbox. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "config/config.h"
#include "run/result.h"
#include "spec/spec.h"
#include "state/home.h"

/*
 * Activates the runtime in env. Its scripts are sourced once, in a sandbox; their changes
 * are cached by the content of the scripts. workdir: of the run that follows. Adds
 * messages for the user to warnings.
 */
FORGE_MUST_CHECK int forge_runtime_enter(const struct forge_config *cfg,
					 const struct forge_home *home, const char *store,
					 const struct forge_runtime *rt,
					 const char *workdir, struct forge_strv *env,
					 struct forge_strv *warnings,
					 struct forge_error *err);
/* Completes s->env: the runtime, then settings of the configuration and the request. */
FORGE_MUST_CHECK int forge_activate(const struct forge_config *cfg,
				    const struct forge_run_request *req,
				    const struct forge_home *home, const char *store,
				    struct forge_spec *s, struct forge_error *err);

/* A request without output for a run that checks a runtime. */
struct forge_run_request forge_probe_request(const struct forge_runtime *rt,
					     const char *store, char **argv,
					     uint64_t wall_usec);
/* Carries out such a run, also without a runtime, which need not be healthy. Returns as forge_run(). */
FORGE_MUST_CHECK int forge_probe_run(const struct forge_config *cfg,
				     const struct forge_run_request *req,
				     const struct forge_home *home, const char *store,
				     struct forge_run_result *ret,
				     struct forge_error *err);
/* False: the run was cancelled or rejected, and so says nothing about the runtime. */
bool forge_probe_is_about_runtime(const json_t *record);
