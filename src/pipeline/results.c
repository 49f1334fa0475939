/* SPDX-License-Identifier: Apache-2.0 */
/* Finds results in the store and looks at their objects. */
#include "pipeline/results.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "record/deliver.h"
#include "run/input_hasher.h"
#include "state/check.h"
#include "state/damage.h"
#include "state/objects.h"

int forge_result_add(struct forge_result *r, char *path, uint64_t size,
		     const char *digest)
{
	if (!path)
		return -ENOMEM;
	if (r->n == r->cap) {
		size_t cap = r->cap ? 2 * r->cap : 4;
		struct forge_result_file *grown = reallocarray(r->v, cap, sizeof(*grown));
		if (!grown) {
			free(path);
			return -ENOMEM;
		}
		r->v = grown;
		r->cap = cap;
	}
	r->v[r->n] = (struct forge_result_file){ .path = path, .size = size };
	(void)snprintf(r->v[r->n++].digest, FORGE_DIGEST_MAX, "%s", digest);
	return 0;
}

void forge_result_done(struct forge_result *r)
{
	for (size_t i = 0; i < r->n; i++) {
		free(r->v[i].path);
		free(r->v[i].host);
	}
	free(r->v);
	free(r->from);
	*r = (struct forge_result){ .n = 0 };
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct forge_result_file *)a)->path,
		      ((const struct forge_result_file *)b)->path);
}

static void sort(struct forge_result *r)
{
	if (r->n)
		qsort(r->v, r->n, sizeof(*r->v), by_path);
}

/* What a store says is only data: a name that cannot be one, or no digest, is no result. */
static int take_file(struct forge_result *r, const char *path, int64_t size,
		     const char *digest)
{
	char *name = path ? forge_json_name_decode(path) : NULL;

	if (!name || !forge_objects_is_digest(digest)) {
		free(name);
		return -EUCLEAN;
	}
	return forge_result_add(r, name, size < 0 ? UINT64_MAX : (uint64_t)size, digest);
}

static int take_row(const struct forge_output_row *row, void *arg)
{
	struct forge_result *r = arg;

	if (!row->run_id || !forge_run_id_is_valid(row->run_id))
		return -EUCLEAN;
	(void)snprintf(r->run_id, sizeof(r->run_id), "%s", row->run_id);
	return row->path ? take_file(r, row->path, row->size, row->digest) : 0;
}

/* Runs of a shared store that are looked at for one key. */
#define CANDIDATES 10

struct candidate {
	const struct forge_result_source *from;
	const char *key;
	struct forge_result *ret;
};

/* A row says which run it may be; the record in this FORGE_HOME says what that run left. */
static int take_candidate(const struct forge_run_row *row, void *arg)
{
	const struct candidate *c = arg;
	forge_auto_json json_t *record = NULL;

	if (!row->run_id || !forge_run_id_is_valid(row->run_id) ||
	    forge_load_record(c->from->home, row->run_id, &record, NULL) < 0)
		return 0;
	if (strcmp(forge_json_string_or(json_object_get(record, "step"), "key", ""),
		   c->key) != 0 ||
	    strcmp(forge_json_string_or(record, "status", ""), "succeeded") != 0)
		return 0;
	int rc = forge_result_of_record(record, c->ret);
	return rc == -ENOMEM ? rc : rc == 0;
}

int forge_result_find(const struct forge_result_source *from, const char *key,
		      struct forge_result *ret, struct forge_error *err)
{
	const struct candidate c = { from, key, ret };
	const struct forge_run_filter filter = { .step_key = key,
						 .status = "succeeded",
						 .user = from->user,
						 .limit = CANDIDATES };

	*ret = (struct forge_result){ .n = 0 };
	int rc = from->is_shared ? forge_store_list(from->store, &filter, take_candidate,
						    (void *)&c, err)
				 : forge_store_find_result(from->store, key, from->user,
							   take_row, ret, err);
	if (rc < 0)
		forge_result_done(ret);
	if (rc == -EUCLEAN)
		return 0; /* it is computed again */
	sort(ret);
	return rc < 0 ? rc : ret->run_id[0] != '\0';
}

int forge_result_of_record(const json_t *record, struct forge_result *ret)
{
	const json_t *o;
	size_t i;
	int rc = 0;

	*ret = (struct forge_result){ .n = 0 };
	(void)snprintf(ret->run_id, sizeof(ret->run_id), "%s",
		       forge_json_string_or(record, "run_id", ""));
	json_array_foreach (json_object_get(record, "outputs"), i, o)
		if (rc == 0 && !json_is_true(json_object_get(o, "checkpoint")))
			rc = take_file(ret, forge_json_string(o, "path"),
				       json_integer_value(json_object_get(o, "size")),
				       forge_json_string(o, "sha256"));
	if (rc < 0)
		forge_result_done(ret);
	sort(ret);
	return rc;
}

static bool has_path(const struct forge_result *r, const char *path)
{
	forge_auto_free char *name = path ? forge_json_name_decode(path) : NULL;

	for (size_t i = 0; name && i < r->n; i++)
		if (strcmp(r->v[i].path, name) == 0)
			return true;
	return false;
}

int forge_result_add_removed(const json_t *record, struct forge_result *r)
{
	const json_t *o;
	size_t i;
	int rc = 0;

	json_array_foreach (json_object_get(record, "outputs_removed"), i, o) {
		if (rc == 0 && has_path(r, forge_json_string(o, "path")))
			continue;
		if (rc == 0)
			rc = take_file(r, forge_json_string(o, "path"),
				       json_integer_value(json_object_get(o, "size")),
				       forge_json_string(o, "sha256"));
		if (rc == 0)
			r->v[r->n - 1].is_missing = true;
	}
	sort(r);
	return rc;
}

/* "": good. */
static const char *problem_of(const struct forge_home *home,
			      const struct forge_result_file *f)
{
	char stored[FORGE_STORED_MAX], is[FORGE_DIGEST_MAX];
	uint64_t size = 0;
	struct stat st;
	forge_auto_close int fd =
		openat(home->fd, forge_objects_path(stored, f->digest),
		       O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return errno == ENOENT ? "is gone" : strerror(errno);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return "is damaged";
	int rc = forge_object_digest(home, fd, is, &size);
	if (rc < 0)
		return strerror(-rc);
	if (strcmp(is, f->digest) != 0) {
		/* Reads it again and marks it, so that the next run that makes it repairs it. */
		struct forge_check_item item = { .recorded = FORGE_SIZE_UNKNOWN };
		struct forge_checked found;
		forge_check_pack(f->digest, item.digest);
		forge_check_object(home, &item, &found);
		return "is damaged";
	}
	return forge_damage_is_marked(home->fd, f->digest) == 1 ? "is marked as damaged"
								: "";
}

void forge_result_check(const struct forge_home *home, struct forge_result *r,
			char problem[FORGE_PROBLEM_MAX])
{
	problem[0] = '\0';
	for (size_t i = 0; i < r->n; i++) {
		if (r->v[i].is_missing)
			continue; /* it was removed */
		const char *why = problem_of(home, &r->v[i]);
		r->v[i].is_missing = *why;
		if (*why && !*problem)
			(void)snprintf(problem, FORGE_PROBLEM_MAX, "%.120s %s",
				       r->v[i].path, why);
	}
}
