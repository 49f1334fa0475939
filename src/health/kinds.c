/* SPDX-License-Identifier: Apache-2.0 */
/* The table of kinds of checks. */
#include "health/kinds.h"

#include <string.h>

#include "config-build.h"

static void check_command(const struct forge_check_env *env,
			  const struct forge_check_decl *d,
			  struct forge_check_report *ret)
{
	if (env->run_command)
		env->run_command(env, d, ret);
	else
		forge_check_say(ret, false, "commands cannot be run here");
}

static void check_runtime(const struct forge_check_env *env,
			  const struct forge_check_decl *d,
			  struct forge_check_report *ret)
{
	if (env->probe_runtime)
		env->probe_runtime(env, d, ret);
	else
		forge_check_say(ret, false, "runtimes cannot be probed here");
}

static const struct forge_check_kind kinds[] = {
	{ "disk", forge_check_disk, 0 },	 { "memory", forge_check_memory, 0 },
	{ "sqlite", forge_check_sqlite, 0 },
#if HAVE_POSTGRES
	{ "postgres", forge_check_postgres, 0 },
#endif
#if HAVE_CURL
	{ "http", forge_check_http, 0 },
#endif
	{ "tcp", forge_check_tcp, 0 },		 { "unix", forge_check_unix, 0 },
	{ "process", forge_check_process, 0 },	 { "systemd", forge_check_systemd, 0 },
	{ "command", check_command, 3000000 },	 { "runtime", check_runtime, 0 },
};

const struct forge_check_kind *forge_check_kind_find(const char *name)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(kinds); i++)
		if (strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
	return NULL;
}

/* Thousandths first, where that could overflow. */
uint64_t forge_amount_of(const struct forge_amount *a, uint64_t whole)
{
	return a->milli ? whole / 1000 * a->milli : a->absolute;
}
