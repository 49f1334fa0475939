/* SPDX-License-Identifier: Apache-2.0 */
/* Aligned tables: wrapped to the width of a terminal, one line per row in a pipe. */
#pragma once

#include <stddef.h>
#include <stdio.h>

#include "cli/cli.h"

struct forge_cell {
	const char *text;	  /* borrowed; NULL prints as "-" */
	enum forge_colour colour; /* FORGE_PLAIN: none */
};

#define FORGE_TABLE_COLUMNS 16

/*
 * cells has rows * columns members, row by row; the first row is the heading. At most
 * FORGE_TABLE_COLUMNS columns are printed. Width counts characters, not cells of a
 * terminal: wide scripts may misalign, nothing is lost.
 */
void forge_table_print(FILE *f, const struct forge_cell *cells, size_t columns,
		       size_t rows);
/* The same with one line per row: the last column is cut at the terminal's width. */
void forge_table_print_lines(FILE *f, const struct forge_cell *cells, size_t columns,
			     size_t rows);
/* Columns of the terminal; 0: f is not a terminal. */
size_t forge_terminal_width(FILE *f);
