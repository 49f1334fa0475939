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
#define LIST                                                                             \
	"status reason runtime executor user host analysis pipeline step output since "  \
	"until open? parts? sort reverse? limit after"

/* clang-format off: one a line */
const struct forge_route forge_routes[] = {
	{ "GET", V1 "/overview", READ, false, NULL, forge_api_overview, "" },
	{ "GET", V1 "/runs", READ, false, may_search, forge_api_runs, LIST },
	{ "POST", V1 "/runs", DO, true, NULL, forge_api_submit, "" },
	{ "GET", V1 "/runs/{}", READ, false, NULL, forge_api_run, "ticket" },
	{ "GET", V1 "/runs/{}/events", READ, false, NULL, forge_api_events, "ticket" },
	{ "GET", V1 "/runs/{}/samples", READ, false, NULL, forge_api_samples, "ticket" },
	{ "GET", V1 "/runs/{}/logs/{}", READ, false, NULL, forge_api_log, "tail ticket" },
	{ "GET", V1 "/runs/{}/follow", READ, false, NULL, forge_api_follow,
	  "stream from ticket" },
	{ "GET", V1 "/runs/{}/outputs", READ, false, NULL, forge_api_outputs,
	  "after limit ticket" },
	{ "GET", V1 "/runs/{}/outputs/{}/content", READ, true, NULL, forge_api_output,
	  "preview? ticket" },
	{ "POST", V1 "/runs/{}/kill", DO, true, NULL, forge_api_kill, "" },
	{ "POST", V1 "/runs/{}/rerun", DO, true, NULL, forge_api_rerun, "" },
	{ "POST", V1 "/runs/{}/resume", DO, true, NULL, forge_api_resume, "" },
	{ "POST", V1 "/tickets", READ, false, NULL, forge_api_ticket, "" },
	{ "GET", V1 "/runtimes", READ, true, NULL, forge_api_runtimes, "" },
	{ "GET", V1 "/runtimes/{}", READ, true, NULL, forge_api_runtime, "" },
	{ "GET", V1 "/executors", READ, true, NULL, forge_api_executors, "" },
	{ "GET", V1 "/pipelines", READ, true, NULL, forge_api_pipelines, "" },
	{ "GET", V1 "/pipelines/{}", READ, true, NULL, forge_api_pipeline, "" },
	{ "GET", V1 "/health", READ, false, NULL, forge_api_health, "" },
	{ "GET", V1 "/queue", READ, false, NULL, forge_api_queue, "" },
	{ "GET", V1 "/host", READ, false, NULL, forge_api_host, "" },
	{ "GET", V1 "/openapi.json", ANY, false, NULL, forge_api_openapi, "" },
	/* Monitors and browsers add parameters of their own. */
	{ "GET", "/healthz", ANY, false, NULL, forge_api_alive, NULL },
	{ "GET", "/", ANY, false, NULL, forge_api_page, NULL },
	{ "GET", "/app.js", ANY, false, NULL, forge_api_page, NULL },
	{ "GET", "/app.css", ANY, false, NULL, forge_api_page, NULL },
	{ "GET", "/favicon.svg", ANY, false, NULL, forge_api_page, NULL },
	{ "GET", "/metrics", ANY, true, NULL, forge_api_metrics, "" },
	{ .method = NULL },
};
/* clang-format on */

const struct forge_route *forge_route_find(const char *method,
					   const struct forge_target *t,
					   const char *params[FORGE_PARAMS_MAX],
					   const char **ret_allowed)
{
	bool has_get = false, has_post = false;

	for (const struct forge_route *r = forge_routes; r->method; r++) {
		if (!forge_target_matches(t, r->pattern, params, FORGE_PARAMS_MAX))
			continue;
		if (strcmp(r->method, method) == 0)
			return r;
		has_get = has_get || strcmp(r->method, "GET") == 0;
		has_post = has_post || strcmp(r->method, "POST") == 0;
	}
	*ret_allowed = has_get && has_post ? "GET, HEAD, POST"
		       : has_get	   ? "GET, HEAD"
		       : has_post	   ? "POST"
					   : NULL;
	return NULL;
}
