/* SPDX-License-Identifier: Apache-2.0 */
/* forge pipeline outputs: lists what the tasks of a pipeline left, or copies it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "base/strv.h"
#include "cli/cli.h"
#include "cli/pipeline_cli.h"
#include "pipeline/head_state.h"
#include "run/export.h"

/* The tasks that --only names, or those that no other task reads from. */
static int choose(const struct forge_head *h, const struct forge_outputs_wanted *o,
		  bool *chosen, struct forge_error *err)
{
	for (size_t i = 0; i < h->g->n; i++)
		chosen[i] = o->only->n == 0 && h->g->tasks[i].n_readers == 0 &&
			    h->g->tasks[i].outputs.n && !h->g->tasks[i].is_skipped;
	forge_strv_foreach (word, o->only) {
		size_t n;
		int first = forge_graph_find(h->g, word, &n, err);
		if (first < 0)
			return forge_wrap(err, first, "--only");
		for (size_t i = 0; i < n; i++)
			chosen[(size_t)first + i] = true;
	}
	for (size_t i = 0; i < h->g->n; i++)
		if (chosen[i] && h->tasks[i].state != FORGE_TASK_CACHED)
			return forge_hint(err,
					  forge_fail(err, ENOENT, "%s is not up to date",
						     h->g->tasks[i].name),
					  "%s", o->run ? o->run : "");
	return 0;
}

/* The record of what a task left; *ret: a new reference. */
static int result_record(struct forge_head *h, unsigned task, json_t **ret,
			 struct forge_error *err)
{
	return h->tasks[task].result.from
		       ? forge_reuse_take(h, task, ret, err)
		       : forge_store_get(h->store, h->tasks[task].run_id, ret, err);
}

static int copy_files(struct forge_head *h, const bool *chosen,
		      const struct forge_outputs_wanted *o, struct forge_error *err)
{
	const struct forge_export how = { .to = o->to,
					  .replaces = o->replaces,
					  .stop_fd = -1 };
	struct forge_export_run *runs = calloc(h->g->n + 1, sizeof(*runs));
	forge_auto_strv struct forge_strv below = { 0 };
	size_t n = 0;
	int rc = runs ? forge_dropped_check(h, chosen, o->run, err)
		      : forge_fail(err, ENOMEM, "out of memory");

	for (size_t i = 0; i < h->g->n && rc == 0; i++) {
		const struct forge_task *t = &h->g->tasks[i];
		json_t *record = NULL;
		if (!chosen[i])
			continue;
		rc = result_record(h, (unsigned)i, &record, err);
		if (rc == 0 &&
		    forge_strv_addf(&below, "%s%s%s", t->step->name, t->label ? "/" : "",
				    t->label ? t->label : "") < 0)
			rc = forge_fail(err, ENOMEM, "out of memory");
		runs[n++] =
			(struct forge_export_run){ .home = h->home, .record = record };
	}
	for (size_t i = 0; i < n && rc == 0; i++)
		runs[i].below = below.v[i];
	if (rc == 0)
		rc = forge_export_runs(runs, n, &how, NULL, err);
	if (rc >= 0 && !o->is_quiet)
		printf("%d files copied to %s\n", rc, o->to);
	for (size_t i = 0; i < n; i++)
		json_decref((json_t *)runs[i].record);
	free(runs);
	return rc < 0 ? rc : 0;
}

static void print_output(const char *task, const struct forge_result_file *f)
{
	forge_auto_free char *name = forge_asprintf("%s/%s", task, f->path);
	char size[FORGE_FORMAT_MAX];

	if (name)
		forge_print_clean(stdout, name, strlen(name));
	printf("  %s%s\n", forge_format_size(size, f->size),
	       f->is_missing ? "  dropped" : "");
}

static void list(const struct forge_head *h, const bool *chosen, bool is_json)
{
	forge_auto_json json_t *all = json_array();

	for (size_t i = 0; i < h->g->n; i++)
		for (size_t k = 0; chosen[i] && k < h->tasks[i].result.n; k++) {
			const struct forge_result_file *f = &h->tasks[i].result.v[k];
			if (is_json)
				json_array_append_new(
					all,
					json_pack("{s:o, s:o, s:I, s:s, s:s, s:b}",
						  "task",
						  forge_json_text(h->g->tasks[i].name),
						  "path", forge_json_name(f->path),
						  "size", (json_int_t)f->size, "sha256",
						  f->digest, "run_id", h->tasks[i].run_id,
						  "dropped", f->is_missing));
			else
				print_output(h->g->tasks[i].name, f);
		}
	if (is_json)
		forge_print_json(all);
}

int forge_pipeline_outputs(struct forge_head *h, const struct forge_outputs_wanted *o,
			   struct forge_error *err)
{
	forge_auto_free bool *chosen = calloc(h->g->n + 1, sizeof(bool));
	int rc = chosen ? choose(h, o, chosen, err)
			: forge_fail(err, ENOMEM, "out of memory");

	if (rc == 0 && o->to)
		rc = copy_files(h, chosen, o, err);
	else if (rc == 0)
		list(h, chosen, o->is_json);
	return rc;
}
