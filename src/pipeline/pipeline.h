/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline file: steps that are joined by files. This header is the file as it is written, checked by the
 * rules that need nothing but the file. What follows from it:
 *
 *	pipeline.h   the file                                    parse.c, schema.c, expand.c
 *	graph.h      the tasks: one for each step, or for each value of its foreach, and who waits for whom
 *	key.h        the identity of a task: everything that its result depends on
 *	results.h    finished tasks that the store knows
 *	launch.h     a task as a run, in a process of its own
 *	head.h       `forge pipeline run`: the loop over all of this
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/strv.h"
#include "config/limits.h"
#include "config/retry.h"

struct forge_yaml;

/* A text and its place in the file. */
struct forge_step_text {
	char *text;
	unsigned line, column;
};

/* inputs: {NAME: PATH}, or a list of paths; a path may be STEP/PATTERN. */
struct forge_step_input {
	char *name;
	struct forge_step_text *v;
	size_t n;
	bool is_list;
	unsigned line, column;
};

struct forge_step_output {
	char *pattern; /* below the workdir; may have $NAME */
	bool is_temp;  /* dropped when the last task that reads it is done */
	unsigned line, column;
};

/* foreach: {NAME: values}: one task for each value. */
struct forge_step_loop {
	char *name;
	struct forge_strv values; /* as written: texts, or one pattern or $PARAM */
	bool is_list;
	unsigned line, column;
};

struct forge_step {
	char *name;
	unsigned line, column;
	char *description, *runtime, *executor, *profile, *network;
	char *run;		  /* a text for a shell */
	char *shell;		  /* "bash" (also NULL) or "sh" */
	char *script;		  /* a file beside the pipeline, instead of run */
	struct forge_strv args;	  /* of the script */
	struct forge_strv params; /* names of parameters that a script needs */
	struct forge_strv env;	  /* "K=V" */
	struct forge_limits limits;
	struct forge_retry_policy retry;
	bool has_retry;
	char *when;	  /* a condition; NULL: always */
	char *checkpoint; /* a directory below the workdir; NULL: none */
	bool is_temp;	  /* all outputs are */
	struct forge_step_input *inputs;
	struct forge_step_output *outputs;
	struct forge_step_loop *loops;
	size_t n_inputs, n_outputs, n_loops;
	/* Only while the file is read. */
	const struct forge_yaml *inputs_node, *outputs_node, *foreach_node, *retry_node;
};

struct forge_param {
	char *name;
	struct forge_strv values; /* one, or those of a list */
	bool is_list;
	unsigned line, column;
};

/* entries: {NAME: STEP}: where `--entry NAME` starts. */
struct forge_entry {
	char *name;
	struct forge_strv steps;
	unsigned line, column;
};

struct forge_pipeline {
	char *name;
	char *description;
	char *runtime, *executor; /* of steps that name none; NULL: as configured */
	char *shown;		  /* the file as it was named, for errors */
	char *path, *dir;	  /* canonical; paths in the file are relative to dir */
	struct forge_param *params;
	struct forge_step *steps; /* in the order of the file */
	struct forge_entry *entries;
	size_t *by_name; /* indices of steps, sorted by their names */
	size_t n_params, n_steps, n_entries;
	const struct forge_yaml *params_node, *steps_node, *entries_node;
};

/* Settings of the caller for one reading of the file. */
struct forge_pipeline_given {
	const struct forge_strv *params; /* "NAME=VALUE"; may be NULL */
	const char *params_file;	 /* YAML or JSON, a map; NULL: none */
};

/* path: a file, or a directory with a pipeline.yaml; NULL: ./pipeline.yaml. */
FORGE_MUST_CHECK int forge_pipeline_read(const char *path,
					 const struct forge_pipeline_given *given,
					 struct forge_pipeline **ret,
					 struct forge_error *err);
/* The same from memory. dir: for relative paths. */
FORGE_MUST_CHECK int forge_pipeline_parse(const char *text, size_t len, const char *name,
					  const char *dir,
					  const struct forge_pipeline_given *given,
					  struct forge_pipeline **ret,
					  struct forge_error *err);
void forge_pipeline_free(struct forge_pipeline *p);
FORGE_DEFINE_AUTO(pipeline, struct forge_pipeline *, forge_pipeline_free)
#define forge_auto_pipeline FORGE_CLEANUP(forge_auto_pipeline_)

/* -1: there is none. */
int forge_pipeline_find_step(const struct forge_pipeline *p, const char *name,
			     size_t len);
const struct forge_param *forge_pipeline_find_param(const struct forge_pipeline *p,
						    const char *name, size_t len);
/* Fails with "unknown step 'x' (have: ...)". */
int forge_pipeline_unknown_step(const struct forge_pipeline *p, const char *name,
				struct forge_error *err);

/* The JSON Schema of such files, for editors. NULL: out of memory. */
json_t *forge_pipeline_schema(void);

/* ---- schema.c, for parse.c ---- */

extern const struct forge_named_map forge_pipeline_rows, forge_step_rows;

/* ---- expand.c ---- */

/* The value of a variable; NULL: there is none of this name. */
typedef const char *forge_variable_finder(const char *name, size_t len, void *arg);
/*
 * Replaces $NAME and ${NAME}; "$$" is a dollar sign. -ENOENT, with the name in err: there is no such variable.
 */
FORGE_MUST_CHECK int forge_expand(const char *text, forge_variable_finder *find,
				  void *arg, char **ret, struct forge_error *err);
/* Calls visit for each name that a text of a shell refers to: $NAME, ${NAME...}. */
void forge_expand_names(const char *text,
			void (*visit)(const char *name, size_t len, void *arg),
			void *arg);
/*
 * Whether a condition holds, after its variables were replaced word by word: "a == b", "a != b", "1 < 2" (also
 * <=, >, >=), or one word, which is false when it is empty, "0", "false" or "no". 1, 0 or -EINVAL.
 */
FORGE_MUST_CHECK int forge_condition(const char *text, forge_variable_finder *find,
				     void *arg, struct forge_error *err);
/* Refuses a name that is no variable's, or one that a runtime or the shell needs. */
FORGE_MUST_CHECK int forge_variable_check(const char *name, struct forge_error *err);
