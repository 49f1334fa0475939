/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the columns, narrows the widest until the table fits, wraps at blanks. */
#include "cli/table.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define GAP	  2 /* blanks between columns */
#define NARROWEST 8 /* no column is made narrower than this */

struct layout {
	size_t columns;
	size_t width[FORGE_TABLE_COLUMNS];
	bool has_colour;
	bool cuts; /* one line per row */
};

static const char *cell_text(const struct forge_cell *cell)
{
	return cell->text && *cell->text ? cell->text : "-";
}

/* Characters in the first n bytes: UTF-8 continuation bytes do not count. */
static size_t display_width(const char *s, size_t n)
{
	size_t w = 0;

	for (size_t i = 0; i < n; i++)
		w += ((unsigned char)s[i] & 0xc0) != 0x80;
	return w;
}

size_t forge_terminal_width(FILE *f)
{
	struct winsize ws;

	if (!isatty(fileno(f)))
		return 0;
	if (ioctl(fileno(f), TIOCGWINSZ, &ws) < 0 || ws.ws_col == 0)
		return 80;
	return ws.ws_col;
}

static size_t widest(const struct layout *l)
{
	size_t at = l->columns > 1; /* the first column names the row, so it is not cut */

	for (size_t c = at + 1; c < l->columns; c++)
		if (l->width[c] >= l->width[at])
			at = c;
	return at;
}

static void fit(struct layout *l, size_t available)
{
	size_t total = (l->columns - 1) * GAP, last = l->columns - 1;

	for (size_t c = 0; c < l->columns; c++)
		total += l->width[c];
	if (l->cuts) {
		size_t over = total > available ? total - available : 0;
		l->width[last] -= over < l->width[last] ? over : l->width[last];
		return;
	}
	for (; total > available; total--) {
		size_t at = widest(l);
		if (l->width[at] <= NARROWEST)
			return;
		l->width[at]--;
	}
}

/* Bytes of s for one line of width characters; breaks at a blank if possible. */
static size_t line_length(const char *s, size_t width)
{
	size_t n = 0, chars = 0, blank = 0;

	for (; s[n]; n++) {
		if (((unsigned char)s[n] & 0xc0) != 0x80 && chars++ == width)
			return s[n] == ' ' || blank == 0 ? n : blank;
		if (s[n] == ' ')
			blank = n;
	}
	return n;
}

/* Bytes of s in the first width characters. */
static size_t cut_length(const char *s, size_t width)
{
	size_t n = 0, chars = 0;

	for (; s[n]; n++)
		if (((unsigned char)s[n] & 0xc0) != 0x80 && chars++ == width)
			break;
	return n;
}

static void print_cell(FILE *f, const struct forge_cell *cell, const char *s, size_t n,
		       const struct layout *l)
{
	bool has_colour = l->has_colour && cell->colour != FORGE_PLAIN;

	if (has_colour)
		fputs(forge_colour_code(cell->colour), f);
	forge_print_clean(f, s, n);
	if (has_colour)
		fputs(forge_colour_code(FORGE_PLAIN), f);
}

/* Prints one line of a row and advances rest; false when nothing was left. */
static bool print_line(FILE *f, const struct forge_cell *row, const char **rest,
		       const struct layout *l)
{
	size_t pad = 0;
	bool is_some = false;

	for (size_t c = 0; c < l->columns; c++) {
		size_t n = l->cuts ? cut_length(rest[c], l->width[c])
				   : line_length(rest[c], l->width[c]);

		if (n > 0) {
			fprintf(f, "%*s", (int)pad, "");
			print_cell(f, &row[c], rest[c], n, l);
			pad = 0;
			is_some = true;
		}
		pad += l->width[c] - display_width(rest[c], n) + GAP;
		rest[c] += n + strspn(rest[c] + n, " ");
	}
	if (is_some)
		putc('\n', f);
	return is_some;
}

static void print(FILE *f, const struct forge_cell *cells, size_t columns, size_t rows,
		  bool cuts)
{
	struct layout l = { .has_colour = forge_has_colour(f), .cuts = cuts };
	size_t available = forge_terminal_width(f);

	l.columns = columns < FORGE_TABLE_COLUMNS ? columns : FORGE_TABLE_COLUMNS;
	for (size_t r = 0; r < rows; r++) {
		for (size_t c = 0; c < l.columns; c++) {
			const char *text = cell_text(&cells[r * columns + c]);
			size_t w = display_width(text, strlen(text));
			if (w > l.width[c])
				l.width[c] = w;
		}
	}
	if (available > 0 && l.columns > 0)
		fit(&l, available);
	for (size_t r = 0; r < rows; r++) {
		const char *rest[FORGE_TABLE_COLUMNS] = { NULL };

		for (size_t c = 0; c < l.columns; c++)
			rest[c] = cell_text(&cells[r * columns + c]);
		while (print_line(f, &cells[r * columns], rest, &l) && !cuts)
			;
	}
}

void forge_table_print(FILE *f, const struct forge_cell *cells, size_t columns,
		       size_t rows)
{
	print(f, cells, columns, rows, false);
}

void forge_table_print_lines(FILE *f, const struct forge_cell *cells, size_t columns,
			     size_t rows)
{
	print(f, cells, columns, rows, true);
}
