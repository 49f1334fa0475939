/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroup that another program (a container engine) has made for a process. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "sandbox/cgroup.h"

/* Where a hierarchy is mounted: "<root> <mount point> ... - <type> <source> <options>". */
struct hierarchy {
	char root[PATH_MAX], top[PATH_MAX];
};

/* controller: "memory", or "" for the unified hierarchy. */
static bool find_hierarchy(const char *controller, struct hierarchy *ret)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t room = 0;
	bool is_found = false;

	while (f && !is_found && getline(&line, &room, f) > 0) {
		char type[32], options[256];
		const char *rest = strstr(line, " - ");
		if (!rest ||
		    sscanf(line, "%*d %*d %*s %4095s %4095s", ret->root, ret->top) != 2 ||
		    sscanf(rest, " - %31s %*s %255s", type, options) != 2)
			continue;
		for (char *p = options; *p; p++)
			if (*p == ',')
				*p = ' ';
		is_found = *controller
				   ? strcmp(type, "cgroup") == 0 &&
					     forge_cgroup_has_word(options, controller)
				   : strcmp(type, "cgroup2") == 0;
	}
	free(line);
	if (f)
		fclose(f);
	return is_found;
}

/* The path of a process in a hierarchy: the line "4:cpu,cpuacct:/path", "0::/path" for the unified one. */
static bool find_path(const char *text, const char *controller, char *buf, size_t size)
{
	for (const char *line = text; line && *line;) {
		const char *names = strchr(line, ':');
		const char *path = names ? strchr(names + 1, ':') : NULL;
		const char *end = strchr(line, '\n');
		if (!path)
			return false;
		char list[256];
		(void)snprintf(list, sizeof(list), "%.*s", (int)(path - names - 1),
			       names + 1);
		for (char *p = list; *p; p++)
			if (*p == ',')
				*p = ' ';
		bool is_it =
			*controller ? forge_cgroup_has_word(list, controller) : !*list;
		if (is_it)
			return snprintf(buf, size, "%.*s",
					(int)(end ? end - path - 1 : INT_MAX),
					path + 1) < (int)size;
		line = end ? end + 1 : NULL;
	}
	return false;
}

/* A group that this process is in, too, is not the container's: killing it would kill forge. */
static bool is_ours(const char *controller, const char *path)
{
	char text[8192], own[PATH_MAX];
	size_t len = strlen(path);

	if (forge_read_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) <= 0 ||
	    !find_path(text, controller, own, sizeof(own)))
		return true; /* not known: better none than a wrong one */
	return strncmp(own, path, len) == 0 && (own[len] == '/' || !own[len]);
}

/* The path of the directory of the process in this hierarchy. False: it has none of its own. */
static bool find_dir(const char *text, const char *controller, char dir[2 * PATH_MAX])
{
	struct hierarchy h;
	char path[PATH_MAX];
	const char *below = path;

	if (!find_path(text, controller, path, sizeof(path)) ||
	    is_ours(controller, path) || !find_hierarchy(controller, &h))
		return false;
	size_t len = strlen(h.root);
	if (len > 1) {
		if (strncmp(path, h.root, len) != 0 || path[len] != '/')
			return false; /* not below what is mounted here */
		below = path + len;
	}
	/* The root of a hierarchy is no group of a container. */
	if (!*below || strcmp(below, "/") == 0 || strstr(below, ".."))
		return false;
	(void)snprintf(dir, 2 * PATH_MAX, "%s%s", h.top, below);
	return true;
}

static uint64_t pid_namespace_of(pid_t pid)
{
	char path[40];
	struct stat st;

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	return stat(path, &st) == 0 ? st.st_ino : 0;
}

/*
 * Whether the group has no processes but those of the container, and no groups below it. An engine may put
 * containers into a group of its own; a limit on that, or a kill, would hit others.
 */
static bool is_own_group(int dir, pid_t pid)
{
	uint64_t wanted = pid_namespace_of(pid);
	struct stat st;
	forge_auto_close int fd = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	FILE *f = fd < 0 || !wanted || fstat(dir, &st) < 0 || st.st_nlink > 2
			  ? NULL
			  : fdopen(forge_take_fd(fd), "r");
	bool is_it = f != NULL;
	int other;

	while (f && is_it && fscanf(f, "%d", &other) == 1) {
		uint64_t ns = pid_namespace_of(other);
		is_it = ns == wanted ||
			(ns == 0 && errno == ENOENT); /* it has just ended */
	}
	if (f)
		fclose(f);
	return is_it;
}

/* -1: the process has no group of its own there. */
static int open_dir(const char *text, const char *controller, pid_t pid)
{
	char dir[2 * PATH_MAX];
	forge_auto_close int fd = find_dir(text, controller, dir)
					  ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
					  : -1;

	return fd >= 0 && is_own_group(fd, pid) ? forge_take_fd(fd) : -1;
}

