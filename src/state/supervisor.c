/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the supervisor of a run through its slot. */
#include "state/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/entries.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/proc.h"
#include "base/sys.h"
#include "state/slot.h"

/*
 * The pid of the supervisor that holds this slot for run_id. 0: the slot is free or belongs to another run.
 * -1: the supervisor is in another pid namespace (a container), where its pid has another meaning.
 */
static pid_t holder(int dir, const char *name, const char *run_id)
{
	forge_auto_close int fd =
		openat(dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	json_t *slot = NULL;

	if (fd < 0)
		return 0;
	if (flock(fd, LOCK_SH | LOCK_NB) == 0)
		return 0;		   /* not locked: the supervisor is dead */
	(void)!forge_slot_read(fd, &slot); /* NULL: it names no run */
	const char *id = forge_json_string(slot, "run_id");
	pid_t pid = 0;
	json_int_t ns = json_integer_value(json_object_get(slot, "pid_namespace"));
	if (id && strcmp(id, run_id) == 0)
		pid = ns && (uint64_t)ns != forge_pid_namespace()
			      ? -1
			      : (pid_t)json_integer_value(json_object_get(slot, "pid"));
	json_decref(slot);
	return pid;
}

static int open_holder(int dir, const char *name, const char *run_id,
		       struct forge_supervisor_ref *ret)
{
	pid_t pid = holder(dir, name, run_id);

	if (pid <= 0)
		return -ESRCH;
	int pidfd = sys_pidfd_open(pid, 0);
	if (pidfd < 0)
		return -ESRCH;
	if (holder(dir, name, run_id) != pid) {
		close(pidfd);
		return -ESRCH; /* it ended meanwhile */
	}
	*ret = (struct forge_supervisor_ref){ pid, pidfd };
	return 0;
}

int forge_supervisor_find(const struct forge_home *home, const char *run_id,
			  struct forge_supervisor_ref *ret, struct forge_error *err)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	(void)forge_entries_open(&d, home->active_fd, "."); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));)
		if (name[0] != '.' &&
		    open_holder(forge_entries_fd(&d), name, run_id, ret) == 0)
			return 0;
	if (d.error)
		return forge_fail_errno(err, -d.error, "read %s/active", home->path);
	return forge_fail(err, ESRCH, "run %s is not running here", run_id);
}

int forge_supervisor_stop(const struct forge_supervisor_ref *s, bool now,
			  struct forge_error *err)
{
	siginfo_t info = { .si_signo = SIGTERM, .si_code = SI_QUEUE };

	info.si_pid = getpid();
	info.si_uid = getuid();
	info.si_value.sival_int = FORGE_SIGNAL_NOW;
	if (sys_pidfd_send_signal(s->pidfd, SIGTERM, now ? &info : NULL) == 0 ||
	    errno == ESRCH)
		return 0;
	return forge_fail_errno(err, errno, "signal process %d", (int)s->pid);
}

int forge_supervisor_wait(const struct forge_supervisor_ref *s, int msec)
{
	struct pollfd p = { .fd = s->pidfd, .events = POLLIN };
	int n;

	do
		n = poll(&p, 1, msec);
	while (n < 0 && errno == EINTR);
	return n > 0 ? 0 : 1;
}

void forge_supervisor_close(struct forge_supervisor_ref *s)
{
	if (s->pidfd >= 0)
		close(s->pidfd);
	*s = FORGE_SUPERVISOR_REF_INIT;
}
