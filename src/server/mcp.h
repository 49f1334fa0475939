/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Model Context Protocol on a pair of descriptors, for agents. It is a view and a door: it keeps
 * nothing on disk, and everything it does is done by executing forge itself, with JSON as the
 * answer. What the caller fixed in the options cannot be widened by a request.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/strv.h"
#include "config/limits.h"

struct forge_mcp_options {
	struct forge_limits caps; /* memory, cpus, wall and disk; 0: no cap */
	struct forge_strv inputs; /* canonical directories; empty: no input is allowed */
	struct forge_strv runtimes;  /* names; empty: every one */
	struct forge_strv pipelines; /* files or directories as typed */
	const char *executor;	     /* NULL: as configured */
	const char *config, *store;  /* for every command, NULL: as without them */
	unsigned max_runs;	     /* at once, 0: no bound */
	bool allow_network;
	bool read_only; /* there is no tool that starts or ends anything */
};

/*
 * Serves until in is at its end, out is closed, or SIGTERM or SIGINT comes. Requests that wait for a
 * run are then cancelled, and so are their runs; runs that were submitted go on.
 */
FORGE_MUST_CHECK int forge_mcp_serve(const struct forge_mcp_options *o, int in, int out,
				     struct forge_error *err);
