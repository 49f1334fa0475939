/* SPDX-License-Identifier: Apache-2.0 */
/* The front of the cgroup managers: choosing one, killing, removing. */
#include "sandbox/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/lock.h"
#include "config-build.h"

/* How often a group is made again that a sweep has removed. */
#define MAKE_TRIES 20

static bool has_magic(const char *path, long magic)
{
	struct statfs fs;

	return statfs(path, &fs) == 0 && (long)fs.f_type == magic;
}

/* The mount point of a hierarchy at its usual place; NULL when it is not mounted there. */
static const char *hierarchy_mount(const char *controller, char buf[64])
{
	if (*controller) {
		(void)snprintf(buf, 64, FORGE_CGROUP_ROOT "/%s", controller);
		return has_magic(buf, CGROUP_SUPER_MAGIC) ? buf : NULL;
	}
	if (has_magic(FORGE_CGROUP_ROOT, CGROUP2_SUPER_MAGIC))
		return FORGE_CGROUP_ROOT;
	if (has_magic(FORGE_CGROUP_ROOT "/unified", CGROUP2_SUPER_MAGIC))
		return FORGE_CGROUP_ROOT "/unified";
	return NULL;
}

/* Is controller one of the comma-separated names in list[0..len)? */
static bool list_has(const char *list, size_t len, const char *controller)
{
	size_t want = strlen(controller);

	for (const char *p = list, *end = list + len; p <= end;) {
		size_t n = strcspn(p, ",:");
		if (n == want && strncmp(p, controller, n) == 0)
			return true;
		p += n + 1;
	}
	return false;
}

/* Finds our path in a hierarchy in the "id:list:path" lines of /proc/self/cgroup. */
static const char *own_path(const char *text, const char *controller, size_t *ret_len)
{
	for (const char *line = text; line && *line;) {
		const char *list = strchr(line, ':');
		const char *path = list ? strchr(list + 1, ':') : NULL;
		if (!path)
			return NULL;
		*ret_len = strcspn(path + 1, "\n");
		if (list_has(list + 1, (size_t)(path - list - 1), controller))
			return path + 1;
		line = path + 1 + *ret_len;
		line += *line == '\n';
	}
	return NULL;
}

static char *own_dir(const char *text, const char *controller)
{
	char mnt_buf[64];
	const char *mnt = hierarchy_mount(controller, mnt_buf);
	size_t len;
	const char *path = mnt ? own_path(text, controller, &len) : NULL;

	if (!path)
		return NULL;
	char *dir = forge_asprintf("%s%.*s", mnt, len == 1 ? 0 : (int)len, path);
	/*
	 * In a container the mount may have our own cgroup as its root, while the path starts
	 * at the host's root or with "/..". Then our directory is the root of the mount.
	 */
	if (dir && (strncmp(path, "/..", 3) == 0 || access(dir, F_OK) < 0)) {
		free(dir);
		dir = strdup(mnt);
	}
	return dir;
}

/* A process that has moved into the leaf (cgroup_place.c) still uses the group above as its own. */
static void leave_leaf(char *dir)
{
	static const char leaf[] = "/" FORGE_CGROUP_LEAF;
	size_t n = dir ? strlen(dir) : 0, m = sizeof(leaf) - 1;

	if (n > m && strcmp(dir + n - m, leaf) == 0)
		dir[n - m] = '\0';
}

static void forget(struct forge_cgroup_own *own)
{
	free(own->unified);
	free(own->memory);
	free(own->pids);
	free(own->cpu);
	free(own->cpuacct);
	free(own->blkio);
	free(own->top);
	*own = (struct forge_cgroup_own){ 0 };
}

int forge_cgroup_own(const struct forge_cgroup_own **ret)
{
	static struct forge_cgroup_own known;
	static char *seen; /* the text that known was made from */
	char text[8192];
	ssize_t n = forge_read_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text));

	*ret = &known;
	if (n < 0)
		return (int)n;
	if (seen && strcmp(seen, text) == 0)
		return 0;
	free(seen);
	forget(&known);
	seen = strdup(text);
	known.unified = own_dir(text, "");
	leave_leaf(known.unified);
	char top[64];
	known.top = known.unified ? strdup(hierarchy_mount("", top)) : NULL;
	known.memory = own_dir(text, "memory");
	known.pids = own_dir(text, "pids");
	known.cpu = own_dir(text, "cpu");
	known.cpuacct = own_dir(text, "cpuacct");
	known.blkio = own_dir(text, "blkio");
	return 0;
}

