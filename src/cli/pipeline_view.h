/* SPDX-License-Identifier: Apache-2.0 */
/* What `forge pipeline run` shows: one live line a step on a terminal, and a table at the end. */
#pragma once

#include "pipeline/head.h"

struct forge_pipeline_view {
	const struct forge_head *h; /* NULL: none yet */
	bool is_json, is_quiet, is_live;
	unsigned drawn; /* lines that are on the terminal */
	json_t *slots;	/* of the runs, while they are drawn */
};

/* One event: printed as JSON, as a line, or not at all. */
void forge_view_event(struct forge_pipeline_view *v, const json_t *event);
/* Draws the lines of the steps again. */
void forge_view_draw(struct forge_pipeline_view *v);
/* Removes them. */
void forge_view_clear(struct forge_pipeline_view *v);
/* The table of all tasks, and what is left to do. resume: the command that goes on. */
FORGE_MUST_CHECK int forge_view_end(struct forge_pipeline_view *v, const char *resume,
				    struct forge_error *err);
/* The same for tasks that were only evaluated: would they run, and why. */
FORGE_MUST_CHECK int forge_view_plan(const struct forge_head *h, int only_task, size_t n,
				     bool is_json, struct forge_error *err);
