/* SPDX-License-Identifier: Apache-2.0 */
/* Finds processes that keep deleted files where no descriptor shows them. */
#include "sandbox/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"

/* Lines of maps: "start-end perms offset major:minor inode  path (deleted)". */
static bool maps_deleted(long pid, dev_t dev)
{
	char path[40], line[4400], want[24];

	(void)snprintf(path, sizeof(path), "/proc/%ld/maps", pid);
	(void)snprintf(want, sizeof(want), " %02x:%02x ", major(dev), minor(dev));
	forge_auto_file FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		size_t len = strcspn(line, "\n");
		static const char mark[] = " (deleted)";
		if (len > sizeof(mark) && strstr(line, want) &&
		    memcmp(line + len - (sizeof(mark) - 1), mark, sizeof(mark) - 1) == 0)
			return true;
	}
	return false;
}

/* A UNIX socket's fdinfo says how many descriptors wait in it. */
static bool has_descriptors_in_flight(long pid)
{
	char path[64], text[1024];

	(void)snprintf(path, sizeof(path), "/proc/%ld/fd", pid);
	forge_auto_dir DIR *dir = opendir(path);
	for (struct dirent *e; dir && (e = readdir(dir));) {
		struct stat st;
		if (e->d_name[0] == '.' ||
		    fstatat(dirfd(dir), e->d_name, &st, AT_NO_AUTOMOUNT) < 0 ||
		    !S_ISSOCK(st.st_mode))
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%ld/fdinfo/%.10s", pid,
			       e->d_name);
		if (forge_read_at(AT_FDCWD, path, text, sizeof(text)) <= 0)
			continue;
		const char *n = strstr(text, "scm_fds:");
		if (n && strtoul(n + strlen("scm_fds:"), NULL, 10) > 0)
			return true;
	}
	return false;
}

struct process {
	pid_t pid, parent;
	bool is_ours;
};

/* "pid (name) state parent ...", where the name may be anything. */
static pid_t parent_of(const char *pid)
{
	char path[64], text[512];

	(void)snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	if (forge_read_at(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return -1;
	const char *end = strrchr(text, ')');
	return end && strlen(end) > 4 ? (pid_t)strtol(end + 4, NULL, 10) : -1;
}

/* All processes that we see. Returns how many, at most max. */
static size_t list_processes(struct process *list, size_t max)
{
	size_t n = 0;
	forge_auto_dir DIR *dir = opendir("/proc");

	for (struct dirent *e; dir && n < max && (e = readdir(dir));) {
		pid_t parent = e->d_name[0] >= '1' && e->d_name[0] <= '9'
				       ? parent_of(e->d_name)
				       : -1;
		if (parent >= 0)
			list[n++] = (struct process){ (pid_t)strtol(e->d_name, NULL, 10),
						      parent, false };
	}
	return n;
}

static int by_pid(const void *a, const void *b)
{
	const struct process *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

/*
 * Marks init and who descends from it: in a pid namespace that is everybody. The kernel lists
 * in the order of pids, so that mostly one round is enough.
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

/* Without a cgroup: by who started whom. */
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

bool forge_disk_has_hidden(struct forge_disk_tasks tasks, dev_t dev)
{
	char buf[32768];

	if (forge_disk_read_tasks(tasks, buf, sizeof(buf)) <= 0)
		return false;
	for (char *p = buf; *p; p += strspn(p, "\n")) {
		long tid = strtol(p, &p, 10);
		if (tid > 0 && (maps_deleted(tid, dev) || has_descriptors_in_flight(tid)))
			return true;
	}
	return false;
}
