/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroups that the slots of local runs name. */
#include "executor/local/repair.h"

#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "executor/workdir.h"
#include "sandbox/cgroup.h"

static int remove_cgroups(const struct forge_repair *r, struct forge_error *err)
{
	size_t i;
	json_t *dir;

	json_array_foreach (json_object_get(r->slot, "cgroups"), i, dir) {
		const char *path = json_string_value(dir);
		/* Only directories that a run makes: the last part is forge-<run id>. */
		const char *base = path ? strrchr(path, '/') : NULL;
		if (!base || strncmp(base, "/forge-", 7) != 0 ||
		    strcmp(base + 7, r->run_id) != 0 || access(path, F_OK) < 0)
			continue;
		r->report(r->arg, "remove cgroup", path);
		int rc = r->dry_run ? 0 : forge_cgroup_remove_dir(path, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int forge_local_repair(const struct forge_repair *r, struct forge_error *err)
{
	int rc = remove_cgroups(r, err);

	return rc < 0 ? rc : forge_workdir_repair(r, err);
}

void forge_local_usage(const json_t *slot, struct forge_usage_now *ret)
{
	forge_cgroup_read_now(json_object_get(slot, "cgroups"), &ret->memory_bytes,
			      &ret->cpu_usec);
}
