/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of output files: "*" and "?" within a name, "**" across directories. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/* A pattern is relative, has no "..", no empty part and is at most 1024 bytes. */
FORGE_MUST_CHECK int forge_glob_check(const char *pattern, struct forge_error *err);
/*
 * Does the path, relative and normalised, match? Wildcards match hidden names too. A pattern
 * that names a directory matches everything below it: "out" is "out" and "out/" + "**".
 */
bool forge_glob_match(const char *pattern, const char *path);
/*
 * Of an absolute pattern, the part that has no wildcard, up to a slash: the directory in which everything is
 * that it matches, or the path itself. NULL: out of memory.
 */
char *forge_glob_fixed_part(const char *pattern);
