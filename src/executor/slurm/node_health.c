/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and guarded files on a node. */
#include "executor/slurm/node_health.h"

#include <errno.h>

#include "base/json.h"
#include "health/check.h"
#include "health/guard.h"

int forge_node_health_before(struct forge_node_health *h, struct forge_error *err)
{
	const struct forge_check_env env = h->hooks->check_env(h->config, h->home, "");
	forge_auto_check_results struct forge_check_results results = { 0 };
	int rc = forge_checks_run(&env, FORGE_PHASE_PRE, NULL, -1, &results, err);

	if (rc < 0)
		return rc;
	h->json = json_pack("{s:o}", "pre", forge_checks_json(&results));
	const struct forge_check_result *failed = forge_checks_failed(&results, "block");
	return failed ? forge_fail(err, EHOSTDOWN, "%s: %s", failed->decl->name,
				   failed->report.text)
		      : 0;
}

int forge_node_health_guard(struct forge_node_health *h, struct forge_error *err)
{
	const struct forge_guard_spec spec = { .config = &h->config->health,
					       .home = h->home,
					       .run_id = h->run_id,
					       .workdir = h->workdir,
					       .start_watcher = h->hooks->start_watcher,
					       .stop_fd = -1 };

	return forge_guard_begin(&spec, &h->guard, err);
}

void forge_node_health_after(struct forge_node_health *h)
{
	const struct forge_check_env env = h->hooks->check_env(h->config, h->home, "");
	forge_auto_check_results struct forge_check_results results = { 0 };
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *report = NULL;

	(void)!forge_checks_run(&env, FORGE_PHASE_POST, NULL, -1, &results,
				NULL); /* then there are none */
	json_t *post = forge_checks_json(&results);
	if (h->guard && forge_guard_end(h->guard, -1, &report, &err) < 0)
		report = json_pack("{s:s, s:o}", "mode", "none", "note",
				   forge_json_text(err.msg));
	if (report)
		json_object_set_new(post, "guard", report);
	json_object_set_new(h->json, "post", post);
}

void forge_node_health_done(struct forge_node_health *h)
{
	forge_guard_free(h->guard);
	json_decref(h->json);
	h->guard = NULL;
	h->json = NULL;
}
