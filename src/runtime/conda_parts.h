/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of kind conda: variables of an environment, its scripts, the prompt. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "base/strv.h"

/* Adds a line for the user; warnings may be NULL. Without memory the line is lost. */
void forge_conda_warn(struct forge_strv *warnings, const char *fmt, ...)
	FORGE_PRINTF(2, 3);
/*
 * Lists "dir/name" of the files in a directory whose name has this ending, sorted. An absent
 * directory has none.
 */
FORGE_MUST_CHECK int forge_conda_list_files(int top, const char *dir, const char *ending,
					    struct forge_strv *ret,
					    struct forge_error *err);
/*
 * Reads the variables that an environment declares: names with a string or null. top is the
 * open prefix; prefix is its name in messages. Variables that are left out are reported in
 * warnings.
 */
FORGE_MUST_CHECK int forge_conda_vars(int top, const char *prefix, json_t *into,
				      struct forge_strv *warnings,
				      struct forge_error *err);
/* The names of an environment that a prompt can show. */
struct forge_conda_names {
	const char *default_env, *stacked_env, *prefix, *name;
};
/*
 * Fills format in as Python's str.format() does. Fields that conda would refuse stay unchanged,
 * with a warning. NULL: out of memory.
 */
char *forge_conda_prompt(const char *format, const struct forge_conda_names *names,
			 struct forge_strv *warnings);
/* Why no environment may set a variable of this name; NULL: it may. */
const char *forge_conda_refuses(const char *name);
