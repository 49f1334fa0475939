/* SPDX-License-Identifier: Apache-2.0 */
/* forge completion: prints the completion script of a shell. */
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
	char synopsis[FORGE_SYNOPSIS_MAX];

	return strstr(forge_cmd_synopsis(cmd, synopsis), "FILE") != NULL;
}

static int print_bash(const char *word)
{
	(void)word; /* not used */
	forge_completion_bash();
	return FORGE_EXIT_OK;
}

static int print_zsh(const char *word)
{
	(void)word; /* not used */
	forge_completion_zsh();
	return FORGE_EXIT_OK;
}

static const struct forge_verb verbs[] = {
	{ "bash", NULL, "source <(forge completion bash)", print_bash },
	{ "zsh", NULL, "source <(forge completion zsh), after compinit", print_zsh },
	{ .name = NULL },
};

const struct forge_cmd forge_cmd_completion = {
	.name = "completion",
	.help = "Print the completion script for a shell",
	.verbs = verbs,
	.bad_value = FORGE_EXIT_FAILED,
	.opts = completion_opts,
};
