/* SPDX-License-Identifier: Apache-2.0 */
/* Lists and freezes the processes of a run, and bounds what they have written; for disk.c. */
#include "sandbox/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

struct process {
	pid_t pid, parent;
	bool is_ours;
};

/*
 * Reads "pid (name) state parent ...", where the name can hold any character. Returns the text
 * after the name, or NULL.
 */
static const char *read_stat(long pid, char *text, size_t size)
{
	char path[40];

	(void)snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
	if (forge_read_at(AT_FDCWD, path, text, size) <= 0)
		return NULL;
	const char *end = strrchr(text, ')');
	return end && strlen(end) > 4 ? end + 2 : NULL;
}

static pid_t parent_of(long pid)
{
	char text[512];
	const char *p = read_stat(pid, text, sizeof(text));

	return p ? (pid_t)strtol(p + 2, NULL, 10) : -1;
}

/* Lists all processes that we see. Returns how many, at most max. */
static size_t list_processes(struct process *list, size_t max)
{
	size_t n = 0;
	forge_auto_dir DIR *dir = opendir("/proc");

	for (struct dirent *e; dir && n < max && (e = readdir(dir));) {
		long pid = strtol(e->d_name, NULL, 10);
		pid_t parent = pid > 0 ? parent_of(pid) : -1;
		if (parent >= 0)
			list[n++] = (struct process){ (pid_t)pid, parent, false };
	}
	return n;
}

static int by_pid(const void *a, const void *b)
{
	const struct process *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

/*
 * Marks init and its descendants, which are all processes of its pid namespace. The kernel
 * lists processes in the order of their pids, so that one round is mostly enough.
 */
static void mark_ours(struct process *list, size_t n, pid_t init)
{
	bool is_new = true;

	for (size_t i = 0; i < n; i++)
		list[i].is_ours = list[i].pid == init;
	while (is_new) {
		is_new = false;
		for (size_t i = 0; i < n; i++) {
			struct process key = { .pid = list[i].parent };
			const struct process *parent =
				list[i].is_ours
					? NULL
					: bsearch(&key, list, n, sizeof(key), by_pid);
			if (parent && parent->is_ours)
				list[i].is_ours = is_new = true;
		}
	}
}

/* Adds the threads of a process to the lines in buf. */
static size_t add_threads(pid_t pid, char *buf, size_t len, size_t size)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%ld/task", (long)pid);
	forge_auto_dir DIR *dir = opendir(path);
	for (struct dirent *e; dir && len + 24 < size && (e = readdir(dir));)
		if (e->d_name[0] != '.')
			len += (size_t)snprintf(buf + len, size - len, "%.20s\n",
						e->d_name);
	return len;
}

/* Without a cgroup: finds the processes by their parents. */
static ssize_t read_descendants(pid_t init, char *buf, size_t size)
{
	const size_t max = 32768;
	struct process *list = malloc(max * sizeof(*list));

	if (!list)
		return -ENOMEM;
	size_t n = list_processes(list, max), len = 0;
	mark_ours(list, n, init);
	buf[0] = '\0';
	for (size_t i = 0; i < n; i++)
		if (list[i].is_ours)
			len = add_threads(list[i].pid, buf, len, size);
	free(list);
	return n == max || len + 24 >= size ? (ssize_t)size - 1 : (ssize_t)len;
}

ssize_t forge_disk_read_tasks(struct forge_disk_tasks tasks, char *buf, size_t size)
{
	if (tasks.cgroup < 0)
		return read_descendants(tasks.init, buf, size);
	ssize_t n = forge_read_at(tasks.cgroup, "cgroup.threads", buf, size);

	return n == -ENOENT ? forge_read_at(tasks.cgroup, "tasks", buf, size) : n;
}

