/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Option and command tables. One row drives parsing, --help, the man page and the shell
 * completions; nothing about an option is written twice.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/error.h"
#include "base/strv.h"

enum forge_opt_type {
	FORGE_OPT_END,
	FORGE_OPT_FLAG,    /* dest: bool * */
	FORGE_OPT_UINT,    /* dest: unsigned * */
	FORGE_OPT_STRING,  /* dest: const char ** */
	FORGE_OPT_STRV,    /* repeatable; dest: struct forge_strv * */
};

struct forge_opt {
	enum forge_opt_type type;
	char letter;          /* 0: long form only */
	const char *name;     /* without the dashes */
	const char *metavar;  /* NULL for flags; "FILE" and "DIR" complete as paths */
	const char *help;     /* one line, no full stop */
	void *dest;
};

/* The conditional makes a destination of the wrong type a compile error. */
#define FORGE_FLAG(l, n, d, h)      { FORGE_OPT_FLAG, (l), (n), NULL, (h), 1 ? (d) : (bool *)0 }
#define FORGE_UINT(l, n, m, d, h)   { FORGE_OPT_UINT, (l), (n), (m), (h), 1 ? (d) : (unsigned *)0 }
#define FORGE_STRING(l, n, m, d, h) { FORGE_OPT_STRING, (l), (n), (m), (h), 1 ? (d) : (const char **)0 }
#define FORGE_STRV(l, n, m, d, h)   { FORGE_OPT_STRV, (l), (n), (m), (h), 1 ? (d) : (struct forge_strv *)0 }
#define FORGE_OPTS_END              { FORGE_OPT_END, 0, NULL, NULL, NULL, NULL }

/*
 * Parses argv[1..argc) up to the first word that is not an option, or "--". Options after
 * it belong to the command. Returns the index of the first remaining word or -EINVAL with
 * a message that names the option and, for an unknown one, the nearest that exists.
 */
FORGE_MUST_CHECK int forge_opt_parse(const struct forge_opt *opts, int argc, char **argv,
				     struct forge_error *err);

/* Shared by every command; main.c owns the table. */
struct forge_cmd {
	const char *name;
	const char *synopsis;  /* "[OPTIONS] [--] COMMAND [ARG...]" */
	const char *help;      /* one line for `forge --help` */
	const char *about;     /* paragraphs for `forge help NAME` and the man page, may be NULL */
	/* argv[0] is the command's name. Returns the exit status. */
	int (*run)(int argc, char **argv);
	/* The rows, with live destinations; for help, man pages and completions. */
	const struct forge_opt *(*opts)(void);
};
extern const struct forge_cmd forge_cmds[]; /* ends with name == NULL */

void forge_help_print(FILE *f);                               /* forge --help */
void forge_help_cmd(FILE *f, const struct forge_cmd *cmd);    /* forge help NAME */
