/* SPDX-License-Identifier: Apache-2.0 */
/* Finds results of other users, and makes them ours. */
#include "pipeline/reuse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/glob.h"
#include "base/json.h"
#include "pipeline/head_state.h"
#include "record/shared_result.h"
#include "state/damage.h"
#include "state/objects.h"
#include "state/reused.h"

/* Runs that are looked at for one key, at once and in all: rows can be anybody's. */
#define CANDIDATES	20
#define CANDIDATES_MOST 400

int forge_reuse_open(struct forge_head *h, struct forge_error *err)
{
	const struct forge_strv *paths = &h->cfg->reuse_from;

	h->reuse = calloc(paths->n + 1, sizeof(*h->reuse));
	if (!h->reuse)
		return forge_fail(err, ENOMEM, "out of memory");
	forge_strv_foreach (path, paths) {
		struct forge_error why = FORGE_ERROR_INIT;
		struct forge_reuse_home *one = &h->reuse[h->n_reuse];
		char text[600];
		if (strcmp(path, h->home->path) == 0)
			continue;
		if (forge_shared_home_open(path, &one->home, &one->owner, &why) == 0) {
			h->n_reuse++;
			continue;
		}
		(void)snprintf(text, sizeof(text),
			       "pipeline.reuse_from: results there are not used: %s",
			       why.msg);
		forge_head_event(h, "warning", -1,
				 json_pack("{s:o}", "text", forge_json_text(text)));
	}
	return 0;
}

void forge_reuse_close(struct forge_head *h)
{
	for (size_t i = 0; i < h->n_reuse; i++)
		forge_home_close(&h->reuse[i].home);
	free(h->reuse);
	h->reuse = NULL;
	h->n_reuse = 0;
}

static const struct forge_reuse_home *find_home(const struct forge_head *h,
						const char *path)
{
	for (size_t i = 0; i < h->n_reuse; i++)
		if (path && strcmp(h->reuse[i].home.path, path) == 0)
			return &h->reuse[i];
	return NULL;
}

/* ---- what is ours already ---- */

static void set_result(struct forge_head *h, unsigned task, struct forge_result *r,
		       const char *user)
{
	struct forge_head_task *state = &h->tasks[task];
	char text[400];

	forge_result_done(&state->result);
	state->result = *r;
	*r = (struct forge_result){ .n = 0 };
	(void)snprintf(state->run_id, sizeof(state->run_id), "%s", state->result.run_id);
	(void)snprintf(text, sizeof(text), "%.60s's result, from %.300s", user,
		       state->result.from);
	forge_head_set_text(&state->notes, text);
	forge_head_set_text(&state->why, NULL);
}

/* Looks at what was taken, while gc cannot remove it. 1: all of it is there. */
static int check_taken(struct forge_head *h, const char *key, struct forge_result *r,
		       struct forge_error *err)
{
	struct forge_objects o = FORGE_OBJECTS_INIT;
	char problem[FORGE_PROBLEM_MAX];
	int rc = h->is_dry ? 0 : forge_objects_open(h->home, h->stop_fd, &o, err);

	if (rc == 0 && (h->is_dry || forge_reused_touch(h->home, key))) {
		forge_result_check(h->home, r, problem);
		rc = 1;
	}
	forge_objects_close(&o);
	return rc;
}

/* It counts only while its FORGE_HOME is one that the configuration names. */
static int find_taken(struct forge_head *h, unsigned task, struct forge_error *err)
{
	const char *key = h->tasks[task].key;
	forge_auto_json json_t *entry = NULL;
	forge_auto_result struct forge_result r = { .n = 0 };
	int rc = forge_reused_read(h->home, key, &entry, err);
	const json_t *result = json_object_get(entry, "result");
	const char *from = forge_json_string(entry, "home");

	if (rc <= 0 || !find_home(h, from) || forge_result_of_record(result, &r) < 0)
		return rc < 0 ? rc : 0;
	r.from = strdup(from);
	if (!r.from)
		return forge_fail(err, ENOMEM, "out of memory");
	rc = check_taken(h, key, &r, err);
	if (rc <= 0)
		return rc;
	if (forge_result_add_removed(result, &r) < 0 ||
	    !forge_task_has_result(&h->g->tasks[task], &r))
		return 0;
	set_result(h, task, &r, forge_json_string_or(result, "user", "?"));
	return 1;
}

