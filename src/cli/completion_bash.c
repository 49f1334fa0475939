/* SPDX-License-Identifier: Apache-2.0 */
/* The bash completion script: generated case tables, a fixed walk over the line. */
#include "cli/completion.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

/* "a|b" as "a b". */
static void print_words(const char *words)
{
	size_t len;

	for (const char *w; (w = forge_word_next(&words, &len));)
		printf(" %.*s", (int)len, w);
}

static void print_command_names(void)
{
	for (size_t i = 0; forge_cmds[i]; i++)
		if (forge_cmds[i]->help)
			printf(" %s", forge_cmds[i]->name);
}

/* name is "" for forge itself. */
static void print_options(const char *name, const struct forge_opt *opts)
{
	printf("\t'%s') REPLY='", name);
	forge_opt_foreach (o, opts) {
		if (o->letter)
			printf("-%c ", o->letter);
		printf("--%s ", o->name);
	}
	puts("' ;;");
}

static void print_value(const char *name, const struct forge_opt *o)
{
	putchar('\t');
	if (o->letter)
		printf("'%s -%c' | ", name, o->letter);
	printf("'%s --%s') REPLY='", name, o->name);
	if (o->type == FORGE_OPT_WORD) {
		fputs("words", stdout);
		print_words(o->metavar);
	} else if (forge_opt_names(o)) {
		printf("names %s", forge_opt_names(o));
	} else {
		fputs(forge_opt_is_file(o) ? "file" : "text", stdout);
	}
	puts("' ;;");
}

static void print_values(const struct forge_cmd *cmd)
{
	forge_opt_foreach (o, cmd->opts()) {
		if (o->type != FORGE_OPT_FLAG)
			print_value(cmd->name, o);
	}
}

static void print_first(const struct forge_cmd *cmd)
{
	char buf[FORGE_SYNOPSIS_MAX];
	const char *first = forge_cmd_first(cmd, buf);

	if (!first)
		return;
	printf("\t'%s') REPLY='", cmd->name);
	if (strcmp(first, "COMMAND") == 0) {
		fputs("command", stdout);
	} else if (strcmp(first, "RUN") == 0) {
		printf("names %s", forge_cmd_names_of(cmd));
	} else {
		fputs("words", stdout);
		if (strcmp(first, "NAME") == 0)
			print_command_names();
		else
			print_words(first);
	}
	puts("' ;;");
}

static void print_tables(void)
{
	puts("# The options of a command.\n_forge_options()\n{\n\tcase $1 in");
	print_options("", forge_main_opts());
	for (size_t i = 0; forge_cmds[i]; i++)
		if (forge_cmds[i]->help)
			print_options(forge_cmds[i]->name, forge_cmds[i]->opts());
	puts("\t*) REPLY='' ;;\n\tesac\n}\n");

	puts("# What the value of an option is; nothing for one that takes none.\n"
	     "_forge_value()\n{\n\tcase \"$1 $2\" in");
	for (size_t i = 0; forge_cmds[i]; i++)
		if (forge_cmds[i]->help)
			print_values(forge_cmds[i]);
	puts("\t*) REPLY='' ;;\n\tesac\n}\n");

	fputs("# What the first word of a command is.\n_forge_first()\n{\n\tcase $1 in\n"
	      "\t'') REPLY='words",
	      stdout);
	print_command_names();
	puts("' ;;");
	for (size_t i = 0; forge_cmds[i]; i++)
		if (forge_cmds[i]->help)
			print_first(forge_cmds[i]);
	puts("\t*) REPLY='' ;;\n\tesac\n}\n");

	puts("# What its other words are.\n_forge_rest()\n{\n\tcase $1 in");
	for (size_t i = 0; forge_cmds[i]; i++) {
		if (!forge_cmds[i]->help)
			continue;
		if (forge_cmd_takes_file(forge_cmds[i]))
			printf("\t'%s') REPLY='file' ;;\n", forge_cmds[i]->name);
		else if (forge_cmd_names_of(forge_cmds[i]))
			printf("\t'%s') REPLY='names %s' ;;\n", forge_cmds[i]->name,
			       forge_cmd_names_of(forge_cmds[i]));
	}
	puts("\t*) REPLY='' ;;\n\tesac\n}\n");
}

