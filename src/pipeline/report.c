/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the report. Nothing in it comes from another place, so it can be sent as one file. */
#include "pipeline/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/parse.h"
#include "pipeline/draw.h"

/* A task that used less than this part of what it asked for gets advice. */
#define USED_PART    0.25
#define MEMORY_MIN   (256ull << 20) /* less is not worth a word */
#define MEMORY_SPARE 1.5	    /* what the advice leaves above the peak */
#define CPUS_PART    0.5
#define BAR_PIXELS   640
#define TASKS_SHOWN  2000

/* ---- texts ---- */

static void print_escaped(FILE *f, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '<':
			fputs("&lt;", f);
			break;
		case '>':
			fputs("&gt;", f);
			break;
		case '&':
			fputs("&amp;", f);
			break;
		case '"':
			fputs("&quot;", f);
			break;
		default:
			putc(*text, f);
		}
}

static double number_of(const json_t *record, const char *part, const char *key)
{
	const json_t *j = json_object_get(json_object_get(record, part), key);

	return json_is_number(j) ? json_number_value(j) : -1;
}

/* Seconds of the epoch, with a fraction; negative: not known. */
static double time_of(const json_t *record, const char *key)
{
	const char *text = forge_json_string(record, key);
	struct tm tm = { 0 };
	const char *rest = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;

	if (!rest)
		return -1;
	return (double)timegm(&tm) + (*rest == '.' ? strtod(rest, NULL) : 0);
}

const char *forge_report_advice(const json_t *record, char buf[FORGE_ADVICE_MAX])
{
	double used = number_of(record, "usage", "memory_peak_bytes");
	double asked = number_of(record, "limits", "memory_bytes");
	double cpus = number_of(record, "limits", "cpus");
	double wall = number_of(record, "usage", "wall_seconds");
	double cpu = number_of(record, "usage", "cpu_seconds");
	char a[FORGE_FORMAT_MAX], b[FORGE_FORMAT_MAX], c[FORGE_FORMAT_MAX];
	size_t len = 0;

	buf[0] = '\0';
	if (used > 0 && asked >= MEMORY_MIN && used < USED_PART * asked) {
		uint64_t enough = (uint64_t)(used * MEMORY_SPARE);
		/* In steps of 64 MiB: a smaller number would look exact. */
		enough = (enough / (64u << 20) + 1) * (64u << 20);
		len = (size_t)snprintf(
			buf, FORGE_ADVICE_MAX,
			"asked for %s of memory, used %s: memory: %s would do",
			forge_format_size(a, (uint64_t)asked),
			forge_format_size(b, (uint64_t)used),
			forge_format_size_arg(c, enough));
	}
	if (cpus >= 2 && wall >= 1 && cpu >= 0 && cpu / wall < CPUS_PART * cpus &&
	    len < FORGE_ADVICE_MAX)
		(void)snprintf(buf + len, FORGE_ADVICE_MAX - len,
			       "%sasked for %g CPUs, used %.1f of them", len ? "; " : "",
			       cpus, cpu / wall);
	return buf;
}

/* ---- records ---- */

struct page {
	FILE *f;
	struct forge_head *h;
	json_t **
		records; /* of each task: its result, or its last run; NULL: it has none */
	double first, last;
};

static int load_records(struct page *p, struct forge_error *err)
{
	p->first = p->last = -1;
	for (size_t i = 0; i < p->h->g->n; i++) {
		const struct forge_head_task *t = &p->h->tasks[i];
		bool is_run = t->state != FORGE_TASK_GIVEN &&
			      t->state != FORGE_TASK_SKIPPED &&
			      t->state != FORGE_TASK_LEFT;
		int rc = 0;
		if (t->run_id[0])
			rc = forge_store_get(p->h->store, t->run_id, &p->records[i], err);
		else if (is_run)
			rc = forge_head_last_run(p->h, (unsigned)i, &p->records[i], err);
		if (rc < 0 && rc != -ENOENT)
			return rc;
		double from = time_of(p->records[i], "started_at");
		double to = time_of(p->records[i], "ended_at");
		p->first =
			from >= 0 && (p->first < 0 || from < p->first) ? from : p->first;
		p->last = to > p->last ? to : p->last;
	}
	return 0;
}

static bool has_succeeded(const json_t *record)
{
	return strcmp(forge_json_string_or(record, "status", ""), "succeeded") == 0;
}

