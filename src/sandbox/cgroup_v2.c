/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manager "v2": one group for each run on the unified hierarchy, in the place that
 * cgroup_place.c finds.
 */
#include "sandbox/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

/*
 * The io controller adds a cost to every I/O request of every group below ours, so it is
 * enabled only when a run asks for an I/O rate. The group has no processes by now that would
 * prevent it.
 */
static int enable_io(const struct forge_cgroup *cg, const char *path,
		     struct forge_error *err)
{
	char have[512];
	forge_auto_close int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	ssize_t n = forge_read_at(dir, "cgroup.controllers", have, sizeof(have));

	if (n < 0 || !forge_cgroup_has_word(have, "io"))
		return forge_hint(
			err,
			forge_fail(err, ENOENT,
				   "io_rate: the io controller, which would limit the "
				   "disk %s, is not delegated to %s",
				   cg->io_disk.name, path),
			"Run without --io-rate, or have io delegated too "
			"(docs/HOSTS.md), or name io in sandbox.allow_missing");
	n = forge_read_at(dir, "cgroup.subtree_control", have, sizeof(have));
	if (n >= 0 && forge_cgroup_has_word(have, "io"))
		return 0;
	int rc = forge_write_at(dir, "cgroup.subtree_control", "+io");
	return rc < 0 ? forge_hint(err,
				   forge_fail_errno(err, -rc,
						    "io_rate: enable the io controller "
						    "in %s",
						    path),
				   "Run without --io-rate, or have io delegated too "
				   "(docs/HOSTS.md)")
		      : 0;
}

/* Enables io in the place and in the directory of the runs; the two may be the same. */
static int limit_io(struct forge_cgroup *cg, const struct forge_cgroup_place *place,
		    struct forge_error *err)
{
	int rc = enable_io(cg, place->dir, err);

	if (rc == 0 && strcmp(place->dir, place->runs) != 0)
		rc = enable_io(cg, place->runs, err);
	return rc < 0 ? rc : forge_cgroup_limit_io(cg, cg->v2_fd, true, err);
}

static int set(struct forge_cgroup *cg, const char *file, const char *value,
	       struct forge_error *err)
{
	int rc = forge_write_at(cg->v2_fd, file, value);

	return rc < 0 ? forge_fail_errno(err, -rc, "write %s to %s/%s", value,
					 cg->dirs.n ? cg->dirs.v[0] : "the container's",
					 file)
		      : 0;
}

static int set_number(struct forge_cgroup *cg, const char *file, uint64_t value,
		      struct forge_error *err)
{
	char buf[24];

	(void)snprintf(buf, sizeof(buf), "%" PRIu64, value);
	return set(cg, file, value == FORGE_UNLIMITED ? "max" : buf, err);
}

static int set_memory(struct forge_cgroup *cg, struct forge_error *err)
{
	int rc = set_number(cg, "memory.max", cg->limits.memory_bytes, err);

	if (rc == 0) {
		/* crun gives this file of a rootless container to the user inside. */
		int group = forge_write_at(cg->v2_fd, "memory.oom.group", "1");
		cg->must_kill_rest = group == -EACCES || group == -EPERM;
		if (group < 0 && !cg->must_kill_rest)
			rc = set(cg, "memory.oom.group", "1", err);
	}
	if (rc == 0 && faccessat(cg->v2_fd, "memory.swap.max", F_OK, 0) == 0)
		rc = set(cg, "memory.swap.max", "0", err);
	return rc;
}

/*
 * Watches memory.events. Its counter "max" rises with every charge that does not fit, which may
 * be long before a kill or just before it.
 */
static void watch_scarcity(struct forge_cgroup *cg)
{
	char buf[512];

	if (cg->limits.memory_bytes == FORGE_UNLIMITED)
		return;
	cg->pressure_fd = openat(cg->v2_fd, "memory.events", O_RDONLY | O_CLOEXEC);
	cg->pressure_poll = POLLPRI;
	if (cg->pressure_fd >= 0)
		(void)!pread(cg->pressure_fd, buf, sizeof(buf), 0); /* arms the event */
}

