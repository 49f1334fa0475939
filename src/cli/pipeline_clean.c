/* SPDX-License-Identifier: Apache-2.0 */
/* forge pipeline clean: removes the runs of a pipeline that are not the result of a step as it is now. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/parse.h"
#include "base/strv.h"
#include "cli/cli.h"
#include "cli/pipeline_cli.h"
#include "pipeline/head_state.h"
#include "record/deliver.h"
#include "record/record.h"
#include "record/remove.h"

struct old_runs {
	const struct forge_head *h;
	struct forge_strv ids;
};

/* A run of this file is old when its task has another result now, or when there is no such task any more. */
static int add_old(const struct forge_run_row *row, void *arg)
{
	struct old_runs *o = arg;
	forge_auto_json json_t *record = NULL;
	size_t n;

	if (!row->ended_at ||
	    forge_load_record(o->h->home, row->run_id, &record, NULL) < 0)
		return 0;
	const json_t *step = json_object_get(record, "step");
	if (strcmp(forge_json_string_or(step, "file", ""), o->h->g->p->path) != 0)
		return 0;
	int task = forge_graph_find(o->h->g, forge_json_string_or(step, "task", ""), &n,
				    NULL);
	if (task >= 0 && (o->h->tasks[task].state != FORGE_TASK_CACHED ||
			  strcmp(o->h->tasks[task].run_id, row->run_id) == 0))
		return 0;
	return forge_strv_add(&o->ids, row->run_id);
}

static int remove_old(struct forge_head *h, const struct forge_strv *ids,
		      struct forge_error *err)
{
	struct forge_removal removal = { .objects = 0 };
	char size[FORGE_FORMAT_MAX];
	int rc = 0;

	forge_strv_foreach (id, ids) {
		forge_auto_json json_t *record = NULL;
		if (rc == 0)
			rc = forge_store_get(h->store, id, &record, err);
		if (rc == 0)
			rc = forge_remove_run(h->home, h->store, record, false, &removal,
					      err);
	}
	if (rc == 0)
		rc = forge_remove_objects(h->home, h->store, &removal, err);
	if (rc == 0)
		printf("%zu runs removed, with %llu files (%s) that no other run has\n",
		       ids->n, (unsigned long long)removal.objects,
		       forge_format_size(size, removal.bytes));
	forge_removal_done(&removal);
	return rc;
}

int forge_pipeline_clean(struct forge_head *h, bool is_dry, bool is_sure,
			 struct forge_error *err)
{
	struct old_runs old = { .h = h };
	char user[FORGE_USER_MAX];
	const struct forge_run_filter filter = { .pipeline = h->g->p->name,
						 .user = forge_user_name(user) };
	int rc = forge_store_list(h->store, &filter, add_old, &old, err);

	if (rc >= 0 && old.ids.n == 0)
		puts("every run of this pipeline is the result of a step");
	else if (rc >= 0 && is_dry)
		forge_strv_foreach (id, &old.ids)
			puts(id);
	else if (rc >= 0 && !is_sure && !isatty(STDIN_FILENO))
		rc = forge_hint(
			err,
			forge_fail(err, EINVAL,
				   "standard input is no terminal: forge cannot ask"),
			"--yes removes without asking, -n lists");
	else if (rc >= 0 && (is_sure || forge_ask("remove %zu older runs of %s?",
						  old.ids.n, h->g->p->name)))
		rc = remove_old(h, &old.ids, err);
	forge_strv_done(&old.ids);
	return rc < 0 ? rc : 0;
}
