/* SPDX-License-Identifier: Apache-2.0 */
/* Before the first task: scripts, runtimes, and which tasks take part. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/fd.h"
#include "base/glob.h"
#include "base/json.h"
#include "executor/executor.h"
#include "pipeline/head.h"
#include "pipeline/head_state.h"
#include "record/deliver.h"
#include "run/runtime_identity.h"
#include "runtime/runtime.h"

#define SCRIPT_MAX (64u << 20)

static int fail_step(const struct forge_head *h, const struct forge_step *s,
		     const char *key, int rc, const struct forge_error *why,
		     struct forge_error *err)
{
	if (rc == -ENOMEM)
		return forge_fail(err, ENOMEM, "out of memory");
	(void)forge_fail_at(err, h->g->p->shown, s->line, s->column, "steps.%s.%s: %s",
			    s->name, key, why->msg);
	return *why->hint ? forge_hint(err, -EINVAL, "%s", why->hint) : -EINVAL;
}

/* ---- scripts ---- */

static int read_script(const struct forge_head *h, const struct forge_step *s,
		       struct forge_script *ret, struct forge_error *err)
{
	forge_auto_free char *path =
		*s->script == '/' ? strdup(s->script)
				  : forge_asprintf("%s/%s", h->g->p->dir, s->script);
	struct forge_sha256 hash;
	struct stat st;

	if (!path)
		return -ENOMEM;
	if (!forge_script_is_notebook(s->script) && !forge_script_interpreter(s->script))
		return forge_hint(
			err,
			forge_fail(err, EINVAL, "'%.100s': its interpreter is not known",
				   s->script),
			"Endings that are known: .py .R .sh .pl .jl .ipynb; for "
			"others make it an input and write run:");
	forge_auto_close int fd =
		open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0)
		return forge_fail_errno(err, errno, "'%.100s'", s->script);
	if (!S_ISREG(st.st_mode))
		return forge_fail(err, EINVAL, "'%.100s' is no file", s->script);
	int rc = forge_read_fd(fd, SCRIPT_MAX, &ret->text, &ret->len);
	if (rc < 0)
		return forge_fail(err, -rc, "'%.100s': %s", s->script,
				  forge_regular_problem(rc));
	forge_sha256_init(&hash);
	forge_sha256_add(&hash, ret->text, ret->len);
	(void)forge_sha256_done(&hash, ret->digest);
	if (forge_script_is_notebook(s->script) && !(ret->real = realpath(path, NULL)))
		return forge_fail_errno(err, errno, "'%.100s'", s->script);
	return 0;
}

/* ---- runtimes, executors, profiles ---- */

/* NULL: none. */
static const char *runtime_of(const struct forge_head *h, size_t step)
{
	const struct forge_pipeline *p = h->g->p;
	const char *name = p->steps[step].runtime ? p->steps[step].runtime : p->runtime;

	return name ? name : h->cfg->runtime;
}

/* The digest of a runtime that an earlier step has as well is known. */
static bool copy_runtime(struct forge_head *h, size_t step, const char *name)
{
	for (size_t i = step; i-- > 0 && step - i < 64;) {
		const char *other = runtime_of(h, i);
		if (other && strcmp(other, name) == 0) {
			memcpy(h->runtimes[step], h->runtimes[i], FORGE_DIGEST_MAX);
			return true;
		}
	}
	return false;
}

static int identify(struct forge_head *h, struct forge_catalog *catalog, size_t step,
		    struct forge_error *err)
{
	const char *name = runtime_of(h, step);
	struct forge_runtime rt = { 0 };

	if (!name || copy_runtime(h, step, name))
		return 0;
	if (!catalog->cfg) {
		int rc = forge_catalog_open(h->cfg, catalog, err);
		if (rc < 0)
			return rc;
	}
	int rc = forge_runtime_open(catalog, name, &rt, err);
	if (rc == 0 && h->home)
		rc = forge_runtime_digest(h->home, &rt, h->runtimes[step], err);
	forge_runtime_close(&rt);
	return rc;
}