/* ---- what is elsewhere ---- */

static int add_id(const struct forge_run_row *row, void *arg)
{
	return row->run_id && forge_run_id_is_valid(row->run_id)
		       ? forge_strv_add(arg, row->run_id)
		       : 0;
}

/* Without a runtime, a step runs the programs of its host, and the key does not know them. */
static bool is_comparable(const struct forge_head *h, unsigned task, const json_t *result)
{
	size_t step = (size_t)(h->g->tasks[task].step - h->g->p->steps);
	char host[256] = "";

	(void)gethostname(host, sizeof(host) - 1); /* "" matches no host */
	return h->runtimes[step][0] ||
	       strcmp(forge_json_string_or(result, "host", "?"), host) == 0;
}

/* Whether all files that are needed can be opened there; "" in problem: yes. Temporary ones are not taken. */
static void look_there(const struct forge_reuse_home *from, const struct forge_task *t,
		       struct forge_result *r, char problem[FORGE_PROBLEM_MAX])
{
	problem[0] = '\0';
	for (size_t i = 0; i < r->n; i++) {
		struct forge_result_file *f = &r->v[i];
		struct stat st;
		f->is_missing = forge_task_is_temp(t, f->path);
		if (f->is_missing)
			continue;
		int fd = forge_objects_open_unchecked(&from->home, f->digest, &st);
		if (fd >= 0 && f->size != UINT64_MAX && (uint64_t)st.st_size != f->size) {
			close(fd);
			fd = -EUCLEAN;
		}
		if (fd < 0)
			(void)snprintf(problem, FORGE_PROBLEM_MAX, "%.100s: %s", f->path,
				       fd == -EUCLEAN ? "it is damaged" : strerror(-fd));
		if (fd < 0)
			return;
		close(fd);
	}
}

/* Copies one file, unless it is here and intact. */
static int take_file(struct forge_objects *o, const struct forge_head *h,
		     const struct forge_reuse_home *from,
		     const struct forge_result_file *f)
{
	struct stat st;
	struct forge_object made;
	forge_auto_close int here = forge_objects_get(h->home, f->digest);

	/* What is marked as damaged is put again, which removes the mark. */
	if (here >= 0 && forge_damage_is_marked(h->home->fd, f->digest) == 0)
		return 0;
	forge_auto_close int there =
		forge_objects_open_unchecked(&from->home, f->digest, &st);
	int rc = there < 0 ? there : forge_objects_put(o, there, false, true, &made);
	/* What is stored then has another name, and gc removes it. */
	return rc == 0 && strcmp(made.digest, f->digest) != 0 ? -EUCLEAN : rc;
}

/* A text of theirs, not longer than any of ours is. */
static json_t *short_text(const json_t *result, const char *key)
{
	char text[256];

	(void)snprintf(text, sizeof(text), "%s", forge_json_string_or(result, key, "?"));
	return forge_json_text(text);
}

/* What is kept of it: nothing but what was checked. */
static json_t *make_entry(const char *key, const struct forge_result *r,
			  const struct forge_reuse_home *from, const json_t *result)
{
	char now[FORGE_TIME_MAX];
	json_t *lists[2] = { json_array(), json_array() };

	for (size_t i = 0; i < r->n; i++)
		json_array_append_new(lists[r->v[i].is_missing],
				      json_pack("{s:o, s:I, s:s}", "path",
						forge_json_name(r->v[i].path), "size",
						(json_int_t)r->v[i].size, "sha256",
						r->v[i].digest));
	return json_pack("{s:o, s:s, s:{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}}", "home",
			 forge_json_name(from->home.path), "taken_at",
			 forge_format_now(now), "result", "run_id", r->run_id, "key", key,
			 "analysis_id", short_text(result, "analysis_id"), "user",
			 short_text(result, "user"), "host", short_text(result, "host"),
			 "ended_at", short_text(result, "ended_at"), "outputs", lists[0],
			 "outputs_removed", lists[1]);
}

