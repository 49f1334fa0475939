/* SPDX-License-Identifier: Apache-2.0 */
/* Damerau-Levenshtein distance (adjacent letters may swap), for short words only. */
#include "base/near.h"

#include <stdint.h>
#include <string.h>

/* Longer words are no typing mistakes, and the cost is the product of the lengths. */
#define WORD_MAX 64

/* ASCII only: tolower() depends on the locale. */
static char fold(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
	size_t rows[3][WORD_MAX + 1];
	size_t *before = rows[0], *above = rows[1], *row = rows[2];

	for (size_t j = 0; j <= n_b; j++)
		above[j] = j;
	for (size_t i = 1; i <= n_a; i++) {
		row[0] = i;
		for (size_t j = 1; j <= n_b; j++) {
			char x = fold(a[i - 1]), y = fold(b[j - 1]);
			size_t d = least(above[j], row[j - 1]) + 1;
			d = least(d, above[j - 1] + (x != y));
			if (i > 1 && j > 1 && x == fold(b[j - 2]) && y == fold(a[i - 2]))
				d = least(d, before[j - 2] + 1);
			row[j] = d;
		}
		size_t *oldest = before;
		before = above;
		above = row;
		row = oldest;
	}
	return above[n_b];
}

const char *forge_near_miss(const char *s, const char *const *words, size_t n)
{
	size_t len = strnlen(s, WORD_MAX + 1), best = SIZE_MAX;
	const char *nearest = NULL;

	if (len == 0 || len > WORD_MAX)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		size_t word_len = strnlen(words[i], WORD_MAX + 1);
		if (word_len == 0 || word_len > WORD_MAX)
			continue;
		size_t d = distance(s, len, words[i], word_len);
		/*
		 * The words must have something in common, or "x" would suggest any other
		 * letter.
		 */
		if (d <= 1 + len / 4 && d < least(len, word_len) && d < best) {
			best = d;
			nearest = words[i];
		}
	}
	return nearest;
}