static int check_names(struct forge_head *h, size_t step, struct forge_error *err)
{
	const struct forge_step *s = &h->g->p->steps[step];
	const char *name = s->executor ? s->executor : h->g->p->executor;
	const struct forge_executor_decl *decl = NULL;
	const struct forge_profile *profile;
	struct forge_error why = FORGE_ERROR_INIT;
	int rc;

	if (!name)
		name = h->cfg->executor;
	if (name) {
		rc = forge_config_executor(h->cfg, name, &decl, &why);
		if (rc < 0)
			return fail_step(h, s, "executor", rc, &why, err);
		const struct forge_executor_ops *ops = forge_executor_find(decl->kind);
		h->is_remote[step] = ops && ops->caps & (FORGE_EXECUTOR_REMOTE |
							 FORGE_EXECUTOR_OUTLIVES);
	}
	rc = s->profile ? forge_config_profile(h->cfg, s->profile, &profile, &why) : 0;
	return rc < 0 ? fail_step(h, s, "profile", rc, &why, err) : 0;
}

int forge_head_prepare(struct forge_head *h, struct forge_error *err)
{
	size_t n = h->g->p->n_steps;
	struct forge_catalog catalog = { .cfg = NULL };
	int rc = 0;

	h->scripts = calloc(n, sizeof(*h->scripts));
	h->runtimes = calloc(n, sizeof(*h->runtimes));
	h->is_remote = calloc(n, sizeof(bool));
	if (!h->scripts || !h->runtimes || !h->is_remote)
		return forge_fail(err, ENOMEM, "out of memory");
	for (size_t i = 0; i < n && rc == 0; i++) {
		const struct forge_step *s = &h->g->p->steps[i];
		struct forge_error why = FORGE_ERROR_INIT;
		rc = check_names(h, i, err);
		if (rc < 0)
			break;
		rc = s->script ? read_script(h, s, &h->scripts[i], &why) : 0;
		if (rc < 0) {
			rc = fail_step(h, s, "script", rc, &why, err);
			break;
		}
		rc = identify(h, &catalog, i, &why);
		if (rc < 0)
			rc = fail_step(h, s, "runtime", rc, &why, err);
	}
	if (catalog.cfg)
		forge_catalog_close(&catalog);
	return rc;
}

int forge_head_lint(struct forge_head *h, const struct forge_graph *g,
		    const struct forge_config *cfg, struct forge_error *err)
{
	*h = FORGE_HEAD_INIT;
	h->g = g;
	h->cfg = cfg;
	h->is_dry = true;
	return forge_head_prepare(h, err);
}

/* ---- selection ---- */

/* Calls mark for each task that a word of the list names. */
static int mark_words(struct forge_head *h, const struct forge_strv *words,
		      const char *option, void (*mark)(struct forge_head_task *t),
		      struct forge_error *err)
{
	for (size_t i = 0; words && i < words->n; i++) {
		size_t n;
		int first = forge_graph_find(h->g, words->v[i], &n, err);
		if (first < 0)
			return forge_wrap(err, first, "%s", option);
		for (size_t k = 0; k < n; k++)
			mark(&h->tasks[(size_t)first + k]);
	}
	return 0;
}

static void force(struct forge_head_task *t)
{
	t->is_forced = true;
}

static void select_task(struct forge_head_task *t)
{
	t->is_selected = true;
}

/* Tasks come after those that they read from: one pass reaches all that follow. */
static void spread(struct forge_head *h, bool *(*flag)(struct forge_head_task *t))
{
	for (size_t i = 0; i < h->g->n; i++)
		for (size_t k = 0; k < h->g->tasks[i].n_deps; k++)
			if (*flag(&h->tasks[h->g->tasks[i].deps[k]]))
				*flag(&h->tasks[i]) = true;
}

static bool *forced_flag(struct forge_head_task *t)
{
	return &t->is_forced;
}

static bool *selected_flag(struct forge_head_task *t)
{
	return &t->is_selected;
}

static int find_entry(const struct forge_head *h, const struct forge_strv **ret,
		      struct forge_error *err)
{
	const struct forge_pipeline *p = h->g->p;
	char list[200] = "";
	size_t len = 0;

	for (size_t i = 0; i < p->n_entries; i++) {
		if (strcmp(p->entries[i].name, h->o->entry) == 0) {
			*ret = &p->entries[i].steps;
			return 0;
		}
		if (len < sizeof(list))
			len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s",
						len ? ", " : "", p->entries[i].name);
	}
	return forge_fail(err, ENOENT, "--entry: unknown entry '%.64s' (have: %s)",
			  h->o->entry, len ? list : "none; name them in entries:");
}

