/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for results in a workdir. */
#include "executor/results.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/sha256.h"

#define DEPTH_MAX   256 /* one descriptor per level */
#define ENTRIES_MAX 2000000

struct look {
	bool with_aside;
	uint64_t seen;
	/* Called for each regular file; true ends the walk. */
	bool (*visit)(int dir, const char *name, const struct stat *st);
};

bool forge_results_is_aside(const char *name)
{
	return name[0] == '.' || strcmp(name, "__pycache__") == 0;
}

/* The run of an ordinary user may have removed its own permissions from a directory. */
static int open_dir(int parent, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
	int fd = openat(parent, name, flags);

	if (fd < 0 && errno == EACCES && fchmodat(parent, name, 0700, 0) == 0)
		fd = openat(parent, name, flags);
	return fd;
}

/* True: the walk was ended by a visit, or has not seen everything. */
static bool walk(struct look *l, int fd, unsigned depth)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	(void)forge_entries_take(&d, fd); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));) {
		int dir = forge_entries_fd(&d);
		struct stat st;
		if (++l->seen > ENTRIES_MAX)
			return true;
		if (!l->with_aside && forge_results_is_aside(name))
			continue;
		if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return true;
		if (S_ISREG(st.st_mode) && l->visit(dir, name, &st))
			return true;
		if (!S_ISDIR(st.st_mode))
			continue;
		int sub = depth < DEPTH_MAX ? open_dir(dir, name) : -1;
		if (sub < 0 || walk(l, sub, depth + 1))
			return true;
	}
	return d.error != 0;
}

static bool walk_from(struct look *l, int dir)
{
	int fd = open_dir(dir, ".");

	return fd < 0 || walk(l, fd, 0);
}

static bool is_result(int dir, const char *name, const struct stat *st)
{
	(void)dir, (void)name, (void)st;
	return true;
}

bool forge_results_any(int dir, bool with_aside)
{
	struct look l = { .with_aside = with_aside, .visit = is_result };

	return walk_from(&l, dir);
}

/* The name is of no run: it begins with a dot and has the number of this process. */
static void copy_over(int dir, const char *name)
{
	char aside[64], digest[FORGE_DIGEST_MAX];
	uint64_t size;

	(void)snprintf(aside, sizeof(aside), ".forge-copy-%d", (int)getpid());
	forge_auto_close int from =
		openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	forge_auto_close int to =
		from < 0 ? -1
			 : openat(dir, aside,
				  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
				  0600);
	if (to < 0)
		return;
	if ((ioctl(to, FICLONE, from) < 0 &&
	     forge_sha256_fd(from, to, digest, &size) < 0) ||
	    fchmod(to, 0644) < 0 || renameat(dir, aside, dir, name) < 0)
		(void)unlinkat(dir, aside, 0); /* the file itself is as it was */
}

/* An object is ours and read-only. */
static bool unshare_one(int dir, const char *name, const struct stat *st)
{
	if (st->st_nlink > 1 && st->st_uid == geteuid() && (st->st_mode & 0222) == 0)
		copy_over(dir, name);
	return false;
}

void forge_results_unshare(int dir)
{
	struct look l = { .with_aside = true, .visit = unshare_one };

	(void)walk_from(&l, dir); /* what it does not reach was not collected either */
}
