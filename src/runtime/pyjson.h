/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON as Python's json module reads it: integers of any length, NaN and Infinity. Conda reads
 * and writes its files so. Jansson refuses these numbers, so it gets them as text.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/error.h"

/*
 * Every string in *ret, also every key, begins with the letter 's'; a number is a string that begins
 * with 'n', followed by its text. -EINVAL: not JSON.
 */
FORGE_MUST_CHECK int forge_pyjson_load(const char *text, size_t len, json_t **ret);
/*
 * The text that Python's str() makes of a value of such a tree: "True", "4", "1.5", the text of
 * a string; "" for null. Returns 0 and *ret, which the caller owns, or -EINVAL for a list, a
 * map, or a string with a NUL in it.
 */
FORGE_MUST_CHECK int forge_pyjson_str(const json_t *value, char **ret);
