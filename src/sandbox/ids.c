/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the host ids of a run; see ids.h. */
#include "sandbox/ids.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/file.h>
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
	for (const char *p = buf;
	     sscanf(p, "%lu %lu %lu%n", &inside, &outside, &count, &used) == 3; p += used)
		if (id >= inside && id - inside < count)
			return true;
	return false;
}

/* The first capability that mapping ids needs and we lack, or NULL. */
static const char *lacking(void)
{
	static const struct {
		int cap;
		const char *name;
	} needed[] = {
		{ CAP_SETUID, "SETUID" },
		{ CAP_SETGID, "SETGID" },
		{ CAP_CHOWN, "CHOWN" },
		{ CAP_SYS_ADMIN, "SYS_ADMIN" },
	};

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(needed); i++)
		if (!has_capability(needed[i].cap))
			return needed[i].name;
	return NULL;
}

static bool can_map(uid_t base)
{
	return geteuid() == 0 && !lacking() && is_mapped("/proc/self/uid_map", base) &&
	       is_mapped("/proc/self/gid_map", base);
}

bool forge_ids_is_initial(void)
{
	return is_mapped("/proc/self/uid_map", 4294967294UL);
}

/* Is this uid 0 of the initial namespace, and not the root of another one? */
static bool is_host_root(void)
{
	return geteuid() == 0 && forge_ids_is_initial();
}

#define LOCKS "/run/forge-uids"

/*
 * Slots belong to one state directory but uids to the whole host, so a uid in use is locked.
 * Without /run there is no lock, as there is only one state directory then.
 */
static int lock_uid(uid_t uid, int *ret_fd, struct forge_error *err)
{
	char name[sizeof(LOCKS) + 16];

	(void)snprintf(name, sizeof(name), LOCKS "/%u", uid);
	int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	/* Others may make it at the same time: the first runs after the host was started. */
	if (fd < 0 && errno == ENOENT && (mkdir(LOCKS, 0700) == 0 || errno == EEXIST))
		fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return errno == ENOENT || errno == EROFS || errno == EACCES
			       ? 0
			       : forge_fail_errno(err, errno, "open %s", name);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		close(fd);
		return forge_fail(err, EAGAIN, "user id %u is in use", uid);
	}
	*ret_fd = fd;
	return 0;
}

int forge_ids_choose(uid_t base, unsigned slot, struct forge_ids *ret,
		     struct forge_error *err)
{
	if (can_map(base)) {
		*ret = (struct forge_ids){ base + slot, base + slot, true, -1 };
		return lock_uid(base + slot, &ret->lock_fd, err);
	}
	if (is_host_root() && lacking())
		return forge_hint(err,
				  forge_fail(err, EPERM,
					     "root of this host cannot run analyses as "
					     "another user: it lacks CAP_%s",
					     lacking()),
				  "In a container run it with --cap-add %s "
				  "(docs/HOSTS.md); elsewhere run forge as an ordinary "
				  "user",
				  lacking());
	if (is_host_root())
		return forge_fail(err, EINVAL,
				  "sandbox.uid_base: %u is no user id of this host",
				  base);
	*ret = (struct forge_ids){ geteuid(), getegid(), false, -1 };
	return 0;
}

void forge_ids_done(struct forge_ids *ids)
{
	if (ids->lock_fd >= 0)
		close(ids->lock_fd);
	ids->lock_fd = -1;
}