/* Whether the last run of a task that is not up to date left no result: then its verdict is what the reader looks for. */
static bool has_failed(const struct page *p, size_t i)
{
	enum forge_task_state s = p->h->tasks[i].state;

	return p->records[i] && (s == FORGE_TASK_READY || s == FORGE_TASK_WAITING) &&
	       !has_succeeded(p->records[i]);
}

static const char *state_of(const struct page *p, size_t i)
{
	return has_failed(p, i) ? forge_json_string_or(p->records[i], "status", "lost")
				: forge_task_state_names[p->h->tasks[i].state];
}

static const char *class_of(const struct page *p, size_t i)
{
	return has_failed(p, i) ? forge_task_state_names[FORGE_TASK_FAILED]
				: forge_task_state_names[p->h->tasks[i].state];
}

/* ---- the page ---- */

static void print_head(const struct page *p)
{
	const struct forge_pipeline *pipeline = p->h->g->p;
	char now[FORGE_TIME_MAX];

	fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>",
	      p->f);
	print_escaped(p->f, pipeline->name);
	fputs("</title><style>\n"
	      "body{font:14px/1.5 sans-serif;margin:2em;color:#222}\n"
	      "table{border-collapse:collapse}td,th{padding:3px 10px;text-align:left;"
	      "border-bottom:1px solid #ddd;vertical-align:top}\n"
	      ".bar{background:#b9d6f2;height:12px}.bar.failed{background:#e8a0a8}"
	      ".lane{width:640px;background:#f4f4f4}"
	      "\n"
	      ".failed{color:#b00020}.cached,.done{color:#1b6e1b}code{font-size:12px}\n"
	      "</style></head><body>\n<h1>",
	      p->f);
	print_escaped(p->f, pipeline->name);
	fputs("</h1>\n<p>", p->f);
	if (pipeline->description)
		print_escaped(p->f, pipeline->description);
	fprintf(p->f, "</p>\n<p>%zu steps, %zu tasks; written %s</p>\n",
		pipeline->n_steps, p->h->g->n, forge_format_now(now));
}

static int print_graph(const struct page *p, struct forge_error *err)
{
	const struct forge_graph *g = p->h->g;
	forge_auto_free const char **states = calloc(g->p->n_steps, sizeof(char *));

	if (!states)
		return forge_fail(err, ENOMEM, "out of memory");
	for (size_t i = 0; i < g->p->n_steps; i++) {
		size_t shown = g->first[i];
		for (size_t k = 0; k < g->count[i] && !has_failed(p, shown); k++)
			if (has_failed(p, g->first[i] + k))
				shown = g->first[i] + k;
		states[i] = class_of(p, shown);
	}
	fputs("<h2>Steps</h2>\n", p->f);
	int rc = forge_draw_svg(p->f, g, states, err);
	return rc;
}

static void print_timeline(const struct page *p)
{
	double span = p->last - p->first;

	fputs("<h2>Timeline</h2>\n<table>\n", p->f);
	for (size_t i = 0; i < p->h->g->n && i < TASKS_SHOWN && span > 0; i++) {
		double from = time_of(p->records[i], "started_at");
		double to = time_of(p->records[i], "ended_at");
		char text[FORGE_FORMAT_MAX];
		if (from < 0 || to < from)
			continue;
		fputs("<tr><td>", p->f);
		print_escaped(p->f, p->h->g->tasks[i].name);
		fprintf(p->f,
			"</td><td><div class=\"lane\"><div class=\"bar%s\" "
			"style=\"margin-left:%.1fpx;width:%.1fpx\"></div></div></td>"
			"<td>%s</td></tr>\n",
			has_failed(p, i) ? " failed" : "",
			(from - p->first) / span * BAR_PIXELS,
			(to - from) / span * BAR_PIXELS + 1,
			forge_format_duration(text, (uint64_t)((to - from) * 1e6)));
	}
	fputs("</table>\n", p->f);
}

static void print_size(const struct page *p, double bytes)
{
	char text[FORGE_FORMAT_MAX];

	fputs(bytes < 0 ? "-" : forge_format_size(text, (uint64_t)bytes), p->f);
}

static void print_memory(const struct page *p, const json_t *record)
{
	double used = number_of(record, "usage", "memory_peak_bytes");
	double asked = number_of(record, "limits", "memory_bytes");

	print_size(p, used);
	if (used < 0 && asked < 0)
		return;
	fputs(" of ", p->f);
	print_size(p, asked);
}

