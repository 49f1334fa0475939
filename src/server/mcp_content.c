/* SPDX-License-Identifier: Apache-2.0 */
/* Text, images and other bytes as content. */
#include "server/mcp_content.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* The length of the character that begins here; 0: none does, -1: it goes on after the end. */
static int char_length(const unsigned char *p, size_t left)
{
	int n = p[0] < 0x80		       ? 1
		: p[0] >= 0xc2 && p[0] <= 0xdf ? 2
		: p[0] >= 0xe0 && p[0] <= 0xef ? 3
		: p[0] >= 0xf0 && p[0] <= 0xf4 ? 4
					       : 0;

	for (int i = 1; i < n; i++) {
		/* The second byte excludes long forms, surrogates and what is above U+10FFFF. */
		unsigned char low = i > 1	   ? 0x80
				    : p[0] == 0xe0 ? 0xa0
				    : p[0] == 0xf0 ? 0x90
						   : 0x80;
		unsigned char high = i > 1	    ? 0xbf
				     : p[0] == 0xed ? 0x9f
				     : p[0] == 0xf4 ? 0x8f
						    : 0xbf;
		if ((size_t)i >= left)
			return -1;
		if (p[i] < low || p[i] > high)
			return 0;
	}
	return n;
}

json_t *forge_mcp_text(const char *data, size_t len)
{
	json_t *whole = json_stringn(data ? data : "", len);
	size_t n = 0;

	if (whole)
		return whole;
	/* One byte becomes three at most. */
	forge_auto_free char *clean = malloc(3 * len + 1);
	if (!clean)
		return NULL;
	for (size_t i = 0; i < len;) {
		int step = char_length((const unsigned char *)data + i, len - i);
		if (step > 0) {
			memcpy(clean + n, data + i, (size_t)step);
			n += (size_t)step;
			i += (size_t)step;
			continue;
		}
		memcpy(clean + n, "\xef\xbf\xbd", 3);
		n += 3;
		i++;
	}
	return json_stringn(clean, n);
}

size_t forge_mcp_cut_char(const char *data, size_t len)
{
	for (size_t back = 1; back <= 3 && back <= len; back++)
		if (char_length((const unsigned char *)data + len - back, back) < 0)
			return back;
	return 0;
}

json_t *forge_mcp_base64(const unsigned char *data, size_t len)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t size = (len + 2) / 3 * 4, n = 0;
	forge_auto_free char *text = malloc(size + 1);

	if (!text)
		return NULL;
	for (size_t i = 0; i < len; i += 3) {
		size_t have = len - i < 3 ? len - i : 3;
		unsigned v = (unsigned)data[i] << 16 |
			     (have > 1 ? (unsigned)data[i + 1] << 8 : 0) |
			     (have > 2 ? data[i + 2] : 0u);
		text[n++] = digits[v >> 18];
		text[n++] = digits[v >> 12 & 63];
		text[n++] = have > 1 ? digits[v >> 6 & 63] : '=';
		text[n++] = have > 2 ? digits[v & 63] : '=';
	}
	return json_stringn_nocheck(text, n);
}

const char *forge_mcp_image_type(const unsigned char *data, size_t len)
{
	static const struct {
		const char *magic;
		size_t len;
		const char *type;
	} table[] = { { "\x89PNG\r\n\x1a\n", 8, "image/png" },
		      { "\xff\xd8\xff", 3, "image/jpeg" },
		      { "GIF87a", 6, "image/gif" },
		      { "GIF89a", 6, "image/gif" } };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(table); i++)
		if (len >= table[i].len &&
		    memcmp(data, table[i].magic, table[i].len) == 0)
			return table[i].type;
	if (len >= 12 && memcmp(data, "RIFF", 4) == 0 && memcmp(data + 8, "WEBP", 4) == 0)
		return "image/webp";
	return NULL;
}

json_t *forge_mcp_text_content(json_t *text)
{
	return json_pack("{s:s, s:o}", "type", "text", "text", text);
}
