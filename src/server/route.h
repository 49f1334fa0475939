/* SPDX-License-Identifier: Apache-2.0 */
/* Which function answers which path. */
#pragma once

#include "server/answer.h"

struct forge_route {
	const char *method,
		*pattern;	  /* "/api/v1/runs/{}/kill": {} is one part of the path */
	enum forge_access access; /* that is needed */
	bool is_slow;		  /* it may wait: it gets a thread */
	bool (*may_wait)(
		const struct forge_ask
			*ask); /* the same, decided for each request; NULL: never */
	void (*answer)(struct forge_server *sv, const struct forge_ask *ask,
		       struct forge_answer *a);
	/* Parameters that it may have, for forge_target_check(); docs/openapi.json has the same. NULL: any. */
	const char *query;
};
extern const struct forge_route forge_routes[]; /* ends with a row without a method */

/*
 * The route of a request; params gets what stands for {}. NULL: there is none; *ret_allowed has the methods of the path, as the
 * header Allow lists them, and is NULL when it has none.
 */
const struct forge_route *forge_route_find(const char *method,
					   const struct forge_target *t,
					   const char *params[FORGE_PARAMS_MAX],
					   const char **ret_allowed);

/* Whether text is the full id of a run; otherwise a is the error. */
bool forge_api_is_run(const char *text, struct forge_answer *a);

/* The record of the run that the first parameter names. The error is the answer; then this is NULL. */
json_t *forge_api_find(struct forge_server *sv, const struct forge_ask *ask,
		       struct forge_answer *a);
/* The checks of the last day, summed up; kept for a while. The error is the answer; then this is NULL. */
json_t *forge_api_health_rows(struct forge_server *sv, struct forge_answer *a);

#define FORGE_API(name)                                                                  \
	void forge_api_##name(struct forge_server *sv, const struct forge_ask *ask,      \
			      struct forge_answer *a)
/* api_runs.c */
FORGE_API(overview);
FORGE_API(runs);
FORGE_API(run);
FORGE_API(events);
FORGE_API(samples);
FORGE_API(queue);
FORGE_API(host);
/* api_files.c */
FORGE_API(log);
FORGE_API(follow);
FORGE_API(outputs);
FORGE_API(output);
FORGE_API(ticket);
/* api_do.c */
FORGE_API(submit);
FORGE_API(kill);
FORGE_API(rerun);
FORGE_API(resume);
/* api_more.c */
FORGE_API(runtimes);
FORGE_API(runtime);
FORGE_API(executors);
FORGE_API(health);
FORGE_API(pipelines);
FORGE_API(pipeline);
FORGE_API(openapi);
FORGE_API(metrics);
FORGE_API(alive);
FORGE_API(page);
