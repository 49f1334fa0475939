/* SPDX-License-Identifier: Apache-2.0 */
/* bench-runtime NAME: what entering a runtime costs, in microseconds, each the mean of many. */
#include <stdio.h>

#include "base/clock.h"
#include "run/runtime_activation.h"
#include "run/runtime_identity.h"

#define ROUNDS 200

static int fail(const struct forge_error *err)
{
	fprintf(stderr, "bench-runtime: %s\n", err->msg);
	return 1;
}

/* Of one round of what; negative: it failed. */
static double measure(int (*what)(const struct forge_config *cfg, const struct forge_home *home,
				  const struct forge_runtime *rt, struct forge_error *err),
		      const struct forge_config *cfg, const struct forge_home *home,
		      const struct forge_runtime *rt, struct forge_error *err)
{
	uint64_t began = forge_now_usec();

	for (int i = 0; i < ROUNDS; i++)
		if (what(cfg, home, rt, err) < 0)
			return -1;
	return (double)(forge_now_usec() - began) / ROUNDS;
}

static int enter(const struct forge_config *cfg, const struct forge_home *home,
		 const struct forge_runtime *rt, struct forge_error *err)
{
	forge_auto_strv struct forge_strv env = { 0 }, warnings = { 0 };
	int rc = forge_strv_setenv(&env, "PATH", "/usr/local/bin:/usr/bin:/bin");

	return rc < 0 ? rc
		      : forge_runtime_enter(cfg, home, NULL, rt, "/work", &env, &warnings,
					    err);
}

static int digest(const struct forge_config *cfg, const struct forge_home *home,
		  const struct forge_runtime *rt, struct forge_error *err)
{
	char text[FORGE_DIGEST_MAX];

	(void)cfg;
	return forge_runtime_digest(home, rt, text, err);
}

int main(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_config struct forge_config *cfg = NULL;
	forge_auto_home struct forge_home home = FORGE_HOME_INIT;
	struct forge_catalog catalog = { .cfg = NULL };
	struct forge_runtime rt = { .kind = NULL };

	if (argc != 2 || forge_config_load(NULL, &cfg, &err) < 0 ||
	    forge_home_open(true, &home, &err) < 0 ||
	    forge_catalog_open(cfg, &catalog, &err) < 0 ||
	    forge_runtime_open(&catalog, argv[1], &rt, &err) < 0)
		return fail(&err);
	/* Once before, so that what is remembered is there. */
	if (enter(cfg, &home, &rt, &err) < 0 || digest(cfg, &home, &rt, &err) < 0)
		return fail(&err);
	printf("%.1f %.1f\n", measure(enter, cfg, &home, &rt, &err),
	       measure(digest, cfg, &home, &rt, &err));
	forge_runtime_close(&rt);
	forge_catalog_close(&catalog);
	return 0;
}
