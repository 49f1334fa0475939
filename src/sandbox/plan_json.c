/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a plan for `forge run --dry-run`. */
#include "sandbox/plan.h"

#include "sandbox/child.h"

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

/* Unlimited is null. */
static json_t *number(uint64_t n)
{
	return n == FORGE_UNLIMITED ? json_null() : json_integer((json_int_t)n);
}

/* By the names of v2; a v1 manager writes the same values under its own. */
static json_t *cgroup_json(const struct forge_limits *l)
{
	json_t *o = json_object();

	json_object_set_new(o, "memory_max", number(l->memory_bytes));
	json_object_set_new(o, "memory_swap_max", json_integer(0));
	json_object_set_new(o, "memory_oom_group", json_true());
	json_object_set_new(o, "pids_max", number(l->pids == FORGE_UNLIMITED ? l->pids : l->pids + 1));
	json_object_set_new(o, "cpu_max_usec_per_100ms",
			    number(l->cpus_milli == FORGE_UNLIMITED ? l->cpus_milli :
								      l->cpus_milli * 100));
	return o;
}

static json_t *supervisor_json(const struct forge_limits *l)
{
	json_t *o = json_object();

	json_object_set_new(o, "wall_usec", number(l->wall_usec));
	json_object_set_new(o, "grace_usec", number(l->grace_usec));
	json_object_set_new(o, "cpu_usec", number(l->cpu_usec));
	json_object_set_new(o, "disk_bytes", number(l->disk_bytes));
	json_object_set_new(o, "inodes", number(l->inodes));
	json_object_set_new(o, "output_bytes", number(l->output_bytes));
	json_object_set_new(o, "open_files", number(l->open_files));
	return o;
}

static json_t *ids_json(const struct forge_plan *p)
{
	return json_pack("{s:i, s:i, s:I, s:I}", "uid", FORGE_INSIDE_UID, "gid", FORGE_INSIDE_GID,
			 "host_uid", (json_int_t)p->host_uid, "host_gid", (json_int_t)p->host_gid);
}

json_t *forge_plan_json(const struct forge_plan *p)
{
	json_t *mounts = json_array(), *cpus = json_array(), *o = json_object();

	for (size_t i = 0; i < p->n_mounts; i++)
		json_array_append_new(mounts, mount_json(&p->mounts[i]));
	for (unsigned i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &p->cpus))
			json_array_append_new(cpus, json_integer(i));
	json_object_set_new(o, "command", strings(&p->argv));
	json_object_set_new(o, "exec", strings(&p->exec_paths));
	json_object_set_new(o, "environment", strings(&p->env));
	json_object_set_new(o, "workdir", json_string(p->workdir));
	json_object_set_new(o, "ids", ids_json(p));
	json_object_set_new(o, "namespaces",
			    json_string(p->own_network ? "user mount pid ipc uts cgroup network" :
							 "user mount pid ipc uts cgroup"));
	json_object_set_new(o, "network", json_string(p->own_network ? "none" : "host"));
	json_object_set_new(o, "cgroup", cgroup_json(&p->limits));
	json_object_set_new(o, "supervisor", supervisor_json(&p->limits));
	json_object_set_new(o, "cpus", cpus);
	json_object_set_new(o, "landlock_abi", json_integer(p->landlock_abi));
	json_object_set_new(o, "seccomp_instructions", json_integer((json_int_t)forge_filter_length()));
	json_object_set_new(o, "mounts", mounts);
	return o;
}
