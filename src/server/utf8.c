/* SPDX-License-Identifier: Apache-2.0 */
/* Makes UTF-8 of any bytes. */
#include "server/utf8.h"

#include <string.h>

/* The length of the character that begins with c, and the range of its second byte; 0: none begins with it. */
static size_t shape(unsigned char c, unsigned char *low, unsigned char *high)
{
	*low = 0x80;
	*high = 0xbf;
	if (c < 0x80)
		return 1;
	if (c >= 0xc2 && c <= 0xdf)
		return 2;
	if (c >= 0xe0 && c <= 0xef) {
		/* no longer form of a shorter character, and no half of a pair of UTF-16 */
		*low = c == 0xe0 ? 0xa0 : 0x80;
		*high = c == 0xed ? 0x9f : 0xbf;
		return 3;
	}
	if (c >= 0xf0 && c <= 0xf4) {
		*low = c == 0xf0 ? 0x90 : 0x80;
		*high = c == 0xf4 ? 0x8f : 0xbf;
		return 4;
	}
	return 0;
}

size_t forge_utf8_copy(const unsigned char *bytes, size_t len, bool is_end, char *to,
		       size_t *ret_len)
{
	size_t at = 0, n = 0;

	while (at < len) {
		unsigned char low, high;
		size_t want = shape(bytes[at], &low, &high), have = 1;
		while (have < want && at + have < len && bytes[at + have] >= low &&
		       bytes[at + have] <= high) {
			low = 0x80;
			high = 0xbf;
			have++;
		}
		if (want && have == want) {
			memcpy(to + n, bytes + at, want);
			n += want;
			at += want;
			continue;
		}
		if (want && at + have == len && !is_end)
			break; /* the rest of it may follow */
		memcpy(to + n, "\xef\xbf\xbd", 3);
		n += 3;
		at++;
	}
	*ret_len = n;
	return at;
}
