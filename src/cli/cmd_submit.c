/* SPDX-License-Identifier: Apache-2.0 */
/* forge submit: runs the request of `forge run` in a detached supervisor. */
#include "cli/cli.h"

#include <errno.h>

#include "cli/request.h"
#include "spec/spec.h"

static bool is_json;

static const struct forge_opt own_rows[] = {
	FORGE_EXPLAIN_LIMITS_ROW,
	FORGE_FLAG(0, "json", &is_json, "Print JSON"),
	FORGE_HELP_ROW,
	FORGE_OPTS_END,
};

static const struct forge_opt *submit_opts(void)
{
	return forge_request_opts(own_rows);
}

static int cmd_submit(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_config struct forge_config *cfg = NULL;

	if (argc == 0) {
		(void)forge_fail(&err, EINVAL, "submit: no command given");
		return forge_print_usage(&forge_cmd_submit, &err);
	}
	forge_request.argv = argv;
	int status = forge_request_prepare(&cfg, &err);
	if (status == 0)
		status = forge_request_wants_limits
				 ? forge_request_explain_limits(cfg, is_json, &err)
				 : forge_request_submit(cfg, is_json, &err);
	if (status < 0) {
		forge_print_error(&err);
		status = FORGE_EXIT_NOT_RUN;
	}
	forge_request_done();
	return status;
}

const struct forge_cmd forge_cmd_submit = {
	.name = "submit",
	.synopsis = "[OPTIONS] [--] COMMAND [ARG...]",
	.help = "Run one analysis in the background",
	.about = "Like `forge run`, but prints the run's id and returns as soon as the "
		 "run is\n"
		 "recorded. It goes on when the terminal is gone; `forge ps` lists it, "
		 "`forge\n"
		 "logs -f` follows it, `forge wait` waits for it and `forge kill` ends "
		 "it.\n\n"
		 "Exits 0 when the run is recorded, 125 when it was refused.",
	.first = "COMMAND",
	.stops = true,
	.goes_on = forge_spec_is_notebook,
	.bad_value = FORGE_EXIT_NOT_RUN,
	.run = cmd_submit,
	.opts = submit_opts,
};
