/* SPDX-License-Identifier: Apache-2.0 */
/* forge __node DIR: carries out a job of a cluster on the node. Hidden: the script of the job starts it. */
#include "cli/cli.h"

#include "executor/slurm/node.h"
#include "record/attendant.h"
#include "run/health_env.h"
#include "run/signals.h"

static int cmd_node(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	static const struct forge_node_hooks hooks = { .check_env = forge_health_env,
						       .start_watcher =
							       forge_attendant_guard };
	struct forge_signals before;

	if (argc != 1)
		return FORGE_EXIT_USAGE;
	forge_signals_catch(&before);
	int rc = forge_node_run(argv[0], &hooks, &err);
	forge_signals_release(&before);
	if (rc < 0) {
		forge_print_error(&err);
		rc = FORGE_EXIT_NOT_RUN;
	}
	return rc;
}

static const struct forge_opt *node_opts(void)
{
	static const struct forge_opt opts[] = { FORGE_HELP_ROW, FORGE_OPTS_END };

	return opts;
}

const struct forge_cmd forge_cmd_node = {
	.name = "__node",
	.synopsis = "DIR",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_node,
	.opts = node_opts,
};
