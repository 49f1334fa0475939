/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the process with the most memory, just before the kernel kills for lack of it. */
#include "sandbox/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define MOST_PROCESSES 1000

/*
 * How far below its limit a group may be when it is refused memory: CPUs take it in batches. Counts of refusals
 * (failcnt) say nothing where memory and swap have one limit.
 */
#define NEAR_LIMIT (4u << 20)

bool forge_cgroup_is_own_oom(const struct forge_cgroup *cg)
{
	uint64_t peak, limit;
	char buf[512];

	if (cg->memory_fd < 0 && cg->v2_fd >= 0 &&
	    forge_read_at(cg->v2_fd, "memory.events", buf, sizeof(buf)) > 0)
		return forge_key_u64(buf, "oom", 1) > 0;
	/* These files are those of v1. */
	if (cg->memory_fd < 0 ||
	    forge_read_u64_at(cg->memory_fd, "memory.max_usage_in_bytes", &peak) < 0 ||
	    forge_read_u64_at(cg->memory_fd, "memory.limit_in_bytes", &limit) < 0)
		return true;
	return peak >= limit || limit - peak <= NEAR_LIMIT;
}

uint64_t forge_cgroup_oom_kills(struct forge_cgroup *cg)
{
	char buf[512];
	bool is_v1 = cg->memory_fd >= 0;

	if (forge_read_at(is_v1 ? cg->memory_fd : cg->v2_fd,
			  is_v1 ? "memory.oom_control" : "memory.events", buf,
			  sizeof(buf)) <= 0)
		return 0;
	return forge_key_u64(buf, "oom_kill", 0);
}

/*
 * Reading the event arms it again. A descriptor that cannot be read would wake us forever, so
 * it is closed.
 */
static void take_event(struct forge_cgroup *cg)
{
	char buf[512];
	ssize_t n = cg->pressure_poll == POLLPRI
			    ? pread(cg->pressure_fd, buf, sizeof(buf), 0)
			    : read(cg->pressure_fd, buf, sizeof(uint64_t));

	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		close(cg->pressure_fd);
		cg->pressure_fd = -1;
	}
}

/* The second number of statm is the resident size in pages. */
static uint64_t resident(int proc)
{
	char buf[128], *end;

	if (forge_read_at(proc, "statm", buf, sizeof(buf)) <= 0)
		return 0;
	(void)strtoull(buf, &end, 10);
	return strtoull(end, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The pid may belong to another process by now, which is then not in our group. */
static bool is_of(const struct forge_cgroup *cg, int proc)
{
	char buf[4096];

	return forge_read_at(proc, "cgroup", buf, sizeof(buf)) > 0 &&
	       strstr(buf, cg->name);
}

/*
 * A process can give itself any name, and the name goes into a message that people and programs
 * trust. Characters that could end a string, colour a terminal or continue the sentence are
 * replaced.
 */
static void read_name(int proc, char ret[16])
{
	char buf[32];
	ssize_t n = forge_read_at(proc, "comm", buf, sizeof(buf));
	size_t len = n > 1 ? (size_t)n - 1 : 0; /* without the newline */

	for (size_t i = 0; i < len && i < 15; i++) {
		char c = buf[i];
		bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
				(c >= '0' && c <= '9') || (c && strchr("._+:@/-", c));
		ret[i] = is_plain ? c : '?';
		ret[i + 1] = '\0';
	}
	if (len == 0)
		memcpy(ret, "?", 2);
}

bool forge_cgroup_look(struct forge_cgroup *cg, pid_t init, struct forge_largest *ret)
{
	int dir = cg->v2_fd >= 0 ? cg->v2_fd : cg->memory_fd;
	forge_auto_close int best = -1;
	uint64_t most = 0;
	char procs[MOST_PROCESSES * 8], path[32];

	take_event(cg);
	if (forge_cgroup_oom_kills(cg) > 0 ||
	    forge_read_at(dir, "cgroup.procs", procs, sizeof(procs)) <= 0)
		return false;
	unsigned n = 0;
	for (char *p = procs; *p && n < MOST_PROCESSES; p += strspn(p, "\n"), n++) {
		long pid = strtol(p, &p, 10);
		if (pid <= 0 || pid == init || !*p) /* the last number may be cut short */
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%ld", pid);
		forge_auto_close int proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		uint64_t bytes = proc < 0 ? 0 : resident(proc);
		if (bytes <= most)
			continue;
		most = bytes;
		if (best >= 0)
			close(best);
		best = forge_take_fd(proc);
	}
	if (best < 0 || !is_of(cg, best))
		return false;
	struct forge_largest found = { .bytes = most };
	read_name(best, found.name);
	if (forge_cgroup_oom_kills(cg) > 0)
		return false;
	*ret = found;
	return true;
}
