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

ssize_t forge_disk_read_tasks(int procs_fd, char *buf, size_t size)
{
	ssize_t n = procs_fd < 0 ? -EBADF
				 : forge_read_at(procs_fd, "cgroup.threads", buf, size);

	return n == -ENOENT ? forge_read_at(procs_fd, "tasks", buf, size) : n;
}

int forge_disk_freeze(int procs_fd, bool frozen)
{
	char buf[256];
	int rc = forge_write_at(procs_fd, "cgroup.freeze", frozen ? "1" : "0");

	if (rc < 0 || !frozen)
		return rc;
	forge_auto_close int events =
		openat(procs_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
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

bool forge_disk_has_hidden(int procs_fd, dev_t dev)
{
	char buf[32768];

	if (forge_disk_read_tasks(procs_fd, buf, sizeof(buf)) <= 0)
		return false;
	for (char *p = buf; *p; p += strspn(p, "\n")) {
		long tid = strtol(p, &p, 10);
		if (tid > 0 && (maps_deleted(tid, dev) || has_descriptors_in_flight(tid)))
			return true;
	}
	return false;
}