int forge_cgroup_predict(const char *run_id, struct forge_strv *ret)
{
	const struct forge_cgroup_own *own;
	int rc = forge_cgroup_own(&own);
	/*
	 * blkio comes first: a process that waits for throttled I/O cannot die, and so leaves
	 * no group, until its I/O limit is lifted.
	 */
	const char *dirs[] = { own->blkio, own->unified, own->memory,
			       own->pids,  own->cpu,	 own->cpuacct };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(dirs) && rc == 0; i++)
		if (dirs[i])
			rc = forge_strv_addf(ret, "%s/forge-%s", dirs[i], run_id);
	const struct forge_cgroup_place *place;
	if (rc == 0 && forge_cgroup_place(own, &place) == 0 &&
	    strcmp(place->runs, own->unified) != 0)
		rc = forge_strv_addf(ret, "%s/forge-%s", place->runs, run_id);
	return rc;
}

bool forge_host_has_swap(void)
{
	char buf[4096];
	ssize_t n = forge_read_at(AT_FDCWD, "/proc/swaps", buf, sizeof(buf));

	/* one heading line, then one for each swap area */
	const char *nl = n > 0 ? strchr(buf, '\n') : NULL;
	return nl && nl[1];
}

bool forge_cgroup_is_there(int dir)
{
	return faccessat(dir, "cgroup.procs", F_OK, 0) == 0;
}

/* The directory exists. -EAGAIN: forge_cgroup_sweep() of another process removed it before it was locked. */
static int open_locked(const char *path)
{
	forge_auto_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? -EAGAIN : -errno;
	int rc = forge_lock_fd(fd, FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_WAIT_FOREVER, -1);
	if (rc < 0)
		return rc;
	return forge_cgroup_is_there(fd) ? forge_take_fd(fd) : -EAGAIN;
}

int forge_cgroup_make_dir(struct forge_cgroup *cg, const char *parent)
{
	char *path = forge_asprintf("%s/%s", parent, cg->name);
	int fd = path ? -EAGAIN : -ENOMEM;
	bool is_made = false;

	for (int tries = 0; fd == -EAGAIN && tries < MAKE_TRIES; tries++) {
		is_made = mkdir(path, 0755) == 0;
		fd = is_made ? open_locked(path) : -errno;
	}
	if (!is_made) {
		free(path);
		return fd;
	}
	int rc = forge_strv_take(&cg->dirs, path);
	if (rc < 0 && fd >= 0)
		close(fd);
	return rc < 0 ? rc : fd;
}

/* The managers that "auto" tries, in order. */
static const struct forge_cgroup_ops *const managers[] = {
	&forge_cgroup_v2,
	&forge_cgroup_v1,
#if HAVE_SYSTEMD
	&forge_cgroup_systemd,
#endif
};

struct forge_cgroup *forge_cgroup_alloc(const struct forge_cgroup_ops *ops,
					const char *run_id,
					const struct forge_limits *limits,
					const struct forge_blockdev *io_disk)
{
	struct forge_cgroup *cg = calloc(1, sizeof(*cg));

	if (!cg)
		return NULL;
	cg->ops = ops;
	cg->limits = *limits;
	cg->io_disk = *io_disk;
	cg->v2_fd = cg->memory_fd = cg->cpu_fd = cg->cpuacct_fd = cg->pids_fd =
		cg->blkio_fd = cg->oom_fd = cg->pressure_fd = -1;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(cg->enter_fds); i++)
		cg->enter_fds[i] = -1;
	cg->name = forge_asprintf("forge-%s", run_id);
	if (!cg->name) {
		free(cg);
		return NULL;
	}
	return cg;
}

static int try_manager(const struct forge_cgroup_ops *ops, const char *run_id,
		       const struct forge_limits *limits,
		       const struct forge_blockdev *io_disk, struct forge_cgroup **ret,
		       struct forge_error *err)
{
	forge_auto_cgroup struct forge_cgroup *cg =
		forge_cgroup_alloc(ops, run_id, limits, io_disk);
	if (!cg)
		return forge_fail(err, ENOMEM, "out of memory");
	int rc = ops->create(cg, err);
	if (rc < 0) {
		/* A failed attempt may leave empty directories. */
		(void)!forge_cgroup_remove(cg, NULL);
		/* The hint of the manager is about permissions, which are not the problem here. */
		if (rc == -EROFS)
			(void)forge_hint(err, rc,
					 "/sys/fs/cgroup is read-only here: give the "
					 "container a writable one (docs/HOSTS.md)");
		return forge_wrap(err, rc, "cgroup manager %s", ops->name);
	}
	*ret = forge_take_ptr(cg);
	return 0;
}

static const struct forge_cgroup_ops *chosen(enum forge_cgroup_choice choice)
{
	switch (choice) {
	case FORGE_CGROUP_V2:
		return &forge_cgroup_v2;
	case FORGE_CGROUP_SYSTEMD:
		return &forge_cgroup_systemd;
	case FORGE_CGROUP_V1:
		return &forge_cgroup_v1;
	case FORGE_CGROUP_NONE:
		return &forge_cgroup_none;
	case FORGE_CGROUP_AUTO:
		break;
	}
	return NULL;
}

