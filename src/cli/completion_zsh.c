/* SPDX-License-Identifier: Apache-2.0 */
/* The zsh completion script: one function of _arguments rows for each command. */
#include "cli/completion.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

/* Inside '...': a quote, and the characters that end a part of an _arguments row. */
static void print_quoted(const char *text, const char *special)
{
	for (; *text; text++) {
		if (*text == '\'') {
			fputs("'\\''", stdout);
			continue;
		}
		if (strchr(special, *text))
			putchar('\\');
		putchar(*text);
	}
}

/* Prints the action that completes a value or a word. */
static void print_words(const char *words)
{
	size_t len;
	char open = '(';

	for (const char *w; (w = forge_word_next(&words, &len)); open = ' ')
		printf("%c%.*s", open, (int)len, w);
	putchar(')');
}

static void print_value(const struct forge_opt *o)
{
	if (!o->metavar)
		return;
	putchar(':');
	print_quoted(o->metavar, ":\\");
	putchar(':');
	if (o->type == FORGE_OPT_WORD)
		print_words(o->metavar);
	else if (forge_opt_names(o))
		printf(" _forge_names %s", forge_opt_names(o));
	else
		fputs(forge_opt_is_file(o) ? "_files" : " ", stdout);
}

static void print_option(const struct forge_opt *o)
{
	bool is_flag = o->type == FORGE_OPT_FLAG;

	fputs("\t\t", stdout);
	if (o->type == FORGE_OPT_STRV)
		fputs("'*'", stdout);
	else if (o->letter)
		printf("'(-%c --%s)'", o->letter, o->name);
	if (o->letter)
		printf("{-%c%s,--%s%s}", o->letter, is_flag ? "" : "+", o->name,
		       is_flag ? "" : "=");
	else
		printf("'--%s%s'", o->name, is_flag ? "" : "=");
	fputs("'[", stdout);
	print_quoted(o->help, "\\]:");
	putchar(']');
	print_value(o);
	puts("' \\");
}

static void print_command_names(void)
{
	char open = '(';

	for (size_t i = 0; forge_cmds[i]; i++) {
		if (!forge_cmds[i]->help)
			continue;
		printf("%c%s", open, forge_cmds[i]->name);
		open = ' ';
	}
	putchar(')');
}

static void print_command(const struct forge_cmd *cmd)
{
	printf("_forge_%s() {\n\t_arguments -s%s \\\n", cmd->name,
	       cmd->stops ? " -A '-*'" : "");
	forge_opt_foreach (o, cmd->opts())
		print_option(o);
	char buf[FORGE_SYNOPSIS_MAX];
	const char *first = forge_cmd_first(cmd, buf);
	if (!first) {
		puts("\t\t&& return\n}\n");
		return;
	}
	if (strcmp(first, "COMMAND") == 0) {
		puts("\t\t'(-)1:command: _command_names -e' \\\n"
		     "\t\t'*::arguments: _normal'\n}\n");
		return;
	}
	const char *names = forge_cmd_names_of(cmd);
	if (strcmp(first, "RUN") == 0) {
		printf("\t\t'*:run: _forge_names %s'\n}\n\n", names);
		return;
	}
	fputs("\t\t'1:word:", stdout);
	if (strcmp(first, "NAME") == 0)
		print_command_names();
	else
		print_words(first);
	if (names)
		printf("' \\\n\t\t'*:name: _forge_names %s'\n}\n\n", names);
	else
		puts(forge_cmd_takes_file(cmd) ? "' \\\n\t\t'*:file:_files'\n}\n"
					       : "'\n}\n");
}

static void print_main(void)
{
	puts("_forge() {\n"
	     "\tlocal curcontext=$curcontext state line\n"
	     "\tlocal -a forge_commands\n"
	     "\ttypeset -A opt_args\n"
	     "\tforge_commands=(");
	for (size_t i = 0; forge_cmds[i]; i++) {
		if (!forge_cmds[i]->help)
			continue;
		printf("\t\t'%s:", forge_cmds[i]->name);
		print_quoted(forge_cmds[i]->help, ":\\");
		puts("'");
	}
	puts("\t)\n\t_arguments -C \\");
	forge_opt_foreach (o, forge_main_opts())
		print_option(o);
	puts("\t\t'1: :->command' \\\n"
	     "\t\t'*:: :->words'\n"
	     "\tcase $state in\n"
	     "\tcommand) _describe command forge_commands ;;\n"
	     "\twords) (( $+functions[_forge_$line[1]] )) && _forge_$line[1] ;;\n"
	     "\tesac\n"
	     "}\n");
}

void forge_completion_zsh(void)
{
	puts("#compdef forge\n"
	     "# zsh completion, printed by \"forge completion zsh\" from its tables.\n\n"
	     "_forge_names() {\n"
	     "\tlocal -aU names\n"
	     "\tnames=(${(f)\"$(command ${service:-forge} __names $1 2>/dev/null)\"})\n"
	     "\tcompadd -a names\n"
	     "}\n");
	for (size_t i = 0; forge_cmds[i]; i++)
		if (forge_cmds[i]->help)
			print_command(forge_cmds[i]);
	print_main();
	/* Autoloaded, the file is the body of _forge; sourced, it registers itself. */
	puts("if [[ $funcstack[1] == _forge ]]; then\n"
	     "\t_forge \"$@\"\n"
	     "else\n"
	     "\tcompdef _forge forge\n"
	     "fi");
}
