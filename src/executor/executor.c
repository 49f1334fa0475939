/* SPDX-License-Identifier: Apache-2.0 */
/* The table of executors. */
#include "executor/executor.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "config-build.h"

static const struct forge_executor_ops *const executors[] = {
	&forge_executor_local,
#if HAVE_CURL
	&forge_executor_container,
#endif
	&forge_executor_slurm,
};

const struct forge_executor_ops *forge_executor_find(const char *kind)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(executors); i++)
		if (strcmp(executors[i]->kind, kind) == 0)
			return executors[i];
	return NULL;
}

const struct forge_executor_ops *forge_executor_of_slot(const json_t *slot)
{
	const char *kind = forge_json_string(slot, "executor_kind");

	return kind ? forge_executor_find(kind) : &forge_executor_local;
}

struct forge_execution *forge_execution_new(const struct forge_executor_ops *ops)
{
	struct forge_execution *e = calloc(1, ops->size);

	if (e)
		e->ops = ops;
	return e;
}

void forge_execution_free(struct forge_execution *e)
{
	if (e)
		e->ops->close(e);
	free(e);
}

void forge_run_usage(const json_t *slots, const char *run_id, struct forge_usage_now *ret)
{
	const json_t *slot = json_object_get(slots, run_id);
	const struct forge_executor_ops *ops = slot ? forge_executor_of_slot(slot) : NULL;

	*ret = (struct forge_usage_now){ UINT64_MAX, UINT64_MAX };
	if (ops)
		ops->usage(slot, ret);
}

bool forge_slot_is_remote(const json_t *slot)
{
	const struct forge_executor_ops *ops = slot ? forge_executor_of_slot(slot) : NULL;

	return ops && (ops->caps & FORGE_EXECUTOR_REMOTE);
}

const char *forge_run_pending(const json_t *slots, const char *run_id)
{
	const json_t *slot = json_object_get(slots, run_id);

	return forge_json_string_or(slot, "pending",
				    forge_slot_is_remote(slot) ? "waits for the cluster"
							       : NULL);
}

const char *forge_run_log_dir(const json_t *slot)
{
	return forge_json_string(slot, "log_dir");
}
