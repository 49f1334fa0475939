/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of checks that need runs. These functions run in the process of the check. */
#include "run/health_env.h"

#include <string.h>

#include "base/json.h"
#include "run/runtime_activation.h"
#include "run/runtime_identity.h"
#include "run/runtime_probe.h"
#include "runtime/runtime.h"

/* What to type is advice for `forge run`; of a check, the limits are its own and those of the profile. */
static size_t without_advice(const char *notes)
{
	const char *advice = strstr(notes, " Retry with --");

	return advice ? (size_t)(advice - notes) : strlen(notes);
}

static void run_command(const struct forge_check_env *env,
			const struct forge_check_decl *d, struct forge_check_report *ret)
{
	char *argv[] = { (char *)"/bin/sh", (char *)"-c", d->command, NULL };
	const struct forge_run_request req = {
		.profile = "tool",
		.limits = { .wall_usec = d->timeout_usec },
		.store = env->store,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.argv = argv,
		.is_probe = true,
		.is_check = true,
	};
	forge_auto_home struct forge_home home = FORGE_HOME_INIT;
	struct forge_run_result result = { 0 };
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = forge_home_open(true, &home, &err);

	if (rc == 0)
		rc = forge_probe_run(env->cfg, &req, &home, env->store, &result, &err);
	const char *status = forge_json_string_or(result.record, "status", "");
	const char *notes =
		forge_json_string_or(result.record, "completion_notes", status);
	const char *reason = forge_json_string_or(result.record, "reason", "");
	if (rc < 0)
		forge_check_say(ret, false, "%s", err.msg);
	else
		forge_check_say(ret, strcmp(status, "succeeded") == 0, "%.*s%s",
				(int)without_advice(notes), notes,
				strcmp(reason, "wall_time") == 0
					? " timeout: of the check gives it more."
					: "");
	if (result.record)
		ret->numbers =
			json_pack("{s:O?, s:O?}", "run_id",
				  json_object_get(result.record, "run_id"), "exit_code",
				  json_object_get(result.record, "exit_code"));
	json_decref(result.record);
}

static void probe_runtime(const struct forge_check_env *env,
			  const struct forge_check_decl *d,
			  struct forge_check_report *ret)
{
	forge_auto_home struct forge_home home = FORGE_HOME_INIT;
	struct forge_catalog catalog = { 0 };
	struct forge_runtime rt = { .kind = NULL };
	struct forge_runtime_state state = { .health = FORGE_UNCHECKED };
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = forge_home_open(true, &home, &err);

	if (rc == 0)
		rc = forge_catalog_open(env->cfg, &catalog, &err);
	if (rc == 0)
		rc = forge_runtime_open(&catalog, d->runtime, &rt, &err);
	if (rc == 0)
		rc = forge_runtime_probe(env->cfg, &home, env->store, &rt,
					 &(struct forge_probe_listener){ 0 }, &state,
					 &err);
	if (rc < 0)
		forge_check_say(ret, false, "%s", err.msg);
	else
		forge_check_say(
			ret, state.health == FORGE_HEALTHY, "runtime %s: %s", d->runtime,
			state.health == FORGE_HEALTHY ? "healthy" : state.problem);
	forge_runtime_state_done(&state);
	forge_runtime_close(&rt);
	forge_catalog_close(&catalog);
}

struct forge_check_env forge_health_env(const struct forge_config *cfg,
					const struct forge_home *home, const char *store)
{
	return (struct forge_check_env){ .cfg = cfg,
					 .home = home,
					 .store = store,
					 .run_command = run_command,
					 .probe_runtime = probe_runtime };
}
