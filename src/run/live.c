/* SPDX-License-Identifier: Apache-2.0 */
/* Looks through the slots. */
#include "run/live.h"

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
#include "base/proc.h"
#include "base/sys.h"
#include "executor/executor.h"
#include "run/active.h"

/*
 * The pid that holds this slot for run_id; 0: nobody, or another run; -1: somebody in another pid
 * namespace (a container), whose number is another process here.
 */
static pid_t holder(int dir, const char *name, const char *run_id)
{
	forge_auto_close int fd =
		openat(dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	json_t *facts = NULL;

	if (fd < 0)
		return 0;
	if (flock(fd, LOCK_SH | LOCK_NB) == 0)
		return 0; /* free: whoever was there is dead */
	(void)!forge_active_read(fd,
				 &facts); /* NULL: it names nobody that we could find */
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

/* What the slot of a run says, NULL in *ret when none names it. Negative: a slot cannot be read. */
static int read_slot_of(const struct forge_home *home, const char *run_id, json_t **ret)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int unread = 0;

	*ret = NULL;
	(void)forge_entries_open(&d, home->active_fd, "."); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));) {
		json_t *facts = NULL;
		if (name[0] == '.')
			continue;
		forge_auto_close int fd =
			openat(forge_entries_fd(&d), name,
			       O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
		int rc = fd < 0 ? -errno : forge_active_read(fd, &facts);
		unread = rc < 0 && rc != -ENOENT ? rc : unread;
		const char *id = json_string_value(json_object_get(facts, "run_id"));
		if (id && strcmp(id, run_id) == 0) {
			*ret = facts;
			return 0;
		}
		json_decref(facts);
	}
	return d.error ? d.error : unread;
}

bool forge_live_has_slot(const struct forge_home *home, const char *run_id)
{
	json_t *facts;
	int rc = read_slot_of(home, run_id, &facts);
	bool is_there = facts != NULL;

	json_decref(facts);
	return is_there || rc < 0; /* one that cannot be read may name it */
}

json_t *forge_live_record(const struct forge_home *home, const char *run_id)
{
	json_t *facts;

	(void)!read_slot_of(home, run_id, &facts); /* NULL: it is not known */
	json_t *record = json_incref(json_object_get(facts, "record"));

	json_decref(facts);
	return record;
}

static void read_cgroup(const char *path, struct forge_live_usage *ret)
{
	char text[1024];
	uint64_t n;
	forge_auto_close int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return;
	if (forge_read_u64_at(dir, "memory.current", &n) == 0 ||
	    forge_read_u64_at(dir, "memory.usage_in_bytes", &n) == 0)
		ret->memory_bytes = n;
	if (forge_read_u64_at(dir, "cpuacct.usage", &n) == 0)
		ret->cpu_usec = n / 1000;
	else if (forge_read_at(dir, "cpu.stat", text, sizeof(text)) > 0)
		ret->cpu_usec = forge_key_u64(text, "usage_usec", ret->cpu_usec);
}

void forge_live_usage(const struct forge_home *home, const char *run_id,
		      struct forge_live_usage *ret)
{
	json_t *facts, *dir;
	size_t i;

	*ret = (struct forge_live_usage){ UINT64_MAX, UINT64_MAX };
	(void)!read_slot_of(home, run_id, &facts); /* NULL: it is not known */
	json_array_foreach (json_object_get(facts, "cgroups"), i, dir)
		if (json_string_value(dir))
			read_cgroup(json_string_value(dir), ret);
	json_decref(facts);
}

int forge_live_end(const struct forge_live *l, bool now, struct forge_error *err)
{
	siginfo_t info = { .si_signo = SIGTERM, .si_code = SI_QUEUE };

	info.si_pid = getpid();
	info.si_uid = getuid();
	info.si_value.sival_int = FORGE_SIGNAL_NOW;
	if (sys_pidfd_send_signal(l->pidfd, SIGTERM, now ? &info : NULL) == 0 ||
	    errno == ESRCH)
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
