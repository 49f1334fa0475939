/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside, run by init when the command has ended: counts the files left in /tmp, a tmpfs of the
 * run that ends with it. The content is hostile: entries and depth are bounded, links are not
 * followed, only directories are opened, and nothing is allocated.
 */
#include "sandbox/child.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENTRIES_MAX 10000
#define DEPTH_MAX   16

struct count {
	/* Of /tmp. The workdir and inputs that are mounted below /tmp are on other devices. */
	dev_t dev;
	unsigned seen;
	struct forge_ctl_exit *ret;
};

static void count_dir(int fd, unsigned depth, struct count *c);

static void look_at(int fd, const char *name, unsigned depth, struct count *c)
{
	struct stat st;

	if (name[0] == '.' || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    st.st_dev != c->dev)
		return;
	if (S_ISREG(st.st_mode)) {
		c->ret->tmp_files++;
		c->ret->tmp_bytes += (uint64_t)st.st_size;
	} else if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX) {
		int sub =
			openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub < 0)
			return; /* without permission it is not counted */
		count_dir(sub, depth + 1, c);
		close(sub);
	}
}

static void count_dir(int fd, unsigned depth, struct count *c)
{
	_Alignas(struct dirent64) char buf[2048];
	long n;

	while ((n = syscall(SYS_getdents64, fd, buf, sizeof(buf))) > 0)
		for (long at = 0; at < n;) {
			const struct dirent64 *e = (const void *)(buf + at);
			if (++c->seen > ENTRIES_MAX)
				return;
			look_at(fd, e->d_name, depth, c);
			at += e->d_reclen;
		}
}

void forge_child_count_tmp(struct forge_ctl_exit *ret)
{
	struct count c = { .ret = ret };
	struct stat st;
	int fd = open("/tmp", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0) {
		c.dev = st.st_dev;
		count_dir(fd, 0, &c);
	}
	close(fd);
}
