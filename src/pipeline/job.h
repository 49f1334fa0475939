/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/pipeline only: a task that runs, as the head sees it. */
#pragma once

#include <poll.h>

#include "pipeline/head_state.h"

/* Starts a task. Its why is set. 1: it is up to date by now, and its result is set; 2: to be called again. */
FORGE_MUST_CHECK int forge_job_start(struct forge_head *h, unsigned task,
				     struct forge_error *err);
/* Follows a run that is there already, whose id the task has, instead of starting one. */
FORGE_MUST_CHECK int forge_job_follow(struct forge_head *h, unsigned task,
				      const char *notes, struct forge_error *err);
/* What to wait for: two entries. */
void forge_job_poll(const struct forge_head_job *j, struct pollfd p[2]);
/* Whether nothing reports its end: it has to be looked at now and then. */
bool forge_job_is_watched(const struct forge_head_job *j);
/* Reads what it reports, and acts. The job may be gone afterwards. */
FORGE_MUST_CHECK int forge_job_look(struct forge_head *h, size_t index,
				    struct forge_error *err);
/*
 * Asks the run to end; the second time at once. One of another pipeline that was only followed goes on, and the job is
 * gone afterwards.
 */
FORGE_MUST_CHECK int forge_job_cancel(struct forge_head *h, size_t index,
				      struct forge_error *err);
void forge_job_free(struct forge_head_job *j);

/* ---- head.c: what follows ---- */

/* The run of a task ended with this record. */
FORGE_MUST_CHECK int forge_head_record(struct forge_head *h, unsigned task,
				       const json_t *record, struct forge_error *err);
/* Its supervisor was killed. */
FORGE_MUST_CHECK int forge_head_lost(struct forge_head *h, unsigned task,
				     struct forge_error *err);
/* Another pipeline computed the same: look for its result. */
FORGE_MUST_CHECK int forge_head_again(struct forge_head *h, unsigned task,
				      struct forge_error *err);
