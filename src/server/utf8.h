/* SPDX-License-Identifier: Apache-2.0 */
/* Text of bytes that anybody wrote. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * Copies bytes to to as UTF-8; each byte that is part of no character becomes U+FFFD. to has room for three times len. Bytes
 * at the end that may be the beginning of a character are left unless is_end is set. Returns how many bytes were
 * taken; *ret_len is the length of the copy.
 */
size_t forge_utf8_copy(const unsigned char *bytes, size_t len, bool is_end, char *to,
		       size_t *ret_len);
