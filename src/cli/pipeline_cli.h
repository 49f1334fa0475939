/* SPDX-License-Identifier: Apache-2.0 */
/* Running a pipeline: for `forge pipeline run` and `forge resume`. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/strv.h"
#include "config/limits.h"

/* The options of a run; all pointers are borrowed and may be NULL. */
struct forge_pipeline_run {
	const char *path;
	const struct forge_strv *params, *force, *from, *only, *given;
	const char *params_file, *entry;
	unsigned jobs;
	bool stops, is_json, is_quiet;
	const char *limits_of; /* limits are for the tasks that this word names */
	const char *copy_to; /* of the command `forge pipeline outputs`; NULL: it is run */
	const char *resume_of; /* the run that this goes on from; NULL: none */
	/*
	 * Called with each event, also of another head that was asked for the same; may be NULL. Nothing is shown
	 * then.
	 */
	void (*on_event)(void *arg, const json_t *event);
	void *arg;
	struct forge_limits limits;
	const json_t *given_json; /* set by forge_pipeline_run_file() */
};

/* The command line that asks for this, as a shell reads it. path: the file, as it is shown. NULL: out of memory. */
char *forge_pipeline_command(const struct forge_pipeline_run *r, const char *path);
/* How the pipeline was asked for, for the records of its steps: forge_pipeline_ask_again() reads it. */
json_t *forge_pipeline_given_json(const struct forge_pipeline_run *r);
/* The request of a step, from its record; what ret points to is there and in lists, which the caller frees. */
struct forge_pipeline_asked {
	struct forge_strv params, only, given;
};
FORGE_MUST_CHECK int forge_pipeline_ask_again(const json_t *step,
					      struct forge_pipeline_asked *lists,
					      struct forge_pipeline_run *ret,
					      struct forge_error *err);
void forge_pipeline_asked_done(struct forge_pipeline_asked *lists);
/* Runs it and prints the result. The exit status; negative: it could not go on. */
FORGE_MUST_CHECK int forge_pipeline_run_file(const struct forge_pipeline_run *r,
					     struct forge_error *err);

struct forge_head;

/*
 * -ENOENT if a file of the chosen tasks was temporary and is dropped; the hint is how to get it. run: the command that
 * runs the pipeline, NULL: not known.
 */
FORGE_MUST_CHECK int forge_dropped_check(const struct forge_head *h, const bool *chosen,
					 const char *run, struct forge_error *err);

/* Which tasks' outputs, by --only or those of the last tasks; to: copied below this directory, NULL: listed. */
struct forge_outputs_wanted {
	const struct forge_strv *only;
	const char *to;
	const char *run; /* the command that runs the pipeline; NULL: not known */
	bool replaces, is_json, is_quiet;
};
/* The pipeline is evaluated. */
FORGE_MUST_CHECK int forge_pipeline_outputs(struct forge_head *h,
					    const struct forge_outputs_wanted *o,
					    struct forge_error *err);
/* Removes the runs that are not the result of a task as it is now; asks on a terminal. is_dry: only lists them. */
FORGE_MUST_CHECK int forge_pipeline_clean(struct forge_head *h, bool is_dry, bool is_sure,
					  struct forge_error *err);