/* STEP=DIR must name a step that does not run. */
static int check_given(const struct forge_head *h, struct forge_error *err)
{
	for (size_t i = 0; h->o->given && i < h->o->given->n; i++) {
		const char *text = h->o->given->v[i];
		size_t len = strcspn(text, "="), n;
		forge_auto_free char *word = strndup(text, len);
		if (!text[len] || !word)
			return forge_fail(err, EINVAL, "--given: '%.64s' is not STEP=DIR",
					  text);
		int first = forge_graph_find(h->g, word, &n, err);
		if (first < 0)
			return forge_wrap(err, first, "--given");
		if (n != 1)
			return forge_fail(err, EINVAL, "--given: %s has %zu tasks", word,
					  n);
		if (h->tasks[first].is_selected)
			return forge_hint(
				err,
				forge_fail(err, EINVAL,
					   "--given: %s would run, although it is given",
					   word),
				"Start after it, with --entry or --only");
	}
	return 0;
}

int forge_head_select(struct forge_head *h, struct forge_error *err)
{
	const struct forge_head_options *o = h->o;
	const struct forge_strv *entry = NULL;
	bool has_choice = o->entry || (o->only && o->only->n);
	int rc = mark_words(h, o->from, "--from", force, err);

	if (rc < 0)
		return rc;
	spread(h, forced_flag);
	rc = mark_words(h, o->force, "--force", force, err);
	if (rc == 0 && o->entry)
		rc = find_entry(h, &entry, err);
	if (rc == 0)
		rc = mark_words(h, entry, "--entry", select_task, err);
	if (rc < 0)
		return rc;
	spread(h, selected_flag);
	rc = mark_words(h, o->only, "--only", select_task, err);
	for (size_t i = 0; i < h->g->n && !has_choice; i++)
		h->tasks[i].is_selected = true;
	if (rc == 0 && o->limits_of) {
		size_t n;
		int first = forge_graph_find(h->g, o->limits_of, &n, err);
		for (size_t k = 0; first >= 0 && k < n; k++)
			h->tasks[(size_t)first + k].limits = o->limits;
		rc = first < 0 ? first : 0;
	}
	/* Before anything runs: a missing file would be noticed hours later. */
	for (size_t i = 0; i < h->g->n && rc == 0 && !h->is_dry; i++)
		if (h->tasks[i].is_selected && !h->g->tasks[i].is_skipped)
			rc = forge_graph_check_files(h->g, &h->g->tasks[i], err);
	return rc < 0 ? rc : check_given(h, err);
}

/* ---- results from outside ---- */

/* Files below a directory of the user that the step's outputs match. */
static int add_given_files(struct forge_head *h, const struct forge_task *t,
			   struct forge_result *ret, const char *top, const char *below,
			   unsigned depth, struct forge_error *err)
{
	forge_auto_free char *dir =
		*below ? forge_asprintf("%s/%s", top, below) : strdup(top);
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int rc = dir ? forge_entries_follow(&d, dir) : -ENOMEM;

	for (const char *name; rc == 0 && (name = forge_entries_next(&d));) {
		forge_auto_free char *path =
			*below ? forge_asprintf("%s/%s", below, name) : strdup(name);
		forge_auto_free char *full =
			path ? forge_asprintf("%s/%s", top, path) : NULL;
		const char *real, *digest;
		struct stat st;
		if (!full)
			return forge_fail(err, ENOMEM, "out of memory");
		if (stat(full, &st) < 0)
			continue;
		if (S_ISDIR(st.st_mode) && depth < 16) {
			rc = add_given_files(h, t, ret, top, path, depth + 1, err);
			if (rc < 0)
				return rc;
			continue;
		}
		bool is_output = false;
		forge_strv_foreach (pattern, &t->outputs)
			is_output |= forge_glob_match(pattern, path);
		if (!is_output || !S_ISREG(st.st_mode))
			continue;
		rc = forge_digests_get(h->digests, full, &real, &digest, err);
		if (rc < 0)
			return rc;
		if (forge_result_add(ret, strdup(path), (uint64_t)st.st_size, digest) <
			    0 ||
		    !(ret->v[ret->n - 1].host = strdup(real)))
			return forge_fail(err, ENOMEM, "out of memory");
	}
	rc = rc < 0 ? rc : d.error;
	return rc < 0 ? forge_fail_errno(err, -rc, "%s", top) : 0;
}

static const char *given_dir(const struct forge_head *h, const char *task)
{
	for (size_t i = 0; h->o->given && i < h->o->given->n; i++) {
		const char *text = h->o->given->v[i];
		size_t len = strcspn(text, "=");
		if (strncmp(text, task, len) == 0 && !task[len])
			return text + len + 1;
	}
	return NULL;
}

