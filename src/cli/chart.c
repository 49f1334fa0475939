/* SPDX-License-Identifier: Apache-2.0 */
/* Charts of blocks: braille where the locale has UTF-8, else '#'. */
#include "cli/chart.h"

#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/json.h"
#include "base/parse.h"
#include "cli/cli.h"

#define WIDTH_PIPE 80
#define WIDTH_MIN  40
#define WIDTH_MAX  400
#define LABEL	   11
#define ROWS	   6
/* A run that needs less of a limit than this is drawn without it: the chart would be flat. */
#define LIMIT_SHARE 0.25

enum unit { BYTES, CPUS, COUNT };

static const struct series {
	const char *name;
	size_t column;
	bool is_rate; /* drawn is how fast the column grows */
	enum unit unit;
	const char *limit, *peak; /* in the record */
} all_series[] = {
	{ "memory", 1, false, BYTES, "memory_bytes", "memory_peak_bytes" },
	{ "CPU", 2, true, CPUS, "cpus", NULL },
	{ "processes", 3, false, COUNT, "pids", "pids_peak" },
};

struct chart {
	FILE *f;
	const json_t *rows;
	bool is_utf8, has_colour;
	int width;	    /* cells, without the labels */
	int dots_x, dots_y; /* in a cell */
	double end;	    /* seconds */
};

/* A value of a point; NAN: not known. */
static double cell(const json_t *row, size_t column)
{
	const json_t *j = json_array_get(row, column);

	return json_is_number(j) ? json_number_value(j) : NAN;
}

static double larger(double a, double b)
{
	return isnan(a) || b > a ? b : a;
}

/* Between two points of a level, which is drawn as a line. */
static double between(double t0, double v0, double t1, double v1, double t)
{
	return isnan(v0) || t1 <= t0 ? v1 : v0 + (v1 - v0) * (t - t0) / (t1 - t0);
}

/* What is drawn for the time from..to: the most in it. Before the first point a level is not known. */
static double value_in(const struct chart *c, const struct series *s, double from,
		       double to)
{
	double t0 = 0, v0 = s->is_rate ? 0 : NAN, most = NAN;
	size_t i;
	const json_t *row;

	json_array_foreach (c->rows, i, row) {
		double t = cell(row, 0), v = cell(row, s->column);
		if (t0 > to)
			break;
		if (s->is_rate) {
			if (t > from && t > t0)
				most = larger(most, (v - v0) / (t - t0));
		} else if (t >= from && t <= to) {
			most = larger(most, v);
		} else if (t > to && t0 < from && !isnan(v0)) {
			most = larger(most, between(t0, v0, t, v, (from + to) / 2));
		}
		t0 = t;
		v0 = v;
	}
	return most;
}

static const char *format(char buf[FORGE_FORMAT_MAX], enum unit unit, double n)
{
	if (unit == BYTES)
		return forge_format_size(buf, (uint64_t)n);
	(void)snprintf(buf, FORGE_FORMAT_MAX, unit == COUNT || n >= 10 ? "%.0f" : "%.2f",
		       n);
	return buf;
}

static void colour(const struct chart *c, enum forge_colour which)
{
	if (c->has_colour)
		fputs(forge_colour_code(which), c->f);
}

static void put_code(FILE *f, unsigned code)
{
	const char text[] = { (char)(0xe0 | code >> 12),
			      (char)(0x80 | (code >> 6 & 0x3f)),
			      (char)(0x80 | (code & 0x3f)), '\0' };

	fputs(text, f);
}

/* One cell: heights are those of its dots_x columns, in dots; bottom is the height of its lower edge. */
static void put_cell(const struct chart *c, const int *heights, int bottom)
{
	static const unsigned bits[2][4] = { { 0x40, 0x04, 0x02, 0x01 },
					     { 0x80, 0x20, 0x10, 0x08 } };
	unsigned pattern = 0;

	for (int x = 0; x < c->dots_x; x++)
		for (int y = 0; y < c->dots_y; y++)
			if (heights[x] > bottom + y)
				pattern |= bits[x][y];
	if (!c->is_utf8)
		fputc(pattern ? '#' : ' ', c->f);
	else if (pattern)
		put_code(c->f, 0x2800 + pattern);
	else
		fputc(' ', c->f);
}

static void put_label(const struct chart *c, const char *text)
{
	colour(c, FORGE_DIM);
	fprintf(c->f, "%*s %s", LABEL, text, c->is_utf8 ? "│" : "|");
	colour(c, FORGE_PLAIN);
}

