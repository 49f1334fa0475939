/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of a moment ago. Many pages that show the same runs ask the same at once, and get one answer of the store. An answer
 * is used for FORGE_CACHE_USEC, and never after a request of this server that changed something.
 */
#pragma once

#include <stdint.h>

#include "server/answer.h"

#define FORGE_CACHE_USEC 250000

struct forge_cache;
struct forge_cache *forge_cache_new(void);
void forge_cache_free(struct forge_cache *c);
/* Whether there is one for this target; it is copied into a. generation is for forge_cache_put(). */
bool forge_cache_get(struct forge_cache *c, const char *key, struct forge_answer *a,
		     uint64_t *generation);
/* Keeps a copy, unless something was changed since generation. Only answers with a status of 200 are kept. */
void forge_cache_put(struct forge_cache *c, const char *key, const struct forge_answer *a,
		     uint64_t generation);
/* Something was changed. */
void forge_cache_clear(struct forge_cache *c);
