/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files and directories of a workdir that were deleted but that a process still holds: by a
 * descriptor, as its current directory, as the program it runs, or by a mapping. Their size is
 * asked of the kernel alone, never of a file server that may not answer.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sandbox/disk.h"

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000U
#endif

static int look(int dir, const char *name, int flags, struct statx *ret)
{
	return statx(dir, name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT | flags,
		     STATX_BASIC_STATS | STATX_MNT_ID, ret) < 0
		       ? -errno
		       : 0;
}

/*
 * All files below the workdir, and no others, were opened through the workdir's mount. Its id
 * also holds where the file system shows several devices (subvolumes), and tells an input on
 * the same file system apart.
 */
static bool is_of_workdir(const struct forge_disk_held *h, const struct statx *st)
{
	if (h->mount_id && (st->stx_mask & STATX_MNT_ID))
		return st->stx_mnt_id == h->mount_id;
	return makedev(st->stx_dev_major, st->stx_dev_minor) == h->dev;
}

static bool is_known(const struct forge_disk_held *h, uint64_t ino)
{
	for (size_t i = 0; i < h->n_seen; i++)
		if (h->seen[i] == ino)
			return true;
	return false;
}

static void add(struct forge_disk_held *h, const struct statx *st)
{
	if (st->stx_nlink != 0 || !is_of_workdir(h, st) || is_known(h, st->stx_ino))
		return;
	if (h->n_seen == FORGE_ARRAY_SIZE(h->seen)) {
		h->is_unsure = true; /* more than fit in seen */
		return;
	}
	h->seen[h->n_seen++] = st->stx_ino;
	h->bytes += st->stx_blocks * 512;
	h->inodes++;
}

/* Adds the targets of all links in a directory (fd, map_files). */
static int add_links(struct forge_disk_held *h, int proc, const char *name)
{
	int fd = openat(proc, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	forge_auto_dir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct statx st;
	int first = 0;

	if (!dir)
		return -errno;
	for (struct dirent *e; (errno = 0, e = readdir(dir));) {
		if (e->d_name[0] == '.')
			continue;
		int rc = look(dirfd(dir), e->d_name, 0, &st);
		if (rc == 0)
			add(h, &st);
		else if (rc != -ENOENT && first == 0)
			first = rc;
	}
	return errno ? -errno : first;
}

/*
 * For places where only root can read map_files. The lines of maps have a device and an inode,
 * end in " (deleted)" for a deleted file, and can be of any length. They do not show the size
 * of the file.
 */
static void look_at_maps(struct forge_disk_held *h, int proc)
{
	static const char mark[] = " (deleted)";
	char buf[4096], tail[sizeof(mark)] = "", head[128];
	size_t head_len = 0, tail_len = 0;
	int fd = openat(proc, "maps", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	while (fd >= 0 && (n = read(fd, buf, sizeof(buf))) > 0)
		for (ssize_t i = 0; i < n; i++) {
			unsigned major, minor;
			unsigned long ino;
			if (buf[i] != '\n') {
				if (head_len < sizeof(head) - 1)
					head[head_len++] = buf[i];
				if (tail_len == sizeof(mark) - 1)
					memmove(tail, tail + 1, --tail_len);
				tail[tail_len++] = buf[i];
				continue;
			}
			head[head_len] = tail[tail_len] = '\0';
			/* start-end perms offset major:minor inode */
			if (strcmp(tail, mark) == 0 &&
			    sscanf(head, "%*s %*s %*s %x:%x %lu", &major, &minor, &ino) ==
				    3 &&
			    makedev(major, minor) == h->dev && !is_known(h, ino))
				h->is_unsure = true;
			head_len = tail_len = 0;
		}
	if (fd >= 0)
		close(fd);
}

/* The fdinfo of a UNIX socket tells how many descriptors are in flight in it, but not which. */
static void look_at_sockets(struct forge_disk_held *h, int proc)
{
	int fd = openat(proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	forge_auto_dir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct statx st;

	for (struct dirent *e; dir && (e = readdir(dir));) {
		char path[32];
		if (e->d_name[0] == '.' || look(dirfd(dir), e->d_name, 0, &st) < 0 ||
		    !S_ISSOCK(st.stx_mode))
			continue;
		(void)snprintf(path, sizeof(path), "fdinfo/%.16s", e->d_name);
		forge_auto_close int info = openat(proc, path, O_RDONLY | O_CLOEXEC);
		forge_auto_file FILE *f =
			info < 0 ? NULL : fdopen(forge_take_fd(info), "r");
		char line[128];
		while (f && fgets(line, sizeof(line), f))
			if (strncmp(line, "scm_fds:", 8) == 0 &&
			    strtoul(line + 8, NULL, 10) > 0)
				h->is_unsure = true;
	}
}

/*
 * Learns the id of the mount through which the run's processes see the workdir. Before init has
 * entered the new root, the path is that of the host, and leads to the directory around the
 * workdir, in another mount.
 */
static void learn_mount(struct forge_disk_held *h, int proc)
{
	struct statx st;
	char path[PATH_MAX];

	if (h->mount_id || !h->workdir ||
	    snprintf(path, sizeof(path), "root%s", h->workdir) >= (int)sizeof(path) ||
	    look(proc, path, AT_SYMLINK_NOFOLLOW, &st) < 0)
		return;
	if (makedev(st.stx_dev_major, st.stx_dev_minor) == h->dev &&
	    st.stx_ino == h->ino && (st.stx_mask & STATX_MNT_ID))
		h->mount_id = st.stx_mnt_id;
}

static void look_at_thread(struct forge_disk_held *h, long tid, bool is_thorough)
{
	static const char *const links[] = { "cwd", "root", "exe" };
	char path[32];
	struct statx st;

	(void)snprintf(path, sizeof(path), "/proc/%ld", tid);
	forge_auto_close int proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (proc < 0)
		return; /* the thread has ended */
	learn_mount(h, proc);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(links); i++)
		if (look(proc, links[i], 0, &st) == 0)
			add(h, &st);
	int rc = add_links(h, proc, "fd");
	/* Init's descriptors cannot be read; it holds nothing of the workdir. */
	if (rc < 0 && rc != -ENOENT && rc != -ESRCH && tid != h->init)
		h->is_unsure = true;
	if (!is_thorough)
		return;
	rc = add_links(h, proc, "map_files");
	if (rc < 0 && rc != -ENOENT && rc != -ESRCH)
		look_at_maps(h, proc);
	look_at_sockets(h, proc);
}

/*
 * Looks at threads, not processes: a process whose first thread has ended shows no descriptors,
 * and a thread can have descriptors of its own.
 */
void forge_disk_held_count(struct forge_disk_held *h, struct forge_disk_tasks tasks,
			   bool is_thorough, uint64_t budget_usec)
{
	char buf[32768];
	uint64_t until = forge_now_usec() + budget_usec;
	ssize_t n = forge_disk_read_tasks(tasks, buf, sizeof(buf));

	h->n_seen = 0;
	h->bytes = h->inodes = 0;
	h->is_unsure = n == (ssize_t)sizeof(buf) - 1;
	h->init = tasks.init;
	for (char *p = buf; n > 0 && *p; p += strspn(p, "\n")) {
		long tid = strtol(p, &p, 10);
		if (tid > 0)
			look_at_thread(h, tid, is_thorough);
		if (forge_now_usec() > until) {
			h->is_unsure = true; /* the time ran out */
			return;
		}
	}
}
