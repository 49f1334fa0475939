/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The identity of a task: everything that its result depends on, as JSON ("parts"), and a digest of that (the key).
 *
 *	command   the text for the shell, or the content of the script and its arguments
 *	params    parameters that the task uses, and their values
 *	runtime   the digest of the runtime's content
 *	inputs    of each input: names and digests of its files
 *	outputs   the declared patterns
 *	env       variables of the step
 *	network   none or host
 *
 * Not in it: limits, executor, paths, times, the order and the names of steps. Two tasks with one key have one
 * result, in whichever pipeline they are.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "base/sha256.h"
#include "pipeline/graph.h"

/* A file that a task gets. */
struct forge_task_file {
	unsigned input;	  /* index in step->inputs */
	char *name;	  /* below inputs/NAME */
	const char *path; /* of the host, canonical; NULL: it is an object */
	char digest[FORGE_DIGEST_MAX];
};

/* The files of a task, in a fixed order. */
struct forge_task_files {
	struct forge_task_file *v;
	size_t n, cap;
};

/* Takes the name. -EEXIST: the input has a file of that name. */
FORGE_MUST_CHECK int forge_task_files_add(struct forge_task_files *f, unsigned input,
					  char *name, const char *path,
					  const char *digest);
/* Sorts them. -EEXIST, with err: an input has two files of one name. */
FORGE_MUST_CHECK int forge_task_files_sort(struct forge_task_files *f,
					   const struct forge_task *t,
					   struct forge_error *err);
void forge_task_files_done(struct forge_task_files *f);

struct forge_task_facts {
	const struct forge_graph *g;
	const struct forge_task *t;
	const struct forge_task_files *files; /* sorted */
	const char *runtime;		      /* digest, NULL: no runtime */
	const char *script;		      /* digest, NULL: no script */
	const struct forge_strv *env_set;     /* of the configuration; NULL: none */
};

/* The variables of the task that come from parameters and foreach: "K=V". */
FORGE_MUST_CHECK int forge_task_variables(const struct forge_graph *g,
					  const struct forge_task *t,
					  struct forge_strv *ret,
					  struct forge_error *err);
/* *ret_parts is a new reference. */
FORGE_MUST_CHECK int forge_task_key(const struct forge_task_facts *f, json_t **ret_parts,
				    char ret_key[FORGE_DIGEST_MAX],
				    struct forge_error *err);
/*
 * One line about the first difference: "input reads: reads_1.fq changed (sha256 ab12... -> cd34...)". "" when they
 * are the same. was may come from a store.
 */
#define FORGE_CHANGE_MAX 320
const char *forge_parts_change(const json_t *was, const json_t *is,
			       char buf[FORGE_CHANGE_MAX]);
