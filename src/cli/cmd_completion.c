/* SPDX-License-Identifier: Apache-2.0 */
/* forge completion: the script for a shell, on stdout. */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>

#include "cli/completion.h"

static const struct forge_opt *completion_opts(void)
{
	static const struct forge_opt opts[] = { FORGE_HELP_ROW, FORGE_OPTS_END };

	return opts;
}

bool forge_opt_is_file(const struct forge_opt *o)
{
	return o->metavar &&
	       (strcmp(o->metavar, "FILE") == 0 || strcmp(o->metavar, "PATH") == 0);
}

const char *forge_opt_names(const struct forge_opt *o)
{
	return strcmp(o->name, "runtime") == 0			      ? "runtimes"
	       : o->metavar && strcmp(o->metavar, "ANALYSIS_ID") == 0 ? "analyses"
								      : NULL;
}

const char *forge_cmd_names_of(const struct forge_cmd *cmd)
{
	return cmd->first && strcmp(cmd->first, "RUN") == 0 ? "runs"
	       : strcmp(cmd->name, "runtime") == 0	    ? "runtimes"
							    : NULL;
}

bool forge_cmd_takes_file(const struct forge_cmd *cmd)
{
	return strstr(cmd->synopsis, "FILE") != NULL;
}

static int cmd_completion(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	int refused = forge_refuse_words(&forge_cmd_completion, argc, argv, 1);

	if (refused)
		return refused;
	if (argc == 1 && strcmp(argv[0], "bash") == 0) {
		forge_completion_bash();
		return FORGE_EXIT_OK;
	}
	if (argc == 1 && strcmp(argv[0], "zsh") == 0) {
		forge_completion_zsh();
		return FORGE_EXIT_OK;
	}
	if (argc == 0)
		(void)forge_fail(&err, EINVAL,
				 "completion: for which shell? (have: bash, zsh)");
	else
		(void)forge_fail(&err, EINVAL,
				 "completion: unknown shell '%s' (have: bash, zsh)",
				 argv[0]);
	return forge_print_usage(&forge_cmd_completion, &err);
}

const struct forge_cmd forge_cmd_completion = {
	.name = "completion",
	.synopsis = "bash|zsh",
	.help = "Print the completion script for a shell",
	.about = "bash: source <(forge completion bash)\n"
		 "zsh:  source <(forge completion zsh), after compinit",
	.first = "bash|zsh",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_completion,
	.opts = completion_opts,
};