static int v2_configure(struct forge_cgroup *cg, struct forge_error *err)
{
	const struct forge_limits *l = &cg->limits;
	char cpu[48] = "max";

	/* quota in microseconds of a 100 ms period */
	if (l->cpus_milli != FORGE_UNLIMITED)
		(void)snprintf(cpu, sizeof(cpu), "%" PRIu64 " 100000",
			       l->cpus_milli * 100);
	int rc = set_memory(cg, err);
	/* One more process is allowed for our init. */
	if (rc == 0)
		rc = set_number(cg, "pids.max",
				l->pids == FORGE_UNLIMITED ? l->pids : l->pids + 1, err);
	if (rc == 0)
		rc = set(cg, "cpu.max", cpu, err);
	/*
	 * oom_fd is not needed here: with memory.oom.group the kernel kills the whole group,
	 * init too.
	 */
	if (rc == 0)
		watch_scarcity(cg);
	return rc;
}

static int v2_create(struct forge_cgroup *cg, struct forge_error *err)
{
	const struct forge_cgroup_own *own;
	const struct forge_cgroup_place *place;
	int rc = forge_cgroup_own(&own);

	if (rc < 0 || forge_cgroup_place(own, &place) < 0)
		return forge_cgroup_place_explain(own, err);
	rc = forge_cgroup_place_prepare(place, err);
	if (rc < 0)
		return rc;
	cg->v2_fd = forge_cgroup_make_dir(cg, place->runs);
	if (cg->v2_fd < 0)
		return forge_fail_errno(err, -cg->v2_fd, "make a cgroup below %s",
					place->runs);
	/* A kernel without swap has no such file and nothing to limit. */
	if (faccessat(cg->v2_fd, "memory.swap.max", F_OK, 0) < 0 && forge_host_has_swap())
		cg->missing |= 1u << FORGE_MECH_SWAP;
	if (*cg->io_disk.name && limit_io(cg, place, &cg->io_error) < 0)
		cg->missing |= 1u << FORGE_MECH_IO;
	return 0;
}

/* io.stat has one line per device: "8:0 rbytes=1 wbytes=2 ...". */
static void read_io(int dir, struct forge_cgroup_usage *u)
{
	char buf[8192];

	if (forge_read_at(dir, "io.stat", buf, sizeof(buf)) < 0)
		return;
	u->io_read_bytes = u->io_write_bytes = 0;
	for (const char *p = buf; (p = strstr(p, "rbytes=")); p++)
		u->io_read_bytes += strtoull(p + 7, NULL, 10);
	for (const char *p = buf; (p = strstr(p, "wbytes=")); p++)
		u->io_write_bytes += strtoull(p + 7, NULL, 10);
}

static void v2_usage(struct forge_cgroup *cg, struct forge_cgroup_usage *u)
{
	char buf[512];

	/*
	 * The files with peaks are newer than our oldest supported kernel; without them the
	 * peaks stay unknown.
	 */
	(void)!forge_read_u64_at(cg->v2_fd, "memory.peak", &u->memory_peak_bytes);
	if (forge_read_u64_at(cg->v2_fd, "pids.peak", &u->pids_peak) == 0 &&
	    u->pids_peak > 0)
		u->pids_peak--; /* our init */
	if (forge_read_at(cg->v2_fd, "memory.events", buf, sizeof(buf)) > 0) {
		u->oom_kills = forge_key_u64(buf, "oom_kill", 0);
		u->oom_elsewhere = u->oom_kills && forge_key_u64(buf, "oom", 0) == 0;
	}
	if (forge_read_at(cg->v2_fd, "pids.events", buf, sizeof(buf)) > 0)
		u->pids_refused = forge_key_u64(buf, "max", 0);
	read_io(cg->v2_fd, u);
}

const struct forge_cgroup_ops forge_cgroup_v2 = {
	.name = "v2",
	.create = v2_create,
	.configure = v2_configure,
	.usage = v2_usage,
};

static int none_create(struct forge_cgroup *cg, struct forge_error *err)
{
	(void)err; /* cannot fail */
	cg->missing = FORGE_MECH_ALL_CGROUP;
	if (*cg->io_disk.name)
		cg->missing |= 1u << FORGE_MECH_IO;
	return 0;
}

static int none_configure(struct forge_cgroup *cg, struct forge_error *err)
{
	(void)cg;
	(void)err;
	return 0;
}

static void none_usage(struct forge_cgroup *cg, struct forge_cgroup_usage *u)
{
	(void)cg;
	(void)u; /* everything stays unknown */
}

/* Manager "none", only used by explicit choice: nothing is limited, and the record says so. */
const struct forge_cgroup_ops forge_cgroup_none = {
	.name = "none",
	.create = none_create,
	.configure = none_configure,
	.usage = none_usage,
};
