/* SPDX-License-Identifier: Apache-2.0 */
/* The side of a job that is on the node: carries it out in a sandbox there. */
#pragma once

#include "base/error.h"
#include "executor/slurm/node_health.h"

/*
 * Carries out the job in this directory and leaves outcome.json there. The caller must have blocked SIGINT,
 * SIGTERM and SIGHUP: they cancel the run. Returns an exit status for Slurm, which nothing depends on. Negative:
 * nothing was run, and the directory does not say why.
 */
FORGE_MUST_CHECK int forge_node_run(const char *job_dir,
				    const struct forge_node_hooks *hooks,
				    struct forge_error *err);
