/* SPDX-License-Identifier: Apache-2.0 */
/* "Did you mean": the nearest of a few known words. */
#pragma once

#include <stddef.h>

/* The word of words[0..n) nearest to s, or NULL when none is near enough to suggest. */
const char *forge_near_miss(const char *s, const char *const *words, size_t n);