int forge_disk_freeze(struct forge_disk_tasks tasks, bool frozen)
{
	char buf[256];

	if (tasks.cgroup < 0)
		return -EOPNOTSUPP;
	int rc = forge_write_at(tasks.cgroup, "cgroup.freeze", frozen ? "1" : "0");

	if (rc < 0 || !frozen)
		return rc;
	forge_auto_close int events =
		openat(tasks.cgroup, "cgroup.events", O_RDONLY | O_CLOEXEC);
	for (int tries = 0; events >= 0 && tries < 10; tries++) {
		ssize_t n = pread(events, buf, sizeof(buf) - 1, 0);
		buf[n > 0 ? n : 0] = '\0';
		if (forge_key_u64(buf, "frozen", 0) == 1)
			return 0;
		struct pollfd p = { .fd = events, .events = POLLPRI };
		(void)poll(&p, 1, 10);
	}
	return -ETIMEDOUT;
}

/* The exact CPU time of one thread; 0 where the kernel does not report it. */
static uint64_t exact_usec_of(long pid)
{
	char path[40], text[128];

	(void)snprintf(path, sizeof(path), "/proc/%ld/schedstat", pid);
	return forge_read_at(AT_FDCWD, path, text, sizeof(text)) <= 0
		       ? 0
		       : strtoull(text, NULL, 10) / 1000;
}

/*
 * CPU time of a process and of those of its children that it has waited for. *slack grows by
 * what the kernel's rounding can hide: stat counts in ticks, but for a single thread there is
 * an exact number.
 */
static uint64_t cpu_usec_of(long pid, uint64_t *slack)
{
	const uint64_t tick_usec = 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
	char text[1024];
	const char *p = read_stat(pid, text, sizeof(text));
	uint64_t field[21] = { 0 }, exact = exact_usec_of(pid);

	/*
	 * p is at field 3. Fields 14 and 15 are its own time, 16 and 17 the children's, 20 the
	 * number of threads.
	 */
	for (int i = 3; p && i <= 20; i++) {
		field[i] = strtoull(p, NULL, 10);
		p = strchr(p, ' ');
		p = p ? p + 1 : NULL;
	}
	uint64_t own = (field[14] + field[15]) * tick_usec;
	uint64_t children = (field[16] + field[17]) * tick_usec;
	if (exact > own)
		own = exact;
	if (field[20] != 1 || !exact)
		*slack += 2 * tick_usec;
	if (children)
		*slack += 2 * tick_usec;
	return own + children;
}

/*
 * Adds the bytes that a process, and those of its children that it has waited for, have made
 * dirty, less those that they deleted before they reached the disk. Returns false when the
 * numbers cannot be read.
 */
static bool add_written_by(long pid, int64_t *bytes)
{
	char path[40], text[512];

	(void)snprintf(path, sizeof(path), "/proc/%ld/io", pid);
	if (forge_read_at(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return false;
	*bytes += (int64_t)forge_key_u64(text, "write_bytes:", 0) -
		  (int64_t)forge_key_u64(text, "cancelled_write_bytes:", 0);
	return true;
}

/*
 * A run can hold at most what it has written: allocating blocks without writing needs a quota
 * (FORGE_SLOT_ALLOCATE). A process's numbers are added to its parent's when the parent waits
 * for it. A process that no parent waits for takes its numbers with it. Its CPU time remains in
 * the cgroup's count, though, and one CPU writes at most 2 GB of a file in a second.
 */
uint64_t forge_disk_most_written(struct forge_disk_tasks tasks, uint64_t cpu_usec)
{
	const uint64_t bytes_per_usec = 2000;
	char buf[32768];
	uint64_t seen_usec = 0, slack = 10000;
	int64_t written = 0;
	ssize_t n =
		tasks.cgroup < 0 || cpu_usec == UINT64_MAX
			? -1
			: forge_read_at(tasks.cgroup, "cgroup.procs", buf, sizeof(buf));

	if (n < 0 || n == (ssize_t)sizeof(buf) - 1)
		return UINT64_MAX;
	for (char *p = buf; *p; p += strspn(p, "\n")) {
		long pid = strtol(p, &p, 10);
		if (pid > 0 && add_written_by(pid, &written))
			seen_usec += cpu_usec_of(pid, &slack);
	}
	if (cpu_usec > seen_usec + slack)
		written += (int64_t)((cpu_usec - seen_usec - slack) * bytes_per_usec);
	return written > 0 ? (uint64_t)written : 0;
}
