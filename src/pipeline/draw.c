/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the graph of a pipeline. */
#include "pipeline/draw.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The steps that a step reads from, each once, in the order of its inputs. Returns their number. */
static size_t steps_before(const struct forge_pipeline *p, const struct forge_step *s,
			   unsigned *ret, size_t max)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n_inputs; i++)
		for (size_t k = 0; k < s->inputs[i].n; k++) {
			const char *text = s->inputs[i].v[k].text;
			int step = forge_pipeline_find_step(p, text, strcspn(text, "/"));
			bool is_known = step < 0;
			for (size_t m = 0; m < n && !is_known; m++)
				is_known = ret[m] == (unsigned)step;
			if (!is_known && n < max)
				ret[n++] = (unsigned)step;
		}
	return n;
}

#define BEFORE_MAX 256

/* The steps in the order of their tasks. */
static const struct forge_step *step_at(const struct forge_graph *g, size_t *task)
{
	const struct forge_step *s = g->tasks[*task].step;

	*task += g->count[s - g->p->steps];
	return s;
}

void forge_draw_text(FILE *f, const struct forge_graph *g)
{
	unsigned before[BEFORE_MAX];

	for (size_t i = 0; i < g->n;) {
		const struct forge_step *s = step_at(g, &i);
		unsigned tasks = g->count[s - g->p->steps];
		size_t n = steps_before(g->p, s, before, BEFORE_MAX);
		fprintf(f, "%s", s->name);
		if (s->n_loops)
			fprintf(f, " (%u tasks)", tasks);
		for (size_t k = 0; k < n; k++)
			fprintf(f, "%s%s", k ? ", " : " <- ",
				g->p->steps[before[k]].name);
		putc('\n', f);
	}
}

void forge_draw_mermaid(FILE *f, const struct forge_graph *g)
{
	unsigned before[BEFORE_MAX];

	fputs("flowchart TD\n", f);
	for (size_t i = 0; i < g->n;) {
		const struct forge_step *s = step_at(g, &i);
		size_t index = (size_t)(s - g->p->steps);
		size_t n = steps_before(g->p, s, before, BEFORE_MAX);
		/* Names of steps are not always ids of Mermaid. */
		fprintf(f, "    s%zu[\"%s", index, s->name);
		if (s->n_loops)
			fprintf(f, " x %u", g->count[index]);
		fputs("\"]\n", f);
		for (size_t k = 0; k < n; k++)
			fprintf(f, "    s%u --> s%zu\n", before[k], index);
	}
}

/* ---- SVG ---- */

#define BOX_WIDTH  150
#define BOX_HEIGHT 34
#define GAP_X	   24
#define GAP_Y	   40

struct place {
	unsigned row, column;
};

/* A step is one row below the lowest that it reads from. */
static struct place *lay_out(const struct forge_graph *g, unsigned *ret_rows,
			     unsigned *ret_columns)
{
	struct place *at = calloc(g->p->n_steps, sizeof(*at));
	unsigned *used = calloc(g->p->n_steps + 1, sizeof(*used));
	unsigned before[BEFORE_MAX];

	*ret_rows = *ret_columns = 0;
	for (size_t i = 0; at && used && i < g->n;) {
		const struct forge_step *s = step_at(g, &i);
		struct place *one = &at[s - g->p->steps];
		size_t n = steps_before(g->p, s, before, BEFORE_MAX);
		for (size_t k = 0; k < n; k++)
			if (at[before[k]].row >= one->row)
				one->row = at[before[k]].row + 1;
		one->column = used[one->row]++;
		*ret_rows = one->row >= *ret_rows ? one->row + 1 : *ret_rows;
		*ret_columns =
			used[one->row] > *ret_columns ? used[one->row] : *ret_columns;
	}
	if (!used) {
		free(at);
		at = NULL;
	}
	free(used);
	return at;
}

static const char *fill_of(const char *state)
{
	static const struct {
		const char *state, *fill;
	} table[] = { { "cached", "#dff0d8" },	{ "done", "#bfe3b4" },
		      { "failed", "#f2b8b5" },	{ "blocked", "#f7dfb0" },
		      { "running", "#b9d6f2" }, { "skipped", "#eeeeee" } };

	for (size_t i = 0; state && i < FORGE_ARRAY_SIZE(table); i++)
		if (strcmp(table[i].state, state) == 0)
			return table[i].fill;
	return "#ffffff";
}

int forge_draw_svg(FILE *f, const struct forge_graph *g, const char *const *states,
		   struct forge_error *err)
{
	unsigned rows, columns, before[BEFORE_MAX];
	forge_auto_free struct place *at = lay_out(g, &rows, &columns);

	if (!at)
		return forge_fail(err, ENOMEM, "out of memory");
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" "
		"font-family=\"sans-serif\" font-size=\"13\">\n",
		columns * (BOX_WIDTH + GAP_X) + GAP_X,
		rows * (BOX_HEIGHT + GAP_Y) + GAP_Y);
	for (size_t i = 0; i < g->p->n_steps; i++) {
		const struct forge_step *s = &g->p->steps[i];
		size_t n = steps_before(g->p, s, before, BEFORE_MAX);
		unsigned x = GAP_X + at[i].column * (BOX_WIDTH + GAP_X);
		unsigned y = GAP_Y / 2 + at[i].row * (BOX_HEIGHT + GAP_Y);
		for (size_t k = 0; k < n; k++) {
			unsigned px = GAP_X + at[before[k]].column * (BOX_WIDTH + GAP_X) +
				      BOX_WIDTH / 2;
			unsigned py = GAP_Y / 2 +
				      at[before[k]].row * (BOX_HEIGHT + GAP_Y) +
				      BOX_HEIGHT;
			fprintf(f,
				"<path d=\"M%u %u C%u %u %u %u %u %u\" fill=\"none\" "
				"stroke=\"#888\"/>\n",
				px, py, px, py + GAP_Y / 2, x + BOX_WIDTH / 2,
				y - GAP_Y / 2, x + BOX_WIDTH / 2, y);
		}
		fprintf(f,
			"<rect x=\"%u\" y=\"%u\" width=\"%d\" height=\"%d\" rx=\"6\" "
			"fill=\"%s\" stroke=\"#444\"/>\n"
			"<text x=\"%u\" y=\"%u\" text-anchor=\"middle\">%.20s%s",
			x, y, BOX_WIDTH, BOX_HEIGHT, fill_of(states ? states[i] : NULL),
			x + BOX_WIDTH / 2, y + BOX_HEIGHT / 2 + 5, s->name,
			strlen(s->name) > 20 ? "..." : "");
		if (s->n_loops)
			fprintf(f, " x %u", g->count[i]);
		fputs("</text>\n", f);
	}
	fputs("</svg>\n", f);
	return 0;
}
