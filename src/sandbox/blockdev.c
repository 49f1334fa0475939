/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the disk of a directory through statx, mountinfo and sysfs. */
#include "sandbox/blockdev.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

#define HINT                                                                             \
	"Run without --io-rate, or put the workdir on a disk with ext4 or XFS (workdir " \
	"in forge.yaml), or name io in sandbox.allow_missing"

/*
 * Stats the directory or, where it does not exist, its nearest existing parent: a dry run makes
 * no workdir.
 */
static int look(const char *path, struct statx *ret, char dir[PATH_MAX])
{
	if (snprintf(dir, PATH_MAX, "%s", path) >= PATH_MAX)
		return -ENAMETOOLONG;
	while (statx(AT_FDCWD, dir, AT_SYMLINK_NOFOLLOW, STATX_TYPE | STATX_MNT_ID, ret) <
	       0) {
		char *slash = strrchr(dir, '/');
		if (errno != ENOENT || !slash || !dir[1])
			return -errno;
		slash[slash == dir] = '\0';
	}
	return 0;
}

/* The lines of mountinfo are "id parent major:minor root place options [...] - type source ...". */
static void name_file_system(uint64_t mount_id, char *ret, size_t size)
{
	forge_auto_file FILE *f = fopen("/proc/self/mountinfo", "re");
	forge_auto_free char *line = NULL;
	size_t cap = 0;

	(void)snprintf(ret, size, "a file system");
	while (f && getline(&line, &cap, f) > 0) {
		const char *type = strstr(line, " - ");
		if (strtoull(line, NULL, 10) != mount_id || !type)
			continue;
		(void)snprintf(ret, size, "%.*s", (int)strcspn(type + 3, " "), type + 3);
		return;
	}
}

static int parse_dev(const char *text, struct forge_blockdev *ret)
{
	char *end;

	ret->major = (unsigned)strtoul(text, &end, 10);
	if (*end != ':')
		return -EINVAL;
	ret->minor = (unsigned)strtoul(end + 1, NULL, 10);
	return 0;
}

/*
 * The kernel limits whole disks only. In sysfs a partition is a directory below its disk, and
 * has a file "partition" that a disk does not have.
 */
static int to_whole_disk(struct forge_blockdev *dev)
{
	char path[64], link[PATH_MAX], text[32];

	(void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", dev->major,
		       dev->minor);
	ssize_t n = readlink(path, link, sizeof(link) - 1);
	if (n < 0)
		return -errno;
	link[n] = '\0';
	forge_auto_close int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	if (faccessat(dir, "partition", F_OK, 0) == 0) {
		n = forge_read_at(dir, "../dev", text, sizeof(text));
		char *slash = strrchr(link, '/');
		if (n < 0 || !slash || parse_dev(text, dev) < 0)
			return n < 0 ? (int)n : -EINVAL;
		*slash = '\0';
	}
	const char *name = strrchr(link, '/');
	(void)snprintf(dev->name, sizeof(dev->name), "%.63s", name ? name + 1 : link);
	return 0;
}

int forge_blockdev_find(const char *path, struct forge_blockdev *ret,
			struct forge_error *err)
{
	struct statx st;
	char dir[PATH_MAX], type[64];
	int rc = look(path, &st, dir);

	if (rc < 0)
		return forge_fail_errno(err, -rc, "look at %s", path);
	struct forge_blockdev dev = { .major = st.stx_dev_major,
				      .minor = st.stx_dev_minor };
	if (dev.major != 0) /* 0: an anonymous number, not a block device */
		rc = to_whole_disk(&dev);
	if (dev.major != 0 && rc == 0) {
		*ret = dev;
		return 0;
	}
	name_file_system(st.stx_mnt_id, type, sizeof(type));
	rc = dev.major ? forge_fail_errno(err, -rc,
					  "io_rate: the disk %u:%u below %s (%s) is not "
					  "in /sys/dev/block",
					  dev.major, dev.minor, dir, type)
		       : forge_fail(err, EOPNOTSUPP,
				    "io_rate: %s is on %s, which has no disk of its own "
				    "that could be limited",
				    dir, type);
	return forge_hint(err, rc, HINT);
}
