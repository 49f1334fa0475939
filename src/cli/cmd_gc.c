/* SPDX-License-Identifier: Apache-2.0 */
/* forge gc: repairs what crashed runs left, and reports it. */
#include "cli/cli.h"

#include <stdlib.h>

#include "cli/session.h"
#include "record/deliver.h"
#include "record/gc.h"

static bool is_dry_run;

static const struct forge_opt *gc_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_FLAG(0, "dry-run", &is_dry_run,
			   "Say what would be done and do nothing"),
		FORGE_STORE_ROW,
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

static int cmd_gc(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = forge_refuse_words(&forge_cmd_gc, argc, argv, 0);

	if (rc)
		return rc;
	forge_auto_config struct forge_config *cfg = NULL;
	forge_auto_free char *url = NULL;
	rc = forge_config_load(forge_session_config, &cfg, &err);
	if (rc == 0)
		rc = forge_store_choose(forge_store_wanted, cfg, &url, &err);
	if (rc == 0)
		rc = forge_gc(cfg, url, stdout, is_dry_run, &err);
	if (rc < 0)
		return forge_session_fail(&err);
	if (rc == 0)
		puts("nothing to repair");
	return FORGE_EXIT_OK;
}

const struct forge_cmd forge_cmd_gc = {
	.name = "gc",
	.synopsis = "[OPTIONS]",
	.help = "Repair and clean what crashed runs left",
	.about = "Finds runs whose supervisor is gone, ends what they left running,\n"
		 "removes their cgroups and workdirs and closes their records. Every\n"
		 "forge command that touches runs does the same first, silently. Then\n"
		 "removes what retention.* in the configuration no longer wants: old\n"
		 "logs, kept workdirs, output files that no record points to. What was\n"
		 "removed is printed, and recorded in FORGE_HOME/gc.jsonl.",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_gc,
	.opts = gc_opts,
};
