/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tasks of a pipeline: one for each step, or one for each value of its foreach, and the tasks that each one
 * waits for. Everything that can be wrong before anything runs is found here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/strv.h"
#include "pipeline/pipeline.h"

/* Where files of an input come from. */
struct forge_source {
	unsigned input; /* index in step->inputs */
	int task;	/* takes its outputs; -1: a file of the host */
	char *pattern;	/* outputs of that task; or the absolute path of the file */
	const char
		*below; /* directory for them below inputs/NAME; NULL: none. Borrowed */
};

struct forge_task {
	const struct forge_step *step;
	char *name;  /* "align", or "align[a]" */
	char *label; /* of this task among those of its step: "a"; NULL: it has one */
	const char **values; /* of step->loops; borrowed from the graph */
	struct forge_source *sources;
	size_t n_sources;
	unsigned *deps; /* tasks that this one reads from, each once, ascending */
	size_t n_deps;
	unsigned *readers; /* the other way round */
	size_t n_readers;
	unsigned length;	   /* of the longest chain of tasks that begins here */
	struct forge_strv outputs; /* patterns */
	bool is_skipped;
	char *why_skipped;
};

struct forge_graph {
	const struct forge_pipeline *p; /* borrowed */
	struct forge_task *tasks;	/* a task comes after those that it waits for */
	size_t n;
	unsigned *first, *count;   /* of each step: its tasks are neighbours */
	struct forge_strv *values; /* of each loop of each step */
	size_t n_values;
};

/* Whether `$NAME` of an input is a directory: a pattern, a list, or outputs of several tasks. */
bool forge_input_is_dir(const struct forge_graph *g, const struct forge_task *t,
			unsigned input);
/* The file name of a path that the user wrote, for below inputs/NAME. */
const char *forge_source_name(const struct forge_source *s);

FORGE_MUST_CHECK int forge_graph_make(const struct forge_pipeline *p,
				      struct forge_graph *ret, struct forge_error *err);
void forge_graph_done(struct forge_graph *g);
#define forge_auto_graph FORGE_CLEANUP(forge_graph_done) /* initialise to {0} */

/* Whether the files of the host that a task reads are there: -ENOENT, with the place in the pipeline. */
FORGE_MUST_CHECK int forge_graph_check_files(const struct forge_graph *g,
					     const struct forge_task *t,
					     struct forge_error *err);
/* The value of a parameter or of a name of foreach, as this task has it; NULL: there is none. */
const char *forge_task_value(const struct forge_graph *g, const struct forge_task *t,
			     const char *name, size_t len);
/* Replaces variables in a text of this task. */
FORGE_MUST_CHECK int forge_task_expand(const struct forge_graph *g,
				       const struct forge_task *t, const char *text,
				       char **ret, struct forge_error *err);
/*
 * The task that a word names: "align[a]", or "align" if it has one only. -1, with err: there is none.
 * *ret_n: how many tasks the word names, from the returned one on.
 */
FORGE_MUST_CHECK int forge_graph_find(const struct forge_graph *g, const char *word,
				      size_t *ret_n, struct forge_error *err);
/* An analysis id for runs of this task: "lambda.align.a". Returns buf. */
#define FORGE_TASK_ID_MAX 65
const char *forge_task_id(const struct forge_graph *g, const struct forge_task *t,
			  char buf[FORGE_TASK_ID_MAX]);
