/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a plan for `forge run --dry-run`. */
#include "sandbox/plan.h"

#include <stdio.h>

#include "base/json.h"
#include "sandbox/child.h"

static const char *const type_names[] = {
	[FORGE_MOUNT_DIR] = "dir",     [FORGE_MOUNT_SYMLINK] = "symlink",
	[FORGE_MOUNT_FILE] = "file",   [FORGE_MOUNT_RO] = "read_only",
	[FORGE_MOUNT_RW] = "writable", [FORGE_MOUNT_DEV] = "device",
	[FORGE_MOUNT_TMPFS] = "tmpfs", [FORGE_MOUNT_PROC] = "proc",
	[FORGE_MOUNT_MASK] = "mask",
};

static json_t *mount_json(const struct forge_mount *m)
{
	json_t *o = json_object();

	json_object_set_new(o, "type", json_string(type_names[m->type]));
	json_object_set_new(o, "target", forge_json_text(m->target));
	if (m->source)
		json_object_set_new(o, "source", forge_json_text(m->source));
	if (m->type == FORGE_MOUNT_TMPFS) {
		json_object_set_new(o, "size_bytes",
				    json_integer((json_int_t)m->size_bytes));
		json_object_set_new(o, "inodes", json_integer((json_int_t)m->inodes));
	}
	return o;
}

static json_t *io_json(const struct forge_plan *p)
{
	json_int_t rate = (json_int_t)p->limits.io_bytes_per_second;
	char numbers[32];

	if (p->limits.io_bytes_per_second == FORGE_UNLIMITED)
		return json_null();
	if (p->io_error.code)
		return json_pack("{s:n, s:o}", "device", "error",
				 forge_json_text(p->io_error.msg));
	(void)snprintf(numbers, sizeof(numbers), "%u:%u", p->io_disk.major,
		       p->io_disk.minor);
	return json_pack("{s:s, s:s, s:I, s:I}", "device", numbers, "disk",
			 p->io_disk.name, "rbps", rate, "wbps", rate);
}

/* Uses the names of v2; a v1 manager writes the same values under its own names. */
static json_t *cgroup_json(const struct forge_plan *p)
{
	const struct forge_limits *l = &p->limits;
	json_t *o = json_object();

	json_object_set_new(o, "memory_max", forge_json_number(l->memory_bytes));
	json_object_set_new(o, "memory_swap_max", json_integer(0));
	json_object_set_new(o, "memory_oom_group", json_true());
	json_object_set_new(
		o, "pids_max",
		forge_json_number(l->pids == FORGE_UNLIMITED ? l->pids : l->pids + 1));
	json_object_set_new(o, "cpu_max_usec_per_100ms",
			    forge_json_number(l->cpus_milli == FORGE_UNLIMITED
						      ? l->cpus_milli
						      : l->cpus_milli * 100));
	json_object_set_new(o, "io_max", io_json(p));
	return o;
}

static json_t *supervisor_json(const struct forge_limits *l)
{
	json_t *o = json_object();

	json_object_set_new(o, "wall_usec", forge_json_number(l->wall_usec));
	json_object_set_new(o, "grace_usec", forge_json_number(l->grace_usec));
	json_object_set_new(o, "cpu_usec", forge_json_number(l->cpu_usec));
	json_object_set_new(o, "disk_bytes", forge_json_number(l->disk_bytes));
	json_object_set_new(o, "inodes", forge_json_number(l->inodes));
	json_object_set_new(o, "output_bytes", forge_json_number(l->output_bytes));
	json_object_set_new(o, "open_files", forge_json_number(l->open_files));
	json_object_set_new(o, "sockets", forge_json_number(l->sockets));
	return o;
}

static json_t *ids_json(const struct forge_plan *p)
{
	return json_pack("{s:i, s:i, s:I, s:I}", "uid", FORGE_INSIDE_UID, "gid",
			 FORGE_INSIDE_GID, "host_uid", (json_int_t)p->host_uid,
			 "host_gid", (json_int_t)p->host_gid);
}

json_t *forge_plan_json(const struct forge_plan *p)
{
	json_t *mounts = json_array(), *cpus = json_array(), *o = json_object();

	for (size_t i = 0; i < p->n_mounts; i++)
		json_array_append_new(mounts, mount_json(&p->mounts[i]));
	for (unsigned i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &p->cpus))
			json_array_append_new(cpus, json_integer(i));
	json_object_set_new(o, "command", forge_json_texts(&p->argv));
	json_object_set_new(o, "exec", forge_json_texts(&p->exec_paths));
	json_object_set_new(o, "environment", forge_json_texts(&p->env));
	json_object_set_new(o, "workdir", forge_json_text(p->workdir));
	json_object_set_new(o, "ids", ids_json(p));
	json_object_set_new(o, "namespaces",
			    json_string(p->own_network
						? "user mount pid ipc uts cgroup network"
						: "user mount pid ipc uts cgroup"));
	json_object_set_new(o, "network", json_string(p->own_network ? "none" : "host"));
	json_object_set_new(o, "cgroup", cgroup_json(p));
	json_object_set_new(o, "supervisor", supervisor_json(&p->limits));
	json_object_set_new(o, "cpus", cpus);
	json_object_set_new(o, "landlock_abi", json_integer(p->landlock_abi));
	json_object_set_new(o, "seccomp_instructions",
			    json_integer((json_int_t)forge_filter_length()));
	json_object_set_new(o, "mounts", mounts);
	return o;
}
