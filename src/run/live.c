/* SPDX-License-Identifier: Apache-2.0 */
/* Looks through the slots. */
#include "run/live.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/proc.h"
#include "base/sys.h"
#include "run/active.h"

/*
 * The pid that holds this slot for run_id; 0: nobody, or another run; -1: somebody in another pid
 * namespace (a container), whose number is another process here.
 */
static pid_t holder(int dir, const char *name, const char *run_id)
{
	forge_auto_close int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return 0;
	if (flock(fd, LOCK_SH | LOCK_NB) == 0)
		return 0; /* free: whoever was there is dead */
	json_t *facts = forge_active_read(fd);
	const char *id = json_string_value(json_object_get(facts, "run_id"));
	pid_t pid = 0;
	json_int_t ns = json_integer_value(json_object_get(facts, "pid_namespace"));
	if (id && strcmp(id, run_id) == 0)
		pid = ns && (uint64_t)ns != forge_pid_namespace()
			      ? -1
			      : (pid_t)json_integer_value(json_object_get(facts, "pid"));
	json_decref(facts);
	return pid;
}

static int open_holder(int dir, const char *name, const char *run_id,
		       struct forge_live *ret)
{
	pid_t pid = holder(dir, name, run_id);

	if (pid <= 0)
		return -ESRCH;
	int pidfd = sys_pidfd_open(pid, 0);
	if (pidfd < 0)
		return -ESRCH;
	if (holder(dir, name, run_id) != pid) {
		close(pidfd);
		return -ESRCH; /* it ended in between */
	}
	*ret = (struct forge_live){ pid, pidfd };
	return 0;
}

int forge_live_find(const struct forge_home *home, const char *run_id,
		    struct forge_live *ret, struct forge_error *err)
{
	int fd = openat(home->active_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	forge_auto_dir DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d)
		return forge_fail_errno(err, errno, "read %s/active", home->path);
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_name[0] != '.' &&
		    open_holder(dirfd(d), e->d_name, run_id, ret) == 0)
			return 0;
	return forge_fail(err, ESRCH, "run %s is not running here", run_id);
}

/* What the slot of a run says, NULL when none names it. */
static json_t *read_slot_of(const struct forge_home *home, const char *run_id)
{
	int dir = openat(home->active_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	forge_auto_dir DIR *d = dir < 0 ? NULL : fdopendir(dir);

	for (struct dirent *e; d && (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		forge_auto_close int fd =
			openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		json_t *facts = fd < 0 ? NULL : forge_active_read(fd);
		const char *id = json_string_value(json_object_get(facts, "run_id"));
		if (id && strcmp(id, run_id) == 0)
			return facts;
		json_decref(facts);
	}
	return NULL;
}

bool forge_live_has_slot(const struct forge_home *home, const char *run_id)
{
	json_t *facts = read_slot_of(home, run_id);
	bool is_there = facts != NULL;

	json_decref(facts);
	return is_there;
}

json_t *forge_live_record(const struct forge_home *home, const char *run_id)
{
	json_t *facts = read_slot_of(home, run_id);
	json_t *record = json_incref(json_object_get(facts, "record"));

	json_decref(facts);
	return record;
}

int forge_live_signal(const struct forge_live *l, int sig, struct forge_error *err)
{
	if (sys_pidfd_send_signal(l->pidfd, sig) == 0 || errno == ESRCH)
		return 0;
	return forge_fail_errno(err, errno, "signal process %d", (int)l->pid);
}

int forge_live_wait(const struct forge_live *l, int msec)
{
	struct pollfd p = { .fd = l->pidfd, .events = POLLIN };
	int n;

	do
		n = poll(&p, 1, msec);
	while (n < 0 && errno == EINTR);
	return n > 0 ? 0 : 1;
}

void forge_live_close(struct forge_live *l)
{
	if (l->pidfd >= 0)
		close(l->pidfd);
	*l = FORGE_LIVE_INIT;
}
