/* SPDX-License-Identifier: Apache-2.0 */
/* Manager "v2": a child of our own cgroup on the unified hierarchy. */
#include "sandbox/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/proc.h"

#define LEAF FORGE_CGROUP_LEAF

#define HINT_DELEGATE                                                                    \
	"Start forge in a delegated cgroup of its own: systemd-run --scope -p "          \
	"Delegate=yes "                                                                  \
	"forge ... (with --user when not root; docs/HOSTS.md)"

static const struct {
	const char *name;
	enum forge_mechanism mech;
} needed[] = {
	{ "memory", FORGE_MECH_MEMORY },
	{ "pids", FORGE_MECH_PIDS },
	{ "cpu", FORGE_MECH_CPUS },
};

static bool has_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = text; (p = strstr(p, word)); p += len)
		if ((p == text || p[-1] == ' ') &&
		    (p[len] == ' ' || p[len] == '\n' || !p[len]))
			return true;
	return false;
}

/* Which of the controllers we need are not in the named file of dir. */
static int list_absent(int dir, const char *file, char *absent, size_t size)
{
	char have[512];
	ssize_t n = forge_read_at(dir, file, have, sizeof(have));
	size_t len = 0;

	if (n < 0)
		return (int)n;
	absent[0] = '\0';
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(needed); i++)
		if (!has_word(have, needed[i].name))
			len += (size_t)snprintf(absent + len, size - len, "%s+%s",
						len ? " " : "", needed[i].name);
	return 0;
}

/*
 * A cgroup with processes in it cannot give controllers to children. When we are the only
 * one, we step into a leaf with the helpers we have started; with others there (a shell), it is
 * theirs and stays as it is.
 */
static int step_aside(int own)
{
	char list[4096], pid[16];

	if (mkdirat(own, LEAF, 0755) < 0 && errno != EEXIST)
		return -errno;
	ssize_t n = forge_read_at(own, "cgroup.procs", list, sizeof(list));
	for (char *p = list; n > 0 && *p;) {
		long child = strtol(p, &p, 10);
		p += *p == '\n';
		(void)snprintf(pid, sizeof(pid), "%ld", child);
		if (child > 0 && forge_proc_parent((pid_t)child) == getpid())
			(void)!forge_write_at(own, LEAF "/cgroup.procs",
					      pid); /* maybe gone */
		else if (child <= 0)
			break; /* of a pid namespace that is not ours */
	}
	(void)snprintf(pid, sizeof(pid), "%ld", (long)getpid());
	return forge_write_at(own, LEAF "/cgroup.procs", pid);
}

static int enable_controllers(int own, const char *path, struct forge_error *err)
{
	char absent[64];
	int rc = list_absent(own, "cgroup.controllers", absent, sizeof(absent));

	if (rc < 0)
		return forge_fail_errno(err, -rc, "read %s/cgroup.controllers", path);
	if (*absent)
		return forge_hint(err,
				  forge_fail(err, ENOENT,
					     "controllers %s are not delegated to %s",
					     absent, path),
				  HINT_DELEGATE);
	rc = list_absent(own, "cgroup.subtree_control", absent, sizeof(absent));
	if (rc < 0)
		return forge_fail_errno(err, -rc, "read %s/cgroup.subtree_control", path);
	if (!*absent)
		return 0;
	rc = forge_write_at(own, "cgroup.subtree_control", absent);
	/* A helper of an earlier run may be just about to end. */
	for (int tries = 0; rc == -EBUSY && tries < 20; tries++) {
		if (tries > 0)
			(void)nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
		if (step_aside(own) < 0)
			break;
		rc = forge_write_at(own, "cgroup.subtree_control", absent);
	}
	if (rc == -EBUSY)
		return forge_hint(
			err, forge_fail(err, EBUSY, "other processes live in %s", path),
			HINT_DELEGATE);
	if (rc < 0)
		return forge_hint(
			err, forge_fail_errno(err, -rc, "enable %s in %s", absent, path),
			HINT_DELEGATE);
	return 0;
}

/*
 * The io controller costs every request of every group below ours, so it is enabled only when
 * a run asks for it. We are out of our own cgroup by now, or need not be.
 */
static int enable_io(const struct forge_cgroup *cg, int own, const char *path,
		     struct forge_error *err)
{
	char have[512];
	ssize_t n = forge_read_at(own, "cgroup.controllers", have, sizeof(have));

