/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manager "v1", for hybrid and old hosts. It makes one directory in each hierarchy that carries
 * a limit, and in no other, because each hierarchy makes a start slower. Where a unified
 * hierarchy without controllers is mounted as well, it makes one there for clone3, kill and CPU
 * time.
 */
#include "sandbox/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fd.h"

#define SWAP_LIMIT   "memory.memsw.limit_in_bytes"
#define SOCKET_LIMIT "memory.kmem.tcp.limit_in_bytes"

/*
 * Makes the run's directory in one hierarchy. A hierarchy that is not mounted is noted in
 * cg->missing; a lack of permission is an error.
 */
static int make_in(struct forge_cgroup *cg, const char *own, enum forge_mechanism mech,
		   int *ret_fd, struct forge_error *err)
{
	if (!own) {
		cg->missing |= 1u << mech;
		return 0;
	}
	int fd = forge_cgroup_make_dir(cg, own);
	if (fd < 0) {
		int rc = forge_fail_errno(err, -fd, "make a cgroup below %s", own);
		return forge_hint(
			err, rc,
			"Run forge as root, or have the administrator make a "
			"directory there, give it to you and start your shell in it "
			"(cgroup v1 delegation, docs/HOSTS.md)");
	}
	*ret_fd = fd;
	return forge_cgroup_add_entry(cg, fd, "tasks", err);
}

static int set_number(int dir, const char *file, uint64_t value, struct forge_error *err)
{
	char buf[24];

	(void)snprintf(buf, sizeof(buf), "%" PRIu64, value);
	int rc = forge_write_at(dir, file, buf);
	return rc < 0 ? forge_fail_errno(err, -rc, "write %s to %s", buf, file) : 0;
}

/*
 * On v1 the kernel kills only one process when memory runs out; with this event the supervisor
 * kills the rest.
 */
static int watch_oom(struct forge_cgroup *cg, struct forge_error *err)
{
	forge_auto_close int ctl =
		openat(cg->memory_fd, "memory.oom_control", O_RDONLY | O_CLOEXEC);
	if (ctl < 0)
		return forge_fail_errno(err, errno, "open memory.oom_control");
	cg->oom_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (cg->oom_fd < 0)
		return forge_fail_errno(err, errno, "eventfd");
	char buf[32];
	(void)snprintf(buf, sizeof(buf), "%d %d", cg->oom_fd, ctl);
	int rc = forge_write_at(cg->memory_fd, "cgroup.event_control", buf);
	return rc < 0 ? forge_fail_errno(err, -rc, "watch memory.oom_control") : 0;
}

/*
 * The event comes while the kernel still tries to find memory. A threshold on the usage would
 * come earlier, but registering one waits for a grace period, which adds 14 to 30 ms to every
 * start.
 */
static void watch_scarcity(struct forge_cgroup *cg)
{
	forge_auto_close int level =
		openat(cg->memory_fd, "memory.pressure_level", O_RDONLY | O_CLOEXEC);
	forge_auto_close int event =
		level < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	char buf[48];

	if (event < 0)
		return; /* only the process name in the report is lost */
	(void)snprintf(buf, sizeof(buf), "%d %d critical", event, level);
	if (forge_write_at(cg->memory_fd, "cgroup.event_control", buf) < 0)
		return;
	cg->pressure_fd = forge_take_fd(event);
	cg->pressure_poll = POLLIN;
}

static int limit_memory(struct forge_cgroup *cg, struct forge_error *err)
{
	if (cg->memory_fd < 0)
		return 0;
	int rc = 0;
	if (cg->limits.memory_bytes != FORGE_UNLIMITED) {
		rc = set_number(cg->memory_fd, "memory.limit_in_bytes",
				cg->limits.memory_bytes, err);
		if (rc < 0)
			return rc;
		/* memory + swap together: the same number leaves no room for swap */
		if (faccessat(cg->memory_fd, SWAP_LIMIT, F_OK, 0) == 0)
			rc = set_number(cg->memory_fd, SWAP_LIMIT,
					cg->limits.memory_bytes, err);
		if (rc < 0)
			return rc;
		watch_scarcity(cg);
	}
	/*
	 * v1 counts socket buffers apart, and only once they have a limit. A quarter of the
	 * memory is more than any exchange over loopback needs.
	 */
	if (cg->limits.memory_bytes != FORGE_UNLIMITED &&
	    faccessat(cg->memory_fd, SOCKET_LIMIT, F_OK, 0) == 0)
		rc = set_number(cg->memory_fd, SOCKET_LIMIT, cg->limits.memory_bytes / 4,
				err);
	return rc < 0 ? rc : watch_oom(cg, err);
}

