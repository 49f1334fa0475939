/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hidden commands that print parts of the manual pages, in scdoc, from the tables. The
 * build puts them where a page has a line @OPTIONS@, @COMMANDS@ or @CONFIG@.
 */
#include "cli/cli.h"

#include <string.h>

#include "config/config.h"

/* scdoc reads these characters as markup. */
static void print_text(const char *text)
{
	for (; *text; text++) {
		if (strchr("\\*_#[]|~`<>", *text))
			putchar('\\');
		putchar(*text);
	}
}

static void print_marked(char mark, const char *text)
{
	putchar(mark);
	print_text(text);
	putchar(mark);
}

static void print_option(const struct forge_opt *o)
{
	if (o->letter)
		printf("*-%c*, ", o->letter);
	fputs("*--", stdout);
	print_text(o->name);
	putchar('*');
	if (o->metavar) {
		putchar(' ');
		print_marked('_', o->metavar);
	}
	fputs("\n\t", stdout);
	print_text(o->help);
	putchar('.');
	if (o->type == FORGE_OPT_STRV)
		fputs(" May be given more than once.", stdout);
	if (o->builtin) {
		fputs(" Default: ", stdout);
		print_text(o->builtin);
		putchar('.');
	}
	fputs("\n\n", stdout);
}

static int man_options(int argc, char **argv)
{
	const struct forge_opt *opts = NULL;

	if (argc == 1 && strcmp(argv[0], "forge") == 0) {
		opts = forge_main_opts();
	} else if (argc == 1) {
		const struct forge_cmd *cmd = forge_cmd_find(argv[0]);
		if (!cmd)
			return forge_cmd_unknown(argv[0]);
		opts = cmd->opts();
	} else {
		return forge_print_usage(&forge_cmd_man_options, NULL);
	}
	for (; opts->type != FORGE_OPT_END; opts++) {
		if (opts->type == FORGE_OPT_GROUP)
			printf("## %s\n\n", opts->help);
		else
			print_option(opts);
	}
	return FORGE_EXIT_OK;
}

static int man_commands(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	for (size_t i = 0; forge_cmds[i]; i++) {
		const struct forge_cmd *cmd = forge_cmds[i];
		char synopsis[FORGE_SYNOPSIS_MAX];

		if (!cmd->help)
			continue;
		print_marked('*', cmd->name);
		putchar(' ');
		print_text(forge_cmd_synopsis(cmd, synopsis));
		fputs("\n\t", stdout);
		print_text(cmd->help);
		fputs(".\n\n", stdout);
	}
	return FORGE_EXIT_OK;
}

static void print_key(const struct forge_config_key *key, void *arg)
{
	(void)arg;
	print_marked('*', key->path);
	fputs(" (", stdout);
	print_text(key->type);
	fputs(")\n\t", stdout);
	print_text(key->help);
	putchar('.');
	if (key->builtin && *key->builtin) {
		fputs(" Default: ", stdout);
		print_text(key->builtin);
		putchar('.');
	}
	fputs("\n\n", stdout);
}

static int man_config(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	forge_config_each_key(print_key, NULL);
	return FORGE_EXIT_OK;
}

static const struct forge_opt *no_opts(void)
{
	static const struct forge_opt opts[] = { FORGE_HELP_ROW, FORGE_OPTS_END };

	return opts;
}

const struct forge_cmd forge_cmd_man_options = {
	.name = "__man-options",
	.synopsis = "NAME",
	.bad_value = FORGE_EXIT_FAILED,
	.run = man_options,
	.opts = no_opts,
};

const struct forge_cmd forge_cmd_man_commands = {
	.name = "__man-commands",
	.synopsis = "",
	.bad_value = FORGE_EXIT_FAILED,
	.run = man_commands,
	.opts = no_opts,
};

const struct forge_cmd forge_cmd_man_config = {
	.name = "__man-config",
	.synopsis = "",
	.bad_value = FORGE_EXIT_FAILED,
	.run = man_config,
	.opts = no_opts,
};