int forge_cgroup_new(enum forge_cgroup_choice choice, const char *run_id,
		     const struct forge_limits *limits,
		     const struct forge_blockdev *io_disk, struct forge_cgroup **ret,
		     struct forge_error *err)
{
	const struct forge_cgroup_ops *ops = chosen(choice);

	if (ops)
		return try_manager(ops, run_id, limits, io_disk, ret, err);
	struct forge_error first = FORGE_ERROR_INIT, e = FORGE_ERROR_INIT;
	int rc = -ENOSYS;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(managers); i++) {
		rc = try_manager(managers[i], run_id, limits, io_disk, ret, &e);
		if (rc == 0)
			return 0;
		/*
		 * The best explanation comes from the first manager that exists here but
		 * refused us.
		 */
		if (!first.code || (first.code == ENOENT && e.code != ENOENT))
			first = e;
	}
	if (first.code == ENOENT && !first.hint[0])
		(void)forge_hint(
			&first, rc,
			"Mount one: mount -t cgroup2 none /sys/fs/cgroup, or give "
			"the container its own (docs/HOSTS.md)");
	if (err)
		*err = first;
	return rc;
}

int forge_cgroup_configure(struct forge_cgroup *cg, struct forge_error *err)
{
	int rc = cg->ops->configure(cg, err);

	return rc < 0 ? forge_wrap(err, rc, "cgroup manager %s", cg->ops->name) : 0;
}

int forge_cgroup_add_entry(struct forge_cgroup *cg, int dir, const char *file,
			   struct forge_error *err)
{
	size_t n = 0;

	while (cg->enter_fds[n] >= 0)
		n++;
	if (n + 1 >= FORGE_ARRAY_SIZE(cg->enter_fds))
		return forge_fail(err, E2BIG, "too many hierarchies");
	cg->enter_fds[n] = openat(dir, file, O_WRONLY | O_CLOEXEC);
	return cg->enter_fds[n] < 0
		       ? forge_fail_errno(err, errno, "open %s/%s", cg->name, file)
		       : 0;
}

void forge_cgroup_usage(struct forge_cgroup *cg, struct forge_cgroup_usage *ret)
{
	*ret = (struct forge_cgroup_usage){
		.memory_peak_bytes = UINT64_MAX,
		.pids_peak = UINT64_MAX,
		.io_read_bytes = UINT64_MAX,
		.io_write_bytes = UINT64_MAX,
	};
	cg->ops->usage(cg, ret);
	ret->cpu_usec = forge_cgroup_cpu_usec(cg);
}

uint64_t forge_cgroup_cpu_usec(struct forge_cgroup *cg)
{
	char buf[1024];
	uint64_t nsec;

	/* cpu.stat's usage is there on every v2 directory, with or without the controller. */
	if (cg->v2_fd >= 0 && forge_read_at(cg->v2_fd, "cpu.stat", buf, sizeof(buf)) > 0)
		return forge_key_u64(buf, "usage_usec", UINT64_MAX);
	if (cg->cpuacct_fd >= 0 &&
	    forge_read_u64_at(cg->cpuacct_fd, "cpuacct.usage", &nsec) == 0)
		return nsec / 1000;
	return UINT64_MAX;
}

void forge_cgroup_now(struct forge_cgroup *cg, struct forge_cgroup_now *ret)
{
	int memory = cg->memory_fd >= 0 ? cg->memory_fd : cg->v2_fd;
	int pids = cg->pids_fd >= 0 ? cg->pids_fd : cg->v2_fd;
	uint64_t n;

	*ret = (struct forge_cgroup_now){ UINT64_MAX, forge_cgroup_cpu_usec(cg),
					  UINT64_MAX };
	if (memory >= 0 && forge_read_u64_at(memory,
					     cg->memory_fd >= 0 ? "memory.usage_in_bytes"
								: "memory.current",
					     &n) == 0)
		ret->memory_bytes = n;
	if (pids >= 0 && forge_read_u64_at(pids, "pids.current", &n) == 0)
		ret->pids = n > 0 ? n - 1 : 0; /* without our init */
}

uint64_t forge_cgroup_shmem_bytes(struct forge_cgroup *cg)
{
	char buf[8192];
	int dir = cg->memory_fd >= 0 ? cg->memory_fd : cg->v2_fd;

	return dir >= 0 && forge_read_at(dir, "memory.stat", buf, sizeof(buf)) > 0
		       ? forge_key_u64(buf, "shmem", UINT64_MAX)
		       : UINT64_MAX;
}

/*
 * For kernels without cgroup.kill: signals every listed process. Killed ones make no new
 * children.
 */
