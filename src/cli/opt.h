/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Option tables. One row drives parsing, --help, the man page and the shell completions;
 * nothing about an option is written twice.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/strv.h"

enum forge_opt_type {
	FORGE_OPT_END,
	FORGE_OPT_GROUP,   /* no option: help is a heading for the rows that follow */
	FORGE_OPT_FLAG,    /* dest: bool * */
	FORGE_OPT_UINT,    /* dest: unsigned * */
	FORGE_OPT_STRING,  /* dest: const char ** */
	FORGE_OPT_WORD,    /* a word of metavar, "none|host"; dest: const char ** */
	FORGE_OPT_STRV,    /* repeatable; dest: struct forge_strv *, the command frees */
};

struct forge_opt {
	enum forge_opt_type type;
	char letter;          /* 0: long form only */
	const char *name;     /* without the dashes */
	const char *metavar;  /* NULL for flags; "FILE" and "PATH" complete as files */
	const char *help;     /* one line, no full stop */
	void *dest;
	const char *builtin;  /* the default to show, NULL: none */
};

/* Rows of one table: a parser has one bit for each. */
#define FORGE_OPTS_MAX 64

/* The conditional makes a destination of the wrong type a compile error. */
#define FORGE_OPT_ROW(t, l, n, m, d, h) \
	{ .type = (t), .letter = (l), .name = (n), .metavar = (m), .help = (h), \
	  .dest = (d) }
#define FORGE_FLAG(l, n, d, h) \
	FORGE_OPT_ROW(FORGE_OPT_FLAG, l, n, NULL, 1 ? (d) : (bool *)0, h)
#define FORGE_UINT(l, n, m, d, h) \
	FORGE_OPT_ROW(FORGE_OPT_UINT, l, n, m, 1 ? (d) : (unsigned *)0, h)
#define FORGE_STRING(l, n, m, d, h) \
	FORGE_OPT_ROW(FORGE_OPT_STRING, l, n, m, 1 ? (d) : (const char **)0, h)
#define FORGE_WORD(l, n, m, d, h) \
	FORGE_OPT_ROW(FORGE_OPT_WORD, l, n, m, 1 ? (d) : (const char **)0, h)
#define FORGE_STRV(l, n, m, d, h) \
	FORGE_OPT_ROW(FORGE_OPT_STRV, l, n, m, 1 ? (d) : (struct forge_strv *)0, h)
#define FORGE_GROUP(h) { .type = FORGE_OPT_GROUP, .help = (h) }
#define FORGE_OPTS_END { .type = FORGE_OPT_END }

/* Every row that is an option, in order. */
#define forge_opt_foreach(o, table)                                              \
	for (const struct forge_opt *o = (table); o->type != FORGE_OPT_END; o++) \
		if (o->type != FORGE_OPT_GROUP)

/*
 * Parses argv[1..argc) up to the first word that is not an option, or past "--"; the
 * words after that are not parsed. Returns the index of the first remaining word, or
 *   -EINVAL   wrong use: unknown option, missing value, a value for a flag, given twice;
 *   -EDOM     right use, but an invalid value;
 * with a message that names the option and, for an unknown one, the nearest that exists.
 * Names match exactly; an abbreviation today would be ambiguous tomorrow.
 */
FORGE_MUST_CHECK int forge_opt_parse(const struct forge_opt *opts, int argc, char **argv,
				     struct forge_error *err);
/*
 * The same for a command whose words are not a command line of another program: options
 * may stand anywhere before "--". The words are moved to argv[1..n), argv[n] is NULL.
 * Returns n or an error as above.
 */
FORGE_MUST_CHECK int forge_opt_permute(const struct forge_opt *opts, int argc,
				       char **argv, struct forge_error *err);

/* The option that this word is in full, "--name", "--name=value" or "-n"; NULL: none. */
const struct forge_opt *forge_opt_of(const struct forge_opt *opts, const char *word);

/*
 * Steps through "a|b|c": *words moves on, *ret_len is the length of the word returned;
 * NULL at the end.
 */
const char *forge_word_next(const char **words, size_t *ret_len);
/* Whether text is one of "a|b|c". */
bool forge_word_is_one(const char *words, const char *text);