/*
 * "=" is a word of its own in COMP_WORDS, so "--network=ho" arrives as three words. The
 * loop knows which words are values, and stops at the command of `forge run`.
 */
static const char walk[] =
	"_forge_reply()\n"
	"{\n"
	"\tcase $1 in\n"
	"\tfile)\n"
	"\t\tcompopt -o filenames 2>/dev/null\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$2\")\n"
	"\t\t;;\n"
	"\tcommand)\n"
	"\t\tcompopt -o filenames 2>/dev/null\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -c -f -- \"$2\" | sort -u)\n"
	"\t\t;;\n"
	/* Not compgen -W: it would expand the words. */
	"\tnames*)\n"
	"\t\tlocal forge=${COMP_WORDS[0]/#\\~/$HOME} name\n"
	"\t\twhile IFS= read -r name; do\n"
	"\t\t\t[[ $name == \"$2\"* ]] && COMPREPLY+=(\"$name\")\n"
	"\t\tdone < <(\"$forge\" __names \"${1#names }\" 2>/dev/null | sort -u)\n"
	"\t\t;;\n"
	"\twords*)\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -W \"${1#words}\" -- \"$2\")\n"
	"\t\t;;\n"
	"\tesac\n"
	"}\n"
	"\n"
	"_forge()\n"
	"{\n"
	"\tlocal cur=${COMP_WORDS[COMP_CWORD]} i w REPLY=''\n"
	"\tlocal cmd='' first='' ended='' value=''\n"
	"\tCOMPREPLY=()\n"
	"\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	"\t\tw=${COMP_WORDS[i]}\n"
	"\t\tif [[ -z $ended && $w == -- ]]; then\n"
	"\t\t\tended=1\n"
	"\t\telif [[ -z $ended && $w == -* ]]; then\n"
	"\t\t\t_forge_value \"$cmd\" \"$w\"\n"
	"\t\t\t[[ -z $REPLY ]] && continue\n"
	"\t\t\tvalue=$REPLY\n"
	"\t\t\t((++i))\n"
	"\t\t\t[[ ${COMP_WORDS[i]} == = ]] && ((i < COMP_CWORD)) && ((++i))\n"
	"\t\t\t((i < COMP_CWORD)) && value=''\n"
	"\t\telif [[ -z $cmd ]]; then\n"
	"\t\t\tcmd=$w\n"
	"\t\telse\n"
	"\t\t\tfirst=${first:-$w}\n"
	"\t\t\t_forge_first \"$cmd\"\n"
	"\t\t\t[[ $REPLY == command ]] && break\n"
	"\t\tfi\n"
	"\tdone\n"
	"\t_forge_first \"$cmd\"\n"
	"\tif [[ -n $value ]]; then\n"
	"\t\t[[ $cur == = ]] && cur=''\n"
	"\t\t_forge_reply \"$value\" \"$cur\"\n"
	"\telif [[ -n $first && $REPLY == command ]]; then\n"
	"\t\tif declare -F _command_offset >/dev/null; then\n"
	"\t\t\t_command_offset \"$i\"\n"
	"\t\telse\n"
	"\t\t\t_forge_reply file \"$cur\"\n"
	"\t\tfi\n"
	"\telif [[ -z $ended && $cur == -* ]]; then\n"
	"\t\t_forge_options \"$cmd\"\n"
	"\t\t_forge_reply \"words $REPLY\" \"$cur\"\n"
	"\telif [[ -n $first ]]; then\n"
	"\t\t_forge_rest \"$cmd\"\n"
	"\t\t_forge_reply \"$REPLY\" \"$cur\"\n"
	"\telse\n"
	"\t\t_forge_reply \"$REPLY\" \"$cur\"\n"
	"\tfi\n"
	"}\n"
	"complete -F _forge forge";

void forge_completion_bash(void)
{
	puts("# bash completion, printed by \"forge completion bash\" from its tables.\n"
	     "# shellcheck shell=bash\n");
	print_tables();
	puts(walk);
}
