/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process of a run is in the run's control groups, which it cannot leave. One that is gone had a parent when
 * it was forked, and so on, up to a process that lives or to the supervisor. A container is in groups of the
 * engine, and descends from it; its processes are known by process 1 in it.
 */
#include "health/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/proc.h"
#include "base/sys.h"

#define STEPS_MAX 256

static int find_supervisor(const struct forge_owner *runs, size_t n, pid_t pid)
{
	/* The newest first: a post-process has the supervisor of its run. */
	for (size_t i = n; i-- > 0;)
		if (pid > 0 && runs[i].supervisor == pid)
			return (int)i;
	return FORGE_OWNER_OTHER;
}

/* What descends from process 1 of a container is the run's; it never gets other ancestors. */
static int find_init(const struct forge_owner *runs, size_t n, pid_t pid)
{
	for (size_t i = n; i-- > 0;)
		if (pid > 0 && runs[i].init == pid)
			return (int)i;
	return FORGE_OWNER_OTHER;
}

static int find_group(const struct forge_owner *runs, size_t n, pid_t pid)
{
	char path[32], text[8192];

	(void)snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	if (forge_read_at(AT_FDCWD, path, text, sizeof(text)) < 0)
		return FORGE_OWNER_UNKNOWN;
	for (size_t i = n; i-- > 0;)
		if (*runs[i].word && strstr(text, runs[i].word))
			return (int)i;
	return FORGE_OWNER_OTHER;
}

static void name_process(pid_t pid, char process[FORGE_PROCESS_MAX])
{
	char path[32], comm[32];

	(void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	ssize_t n = forge_read_at(AT_FDCWD, path, comm, sizeof(comm));
	if (n > 0 && comm[n - 1] == '\n')
		comm[n - 1] = '\0';
	(void)snprintf(process, FORGE_PROCESS_MAX, "%s (%d)", n > 0 ? comm : "gone",
		       (int)pid);
}

/* Threads of the kernel are children of kthreadd. */
#define KTHREADD 2

/*
 * Of a living process: by its groups, or by its ancestors where runs have no groups. A supervisor's own children
 * are helpers, and the run's init, which is forge's program; what is below them is the run's.
 */
static int find_living(const struct forge_owner *runs, size_t n, pid_t pid)
{
	int owner = find_group(runs, n, pid);

	for (int i = 0; owner == FORGE_OWNER_OTHER && i < STEPS_MAX && pid > 1; i++) {
		pid_t parent = forge_proc_parent(pid);
		/* It ended meanwhile: its children have another parent by now. Else that is outside this namespace. */
		if (parent == 0 && pid > KTHREADD && kill(pid, 0) < 0 && errno == ESRCH)
			return FORGE_OWNER_UNKNOWN;
		pid = parent;
		owner = find_init(runs, n, pid);
		if (owner >= 0)
			return owner;
		owner = find_supervisor(runs, n, pid);
		if (i == 0 && owner >= 0)
			return FORGE_OWNER_FORGE;
		if (i == 0 && pid == KTHREADD)
			return FORGE_OWNER_KERNEL;
	}
	return owner;
}

/* Nothing is known of a process that was forked while forks were lost. */
static int find_dead(struct forge_ancestry *a, const struct forge_owner *runs, size_t n,
		     pid_t pid)
{
	forge_ancestry_update(a);
	for (int i = 0; i < STEPS_MAX; i++) {
		pid_t parent = forge_ancestry_parent(a, pid);
		int owner;
		if (!forge_ancestry_is_complete(a) || (parent == 0 && pid > KTHREADD))
			return FORGE_OWNER_UNKNOWN;
		if (parent == 0)
			return FORGE_OWNER_OTHER;
		owner = find_init(runs, n, parent);
		if (owner >= 0)
			return owner;
		owner = find_supervisor(runs, n, parent);
		if (owner >= 0)
			return i == 0 ? FORGE_OWNER_FORGE : owner;
		owner = find_living(runs, n, parent);
		/* It was a child of a helper, or of init. */
		if (owner == FORGE_OWNER_FORGE)
			return find_supervisor(runs, n, forge_proc_parent(parent));
		if (owner != FORGE_OWNER_UNKNOWN)
			return owner;
		pid = parent;
	}
	return FORGE_OWNER_UNKNOWN;
}

int forge_owner_find(struct forge_ancestry *a, const struct forge_owner *runs, size_t n,
		     pid_t pid, int pidfd, char process[FORGE_PROCESS_MAX])
{
	process[0] = '\0';
	if (pid <= 0)
		return FORGE_OWNER_OTHER; /* of the kernel, or outside this namespace */
	if (pidfd >= 0) {
		bool is_forge = find_supervisor(runs, n, pid) >= 0 ||
				find_init(runs, n, pid) >= 0;
		int owner = is_forge ? FORGE_OWNER_FORGE : find_living(runs, n, pid);
		name_process(pid, process);
		/* Nothing was read of another process that has its number by now. */
		if (owner != FORGE_OWNER_UNKNOWN &&
		    (sys_pidfd_send_signal(pidfd, 0, NULL) == 0 || errno == EPERM))
			return owner;
	}
	(void)snprintf(process, FORGE_PROCESS_MAX, "gone (%d)", (int)pid);
	return find_dead(a, runs, n, pid);
}