static void put_line(const struct chart *c, enum forge_colour which, const char *utf8,
		     char ascii)
{
	colour(c, which);
	for (int x = 0; x < c->width; x++)
		if (c->is_utf8)
			fputs(utf8, c->f);
		else
			fputc(ascii, c->f);
	colour(c, FORGE_PLAIN);
	fputc('\n', c->f);
}

static int height_of(const struct chart *c, double value, double top)
{
	if (isnan(value) || value <= 0 || top <= 0)
		return 0;
	int dots = (int)(value / top * ROWS * c->dots_y + 0.5);
	return dots < 1 ? 1 : dots > ROWS * c->dots_y ? ROWS * c->dots_y : dots;
}

static void draw(const struct chart *c, const struct series *s, double top,
		 bool has_limit)
{
	int n = c->width * c->dots_x, heights[WIDTH_MAX * 2];
	char label[FORGE_FORMAT_MAX];

	for (int x = 0; x < n; x++)
		heights[x] = height_of(
			c, value_in(c, s, c->end * x / n, c->end * (x + 1) / n), top);
	if (has_limit) {
		put_label(c, format(label, s->unit, top));
		put_line(c, FORGE_RED, "╌", '-');
	}
	for (int row = ROWS - 1; row >= 0; row--) {
		bool is_top = row == ROWS - 1 && !has_limit;
		put_label(c, is_top ? format(label, s->unit, top) : row == 0 ? "0" : "");
		colour(c, has_limit ? FORGE_YELLOW : FORGE_GREEN);
		for (int x = 0; x < c->width; x++)
			put_cell(c, &heights[x * c->dots_x], row * c->dots_y);
		colour(c, FORGE_PLAIN);
		fputc('\n', c->f);
	}
}

static void draw_series(const struct chart *c, const struct series *s,
			const json_t *record)
{
	const json_t *limits = json_object_get(record, "limits");
	const json_t *exact =
		s->peak ? json_object_get(json_object_get(record, "usage"), s->peak)
			: NULL;
	double most = value_in(c, s, 0, c->end);
	double limit = json_number_value(json_object_get(limits, s->limit));
	char text[2][FORGE_FORMAT_MAX];

	colour(c, FORGE_BOLD);
	fprintf(c->f, "%s", s->name);
	colour(c, FORGE_PLAIN);
	if (isnan(most)) {
		fprintf(c->f, "  not known\n");
		return;
	}
	/* The most may lie between two points; the record has it exactly. */
	double peak = json_is_number(exact) ? json_number_value(exact) : most;
	fprintf(c->f, "  at most %s", format(text[0], s->unit, peak));
	bool has_limit = limit > 0 && most >= limit * LIMIT_SHARE;
	if (limit > 0)
		fprintf(c->f, ", limit %s%s", format(text[1], s->unit, limit),
			has_limit ? (c->is_utf8 ? " (╌╌╌)" : " (---)")
				  : " (above this chart)");
	fputc('\n', c->f);
	draw(c, s, has_limit ? limit : most > 0 ? most : 1, has_limit);
}

static int width_of(FILE *f)
{
	struct winsize size = { 0 };
	int width = WIDTH_PIPE;

	if (isatty(fileno(f)) && ioctl(fileno(f), TIOCGWINSZ, &size) == 0 && size.ws_col)
		width = size.ws_col;
	width = width < WIDTH_MIN ? WIDTH_MIN : width > WIDTH_MAX ? WIDTH_MAX : width;
	return width - LABEL - 2;
}

static void put_axis(const struct chart *c)
{
	char end[FORGE_FORMAT_MAX];
	size_t n = json_array_size(c->rows);

	(void)forge_format_duration(end, (uint64_t)(c->end * 1e6));
	fprintf(c->f, "%*s 0 s%*s\n", LABEL + 1, "", c->width - 3, end);
	fprintf(c->f, "%zu point%s\n", n, n == 1 ? "" : "s");
}

void forge_chart_print(FILE *f, const json_t *record, const json_t *samples)
{
	bool is_utf8 =
		setlocale(LC_CTYPE, "") && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	struct chart c = { .f = f,
			   .rows = json_object_get(samples, "samples"),
			   .is_utf8 = is_utf8,
			   .has_colour = forge_has_colour(f),
			   .width = width_of(f),
			   .dots_x = is_utf8 ? 2 : 1,
			   .dots_y = is_utf8 ? 4 : 1 };

	c.end = cell(json_array_get(c.rows, json_array_size(c.rows) - 1), 0);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(all_series); i++)
		draw_series(&c, &all_series[i], record);
	put_axis(&c);
}
