/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a plan for `forge run --dry-run`. */
#include "sandbox/plan.h"

static const char *const type_names[] = {
	[FORGE_MOUNT_DIR] = "dir", [FORGE_MOUNT_SYMLINK] = "symlink", [FORGE_MOUNT_FILE] = "file",
	[FORGE_MOUNT_RO] = "read_only", [FORGE_MOUNT_RW] = "writable", [FORGE_MOUNT_DEV] = "device",
	[FORGE_MOUNT_TMPFS] = "tmpfs", [FORGE_MOUNT_PROC] = "proc", [FORGE_MOUNT_MASK] = "mask",
};

static json_t *strings(const struct forge_strv *sv)
{
	json_t *a = json_array();

	forge_strv_foreach(s, sv)
		json_array_append_new(a, json_string(s));
	return a;
}

static json_t *mount_json(const struct forge_mount *m)
{
	json_t *o = json_pack("{s:s, s:s}", "type", type_names[m->type], "target", m->target);

	if (m->source)
		json_object_set_new(o, "source", json_string(m->source));
	if (m->type == FORGE_MOUNT_TMPFS) {
		json_object_set_new(o, "size_bytes", json_integer((json_int_t)m->size_bytes));
		json_object_set_new(o, "inodes", json_integer((json_int_t)m->inodes));
	}
	return o;
}

json_t *forge_plan_json(const struct forge_plan *p)
{
	json_t *mounts = json_array(), *cpus = json_array();

	for (size_t i = 0; i < p->n_mounts; i++)
		json_array_append_new(mounts, mount_json(&p->mounts[i]));
	for (unsigned i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &p->cpus))
			json_array_append_new(cpus, json_integer(i));
	return json_pack("{s:o, s:o, s:o, s:s, s:{s:i, s:i, s:I, s:I}, s:o, s:s, s:i, s:o}",
			 "command", strings(&p->argv), "exec", strings(&p->exec_paths),
			 "environment", strings(&p->env), "workdir", p->workdir,
			 "ids", "uid", FORGE_INSIDE_UID, "gid", FORGE_INSIDE_GID,
			 "host_uid", (json_int_t)p->host_uid, "host_gid", (json_int_t)p->host_gid,
			 "cpus", cpus, "network", p->own_network ? "none" : "host",
			 "landlock_abi", p->landlock_abi, "mounts", mounts);
}
