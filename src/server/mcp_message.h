/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: lines of a stream, and what a JSON-RPC value is. Pure, so that it can be fuzzed. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* A longer line is not read; it is answered with an error. */
#define FORGE_MCP_LINE_MAX (16u << 20)

struct forge_mcp_lines {
	char *buf;
	size_t len, cap;
	size_t start;	  /* of the line that is read */
	size_t scanned;	  /* there is no newline before this */
	bool is_skipping; /* the rest of a line that is too long */
};

/* Adds what was read. Invalidates the last line. */
FORGE_MUST_CHECK int forge_mcp_lines_add(struct forge_mcp_lines *l, const char *data,
					 size_t len);
/*
 * The next line, without its newline: 1; valid until the next call. 0: there is none yet. -EMSGSIZE: a line
 * was too long and is dropped.
 */
FORGE_MUST_CHECK int forge_mcp_lines_next(struct forge_mcp_lines *l, const char **ret,
					  size_t *ret_len);
void forge_mcp_lines_done(struct forge_mcp_lines *l);

enum forge_mcp_code {
	FORGE_MCP_PARSE_ERROR = -32700,
	FORGE_MCP_INVALID_REQUEST = -32600,
	FORGE_MCP_NO_METHOD = -32601,
	FORGE_MCP_INVALID_PARAMS = -32602,
	FORGE_MCP_INTERNAL = -32603,
	FORGE_MCP_UNSUPPORTED_VERSION = -32022,
};

enum forge_mcp_kind {
	FORGE_MCP_REQUEST,
	FORGE_MCP_NOTIFICATION,
	FORGE_MCP_RESPONSE, /* nobody asked for one */
	FORGE_MCP_INVALID,
};

/* Everything is borrowed from the value. */
struct forge_mcp_message {
	enum forge_mcp_kind kind;
	json_t *id; /* a string or an integer; NULL: there is none that can be used */
	const char *method;
	json_t *params; /* an object, NULL: there are none */
	/* Of a modern request (2026-07-28 and later), which carries its own version; NULL: it does not. */
	const char *version;
	bool has_capabilities;	/* as such a request must */
	json_t *progress_token; /* NULL: no progress is wanted */
	const char *problem;	/* what makes it invalid */
};

void forge_mcp_classify(json_t *value, struct forge_mcp_message *ret);
/* Parses one line. NULL: it is no JSON text. */
json_t *forge_mcp_parse(const char *line, size_t len);

/* The revisions with a handshake, the newest first; NULL at the end. */
extern const char *const forge_mcp_legacy_versions[];
#define FORGE_MCP_MODERN_VERSION "2026-07-28"
/* The revision for a client that asks for this one in its handshake. NULL: it asks for none. */
const char *forge_mcp_negotiate(const char *asked);
/* Whether a list of messages is one message in this revision. */
bool forge_mcp_has_batches(const char *version);
