/* SPDX-License-Identifier: Apache-2.0 */
/* Is a task up to date? */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/glob.h"
#include "base/json.h"
#include "pipeline/head_state.h"

bool forge_task_is_temp(const struct forge_task *t, const char *path)
{
	bool is_temp = false;

	for (size_t i = 0; i < t->outputs.n; i++)
		if (forge_glob_match(t->outputs.v[i], path)) {
			if (!t->step->outputs[i].is_temp)
				return false;
			is_temp = true;
		}
	return is_temp;
}

/* ---- the files of a task ---- */

/* A path without wildcards takes its own name; others keep what is below the pattern's task. */
static char *name_of(const struct forge_head *h, const struct forge_task *t,
		     const struct forge_source *s, const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!forge_input_is_dir(h->g, t, s->input))
		return strdup(slash ? slash + 1 : path);
	return s->below ? forge_asprintf("%s/%s", s->below, path) : strdup(path);
}

static int add_outputs(struct forge_head *h, const struct forge_task *t,
		       const struct forge_source *s, struct forge_task_files *ret,
		       struct forge_error *err)
{
	const struct forge_result *r = &h->tasks[s->task].result;
	bool has_any = false;

	for (size_t i = 0; i < r->n; i++) {
		const struct forge_result_file *f = &r->v[i];
		if (!forge_glob_match(s->pattern, f->path))
			continue;
		has_any = true;
		if (forge_task_files_add(ret, s->input, name_of(h, t, s, f->path),
					 f->host, f->digest) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
	}
	return has_any ? 0
		       : forge_fail(err, ENOENT, "input %s: %s left no output '%.100s'",
				    t->step->inputs[s->input].name,
				    h->g->tasks[s->task].name, s->pattern);
}

static int collect_files(struct forge_head *h, const struct forge_task *t,
			 struct forge_task_files *ret, struct forge_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < t->n_sources && rc == 0; i++) {
		const struct forge_source *s = &t->sources[i];
		const char *real, *digest;
		if (s->task >= 0 && h->g->tasks[s->task].is_skipped)
			continue;
		if (s->task >= 0) {
			rc = add_outputs(h, t, s, ret, err);
			continue;
		}
		rc = forge_digests_get(h->digests, s->pattern, &real, &digest, err);
		if (rc < 0)
			rc = forge_wrap(err, rc, "input %s",
					t->step->inputs[s->input].name);
		else if (forge_task_files_add(ret, s->input, strdup(forge_source_name(s)),
					      real, digest) < 0)
			rc = forge_fail(err, ENOMEM, "out of memory");
	}
	return rc < 0 ? rc : forge_task_files_sort(ret, t, err);
}

int forge_head_task_facts(struct forge_head *h, unsigned task,
			  struct forge_task_files *ret_files, json_t **ret_parts,
			  char ret_key[FORGE_DIGEST_MAX], struct forge_error *err)
{
	const struct forge_task *t = &h->g->tasks[task];
	size_t step = (size_t)(t->step - h->g->p->steps);
	int rc = collect_files(h, t, ret_files, err);

	if (rc < 0)
		return rc;
	const struct forge_task_facts facts = {
		.g = h->g,
		.t = t,
		.files = ret_files,
		.runtime = h->runtimes[step][0] ? h->runtimes[step] : NULL,
		.script = h->scripts[step].text ? h->scripts[step].digest : NULL,
		.env_set = &h->cfg->env_set,
	};
	return forge_task_key(&facts, ret_parts, ret_key, err);
}

/* ---- up to date ---- */

/* Whether every declared output has a file. */
static bool is_complete(const struct forge_task *t, const struct forge_result *r)
{
	forge_strv_foreach (pattern, &t->outputs) {
		bool has_any = false;
		for (size_t i = 0; i < r->n && !has_any; i++)
			has_any = forge_glob_match(pattern, r->v[i].path);
		if (!has_any)
			return false;
	}
	return true;
}

/* Files that only tasks need which are done already may be gone. */
bool forge_task_has_result(const struct forge_task *t, const struct forge_result *r)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->v[i].is_missing && !forge_task_is_temp(t, r->v[i].path))
			return false;
	return is_complete(t, r);
}

static bool has_temp(const struct forge_task *t)
{
	for (size_t i = 0; i < t->step->n_outputs; i++)
		if (t->step->outputs[i].is_temp)
			return true;
	return false;
}

/* Temporary outputs that were dropped: the record has their digests. */
static int add_removed(struct forge_head *h, const struct forge_task *t,
		       struct forge_result *r, struct forge_error *err)
{
	forge_auto_json json_t *record = NULL;

	if (!has_temp(t))
		return 0;
	int rc = forge_store_get(h->store, r->run_id, &record, err);
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	return forge_result_add_removed(record, r) == -ENOMEM
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : 0;
}

int forge_head_evaluate_task(struct forge_head *h, unsigned task, struct forge_error *err)
{
	struct forge_head_task *state = &h->tasks[task];
	const struct forge_task *t = &h->g->tasks[task];
	struct forge_task_files files = { 0 };
	forge_auto_json json_t *parts = NULL;
	char problem[FORGE_PROBLEM_MAX];
	int rc = forge_head_task_facts(h, task, &files, &parts, state->key, err);

	forge_task_files_done(&files);
	if (rc < 0)
		return rc;
	if (state->is_forced) {
		if (!state->why)
			forge_head_set_text(&state->why, "forced");
		return 0;
	}
	if (state->result.from)
		forge_head_set_text(&state->notes, NULL); /* whose it was */
	forge_result_done(&state->result);
	const struct forge_result_source from = { h->home, h->store, h->user,
						  h->is_shared };
	rc = forge_result_find(&from, state->key, &state->result, err);
	if (rc < 0)
		return rc;
	if (rc == 0)
		return forge_reuse_find(h, task, err);
	forge_result_check(h->home, &state->result, problem);
	rc = add_removed(h, t, &state->result, err);
	if (rc < 0)
		return rc;
	if (forge_task_has_result(t, &state->result)) {
		(void)snprintf(state->run_id, sizeof(state->run_id), "%s",
			       state->result.run_id);
		return 1;
	}
	char text[FORGE_PROBLEM_MAX + 40];
	(void)snprintf(text, sizeof(text), "output %s",
		       *problem ? problem : "files were removed");
	rc = forge_reuse_find(h, task, err);
	if (rc != 0)
		return rc;
	forge_head_set_text(&state->why, text);
	forge_result_done(&state->result);
	return 0;
}
