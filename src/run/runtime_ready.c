/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the runtime of a spec ready: healthy, described, activated. */
#include "run/runtime_ready.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"

static json_t *describe(const struct forge_spec *s,
			const struct forge_runtime_state *state)
{
	json_t *prefix = s->runtime.prefix ? forge_json_name(s->runtime.prefix) : NULL;
	json_t *j = json_pack("{s:s, s:s, s:o?, s:s, s:s, s:O?}", "name",
			      s->runtime.decl->name, "kind", s->runtime.kind->name,
			      "prefix", prefix, "digest", state->digest, "why",
			      s->runtime_why, "versions", state->versions);

	if (*state->checked_at)
		json_object_set_new(j, "checked_at", json_string(state->checked_at));
	if (*state->probe_run)
		json_object_set_new(j, "probe_run", json_string(state->probe_run));
	return j;
}

/* Behind the runtime PATH has the directories of the host, which may have a program of the same name. */
static int check_program(const struct forge_spec *s, struct forge_error *err)
{
	const char *program = s->argv.v[0];

	if (strchr(program, '/') || !forge_runtime_must_own(&s->runtime, program))
		return 0;
	forge_auto_free char *path =
		forge_asprintf("%s/bin/%s", s->runtime.real_prefix, program);
	if (path && access(path, X_OK) == 0)
		return 0;
	return forge_hint(err,
			  forge_fail(err, ENOEXEC, "runtime %s has no %s of its own",
				     s->runtime.decl->name, program),
			  "Install it there; /usr/bin/%s is the host's", program);
}

int forge_ready_runtime(struct forge_spec *s, const struct forge_config *cfg,
			const struct forge_run_request *req,
			const struct forge_home *home, const char *store,
			struct forge_error *err)
{
	struct forge_runtime_state state = { .health = FORGE_UNCHECKED };
	const struct forge_probe_listener who = { req->on_warning, req->arg };

	if (!s->has_runtime)
		return 0;
	int rc = req->is_probe ? forge_runtime_state(home, &s->runtime, &state, err)
			       : forge_runtime_ensure(cfg, home, store, &s->runtime, &who,
						      &state, err);
	if (rc == 0 && !req->is_probe && state.health != FORGE_HEALTHY)
		rc = forge_hint(err,
				forge_fail(err, ENOEXEC, "runtime %s is broken: %s",
					   s->runtime.decl->name, state.problem),
				"After mending it: forge runtime check %s",
				s->runtime.decl->name);
	if (rc == 0 && !req->is_probe)
		rc = check_program(s, err);
	if (rc == 0)
		s->runtime_json = describe(s, &state);
	forge_runtime_state_done(&state);
	return rc;
}

const char *forge_ready_runtime_changed(const struct forge_spec *s,
					const struct forge_home *home,
					char digest[FORGE_DIGEST_MAX])
{
	const char *before = forge_json_string(s->runtime_json, "digest");

	if (!s->has_runtime || !before ||
	    forge_runtime_digest(home, &s->runtime, digest, NULL) < 0)
		return s->has_runtime && before ? "unknown" : NULL;
	return strcmp(before, digest) == 0 ? NULL : digest;
}

int forge_ready_environment(struct forge_spec *s, const struct forge_config *cfg,
			    const struct forge_run_request *req,
			    const struct forge_home *home, const char *store,
			    struct forge_error *err)
{
	int rc = forge_spec_begin_environment(s, cfg, req, err);

	if (rc == 0 && s->has_runtime && !req->exact_env)
		rc = forge_runtime_enter(cfg, home, store, &s->runtime, s->workdir,
					 &s->env, &s->warnings, err);
	return rc < 0 ? rc : forge_spec_end_environment(s, cfg, req, err);
}