static int limit_others(struct forge_cgroup *cg, struct forge_error *err)
{
	const struct forge_limits *l = &cg->limits;
	int rc = 0;

	if (cg->pids_fd >= 0 && l->pids != FORGE_UNLIMITED) /* + 1: our init */
		rc = set_number(cg->pids_fd, "pids.max", l->pids + 1, err);
	if (rc == 0 && cg->cpu_fd >= 0)
		rc = set_number(cg->cpu_fd, "cpu.cfs_quota_us", l->cpus_milli * 100, err);
	return rc;
}

/*
 * The blkio hierarchy is entered only for an I/O rate, because each hierarchy makes a start
 * slower.
 */
static int limit_io(struct forge_cgroup *cg, const char *own, struct forge_error *err)
{
	if (!own)
		return forge_hint(
			err,
			forge_fail(err, ENOENT,
				   "io_rate: no blkio hierarchy is mounted, so the disk "
				   "%s cannot be limited",
				   cg->io_disk.name),
			"Run without --io-rate, or mount /sys/fs/cgroup/blkio, or name "
			"io in sandbox.allow_missing");
	int fd = forge_cgroup_make_dir(cg, own);
	if (fd < 0)
		return forge_hint(
			err,
			forge_fail_errno(err, -fd,
					 "io_rate: make a cgroup below %s to limit the "
					 "disk %s",
					 own, cg->io_disk.name),
			"Run without --io-rate, or have the administrator give you a "
			"directory of the blkio hierarchy too (docs/HOSTS.md), or name "
			"io in sandbox.allow_missing");
	cg->blkio_fd = fd;
	int rc = forge_cgroup_limit_io(cg, fd, false, err);
	return rc < 0 ? rc : forge_cgroup_add_entry(cg, fd, "tasks", err);
}

static int v1_create(struct forge_cgroup *cg, struct forge_error *err)
{
	const struct forge_cgroup_own *own;
	int rc = forge_cgroup_own(&own);

	if (rc < 0 || !own->memory)
		return forge_fail(err, ENOENT,
				  "no cgroup v1 memory hierarchy is mounted");
	rc = make_in(cg, own->memory, FORGE_MECH_MEMORY, &cg->memory_fd, err);
	if (rc == 0)
		rc = make_in(cg, own->pids, FORGE_MECH_PIDS, &cg->pids_fd, err);
	if (rc == 0 && cg->limits.cpus_milli != FORGE_UNLIMITED)
		rc = make_in(cg, own->cpu, FORGE_MECH_CPUS, &cg->cpu_fd, err);
	/*
	 * The unified hierarchy is useful but not required: the pid namespace kills all
	 * processes as reliably.
	 */
	if (rc == 0 && own->unified) {
		int fd = forge_cgroup_make_dir(cg, own->unified);
		cg->v2_fd = fd < 0 ? -1 : fd;
	}
	if (rc == 0 && cg->v2_fd < 0)
		rc = make_in(cg, own->cpuacct, FORGE_MECH_CPU_TIME, &cg->cpuacct_fd, err);
	/* Swap accounting can be disabled at boot, which does not matter on a host without swap. */
	if (rc == 0 && faccessat(cg->memory_fd, SWAP_LIMIT, F_OK, 0) < 0 &&
	    forge_host_has_swap())
		cg->missing |= 1u << FORGE_MECH_SWAP;
	if (rc == 0 && *cg->io_disk.name && limit_io(cg, own->blkio, &cg->io_error) < 0)
		cg->missing |= 1u << FORGE_MECH_IO;
	return rc;
}

static int v1_configure(struct forge_cgroup *cg, struct forge_error *err)
{
	int rc = limit_memory(cg, err);

	return rc == 0 ? limit_others(cg, err) : rc;
}

static void v1_usage(struct forge_cgroup *cg, struct forge_cgroup_usage *u)
{
	char buf[512];

	if (cg->memory_fd >= 0) {
		(void)!forge_read_u64_at(cg->memory_fd, "memory.max_usage_in_bytes",
					 &u->memory_peak_bytes);
		u->oom_kills = forge_cgroup_oom_kills(cg);
		u->oom_elsewhere = u->oom_kills && !forge_cgroup_is_own_oom(cg);
	}
	if (cg->pids_fd >= 0) {
		if (forge_read_u64_at(cg->pids_fd, "pids.peak", &u->pids_peak) == 0 &&
		    u->pids_peak > 0)
			u->pids_peak--; /* our init */
		if (forge_read_at(cg->pids_fd, "pids.events", buf, sizeof(buf)) > 0)
			u->pids_refused = forge_key_u64(buf, "max", 0);
	}
}

const struct forge_cgroup_ops forge_cgroup_v1 = {
	.name = "v1",
	.create = v1_create,
	.configure = v1_configure,
	.usage = v1_usage,
};
