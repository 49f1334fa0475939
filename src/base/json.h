/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for jansson: values that records and plans consist of. All return new references. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strv.h"

/* A string; bytes that are not UTF-8 (arguments can hold any) become "?". */
json_t *forge_json_text(const char *s);
/*
 * Encodes a file name so that no two names look alike. In a name that is not UTF-8, bytes from
 * 0x80 on become "\xe9". In such a name, and in one that contains such a text, a backslash
 * becomes two.
 */
json_t *forge_json_name(const char *s);
/* Decodes: the name from which forge_json_name() made s. NULL: it cannot have made s. */
char *forge_json_name_decode(const char *s);
/* A list of such names. */
json_t *forge_json_names(const struct forge_strv *names);
/* Adds the names of the list under this key, if there is one. -EINVAL: it is no such list. */
FORGE_MUST_CHECK int forge_json_names_decode(const json_t *object, const char *key,
					     struct forge_strv *ret);
/* The string under this key; NULL: there is none, or it is not a string. Borrowed. */
const char *forge_json_string(const json_t *object, const char *key);
/* The same, or fallback instead of NULL. */
const char *forge_json_string_or(const json_t *object, const char *key,
				 const char *fallback);
json_t *forge_json_texts(const struct forge_strv *sv);
/* UINT64_MAX, which means "unknown" or "unlimited", becomes null. */
json_t *forge_json_number(uint64_t n);
/* The same in seconds. */
json_t *forge_json_seconds(uint64_t usec);
/*
 * Prints one line, with as few digits as give the same numbers: 49.86, not 49.859999999999999.
 * NULL: out of memory.
 */
char *forge_json_line(const json_t *j);
