/* SPDX-License-Identifier: Apache-2.0 */
/* The table of all paths. */
#include "server/route.h"

#include <string.h>

/* The store has no index for these, and may look at every run. */
static bool may_search(const struct forge_ask *ask)
{
	static const char *const slow[] = { "reason", "user",  "host",	 "executor",
					    "since",  "until", "output", "sort" };
	const char *analysis = forge_target_get(&ask->target, "analysis");

	for (size_t i = 0; i < sizeof(slow) / sizeof(*slow); i++)
		if (forge_target_get(&ask->target, slow[i]))
			return true;
	return analysis && strpbrk(analysis, "*?");
}

#define V1   "/api/v1"
#define READ FORGE_ACCESS_READ
#define DO   FORGE_ACCESS_OPERATOR
#define ANY  FORGE_ACCESS_NONE

/* clang-format off: one a line */
const struct forge_route forge_routes[] = {
	{ "GET", V1 "/overview", READ, false, NULL, forge_api_overview },
	{ "GET", V1 "/runs", READ, false, may_search, forge_api_runs },
	{ "POST", V1 "/runs", DO, true, NULL, forge_api_submit },
	{ "GET", V1 "/runs/{}", READ, false, NULL, forge_api_run },
	{ "GET", V1 "/runs/{}/events", READ, false, NULL, forge_api_events },
	{ "GET", V1 "/runs/{}/samples", READ, false, NULL, forge_api_samples },
	{ "GET", V1 "/runs/{}/logs/{}", READ, false, NULL, forge_api_log },
	{ "GET", V1 "/runs/{}/follow", READ, false, NULL, forge_api_follow },
	{ "GET", V1 "/runs/{}/outputs", READ, false, NULL, forge_api_outputs },
	{ "GET", V1 "/runs/{}/outputs/{}/content", READ, true, NULL, forge_api_output },
	{ "POST", V1 "/runs/{}/kill", DO, true, NULL, forge_api_kill },
	{ "POST", V1 "/runs/{}/rerun", DO, true, NULL, forge_api_rerun },
	{ "POST", V1 "/runs/{}/resume", DO, true, NULL, forge_api_resume },
	{ "POST", V1 "/tickets", READ, false, NULL, forge_api_ticket },
	{ "GET", V1 "/runtimes", READ, true, NULL, forge_api_runtimes },
	{ "GET", V1 "/runtimes/{}", READ, true, NULL, forge_api_runtime },
	{ "GET", V1 "/executors", READ, true, NULL, forge_api_executors },
	{ "GET", V1 "/pipelines", READ, true, NULL, forge_api_pipelines },
	{ "GET", V1 "/pipelines/{}", READ, true, NULL, forge_api_pipeline },
	{ "GET", V1 "/health", READ, false, NULL, forge_api_health },
	{ "GET", V1 "/queue", READ, false, NULL, forge_api_queue },
	{ "GET", V1 "/host", READ, false, NULL, forge_api_host },
	{ "GET", V1 "/openapi.json", ANY, false, NULL, forge_api_openapi },
	{ "GET", "/healthz", ANY, false, NULL, forge_api_alive },
	{ "GET", "/", ANY, false, NULL, forge_api_page },
	{ "GET", "/app.js", ANY, false, NULL, forge_api_page },
	{ "GET", "/app.css", ANY, false, NULL, forge_api_page },
	{ "GET", "/favicon.svg", ANY, false, NULL, forge_api_page },
	{ "GET", "/metrics", ANY, true, NULL, forge_api_metrics },
	{ NULL, NULL, ANY, false, NULL, NULL },
};
/* clang-format on */

const struct forge_route *forge_route_find(const char *method,
					   const struct forge_target *t,
					   const char *params[FORGE_PARAMS_MAX],
					   bool *ret_is_known)
{
	*ret_is_known = false;
	for (const struct forge_route *r = forge_routes; r->method; r++) {
		if (!forge_target_matches(t, r->pattern, params, FORGE_PARAMS_MAX))
			continue;
		*ret_is_known = true;
		if (strcmp(r->method, method) == 0)
			return r;
	}
	return NULL;
}
