/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request as text, complete enough to carry it out once more in another process: the content of a file in
 * retries/ (state/retry_file.h). Unlike "asked" in a record it has the caller's environment, and names of any
 * bytes; like it, it has no secrets. A run that was given one can be retried only by its own supervisor.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "spec/request.h"
#include "spec/spec.h"

/* A request that was read back. Everything that req points to belongs to this struct. */
struct forge_again_request {
	struct forge_run_request req;
	struct forge_strv argv;
	struct forge_strv texts; /* the single values */
	char *config;		 /* file to read, NULL: none */
	char *cwd;
};

/* NULL: out of memory. */
json_t *forge_again_json(const struct forge_spec *s, const struct forge_run_request *req,
			 const struct forge_config *cfg, const char *store);
/* A variable that the run was given and that no file has; NULL: none. */
const char *forge_again_withheld(const json_t *content);
/* The chain and the limits of the run that the file is of. */
void forge_again_restore_chain(const json_t *content, struct forge_retry_chain *ret,
			       struct forge_limits *ret_limits);
/* The environment of the process that made the file takes the place of this one's. */
FORGE_MUST_CHECK int forge_again_restore_environment(const json_t *content);
/* *ret must be released with forge_again_done() in any case. */
FORGE_MUST_CHECK int forge_again_restore(const json_t *content,
					 struct forge_again_request *ret,
					 struct forge_error *err);
void forge_again_done(struct forge_again_request *r);