/* The lock of the objects is held until the file in reused/ points to them. */
static int take(struct forge_head *h, unsigned task, const struct forge_result *r,
		const struct forge_reuse_home *from, const json_t *result,
		char problem[FORGE_PROBLEM_MAX])
{
	const char *key = h->tasks[task].key;
	struct forge_objects o = FORGE_OBJECTS_INIT;
	struct forge_error why = FORGE_ERROR_INIT;
	forge_auto_json json_t *entry = make_entry(key, r, from, result);
	int rc = entry ? forge_objects_open(h->home, h->stop_fd, &o, &why)
		       : forge_fail(&why, ENOMEM, "out of memory");

	for (size_t i = 0; i < r->n && rc == 0; i++) {
		if (r->v[i].is_missing)
			continue;
		rc = take_file(&o, h, from, &r->v[i]);
		if (rc < 0)
			forge_fail(&why, -rc, "%.100s: %s", r->v[i].path,
				   rc == -EUCLEAN ? "it is damaged" : strerror(-rc));
	}
	if (rc == 0 && forge_objects_sync(&o, false) < 0)
		rc = forge_fail_errno(&why, errno, "write objects");
	if (rc == 0)
		rc = forge_reused_write(h->home, key, entry, &why);
	forge_objects_close(&o);
	(void)snprintf(problem, FORGE_PROBLEM_MAX, "%.*s", FORGE_PROBLEM_MAX - 1,
		       rc < 0 ? why.msg : "");
	return rc;
}

/* What another user's file lists is a result only if each is a file that a run of the task leaves, once. */
static bool is_plausible(const struct forge_task *t, const struct forge_result *r)
{
	for (size_t i = 0; i < r->n; i++) {
		const struct forge_result_file *f = &r->v[i];
		if (!forge_task_may_leave(t, f->path) || !forge_path_is_inner(f->path) ||
		    f->size > INT64_MAX ||
		    (i > 0 && strcmp(r->v[i - 1].path, f->path) == 0))
			return false;
	}
	return true;
}

/*
 * The result that the run left there, if it is one of this task and its files are there. 1: *ret_result and *ret are set. 0: no;
 * problem: "", or why it cannot be used. -ENOENT: the run is not there.
 */
static int look_at(struct forge_head *h, unsigned task, const char *run_id,
		   const struct forge_reuse_home *from, json_t **ret_result,
		   struct forge_result *ret, char problem[FORGE_PROBLEM_MAX])
{
	const struct forge_task *t = &h->g->tasks[task];
	int rc = forge_shared_result_load(&from->home, from->owner, run_id, ret_result);
	const json_t *result = *ret_result;

	problem[0] = '\0';
	if (rc < 0 && rc != -ENOENT)
		(void)snprintf(problem, FORGE_PROBLEM_MAX, FORGE_RESULT_FILE ": %s",
			       strerror(-rc));
	if (rc < 0)
		return rc == -ENOENT ? rc : 0;
	if (strcmp(forge_json_string_or(result, "key", ""), h->tasks[task].key) != 0 ||
	    strcmp(forge_json_string_or(result, "run_id", ""), run_id) != 0 ||
	    !is_comparable(h, task, result) || forge_result_of_record(result, ret) < 0 ||
	    !is_plausible(t, ret))
		return 0;
	look_there(from, t, ret, problem);
	return !*problem && forge_task_has_result(t, ret);
}

