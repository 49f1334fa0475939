/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands as table rows, and the output of all commands: errors, warnings, colour, JSON.
 * Only this layer prints.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/opt.h"

enum forge_exit {
	FORGE_EXIT_OK = 0,
	FORGE_EXIT_FAILED = 1,
	FORGE_EXIT_USAGE = 2,
	FORGE_EXIT_NOT_REPORTED =
		123, /* forge run: it ran, but its record was not printed or stored */
	FORGE_EXIT_NOT_RUN = 125, /* forge run: nothing was run */
};

/* A verb of a command: forge runtime list. */
struct forge_verb {
	const char *name;
	const char
		*words;	  /* "NAME": one word follows, "[NAME]": may follow; NULL: none */
	const char *help; /* one line */
	/* word: the word after the verb, NULL: none. Returns the exit status. */
	int (*run)(const char *word);
};

struct forge_cmd {
	const char *name;
	const char *synopsis; /* "[OPTIONS] [--] COMMAND [ARG...]" */
	const char *help;     /* one line for `forge --help`; NULL: a hidden command */
	const char *examples; /* lines for `forge help NAME`, may be NULL */
	const char *about;    /* paragraphs for `forge help NAME`, may be NULL */
	/*
	 * The kind of its first word, for completion: "check|show" (these words),
	 * "COMMAND" (a program), "NAME" (a command of forge), "RUN" (as are the words
	 * after it); NULL: it takes no words.
	 */
	const char *first;
	bool stops; /* options end at the first word */
	/* ... unless this is true of it: it takes no options of its own; NULL: never */
	bool (*goes_on)(const char *word);
	int bad_value; /* exit status for an invalid value of an option */
	/*
	 * Its verbs, ended by a row without a name; NULL: it has none. With verbs,
	 * synopsis, first and run are not used.
	 */
	const struct forge_verb *verbs;
	/* Whether the options go with this verb: 0, or the exit status. NULL: all do. */
	int (*check)(const char *verb);
	/* argv has the words that remain after the options. Returns the exit status. */
	int (*run)(int argc, char **argv);
	/* The rows of its options. */
	const struct forge_opt *(*opts)(void);
};

extern const struct forge_cmd *const forge_cmds[]; /* main.c; ends with NULL */
extern const struct forge_cmd forge_cmd_run, forge_cmd_doctor, forge_cmd_gc,
	forge_cmd_submit, forge_cmd_ps, forge_cmd_show, forge_cmd_logs, forge_cmd_wait,
	forge_cmd_kill, forge_cmd_outputs, forge_cmd_post_process, forge_cmd_runtime,
	forge_cmd_executor, forge_cmd_health, forge_cmd_rm, forge_cmd_rerun,
	forge_cmd_resume, forge_cmd_diff, forge_cmd_top, forge_cmd_setup,
	forge_cmd_config, forge_cmd_completion, forge_cmd_help, forge_cmd_names,
	forge_cmd_attend, forge_cmd_watch, forge_cmd_node, forge_cmd_retry,
	forge_cmd_guard, forge_cmd_verify, forge_cmd_pipeline, forge_cmd_serve,
	forge_cmd_token, forge_cmd_mcp, forge_cmd_man_options, forge_cmd_man_commands,
	forge_cmd_metrics, forge_cmd_man_config;

/* Every command's table has this row; main.c handles it. */
extern bool forge_help_wanted;
#define FORGE_HELP_ROW FORGE_FLAG('h', "help", &forge_help_wanted, "Show this help")

/* --store, of `forge` and of all commands that use records; NULL: not given. */
extern const char *forge_store_wanted;
#define FORGE_STORE_ROW                                                                  \
	FORGE_STRING(0, "store", "URL", &forge_store_wanted,                             \
		     "Keep records there: sqlite:/path or postgresql://...")

/* The options of `forge` itself. */
const struct forge_opt *forge_main_opts(void);
/* NULL when there is none of this name; hidden commands are found too. */
const struct forge_cmd *forge_cmd_find(const char *name);
/* "[OPTIONS] list | check [NAME]": from the row, or made from the verbs. */
#define FORGE_SYNOPSIS_MAX 256
const char *forge_cmd_synopsis(const struct forge_cmd *cmd, char buf[FORGE_SYNOPSIS_MAX]);
/* The kind of the first word, see struct forge_cmd; from the verbs if there are any. */
const char *forge_cmd_first(const struct forge_cmd *cmd, char buf[FORGE_SYNOPSIS_MAX]);
/* One line for each verb. */
void forge_verbs_print(FILE *f, const struct forge_cmd *cmd);
/* Finds the verb and calls it. Returns the exit status. */
int forge_verb_run(const struct forge_cmd *cmd, int argc, char **argv);
/* Reports an unknown command and the nearest one. Returns FORGE_EXIT_USAGE. */
int forge_cmd_unknown(const char *name);
/* Whether the value of the option completes as a file name. */
bool forge_opt_is_file(const struct forge_opt *o);
/* The words of `forge __names` that it takes; NULL: none. */
const char *forge_opt_names(const struct forge_opt *o);
const char *forge_cmd_names_of(const struct forge_cmd *cmd);
/* Whether a word after the first completes as a file name. */
bool forge_cmd_takes_file(const struct forge_cmd *cmd);

void forge_help_print(FILE *f);				   /* forge --help */
void forge_help_cmd(FILE *f, const struct forge_cmd *cmd); /* forge help NAME */

/* "forge: file:line:col: message" and the hint, on stderr. */
void forge_print_error(const struct forge_error *err);
/* Asks on a terminal; true for "y" and "yes". Without a terminal it is true. */
FORGE_PRINTF(1, 2) bool forge_ask(const char *fmt, ...);
/* The same with a "warning: ". */
void forge_print_warning(const struct forge_error *err);
/* Prints the error and the usage line. Returns FORGE_EXIT_USAGE. */
int forge_print_usage(const struct forge_cmd *cmd, const struct forge_error *err);
/* Refuses words after the n that the command takes: 0 or FORGE_EXIT_USAGE. */
int forge_refuse_words(const struct forge_cmd *cmd, int argc, char **argv, int n);
/* Prints untrusted text: control characters, which could drive a terminal, become '?'. */
void forge_print_clean(FILE *f, const char *text, size_t len);
/* Prints a blank and a word of a command, in quotes where a shell needs them. */
void forge_print_word(FILE *f, const char *word);
/* Prints JSON on stdout: indented, keys in order of insertion, with a newline. */
void forge_print_json(const json_t *json);

/* Colour only where forge_has_colour(): a terminal, without NO_COLOR. */
enum forge_colour {
	FORGE_PLAIN,
	FORGE_BOLD,
	FORGE_DIM,
	FORGE_RED,
	FORGE_GREEN,
	FORGE_YELLOW,
};
bool forge_has_colour(FILE *f);
const char *forge_colour_code(enum forge_colour colour);

/* Repairs what crashed runs left; a failure is a warning. */
void forge_reconcile_first(void);
/* The same before a new run, where hundreds may start at once. */
void forge_reconcile_before_run(void);
