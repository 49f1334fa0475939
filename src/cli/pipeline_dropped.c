/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary outputs that are dropped, when a user asks for them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/pipeline_cli.h"
#include "pipeline/head_state.h"

/* Adds the tasks whose dropped files are read when the marked ones run again. */
static void mark_inputs(const struct forge_head *h, bool *needed)
{
	for (size_t i = h->g->n; i-- > 0;) {
		const struct forge_task *t = &h->g->tasks[i];
		for (size_t k = 0; needed[i] && k < t->n_sources; k++)
			if (t->sources[k].task >= 0 &&
			    forge_head_missing_input(h, &t->sources[k]))
				needed[t->sources[k].task] = true;
	}
}

/* A word for each of thousands of tasks would be no command: steps are named. */
static void add_words(FILE *f, const struct forge_head *h, const char *option,
		      const bool *tasks)
{
	for (size_t i = 0; i < h->g->p->n_steps; i++)
		for (unsigned k = 0; k < h->g->count[i]; k++)
			if (tasks[h->g->first[i] + k]) {
				fprintf(f, " %s", option);
				forge_print_word(f, h->g->p->steps[i].name);
				break;
			}
}

/* The command that makes the files of these tasks again. They stay, as no step that reads them is part of it. */
static char *remake_command(const struct forge_head *h, const bool *is_gone,
			    const char *run)
{
	forge_auto_free bool *needed = calloc(h->g->n + 1, sizeof(bool));
	char *text = NULL;
	size_t size = 0;
	FILE *f = needed && run ? open_memstream(&text, &size) : NULL;

	if (!f)
		return NULL;
	for (size_t i = 0; i < h->g->n; i++)
		needed[i] = is_gone[i];
	mark_inputs(h, needed);
	fputs(run, f);
	add_words(f, h, "--only", needed);
	add_words(f, h, "--force", is_gone);
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

int forge_dropped_check(const struct forge_head *h, const bool *chosen, const char *run,
			struct forge_error *err)
{
	forge_auto_free bool *is_gone = calloc(h->g->n + 1, sizeof(bool));
	char first[300] = "", others[40] = "";
	size_t n = 0;

	if (!is_gone)
		return forge_fail(err, ENOMEM, "out of memory");
	for (size_t i = 0; i < h->g->n; i++)
		for (size_t k = 0; chosen[i] && k < h->tasks[i].result.n; k++) {
			const struct forge_result_file *f = &h->tasks[i].result.v[k];
			if (!f->is_missing)
				continue;
			if (n++ == 0)
				(void)snprintf(first, sizeof(first), "%.120s/%.150s",
					       h->g->tasks[i].name, f->path);
			is_gone[i] = true;
		}
	if (n == 0)
		return 0;
	if (n > 1)
		(void)snprintf(others, sizeof(others), " and %zu other file%s", n - 1,
			       n == 2 ? "" : "s");
	forge_auto_free char *command = remake_command(h, is_gone, run);
	/* Half of a command would be another one. */
	bool is_long = command && strlen(command) + 40 > sizeof(err->hint);
	if (is_long) {
		fputs("forge: to make what was dropped again: ", stderr);
		forge_print_clean(stderr, command, strlen(command));
		putc('\n', stderr);
	}
	int rc = forge_fail(err, ENOENT,
			    "nothing is copied: %s%s %s temporary, and dropped", first,
			    others, n == 1 ? "was" : "were");
	return command && !is_long ? forge_hint(err, rc, "`%s` makes %s again", command,
				    n == 1 ? "it" : "them")
		       : rc;
}
