/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries out a run that is ready: slot, share of the budget, execution, outputs,
 * verdict, record, clean-up. forge_run() calls this for the runs of users;
 * runtime_probe.c, runtime_activation.c and postprocess.c call it for runs of their own.
 */
#pragma once

#include "base/error.h"
#include "config/config.h"
#include "health/check.h"
#include "run/result.h"
#include "spec/spec.h"
#include "state/home.h"
#include "state/retry_file.h"
#include "state/slot.h"

/* All pointers are borrowed. */
struct forge_ready_run {
	const struct forge_config *cfg;
	const struct forge_run_request *req;
	struct forge_spec
		*spec; /* complete: its runtime is ready, its environment is made */
	const struct forge_home *home;
	const char *store; /* URL */
	/* Makes the environment again after the workdir got another name. */
	int (*remake_environment)(const struct forge_ready_run *run,
				  struct forge_error *err);
	/*
	 * Runs the post-process over the outputs of a record: *ret_result is for the
	 * record, *ret_rows are the printed objects. NULL: a run of this kind has no
	 * post-process.
	 */
	int (*post_process)(const struct forge_ready_run *run, const json_t *record,
			    json_t **ret_result, json_t **ret_rows,
			    struct forge_error *err);
	/* What checks of the host's health need. NULL: none are carried out. */
	struct forge_check_env (*check_env)(const struct forge_config *cfg,
					    const struct forge_home *home,
					    const char *store);
	/*
	 * Receives the file of a run that is to be tried again, locked: the caller starts the next attempt.
	 * NULL: repair does.
	 */
	struct forge_retry_file *ret_retry;
};

/* Returns as forge_run() does. */
FORGE_MUST_CHECK int forge_carry_out(const struct forge_ready_run *run,
				     struct forge_run_result *ret,
				     struct forge_error *err);
/*
 * Goes on with a run that has no supervisor, from its slot, which this takes. 1: the run goes on, with
 * only_looks: what is new was recorded. -ESRCH: the run is gone, for certain; repair closes it as lost. Other
 * errors leave the slot as it is.
 */
FORGE_MUST_CHECK int forge_carry_on(const struct forge_ready_run *run,
				    struct forge_slot *slot, const json_t *content,
				    bool only_looks, struct forge_error *err);
/* What its executor would do, as JSON. Makes nothing. */
FORGE_MUST_CHECK int forge_carry_out_explain(const struct forge_ready_run *run,
					     json_t **ret, struct forge_error *err);
