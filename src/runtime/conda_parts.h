/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of kind conda share: variables of an environment, its scripts, the prompt. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "base/strv.h"

/* A line for the user; warnings may be NULL. What does not fit into memory is not told. */
void forge_conda_warn(struct forge_strv *warnings, const char *fmt, ...)
	FORGE_PRINTF(2, 3);
/* "dir/name" of a directory's files that end so, sorted. None when it is not there. */
FORGE_MUST_CHECK int forge_conda_list_files(int top, const char *dir, const char *ending,
					    struct forge_strv *ret,
					    struct forge_error *err);
/*
 * The variables that an environment declares: names to strings, or to null. top is the prefix, open;
 * prefix is its name in messages. What is left out is told in warnings.
 */
FORGE_MUST_CHECK int forge_conda_vars(int top, const char *prefix, json_t *into,
				      struct forge_strv *warnings,
				      struct forge_error *err);
/* What a prompt can show of an environment. */
struct forge_conda_names {
	const char *default_env, *stacked_env, *prefix, *name;
};
/*
 * format filled in as Python's str.format() does; what conda would refuse stays as it is, and is told.
 * NULL: out of memory.
 */
char *forge_conda_prompt(const char *format, const struct forge_conda_names *names,
			 struct forge_strv *warnings);
/* Why no environment may set a variable of this name; NULL: it may. */
const char *forge_conda_refuses(const char *name);
