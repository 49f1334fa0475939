/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which steps can run, and steps that wait for each other. */
#include "pipeline/order.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int out_of_memory(struct forge_error *err)
{
	return forge_fail(err, ENOMEM, "out of memory");
}

int forge_step_of(const struct forge_pipeline *p, const char *path)
{
	return forge_pipeline_find_step(p, path, strcspn(path, "/"));
}

/* A name that is both a step and a file could mean either. */
static int check_ambiguous(const struct forge_pipeline *p, const struct forge_step *s,
			   const struct forge_step_text *v, struct forge_error *err)
{
	forge_auto_free char *beside =
		forge_asprintf("%s/%.*s", p->dir, (int)strcspn(v->text, "/"), v->text);

	if (!beside)
		return out_of_memory(err);
	if (access(beside, F_OK) < 0)
		return 0;
	return forge_hint(
		err,
		forge_fail_at(err, p->shown, v->line, v->column,
			      "steps.%s.inputs: '%.100s' is ambiguous: there is "
			      "a step and a file '%.*s'",
			      s->name, v->text, (int)strcspn(v->text, "/"), v->text),
		"Write ./%s for the file, or give the step another name", v->text);
}

/* Kahn's algorithm over the steps; *ret_order has their indices. */
struct edges {
	unsigned *to; /* for each reference: the step that waits */
	unsigned *next;
	unsigned *head; /* of each step: its first reference + 1 */
	unsigned *missing;
	size_t n;
};

static int add_edge(struct edges *e, unsigned from, unsigned to, size_t *cap)
{
	if (e->n == *cap) {
		size_t grown = *cap ? 2 * *cap : 256;
		unsigned *a = reallocarray(e->to, grown, sizeof(*a));
		if (a)
			e->to = a;
		unsigned *b = reallocarray(e->next, grown, sizeof(*b));
		if (b)
			e->next = b;
		if (!a || !b)
			return -ENOMEM;
		*cap = grown;
	}
	e->to[e->n] = to;
	e->next[e->n] = e->head[from];
	e->head[from] = (unsigned)++e->n;
	e->missing[to]++;
	return 0;
}

static void edges_done(struct edges *e)
{
	free(e->to);
	free(e->next);
	free(e->head);
	free(e->missing);
}

/* Follows references of steps that are left until one comes again. */
static int report_cycle(const struct forge_pipeline *p, const unsigned *missing,
			struct forge_error *err)
{
	forge_auto_free bool *seen = calloc(p->n_steps, sizeof(bool));
	forge_auto_free unsigned *from = calloc(p->n_steps, sizeof(unsigned));
	unsigned at_step = 0;
	char path[400] = "";

	while (at_step < p->n_steps && missing[at_step] == 0)
		at_step++;
	if (!seen || !from)
		return out_of_memory(err);
	while (!seen[at_step]) {
		const struct forge_step *s = &p->steps[at_step];
		int next = -1;
		seen[at_step] = true;
		for (size_t i = 0; i < s->n_inputs && next < 0; i++)
			for (size_t k = 0; k < s->inputs[i].n && next < 0; k++) {
				int to = forge_step_of(p, s->inputs[i].v[k].text);
				if (to >= 0 && missing[to])
					next = to;
			}
		if (next < 0)
			break;
		from[at_step] = (unsigned)next;
		at_step = (unsigned)next;
	}
	unsigned step = at_step;
	do {
		size_t len = strlen(path);
		(void)snprintf(path + len, sizeof(path) - len, "%s -> ",
			       p->steps[step].name);
		step = from[step];
	} while (step != at_step && strlen(path) < sizeof(path) - 80);
	size_t len = strlen(path);
	(void)snprintf(path + len, sizeof(path) - len, "%s",
		       step == at_step ? p->steps[at_step].name : "...");
	return forge_fail_at(err, p->shown, p->steps[at_step].line,
			     p->steps[at_step].column,
			     "steps that wait for each other: %s", path);
}

int forge_order_steps(const struct forge_pipeline *p, unsigned *order,
		      struct forge_error *err)
{
	FORGE_CLEANUP(edges_done)
	struct edges e = { .head = calloc(p->n_steps, sizeof(unsigned)),
			   .missing = calloc(p->n_steps, sizeof(unsigned)) };
	size_t cap = 0, n = 0;

	if (!e.head || !e.missing)
		return out_of_memory(err);
	for (unsigned i = 0; i < p->n_steps; i++)
		for (size_t k = 0; k < p->steps[i].n_inputs; k++)
			for (size_t v = 0; v < p->steps[i].inputs[k].n; v++) {
				const struct forge_step_text *text =
					&p->steps[i].inputs[k].v[v];
				int from = forge_step_of(p, text->text);
				if (from < 0)
					continue;
				int rc = check_ambiguous(p, &p->steps[i], text, err);
				if (rc < 0)
					return rc;
				if (add_edge(&e, (unsigned)from, i, &cap) < 0)
					return out_of_memory(err);
			}
	/* In the order of the file, as far as possible. */
	for (unsigned i = 0; i < p->n_steps; i++)
		if (e.missing[i] == 0)
			order[n++] = i;
	for (size_t done = 0; done < n; done++)
		for (unsigned k = e.head[order[done]]; k; k = e.next[k - 1])
			if (--e.missing[e.to[k - 1]] == 0)
				order[n++] = e.to[k - 1];
	return n == p->n_steps ? 0 : report_cycle(p, e.missing, err);
}