static void open_v1(struct forge_cgroup *cg, const char *text, pid_t pid)
{
	cg->ops = &forge_cgroup_v1;
	cg->memory_fd = open_dir(text, "memory", pid);
	cg->pids_fd = open_dir(text, "pids", pid);
	cg->cpu_fd = open_dir(text, "cpu", pid);
	cg->cpuacct_fd = open_dir(text, "cpuacct", pid);
	cg->missing |= (cg->memory_fd < 0 ? 1u << FORGE_MECH_MEMORY : 0) |
		       (cg->pids_fd < 0 ? 1u << FORGE_MECH_PIDS : 0) |
		       (cg->cpu_fd < 0 ? 1u << FORGE_MECH_CPUS : 0) |
		       (cg->cpuacct_fd < 0 ? 1u << FORGE_MECH_CPU_TIME : 0);
}

int forge_cgroup_adopt(pid_t pid, const char *run_id, const struct forge_limits *limits,
		       struct forge_cgroup **ret, struct forge_error *err)
{
	const struct forge_blockdev no_disk = { .name = "" };
	char file[40], text[8192];

	(void)snprintf(file, sizeof(file), "/proc/%d/cgroup", (int)pid);
	if (forge_read_at(AT_FDCWD, file, text, sizeof(text)) <= 0)
		return forge_fail_errno(err, errno, "read %s", file);
	forge_auto_cgroup struct forge_cgroup *cg =
		forge_cgroup_alloc(&forge_cgroup_v2, run_id, limits, &no_disk);
	if (!cg)
		return forge_fail(err, ENOMEM, "out of memory");
	cg->v2_fd = open_dir(text, "", pid);
	/* Beside v1 the unified hierarchy has no limits, and may have the engine's own processes. */
	if (cg->v2_fd < 0 || faccessat(cg->v2_fd, "memory.max", F_OK, 0) < 0) {
		if (cg->v2_fd >= 0)
			close(cg->v2_fd);
		cg->v2_fd = -1;
		open_v1(cg, text, pid);
	}
	*ret = forge_take_ptr(cg);
	return 0;
}

static bool is_above(int dir, const char *file, uint64_t limit)
{
	uint64_t n;

	return limit != FORGE_UNLIMITED &&
	       (dir < 0 || forge_read_u64_at(dir, file, &n) < 0 || n > limit);
}

unsigned forge_cgroup_unlimited(struct forge_cgroup *cg)
{
	bool is_v2 = cg->v2_fd >= 0;
	int memory = is_v2 ? cg->v2_fd : cg->memory_fd;
	int pids = is_v2 ? cg->v2_fd : cg->pids_fd, cpu = is_v2 ? cg->v2_fd : cg->cpu_fd;
	const char *quota = is_v2 ? "cpu.max" : "cpu.cfs_quota_us";
	unsigned missing = 0;

	if (is_above(memory, is_v2 ? "memory.max" : "memory.limit_in_bytes",
		     cg->limits.memory_bytes))
		missing |= 1u << FORGE_MECH_MEMORY;
	/* + 1: the first process, which is forge's. */
	if (is_above(pids, "pids.max",
		     cg->limits.pids == FORGE_UNLIMITED ? FORGE_UNLIMITED
							: cg->limits.pids + 1))
		missing |= 1u << FORGE_MECH_PIDS;
	/* Both files begin with the quota; no quota is "max", or -1, which is no number here. */
	if (cg->limits.cpus_milli != FORGE_UNLIMITED &&
	    is_above(cpu, quota, cg->limits.cpus_milli * 100))
		missing |= 1u << FORGE_MECH_CPUS;
	return missing;
}

json_t *forge_cgroup_paths(pid_t pid)
{
	static const char *const controllers[] = { "", "memory", "cpuacct" };
	char file[40], text[8192], dir[2 * PATH_MAX];
	json_t *paths = json_array();

	(void)snprintf(file, sizeof(file), "/proc/%d/cgroup", (int)pid);
	if (forge_read_at(AT_FDCWD, file, text, sizeof(text)) <= 0)
		return paths;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(controllers); i++)
		if (find_dir(text, controllers[i], dir))
			json_array_append_new(paths, json_string(dir));
	return paths;
}

static void read_now(const char *path, uint64_t *memory_bytes, uint64_t *cpu_usec)
{
	char text[1024];
	uint64_t n;
	forge_auto_close int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return;
	if (forge_read_u64_at(dir, "memory.current", &n) == 0 ||
	    forge_read_u64_at(dir, "memory.usage_in_bytes", &n) == 0)
		*memory_bytes = n;
	if (forge_read_u64_at(dir, "cpuacct.usage", &n) == 0)
		*cpu_usec = n / 1000;
	else if (forge_read_at(dir, "cpu.stat", text, sizeof(text)) > 0)
		*cpu_usec = forge_key_u64(text, "usage_usec", *cpu_usec);
}

void forge_cgroup_read_now(const json_t *paths, uint64_t *memory_bytes,
			   uint64_t *cpu_usec)
{
	size_t i;
	const json_t *path;

	json_array_foreach (paths, i, path)
		if (json_string_value(path))
			read_now(json_string_value(path), memory_bytes, cpu_usec);
}
