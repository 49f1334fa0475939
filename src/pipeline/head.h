/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a pipeline: evaluates which tasks are up to date, runs the others, and follows them. It holds no state
 * that is not also elsewhere: results are in the store, running tasks have supervisors of their own. A head that is
 * killed loses nothing; the next one finds the results, and waits for the supervisors that still work.
 */
#pragma once

#include "pipeline/head_state.h"

/*
 * Reads scripts, checks runtimes, executors and profiles, selects tasks. With is_dry nothing can be run, and no launcher
 * is started. home must stay open.
 */
FORGE_MUST_CHECK int forge_head_open(struct forge_head *h, const struct forge_graph *g,
				     const struct forge_config *cfg,
				     const struct forge_home *home, const char *store_url,
				     const struct forge_head_options *o, bool is_dry,
				     struct forge_error *err);
/*
 * Only whether what the steps name is there: scripts, runtimes, executors, profiles. h can do nothing else, and is closed
 * by the caller.
 */
FORGE_MUST_CHECK int forge_head_lint(struct forge_head *h, const struct forge_graph *g,
				     const struct forge_config *cfg,
				     struct forge_error *err);
/* Evaluates every task that can be evaluated without running one. */
FORGE_MUST_CHECK int forge_head_evaluate(struct forge_head *h, struct forge_error *err);
/*
 * Runs all of them. Returns 0 when everything that was selected is up to date, 1 when something failed or was
 * cancelled. Negative: the head itself could not go on; running tasks do.
 */
FORGE_MUST_CHECK int forge_head_run(struct forge_head *h, struct forge_error *err);
void forge_head_close(struct forge_head *h);
#define FORGE_HEAD_INIT ((struct forge_head){ .launcher = FORGE_LAUNCHER_INIT, .stop_fd = -1 })
#define forge_auto_head FORGE_CLEANUP(forge_head_close)