/* The last result of this pipeline file: another one may have the same name. */
struct last_result {
	const struct forge_head *h;
	json_t *record;
};

static int take_record(const struct forge_run_row *row, void *arg)
{
	struct last_result *l = arg;
	json_t *record = NULL;

	if (!forge_run_id_is_valid(row->run_id ? row->run_id : "") ||
	    forge_load_record(l->h->home, row->run_id, &record, NULL) < 0)
		return 0;
	const char *file =
		forge_json_string_or(json_object_get(record, "step"), "file", "");
	if (strcmp(file, l->h->g->p->path) != 0) {
		json_decref(record);
		return 0;
	}
	l->record = record;
	return 1;
}

/*
 * Whether a task that does not take part is up to date, by its key: then those before it are, too. 1, 0 or negative.
 * Recursion is as deep as the longest chain of tasks.
 */
static int find_by_key(struct forge_head *h, unsigned task, struct forge_error *err)
{
	const struct forge_task *t = &h->g->tasks[task];
	struct forge_head_task *state = &h->tasks[task];

	if (state->result.run_id[0])
		return 1;
	if (state->is_selected || t->is_skipped)
		return 0;
	for (size_t i = 0; i < t->n_deps; i++) {
		int rc = find_by_key(h, t->deps[i], err);
		if (rc != 1)
			return rc;
	}
	struct forge_error why = FORGE_ERROR_INIT;
	int rc = forge_head_evaluate_task(h, task, &why);
	if (rc == -ENOMEM || rc == -ENOTCONN) {
		*err = why;
		return rc;
	}
	return rc == 1;
}

static int no_result(const char *task, const char *why, struct forge_error *err)
{
	return forge_hint(err, forge_fail(err, ENOENT, "step %s%s", task, why),
			  "Run the whole pipeline, or give its outputs: --given %s=DIR",
			  task);
}

int forge_head_give(struct forge_head *h, unsigned task, struct forge_error *err)
{
	const struct forge_task *t = &h->g->tasks[task];
	struct forge_head_task *state = &h->tasks[task];
	const struct forge_run_filter filter = { .pipeline = h->g->p->name,
						 .step = t->name,
						 .status = "succeeded",
						 .user = h->user,
						 .limit = 50 };
	const char *dir = given_dir(h, t->name);
	struct last_result last = { .h = h };
	char problem[FORGE_PROBLEM_MAX] = "";

	if (dir) {
		char text[300];
		int rc = add_given_files(h, t, &state->result, dir, "", 0, err);
		(void)snprintf(text, sizeof(text), "the files in %.250s", dir);
		forge_head_set_text(&state->notes, text);
		return rc < 0 ? forge_wrap(err, rc, "--given %s", t->name) : 0;
	}
	int rc = find_by_key(h, task, err);
	if (rc < 0)
		return rc;
	if (rc == 0) {
		forge_result_done(&state->result);
		rc = forge_store_list(h->store, &filter, take_record, &last, err);
		if (rc < 0)
			return rc;
		rc = last.record ? forge_result_of_record(last.record, &state->result)
				 : -1;
		if (rc == 0)
			rc = forge_result_add_removed(last.record, &state->result);
		json_decref(last.record);
		if (rc < 0)
			return no_result(t->name, " has no result yet", err);
		static const char notes[] = "is not up to date; its last result is used";
		forge_result_check(h->home, &state->result, problem);
		forge_head_set_text(&state->notes, notes);
		forge_head_event(h, "note", (int)task, json_pack("{s:s}", "text", notes));
	}
	for (size_t i = 0; i < state->result.n; i++)
		if (state->result.v[i].is_missing) {
			char why[300];
			bool is_temp = forge_task_is_temp(t, state->result.v[i].path);
			(void)snprintf(why, sizeof(why), ": %soutput %.200s is %s",
				       is_temp ? "temporary " : "",
				       state->result.v[i].path,
				       is_temp ? "dropped" : "gone");
			int rc2 = no_result(t->name, why, err);
			return is_temp ? forge_hint(
						 err, rc2,
						 "--only %s as well makes it again; or "
						 "give its outputs: --given %s=DIR",
						 t->name, t->name)
				       : rc2;
		}
	(void)snprintf(state->run_id, sizeof(state->run_id), "%s", state->result.run_id);
	return 0;
}
