/* SPDX-License-Identifier: Apache-2.0 */
/* forge run: makes a request from the options, runs it and prints the verdict. */
#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <poll.h>
#include <stdio_ext.h>
#include <string.h>
#include <unistd.h>

#include "cli/request.h"
#include "config/config.h"
#include "spec/spec.h"

static bool is_dry_run, is_json, is_quiet;

static const struct forge_opt own_rows[] = {
	FORGE_FLAG(0, "stdin", &forge_request.pass_stdin,
		   "Feed our standard input to the command"),
	FORGE_FLAG(0, "dry-run", &is_dry_run, "Print the plan as JSON and run nothing"),
	FORGE_EXPLAIN_LIMITS_ROW,
	FORGE_FLAG(0, "json", &is_json, "Print the record as JSON instead of the output"),
	FORGE_FLAG('q', "quiet", &is_quiet, "Show neither output nor verdict"),
	FORGE_UNTIL_CLOSED_ROW,
	FORGE_HELP_ROW,
	FORGE_OPTS_END,
};

static const struct forge_opt *run_opts(void)
{
	return forge_request_opts(own_rows);
}

static int explain(const struct forge_config *cfg, struct forge_error *err)
{
	forge_auto_json json_t *plan = NULL;
	int rc = forge_run_explain(cfg, &forge_request, &plan, err);

	if (rc < 0)
		return rc;
	forge_print_json(plan);
	return FORGE_EXIT_OK;
}

static int cmd_run(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_config struct forge_config *cfg = NULL;

	if (argc == 0) {
		(void)forge_fail(&err, EINVAL, "run: no command given");
		return forge_print_usage(&forge_cmd_run, &err);
	}
	forge_request.argv = argv;
	int status = forge_request_prepare(&cfg, &err);
	if (status == 0)
		status = forge_request_wants_limits
				 ? forge_request_explain_limits(cfg, is_json, &err)
			 : is_dry_run ? explain(cfg, &err)
				      : forge_request_run(cfg, is_json, is_quiet, &err);
	if (status < 0) {
		forge_print_error(&err);
		status = FORGE_EXIT_NOT_RUN;
	}
	forge_request_done();
	return status;
}

const struct forge_cmd forge_cmd_run = {
	.name = "run",
	.synopsis = "[OPTIONS] [--] COMMAND [ARG...]",
	.help = "Run one analysis and wait for it",
	.examples =
		"  forge run fit.py                     a script; its files are kept\n"
		"  forge run -i data fit.py data/x.csv  ... which reads a directory\n"
		"  forge run --memory 4G --timeout 2h -r data-ml -C results fit.py\n",
	.about = "Runs COMMAND in a sandbox. It sees system directories, its inputs and\n"
		 "the configured read-only roots, all read-only; it can write only in\n"
		 "its workdir (its current directory), /tmp and /dev/shm; it has no\n"
		 "network unless asked for. Options go before COMMAND, its own after.\n\n"
		 "Exits with the command's own status, or 123 the record could not be\n"
		 "printed (--json), 124 out of time, 125 nothing was run, 126 not\n"
		 "executable, 127 not found, 137 over a memory, disk or output limit,\n"
		 "128+N died of signal N, 130 cancelled.",
	.first = "COMMAND",
	.stops = true,
	.goes_on = forge_spec_is_notebook,
	.bad_value = FORGE_EXIT_NOT_RUN,
	.run = cmd_run,
	.opts = run_opts,
};