/* The same, and it is ours then, unless the head can run nothing. */
static int try_run(struct forge_head *h, unsigned task, const char *run_id,
		   const struct forge_reuse_home *from, char problem[FORGE_PROBLEM_MAX])
{
	forge_auto_json json_t *result = NULL;
	forge_auto_result struct forge_result r = { .n = 0 };
	int rc = look_at(h, task, run_id, from, &result, &r, problem);

	if (rc != 1)
		return rc;
	r.is_elsewhere = h->is_dry;
	r.from = strdup(from->home.path);
	if (!r.from || (!h->is_dry && take(h, task, &r, from, result, problem) < 0))
		return 0;
	set_result(h, task, &r, forge_json_string_or(result, "user", "?"));
	return 1;
}

/* One page of candidates. 1: found. 0: no; *ret_is_known: one of them was there. */
static int try_runs(struct forge_head *h, unsigned task, const struct forge_strv *ids,
		    bool *ret_is_known)
{
	char problem[FORGE_PROBLEM_MAX], text[3 * FORGE_PROBLEM_MAX];

	forge_strv_foreach (id, ids)
		for (size_t i = 0; i < h->n_reuse; i++) {
			int rc = try_run(h, task, id, &h->reuse[i], problem);
			*ret_is_known |= rc != -ENOENT;
			if (rc == 1)
				return 1;
			if (!*problem)
				continue;
			(void)snprintf(text, sizeof(text),
				       "run %s in %.200s has its result, but %s", id,
				       h->reuse[i].home.path, problem);
			forge_head_set_text(&h->tasks[task].why, text);
		}
	return 0;
}

int forge_reuse_find(struct forge_head *h, unsigned task, struct forge_error *err)
{
	struct forge_run_filter filter = { .step_key = h->tasks[task].key,
					   .status = "succeeded",
					   .limit = CANDIDATES };
	char after[FORGE_RUN_ID_MAX];
	bool is_known = false;
	int rc = h->n_reuse > 0 ? find_taken(h, task, err) : 0;

	if (rc != 0)
		return rc;
	/* Others can add rows that lead nowhere. */
	for (unsigned n = 0; h->n_reuse > 0 && !is_known && n < CANDIDATES_MOST;
	     n += CANDIDATES) {
		forge_auto_strv struct forge_strv ids = { 0 };
		rc = forge_store_list(h->store, &filter, add_id, &ids, err);
		if (rc > 0 && try_runs(h, task, &ids, &is_known) == 1)
			return 1;
		if (rc < CANDIDATES || ids.n == 0)
			return rc < 0 ? rc : 0;
		(void)snprintf(after, sizeof(after), "%s", ids.v[ids.n - 1]);
		filter.after = after;
	}
	return 0;
}

int forge_reuse_take(struct forge_head *h, unsigned task, json_t **ret_result,
		     struct forge_error *err)
{
	struct forge_head_task *state = &h->tasks[task];
	const struct forge_reuse_home *from = find_home(h, state->result.from);
	forge_auto_json json_t *result = NULL, *entry = NULL;
	forge_auto_result struct forge_result r = { .n = 0 };
	char problem[FORGE_PROBLEM_MAX];

	if (!from)
		return forge_fail(err, EINVAL, "that is no result of another user");
	if (state->result.is_elsewhere &&
	    (look_at(h, task, state->run_id, from, &result, &r, problem) != 1 ||
	     take(h, task, &r, from, result, problem) < 0))
		return forge_fail(err, ENOENT, "the result of run %s in %.200s: %s",
				  state->run_id, state->result.from,
				  *problem ? problem : "it is not there any more");
	state->result.is_elsewhere = false;
	int rc = forge_reused_read(h->home, state->key, &entry, err);
	if (rc == 0)
		rc = forge_fail(err, ENOENT, "the result of run %s is gone",
				state->run_id);
	if (rc > 0)
		*ret_result = json_incref(json_object_get(entry, "result"));
	return rc < 0 ? rc : 0;
}