static void kill_listed(int dirfd)
{
	char buf[65536];

	if (forge_read_at(dirfd, "cgroup.procs", buf, sizeof(buf)) <= 0)
		return;
	for (char *p = buf; *p; p += strspn(p, "\n")) {
		long pid = strtol(p, &p, 10);
		if (pid > 1)
			(void)kill((pid_t)pid, SIGKILL); /* gone already is fine */
	}
}

static void kill_dir(int dirfd)
{
	if (forge_write_at(dirfd, "cgroup.kill", "1") < 0)
		kill_listed(dirfd);
}

/*
 * Exiting takes CPU time, and a thousand processes on the one CPU of a small run take long.
 * Lets them use every CPU that we may use.
 */
static void let_use_all_cpus(struct forge_cgroup *cg)
{
	char buf[65536];
	cpu_set_t all;

	if (cg->v2_fd < 0 ||
	    forge_read_at(cg->v2_fd, "cgroup.procs", buf, sizeof(buf)) < 256 ||
	    sched_getaffinity(0, sizeof(all), &all) < 0)
		return; /* a few dozen processes need no help */
	for (char *p = buf; *p; p += strspn(p, "\n")) {
		long pid = strtol(p, &p, 10);
		if (pid > 1)
			(void)sched_setaffinity((pid_t)pid, sizeof(all), &all);
	}
}

void forge_cgroup_kill(struct forge_cgroup *cg)
{
	let_use_all_cpus(cg);
	forge_cgroup_release_io(cg);
	/* Exiting takes CPU time: a thousand processes on half a CPU would take seconds. */
	if (cg->cpu_fd >= 0)
		(void)!forge_write_at(cg->cpu_fd, "cpu.cfs_quota_us", "-1");
	else if (cg->v2_fd >= 0)
		(void)!forge_write_at(cg->v2_fd, "cpu.max", "max");
	if (cg->v2_fd >= 0)
		kill_dir(cg->v2_fd);
	else if (cg->pids_fd >= 0)
		kill_listed(cg->pids_fd);
}

/*
 * Retries rmdir up to `most` times, 10 ms apart; on v2 an event of the kernel ends a wait
 * early. Dying processes leave the group within milliseconds.
 */
static int remove_when_empty(const char *path, int most)
{
	/* Usually this is enough, and it needs no file descriptor. */
	if (rmdir(path) == 0 || errno == ENOENT)
		return 0;
	if (errno != EBUSY)
		return -errno;
	forge_auto_close int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return errno == ENOENT ? 0 : -errno;
	forge_auto_close int events = openat(dir, "cgroup.events", O_RDONLY | O_CLOEXEC);
	for (int tries = 0; tries < most; tries++) {
		if (rmdir(path) == 0 || errno == ENOENT)
			return 0;
		if (errno != EBUSY)
			return -errno;
		char buf[128];
		struct pollfd p = { .fd = events, .events = POLLPRI };
		if (events >= 0)
			(void)!pread(events, buf, sizeof(buf), 0); /* arms the event */
		(void)poll(&p, events >= 0 ? 1 : 0, 10);
		if (tries >= 5)
			kill_dir(dir);
	}
	return -EBUSY;
}

int forge_cgroup_remove(struct forge_cgroup *cg, struct forge_error *err)
{
	int first = 0;

	forge_strv_foreach (dir, &cg->dirs) {
		int rc = remove_when_empty(dir, 500);
		if (rc < 0 && first == 0)
			first = forge_fail_errno(err, -rc, "remove %s", dir);
	}
	return first;
}

int forge_cgroup_remove_dir(const char *path, struct forge_error *err)
{
	if (rmdir(path) == 0 || errno == ENOENT)
		return 0;
	forge_auto_close int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return errno == ENOENT ? 0
				       : forge_fail_errno(err, errno, "open %s", path);
	forge_cgroup_release_io_dir(dir);
	kill_dir(dir);
	/*
	 * A process that does not die now is waiting for something. Every command that repairs
	 * after a crash would wait with it, so the time is short.
	 */
	int rc = remove_when_empty(path, 200);
	return rc < 0 ? forge_fail_errno(err, -rc, "remove %s", path) : 0;
}

void forge_cgroup_free(struct forge_cgroup *cg)
{
	if (!cg)
		return;
	int fds[] = { cg->v2_fd,   cg->memory_fd, cg->cpu_fd, cg->cpuacct_fd,
		      cg->pids_fd, cg->blkio_fd,  cg->oom_fd, cg->pressure_fd };
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	for (size_t i = 0; cg->enter_fds[i] >= 0; i++)
		close(cg->enter_fds[i]);
	forge_strv_done(&cg->dirs);
	free(cg->name);
	free(cg);
}
