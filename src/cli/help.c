/* SPDX-License-Identifier: Apache-2.0 */
/* forge --help and forge help NAME, printed from the tables. */
#include "cli/cli.h"

#include <string.h>

#define HELP_COLUMN 30 /* where the help of an option starts */

static void print_option(FILE *f, const struct forge_opt *o)
{
	int n = o->letter ? fprintf(f, "  -%c, --%s", o->letter, o->name)
			  : fprintf(f, "      --%s", o->name);

	if (o->metavar)
		n += fprintf(f, " %s", o->metavar);
	if (n > HELP_COLUMN - 2) {
		putc('\n', f);
		n = 0;
	}
	fprintf(f, "%*s%s", HELP_COLUMN - n, "", o->help);
	if (o->builtin)
		fprintf(f, " (default %s)", o->builtin);
	if (o->type == FORGE_OPT_STRV)
		fputs(" (repeatable)", f);
	putc('\n', f);
}

static void print_options(FILE *f, const struct forge_opt *opts)
{
	if (opts->type != FORGE_OPT_GROUP)
		fputs("\nOptions:\n", f);
	for (const struct forge_opt *o = opts; o->type != FORGE_OPT_END; o++) {
		if (o->type == FORGE_OPT_GROUP)
			fprintf(f, "\n%s:\n", o->help);
		else
			print_option(f, o);
	}
}

void forge_help_print(FILE *f)
{
	fputs("usage: forge COMMAND [OPTIONS] [ARG...]\n\n"
	      "Run scientific analyses in a sandbox, under a budget, with a record.\n\n"
	      "Commands:\n",
	      f);
	for (size_t i = 0; forge_cmds[i]; i++)
		if (forge_cmds[i]->help)
			fprintf(f, "  %-14s%s\n", forge_cmds[i]->name,
				forge_cmds[i]->help);
	print_options(f, forge_main_opts());
	fputs("\nExample: forge run --memory 4G --timeout 2h -i data fit.py data/x.csv\n"
	      "Try 'forge help COMMAND' for the options of one command.\n",
	      f);
}

void forge_help_cmd(FILE *f, const struct forge_cmd *cmd)
{
	char synopsis[FORGE_SYNOPSIS_MAX];

	fprintf(f, "usage: forge %s %s\n", cmd->name, forge_cmd_synopsis(cmd, synopsis));
	if (cmd->examples)
		fprintf(f, "\nExamples:\n%s", cmd->examples);
	if (cmd->verbs) {
		putc('\n', f);
		forge_verbs_print(f, cmd);
	}
	if (cmd->about)
		fprintf(f, "\n%s\n", cmd->about);
	print_options(f, cmd->opts());
}

static int run_help(int argc, char **argv)
{
	int refused = forge_refuse_words(&forge_cmd_help, argc, argv, 1);

	if (refused)
		return refused;
	if (argc == 0) {
		forge_help_print(stdout);
		return FORGE_EXIT_OK;
	}
	const struct forge_cmd *cmd = forge_cmd_find(argv[0]);
	if (!cmd)
		return forge_cmd_unknown(argv[0]);
	forge_help_cmd(stdout, cmd);
	return FORGE_EXIT_OK;
}

static const struct forge_opt *help_opts(void)
{
	static const struct forge_opt opts[] = { FORGE_HELP_ROW, FORGE_OPTS_END };

	return opts;
}

const struct forge_cmd forge_cmd_help = {
	.name = "help",
	.synopsis = "[NAME]",
	.help = "Show how a command is used",
	.first = "NAME",
	.bad_value = FORGE_EXIT_FAILED,
	.run = run_help,
	.opts = help_opts,
};
