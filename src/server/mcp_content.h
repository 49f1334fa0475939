/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that a run wrote, as the protocol carries them. */
#pragma once

#include <jansson.h>
#include <stddef.h>

/* Any bytes as a JSON string: what is no UTF-8 becomes U+FFFD. New reference, NULL: out of memory. */
json_t *forge_mcp_text(const char *data, size_t len);
/* Base64 as a JSON string. New reference. */
json_t *forge_mcp_base64(const unsigned char *data, size_t len);
/* How many bytes at the end of data are the beginning of a character that goes on after them. */
size_t forge_mcp_cut_char(const char *data, size_t len);
/* By the first bytes: "image/png" and the like, which clients show. NULL: no such image. */
const char *forge_mcp_image_type(const unsigned char *data, size_t len);
/* {"type": "text", "text": ...}; takes the reference. */
json_t *forge_mcp_text_content(json_t *text);
