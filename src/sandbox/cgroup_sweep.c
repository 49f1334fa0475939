/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes the groups of runs whose forge was killed. A forge that makes a group locks its directory (flock), and
 * the kernel releases that lock when the process ends, however it ends. So the owner of a group that can be locked
 * is dead, or has not locked it yet: it then finds after locking that its group is gone, and makes it again
 * (forge_cgroup_make_dir()). Processes are never killed here: rmdir(2) fails for a group that has any.
 */
#include "sandbox/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/entries.h"
#include "base/lock.h"

/* From the group of a job to those of runs in it: job_1/step_batch/user/task_0. */
#define DEPTH_MAX 4
#define LOCK_MSEC 1000

static bool is_run_group(const char *name)
{
	return strncmp(name, "forge-", 6) == 0 &&
	       strlen(name + 6) == FORGE_RUN_ID_MAX - 1 &&
	       forge_run_id_is_valid(name + 6);
}

static int open_dir(int parent, const char *name)
{
	return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Whether it was removed. The lock is held until it is: the owner waits for it, should there be one. */
static bool remove_dead(int parent, const char *name)
{
	forge_auto_close int fd = open_dir(parent, name);
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
	       forge_lock_fd(fd, FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_NO_WAIT, -1) == 0 &&
	       forge_cgroup_is_there(fd) && unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

/*
 * Whether one was removed. Also removes the empty groups around it, up to dir: their owner could not while there was
 * a group in them. prefix: what the names of groups around begin with, NULL: any.
 */
static bool sweep(int dir, const char *prefix, int depth)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	bool is_removed = false;

	(void)forge_entries_open(&d, dir,
				 "."); /* a later sweep sees what this one does not */
	for (const char *name; (name = forge_entries_next(&d));) {
		if (is_run_group(name)) {
			is_removed |= remove_dead(dir, name);
			continue;
		}
		if (depth == 0 || (prefix && strncmp(name, prefix, strlen(prefix)) != 0))
			continue;
		forge_auto_close int fd = open_dir(dir, name);
		if (fd >= 0 && sweep(fd, NULL, depth - 1)) {
			is_removed = true;
			(void)unlinkat(dir, name, AT_REMOVEDIR); /* others may be in it */
		}
	}
	return is_removed;
}

/*
 * The groups of the jobs beside ours. Slurm removes and makes those while it holds a lock, which is taken here, too:
 * on the root of a v1 hierarchy, on v2 on the group that has all jobs.
 */
static void sweep_jobs(const char *jobs, const char *root, const char *prefix)
{
	forge_auto_close int lock = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	forge_auto_close int dir = open(jobs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (lock >= 0 && dir >= 0 &&
	    forge_lock_fd(lock, FORGE_LOCK_EXCLUSIVE, LOCK_MSEC, -1) == 0)
		(void)sweep(dir, prefix, DEPTH_MAX);
}

static void sweep_around(const char *own, const char *root, const char *prefix)
{
	forge_auto_free char *part = forge_asprintf("/%s", prefix);
	const char *job = own && part ? strstr(own, part) : NULL;

	if (!own || !part)
		return;
	if (!job) {
		forge_auto_close int dir = open(own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (dir >= 0)
			(void)sweep(dir, NULL, 0);
		return;
	}
	forge_auto_free char *jobs = forge_asprintf("%.*s", (int)(job - own), own);
	if (jobs)
		sweep_jobs(jobs, root ? root : jobs, prefix);
}

void forge_cgroup_sweep(const char *job_prefix)
{
	const struct forge_cgroup_own *own;
	const struct forge_cgroup_place *place;

	if (forge_cgroup_own(&own) < 0)
		return;
	sweep_around(own->memory, FORGE_CGROUP_ROOT "/memory", job_prefix);
	sweep_around(own->pids, FORGE_CGROUP_ROOT "/pids", job_prefix);
	sweep_around(own->cpu, FORGE_CGROUP_ROOT "/cpu", job_prefix);
	sweep_around(own->cpuacct, FORGE_CGROUP_ROOT "/cpuacct", job_prefix);
	sweep_around(own->blkio, FORGE_CGROUP_ROOT "/blkio", job_prefix);
	sweep_around(own->unified, NULL, job_prefix);
	if (own->unified && forge_cgroup_place(own, &place) == 0 &&
	    strcmp(place->runs, own->unified) != 0)
		sweep_around(place->runs, NULL, job_prefix);
}