/* How its last run ended; of one that is out of date, what changed since then. */
static void print_text(const struct page *p, size_t i)
{
	const struct forge_head_task *t = &p->h->tasks[i];
	const char *why = t->why ? t->why : "";

	if (!has_failed(p, i)) {
		print_escaped(p->f, t->notes ? t->notes : why);
		return;
	}
	print_escaped(p->f, forge_json_string_or(p->records[i], "completion_notes", why));
	if (*why && strncmp(why, FORGE_LAST_RUN, strlen(FORGE_LAST_RUN)) != 0) {
		fputs(" Since then: ", p->f);
		print_escaped(p->f, why);
	}
}

static void print_row(const struct page *p, size_t i)
{
	const struct forge_head_task *t = &p->h->tasks[i];
	const json_t *record = p->records[i];
	const char *run_id =
		t->run_id[0] ? t->run_id : forge_json_string_or(record, "run_id", "-");
	double wall = number_of(record, "usage", "wall_seconds");
	char text[FORGE_FORMAT_MAX];
	uint64_t bytes = 0;

	for (size_t k = 0; k < t->result.n; k++)
		bytes += t->result.v[k].size == UINT64_MAX ? 0 : t->result.v[k].size;
	fputs("<tr><td>", p->f);
	print_escaped(p->f, p->h->g->tasks[i].name);
	fprintf(p->f, "</td><td class=\"%s\">", class_of(p, i));
	print_escaped(p->f, state_of(p, i));
	fprintf(p->f, "</td><td>%s</td><td>",
		wall < 0 ? "-" : forge_format_duration(text, (uint64_t)(wall * 1e6)));
	print_memory(p, record);
	fprintf(p->f, "</td><td>%s</td><td><code>",
		t->result.n ? forge_format_size(text, bytes) : "-");
	print_escaped(p->f, run_id);
	fputs("</code></td><td>", p->f);
	print_text(p, i);
	fputs("</td></tr>\n", p->f);
}

static void print_tasks(const struct page *p)
{
	fputs("<h2>Tasks</h2>\n<table><tr><th>task</th><th>state</th><th>time</th>"
	      "<th>memory used</th><th>outputs</th><th>run</th><th></th></tr>\n",
	      p->f);
	for (size_t i = 0; i < p->h->g->n && i < TASKS_SHOWN; i++)
		print_row(p, i);
	fputs("</table>\n", p->f);
	if (p->h->g->n > TASKS_SHOWN)
		fprintf(p->f, "<p>The first %d of %zu tasks.</p>\n", TASKS_SHOWN,
			p->h->g->n);
}

/* A run of the step that went to its end: what another one used says little. NULL: there is none. */
static const json_t *good_record(const struct page *p, size_t step)
{
	const struct forge_graph *g = p->h->g;

	for (size_t k = 0; k < g->count[step]; k++)
		if (has_succeeded(p->records[g->first[step] + k]))
			return p->records[g->first[step] + k];
	return NULL;
}

/* One line a step: its tasks ask for the same. */
static void print_advice(const struct page *p)
{
	size_t known = 0, advised = 0, n = p->h->g->p->n_steps;
	char buf[FORGE_ADVICE_MAX];

	fputs("<h2>Advice</h2>\n<ul>\n", p->f);
	for (size_t i = 0; i < n; i++) {
		const json_t *record = good_record(p, i);
		known += record != NULL;
		if (!record || !*forge_report_advice(record, buf))
			continue;
		advised++;
		fputs("<li>", p->f);
		print_escaped(p->f, p->h->g->p->steps[i].name);
		fputs(" ", p->f);
		print_escaped(p->f, buf);
		fputs("</li>\n", p->f);
	}
	if (known == 0)
		fputs("<li>none: no step has a run that succeeded</li>", p->f);
	else if (advised == 0)
		fprintf(p->f, "<li>none: %s asked for much more than it used</li>",
			known == n ? "no step" : "no step that has succeeded");
	fputs("</ul>\n", p->f);
}

int forge_report_write(FILE *f, struct forge_head *h, struct forge_error *err)
{
	struct page p = { .f = f, .h = h };

	p.records = calloc(h->g->n, sizeof(json_t *));
	int rc = p.records ? load_records(&p, err)
			   : forge_fail(err, ENOMEM, "out of memory");
	if (rc == 0) {
		print_head(&p);
		rc = print_graph(&p, err);
	}
	if (rc == 0) {
		print_timeline(&p);
		print_tasks(&p);
		print_advice(&p);
		fputs("</body></html>\n", f);
	}
	for (size_t i = 0; p.records && i < h->g->n; i++)
		json_decref(p.records[i]);
	free(p.records);
	return rc;
}
