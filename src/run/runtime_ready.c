/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the runtime of a spec ready. */
#include "run/runtime_ready.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "run/runtime_probe.h"

/* After the runtime's, PATH has directories of the host, with programs of that name. */
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

int forge_ready_runtime(const struct forge_config *cfg,
			const struct forge_run_request *req,
			const struct forge_home *home, const char *store,
			struct forge_spec *s, struct forge_error *err)
{
	struct forge_runtime_state state = { .health = FORGE_UNCHECKED };
	const struct forge_probe_listener listener = { req->on_warning, req->arg };

	if (!s->has_runtime)
		return 0;
	int rc = forge_runtime_ensure(cfg, home, store, &s->runtime, &listener, &state,
				      err);
	if (rc == 0 && state.health != FORGE_HEALTHY)
		rc = forge_hint(err,
				forge_fail(err, ENOEXEC, "runtime %s is broken: %s",
					   s->runtime.decl->name, state.problem),
				"After mending it: forge runtime check %s",
				s->runtime.decl->name);
	if (rc == 0)
		rc = check_program(s, err);
	if (rc == 0)
		s->runtime_json = forge_runtime_describe(s, &state);
	forge_runtime_state_done(&state);
	return rc;
}
