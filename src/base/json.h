/* SPDX-License-Identifier: Apache-2.0 */
/* jansson glue: values that records and plans are made of. All return new references. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/strv.h"

/* A string; bytes that are not UTF-8 (arguments can hold any) become "?". */
json_t *forge_json_text(const char *s);
/*
 * A name of a file, by which it can be told from all others: where it is not UTF-8, bytes from 0x80 on
 * become "\xe9". There, and in a name that has such a text in it, a backslash becomes two; so no
 * two names are written alike.
 */
json_t *forge_json_name(const char *s);
/* And back: the name that forge_json_name() made s of. NULL: it can have made no such text. */
char *forge_json_name_decode(const char *s);
/* The string under this key; NULL: there is none, or it is not a string. Borrowed. */
const char *forge_json_string(const json_t *object, const char *key);
/* The same, or fallback instead of NULL. */
const char *forge_json_string_or(const json_t *object, const char *key,
				 const char *fallback);
json_t *forge_json_texts(const struct forge_strv *sv);
/* UINT64_MAX, which is "unknown" or "unlimited", is null. */
json_t *forge_json_number(uint64_t n);
/* The same in seconds. */
json_t *forge_json_seconds(uint64_t usec);
/*
 * One line, with as few digits as read back as the same numbers: 49.86, not 49.859999999999999. NULL: out of
 * memory.
 */
char *forge_json_line(const json_t *j);
