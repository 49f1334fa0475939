/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a stream of messages: in whatever pieces they come, the lines are the same, and each is a
 * message of one kind. Any bytes become text.
 */
#include "fuzz.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "server/mcp_content.h"
#include "server/mcp_message.h"

static void check_message(json_t *value)
{
	struct forge_mcp_message m;

	forge_mcp_classify(value, &m);
	assert((m.kind == FORGE_MCP_INVALID) == (m.problem != NULL));
	if (m.kind == FORGE_MCP_REQUEST)
		assert(m.id && m.method);
	if (m.kind == FORGE_MCP_NOTIFICATION)
		assert(!m.id && m.method);
	assert(!m.id || json_is_string(m.id) || json_is_integer(m.id));
	assert(!m.params || json_is_object(m.params));
	const char *version =
		forge_mcp_negotiate(forge_json_string(m.params, "protocolVersion"));
	assert(!version || strlen(version) == 10);
}

static void check_line(const char *line, size_t len)
{
	forge_auto_json json_t *value = forge_mcp_parse(line, len);
	json_t *one;
	size_t i;

	if (value)
		check_message(value);
	json_array_foreach (value, i, one)
		check_message(one);
}

/* The digest of all lines when the bytes come in pieces of this size. */
static uint64_t read_lines(const uint8_t *data, size_t size, size_t piece, bool checks)
{
	struct forge_mcp_lines lines = { 0 };
	uint64_t sum = 14695981039346656037u;
	const char *line;
	size_t len, n;
	int rc;

	for (size_t at = 0; at < size; at += n) {
		n = size - at < piece ? size - at : piece;
		if (forge_mcp_lines_add(&lines, (const char *)data + at, n) < 0)
			break;
		while ((rc = forge_mcp_lines_next(&lines, &line, &len)) != 0) {
			assert(rc == 1 || rc == -EMSGSIZE);
			if (rc != 1)
				continue;
			assert(!memchr(line, '\n', len));
			for (size_t i = 0; i < len; i++)
				sum = (sum ^ (uint8_t)line[i]) * 1099511628211u;
			sum = (sum ^ '\n') * 1099511628211u;
			if (checks)
				check_line(line, len);
		}
	}
	forge_mcp_lines_done(&lines);
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t whole = read_lines(data, size, size ? size : 1, true);

	assert(read_lines(data, size, 1, false) == whole);
	assert(read_lines(data, size, 7, false) == whole);
	forge_auto_json json_t *text = forge_mcp_text((const char *)data, size);
	assert(json_is_string(text));
	forge_auto_json json_t *again =
		forge_mcp_text(json_string_value(text), json_string_length(text));
	assert(json_equal(text, again));
	assert(forge_mcp_cut_char((const char *)data, size) <= size);
	forge_auto_json json_t *base64 = forge_mcp_base64(data, size);
	assert(json_string_length(base64) == (size + 2) / 3 * 4);
	(void)forge_mcp_image_type(data, size); /* must not read too far */
	return 0;
}
