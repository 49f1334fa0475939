/* SPDX-License-Identifier: Apache-2.0 */
/* jansson glue: values that records and plans are made of. All return new references. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/strv.h"

/* A string; bytes that are not UTF-8 (arguments can hold any) become "?". */
json_t *forge_json_text(const char *s);
json_t *forge_json_texts(const struct forge_strv *sv);
/* UINT64_MAX, which is "unknown" or "unlimited", is null. */
json_t *forge_json_number(uint64_t n);
/* The same in seconds. */
json_t *forge_json_seconds(uint64_t usec);