	if (n < 0 || !has_word(have, "io"))
		return forge_hint(
			err,
			forge_fail(err, ENOENT,
				   "io_rate: the io controller, which would limit the "
				   "disk %s, is not delegated to %s",
				   cg->io_disk.name, path),
			"Run without --io-rate, or have io delegated too "
			"(docs/HOSTS.md), or name io in sandbox.allow_missing");
	n = forge_read_at(own, "cgroup.subtree_control", have, sizeof(have));
	if (n >= 0 && has_word(have, "io"))
		return 0;
	int rc = forge_write_at(own, "cgroup.subtree_control", "+io");
	return rc < 0 ? forge_hint(err,
				   forge_fail_errno(err, -rc,
						    "io_rate: enable the io controller "
						    "in %s",
						    path),
				   HINT_DELEGATE)
		      : 0;
}

static int set(struct forge_cgroup *cg, const char *file, const char *value,
	       struct forge_error *err)
{
	int rc = forge_write_at(cg->v2_fd, file, value);

	return rc < 0 ? forge_fail_errno(err, -rc, "write %s to %s/%s", value,
					 cg->dirs.v[0], file)
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

	if (rc == 0)
		rc = set(cg, "memory.oom.group", "1", err);
	if (rc == 0 && faccessat(cg->v2_fd, "memory.swap.max", F_OK, 0) == 0)
		rc = set(cg, "memory.swap.max", "0", err);
	return rc;
}

/* Its counter "max" rises with every charge that does not fit, long before or just before. */
static void watch_scarcity(struct forge_cgroup *cg)
{
	char buf[512];

	if (cg->limits.memory_bytes == FORGE_UNLIMITED)
		return;
	cg->scarce_fd = openat(cg->v2_fd, "memory.events", O_RDONLY | O_CLOEXEC);
	cg->scarce_poll = POLLPRI;
	if (cg->scarce_fd >= 0)
		(void)!pread(cg->scarce_fd, buf, sizeof(buf), 0); /* arms the event */
}

static int v2_configure(struct forge_cgroup *cg, struct forge_error *err)
{
	const struct forge_limits *l = &cg->limits;
	char cpu[48] = "max";

	/* thousandths of a CPU of a 100 ms period */
	if (l->cpus_milli != FORGE_UNLIMITED)
		(void)snprintf(cpu, sizeof(cpu), "%" PRIu64 " 100000",
			       l->cpus_milli * 100);
	int rc = set_memory(cg, err);
	/* Our init counts as one. */
	if (rc == 0)
		rc = set_number(cg, "pids.max",
				l->pids == FORGE_UNLIMITED ? l->pids : l->pids + 1, err);
	if (rc == 0)
		rc = set(cg, "cpu.max", cpu, err);
	/* No need to kill: with oom.group the kernel does, all of it, init too. */
	if (rc == 0)
		watch_scarcity(cg);
	return rc;
}

static int v2_create(struct forge_cgroup *cg, struct forge_error *err)
{
	const struct forge_cgroup_own *dirs;
	int rc = forge_cgroup_own(&dirs);
	const char *path = dirs->unified;
	if (rc < 0 || !path)
		return forge_fail(err, ENOENT, "no unified cgroup hierarchy is mounted");
	forge_auto_close int own = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (own < 0)
		return forge_fail_errno(err, errno, "open %s", path);
	rc = enable_controllers(own, path, err);
	if (rc < 0)
		return rc;
	cg->v2_fd = forge_cgroup_make_dir(cg, path);
	if (cg->v2_fd < 0)
		return forge_fail_errno(err, -cg->v2_fd, "make a cgroup below %s", path);
	/* Without swap in the kernel there is no such file, and nothing to limit. */
	if (faccessat(cg->v2_fd, "memory.swap.max", F_OK, 0) < 0 && forge_host_has_swap())
		cg->missing |= 1u << FORGE_MECH_SWAP;
	if (*cg->io_disk.name &&
	    (enable_io(cg, own, path, &cg->io_error) < 0 ||
	     forge_cgroup_limit_io(cg, cg->v2_fd, true, &cg->io_error) < 0))
		cg->missing |= 1u << FORGE_MECH_IO;
	return 0;
}

/* io.stat has one line a device: "8:0 rbytes=1 wbytes=2 ...". */
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

	/* Peaks are younger than our oldest kernel; they then stay unknown. */
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

/* Manager "none": what an explicit choice gets. Nothing is limited, and the record says so. */
const struct forge_cgroup_ops forge_cgroup_none = {
	.name = "none",
	.create = none_create,
	.configure = none_configure,
	.usage = none_usage,
};
