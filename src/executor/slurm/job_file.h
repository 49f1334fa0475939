/* SPDX-License-Identifier: Apache-2.0 */
/* job.json: a job as text, so that forge on a node can carry it out as it would be here. */
#pragma once

#include <jansson.h>

#include "executor/executor.h"

/* NULL: out of memory. */
json_t *forge_job_file(const struct forge_job *job, const char *place);

/* A job that was read, and what it points to. Initialise to {0}. */
struct forge_job_read {
	struct forge_job job; /* without home, slot, logs and events */
	struct forge_strv argv, env, read_only, aliases, tools, links;
	char *root, *workdir, *place;
	struct forge_limits limits;
	struct forge_config *config;
};

FORGE_MUST_CHECK int forge_job_file_read(const json_t *file, struct forge_job_read *ret,
					 struct forge_error *err);
void forge_job_read_done(struct forge_job_read *r);
