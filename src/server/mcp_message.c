/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the Model Context Protocol. */
#include "server/mcp_message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define PREFIX "io.modelcontextprotocol/"

const char *const forge_mcp_legacy_versions[] = { "2025-11-25", "2025-06-18",
						  "2025-03-26", "2024-11-05",
						  "2024-10-07", NULL };

int forge_mcp_lines_add(struct forge_mcp_lines *l, const char *data, size_t len)
{
	/* Lines that were returned make room first. */
	if (l->start > 0) {
		memmove(l->buf, l->buf + l->start, l->len - l->start);
		l->len -= l->start;
		l->scanned -= l->start;
		l->start = 0;
	}
	if (l->len + len > l->cap) {
		size_t cap = l->cap ? l->cap : 4096;
		while (cap < l->len + len)
			cap *= 2;
		char *grown = realloc(l->buf, cap);
		if (!grown)
			return -ENOMEM;
		l->buf = grown;
		l->cap = cap;
	}
	if (len > 0)
		memcpy(l->buf + l->len, data, len);
	l->len += len;
	return 0;
}

/* Drops what there is of a line that is too long. */
static void drop(struct forge_mcp_lines *l)
{
	l->len = l->start = l->scanned = 0;
}

int forge_mcp_lines_next(struct forge_mcp_lines *l, const char **ret, size_t *ret_len)
{
	for (;;) {
		char *end = l->len > l->scanned ? memchr(l->buf + l->scanned, '\n',
							 l->len - l->scanned)
						: NULL;
		if (!end) {
			bool was_skipping = l->is_skipping;
			l->scanned = l->len;
			if (was_skipping || l->len - l->start > FORGE_MCP_LINE_MAX) {
				drop(l);
				l->is_skipping = true;
			}
			return l->is_skipping && !was_skipping ? -EMSGSIZE : 0;
		}
		size_t start = l->start, next = (size_t)(end - l->buf) + 1;
		l->start = l->scanned = next;
		if (l->is_skipping) {
			l->is_skipping = false; /* it was reported when it was dropped */
			continue;
		}
		*ret_len = next - 1 - start;
		if (*ret_len > FORGE_MCP_LINE_MAX)
			return -EMSGSIZE;
		*ret = l->buf + start;
		return 1;
	}
}

void forge_mcp_lines_done(struct forge_mcp_lines *l)
{
	free(l->buf);
	*l = (struct forge_mcp_lines){ 0 };
}

json_t *forge_mcp_parse(const char *line, size_t len)
{
	return json_loadb(line, len, JSON_DECODE_ANY, NULL);
}

static void invalid(struct forge_mcp_message *m, const char *problem)
{
	m->kind = FORGE_MCP_INVALID;
	m->problem = problem;
}

static void read_meta(const json_t *params, struct forge_mcp_message *m)
{
	const json_t *meta = json_object_get(params, "_meta");
	json_t *token = json_object_get(meta, "progressToken");

	m->version = forge_json_string(meta, PREFIX "protocolVersion");
	m->has_capabilities =
		json_is_object(json_object_get(meta, PREFIX "clientCapabilities"));
	if (json_is_string(token) || json_is_integer(token))
		m->progress_token = token;
}

void forge_mcp_classify(json_t *value, struct forge_mcp_message *ret)
{
	*ret = (struct forge_mcp_message){ .kind = FORGE_MCP_REQUEST };
	if (!json_is_object(value)) {
		invalid(ret, "a message is an object");
		return;
	}
	json_t *id = json_object_get(value, "id"),
	       *method = json_object_get(value, "method"),
	       *params = json_object_get(value, "params");
	const char *rpc = forge_json_string(value, "jsonrpc");

	ret->id = json_is_string(id) || json_is_integer(id) ? id : NULL;
	if (!rpc || strcmp(rpc, "2.0") != 0)
		invalid(ret, "\"jsonrpc\" is not \"2.0\"");
	else if (!method &&
		 (json_object_get(value, "result") || json_object_get(value, "error")))
		ret->kind = FORGE_MCP_RESPONSE;
	else if (!json_is_string(method))
		invalid(ret, "\"method\" is not a string");
	else if (params && !json_is_object(params))
		invalid(ret, "\"params\" is not an object");
	else if (id && !ret->id)
		invalid(ret, "\"id\" is neither a string nor an integer");
	else if (!id)
		ret->kind = FORGE_MCP_NOTIFICATION;
	ret->method = json_string_value(method);
	ret->params = json_is_object(params) ? params : NULL;
	read_meta(ret->params, ret);
}

const char *forge_mcp_negotiate(const char *asked)
{
	if (!asked)
		return NULL;
	for (size_t i = 0; forge_mcp_legacy_versions[i]; i++)
		if (strcmp(forge_mcp_legacy_versions[i], asked) == 0)
			return forge_mcp_legacy_versions[i];
	/* The client then decides whether it can live with ours. */
	return forge_mcp_legacy_versions[0];
}

bool forge_mcp_has_batches(const char *version)
{
	return version && strcmp(version, "2025-06-18") < 0;
}
