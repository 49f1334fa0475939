/* SPDX-License-Identifier: Apache-2.0 */
/* Claims host uids for runs of root; see ids.h. */
#include "sandbox/ids.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

static bool has_capability(int cap)
{
	struct __user_cap_header_struct hdr = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { 0 } };

	return syscall(SYS_capget, &hdr, data) == 0 &&
	       (data[cap / 32].effective & (1U << (cap % 32)));
}

/* Is id mapped in our own user namespace (one line per range: inside outside count)? */
static bool is_mapped(const char *map_file, unsigned long id)
{
	char buf[8192];

	if (forge_read_at(AT_FDCWD, map_file, buf, sizeof(buf)) < 0)
		return false;
	unsigned long inside, outside, count;
	int used;
	for (const char *p = buf; sscanf(p, "%lu %lu %lu%n", &inside, &outside, &count, &used) == 3;
	     p += used)
		if (id >= inside && id - inside < count)
			return true;
	return false;
}

static bool can_map(uid_t base)
{
	return geteuid() == 0 && has_capability(CAP_SETUID) && has_capability(CAP_SETGID) &&
	       has_capability(CAP_SYS_ADMIN) && has_capability(CAP_CHOWN) &&
	       is_mapped("/proc/self/uid_map", base) && is_mapped("/proc/self/gid_map", base);
}

/* uid 0 of the initial namespace, or something only called root? */
static bool is_host_root(void)
{
	return geteuid() == 0 && is_mapped("/proc/self/uid_map", 4294967294UL);
}

void forge_ids_preview(uid_t base, struct forge_ids *ret)
{
	bool may = can_map(base);

	*ret = (struct forge_ids){ .uid = may ? base : geteuid(), .gid = may ? base : getegid(),
				   .privileged = may, .lock_fd = -1 };
}

/* The lock's fd, -EWOULDBLOCK when the slot is taken, or another error. */
static int try_slot(int dir, uid_t slot)
{
	char name[16];

	(void)snprintf(name, sizeof(name), "%u", slot);
	forge_auto_close int fd = openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
					 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return -errno;
	return forge_take_fd(fd);
}

int forge_ids_choose(const char *lock_dir, uid_t base, uid_t count, struct forge_ids *ret,
		     struct forge_error *err)
{
	forge_ids_preview(base, ret);
	if (!ret->privileged) {
		if (!is_host_root())
			return 0;
		return forge_hint(err, forge_fail(err, EPERM, "root of this host cannot run "
						  "analyses as another user"),
				  "It lacks one of CAP_SETUID, CAP_SETGID, CAP_CHOWN, "
				  "CAP_SYS_ADMIN; run forge as an ordinary user instead");
	}
	int rc = forge_mkdirs(lock_dir, 0700);
	if (rc < 0)
		return forge_fail_errno(err, -rc, "make %s", lock_dir);
	forge_auto_close int dir = open(lock_dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0)
		return forge_fail_errno(err, errno, "open %s", lock_dir);
	/* Low slots first: the directory then holds as many files as runs ever ran at once. */
	for (uid_t slot = 0; slot < count; slot++) {
		int fd = try_slot(dir, slot);
		if (fd >= 0) {
			ret->uid = ret->gid = base + slot;
			ret->lock_fd = fd;
			return 0;
		}
		if (fd != -EWOULDBLOCK)
			return forge_fail_errno(err, -fd, "lock %s/%u", lock_dir, slot);
	}
	return forge_hint(err, forge_fail(err, EAGAIN, "all %u user ids for runs are in use", count),
			  "Raise sandbox.uid_count in the configuration");
}

void forge_ids_done(struct forge_ids *ids)
{
	if (ids->lock_fd >= 0)
		close(ids->lock_fd);
	ids->lock_fd = -1;
}
