/* SPDX-License-Identifier: Apache-2.0 */
/* One execution of forge: its arguments, what it prints, how it ends. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/strv.h"

/* What of its standard output is kept. */
struct forge_mcp_range {
	uint64_t offset, length;
	bool from_end; /* the last length bytes instead */
};
/* A JSON answer. */
#define FORGE_MCP_WHOLE ((struct forge_mcp_range){ .length = 64u << 20 })

struct forge_mcp_child {
	pid_t pid;
	int pidfd, out, err; /* -1: closed */
	struct forge_mcp_range range;
	char *text; /* what is kept, ends with NUL */
	size_t len, cap;
	uint64_t total; /* bytes that it printed */
	char *said;	/* standard error, the first part of it */
	size_t said_len;
	int status; /* exit status, 128+N: signal N; valid when is_over */
	bool is_over;
	bool is_broken; /* out of memory: text is not complete */
};

/*
 * Executes this very program with these arguments (without the name of the program), in a session of its
 * own and with nothing to read. is_lasting: what it prints goes to a file without a name, so that it goes on when
 * this process ends.
 */
FORGE_MUST_CHECK int forge_mcp_child_start(const struct forge_strv *argv,
					   const struct forge_mcp_range *range,
					   bool is_lasting, struct forge_mcp_child **ret,
					   struct forge_error *err);
/* Reads what there is. After its end sets is_over. */
void forge_mcp_child_look(struct forge_mcp_child *c);
void forge_mcp_child_signal(struct forge_mcp_child *c, int sig);
/* Forgets it. When it still runs it is killed, unless it may go on. */
void forge_mcp_child_free(struct forge_mcp_child *c, bool may_go_on);
/*
 * What it said of its failure: the sentence, and the hint, "" when there is none. Warnings are left out. NULL:
 * out of memory.
 */
char *forge_mcp_child_problem(const struct forge_mcp_child *c);
