/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that look at guarded files. Their answers are lines of JSON. */
#include "health/guard_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/sys.h"
#include "health/snapshot.h"

#define REAP_MSEC 200
/* How long a file server may take to answer before a run. */
#define REACH_USEC (10 * 1000000ull)
#define ANSWER_MAX (16u << 20)

/* ---- in the process ---- */

enum { IN_FD = 0, OUT_FD = 1 };

static void say(json_t *answer)
{
	forge_auto_free char *text = json_dumps(answer, JSON_COMPACT);

	json_decref(answer);
	if (!text || forge_write_all(OUT_FD, text, strlen(text)) < 0 ||
	    forge_write_all(OUT_FD, "\n", 1) < 0)
		_exit(1);
}

static void take(const struct forge_guard_set *set, struct forge_snapshot *ret)
{
	struct forge_error err = FORGE_ERROR_INIT;

	if (forge_snapshot_take(set, ret, &err) < 0) {
		say(json_pack("{s:s}", "error", err.msg));
		_exit(1);
	}
}

static void be_child(const struct forge_guard_set *set, const struct timespec *since,
		     bool compares)
{
	struct forge_snapshot before = { 0 }, after = { 0 };
	struct forge_changes changes;
	char go;

	if (forge_changes_init(&changes) < 0)
		_exit(1);
	changes.set = set;
	take(set, &before);
	if (since)
		forge_snapshot_since(&before, set, since, FORGE_AUTHOR_UNKNOWN, &changes);
	if (!compares) {
		json_t *answer = forge_changes_json(&changes);
		json_object_set_new(answer, "guarded",
				    json_integer((json_int_t)before.n_files));
		say(answer);
		_exit(0);
	}
	say(json_pack("{s:I}", "guarded", (json_int_t)before.n_files));
	ssize_t n;
	while ((n = read(IN_FD, &go, 1)) < 0 && errno == EINTR)
		;
	if (n <= 0)
		_exit(0);
	take(set, &after);
	forge_snapshot_compare(&before, &after, FORGE_AUTHOR_UNKNOWN, &changes);
	say(forge_changes_json(&changes));
	_exit(0);
}

static void reach(const struct forge_health_config *h, const struct forge_guard_own *own)
{
	struct forge_guard_set set = { 0 };
	struct stat st;

	/* What is wrong with the paths, the caller finds, too. */
	if (forge_guard_set_make(h, own, &set, NULL) == 0)
		forge_strv_foreach (top, &set.tops)
			(void)!lstat(top, &st); /* only whether it answers */
	say(json_object());
	_exit(0);
}

/* What a process is to do. */
struct task {
	const struct forge_guard_set *set;
	const struct timespec *since;
	bool compares;
	const struct forge_health_config
		*config; /* not NULL: only reaches for the tops */
	const struct forge_guard_own *own;
};

static void begin_child(pid_t parent, int in, int out)
{
	sigset_t none;

	(void)prctl(PR_SET_NAME, "forge-guard"); /* for ps(1) */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	/* The supervisor decides; a signal for its group is not for this process. */
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGTERM, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	(void)signal(SIGQUIT, SIG_IGN);
	(void)signal(SIGPIPE, SIG_DFL);
	int high = fcntl(out, F_DUPFD_CLOEXEC, 3);
	if (high < 0 || dup2(in, IN_FD) < 0 || dup2(high, OUT_FD) < 0)
		_exit(1);
	(void)sys_close_range(2, ~0u, 0);
}

/* ---- in the supervisor ---- */

static int spawn(const struct task *t, struct forge_guard_child *ret,
		 struct forge_error *err)
{
	int in[2], out[2];

	if (pipe2(in, O_CLOEXEC) < 0)
		return forge_fail_errno(err, errno, "look at guarded files");
	if (pipe2(out, O_CLOEXEC) < 0) {
		close(in[0]);
		close(in[1]);
		return forge_fail_errno(err, errno, "look at guarded files");
	}
	pid_t self = getpid(), pid = fork();
	if (pid == 0) {
		begin_child(self, in[0], out[1]);
		if (t->config)
			reach(t->config, t->own);
		be_child(t->set, t->since, t->compares);
	}
	int rc = pid < 0 ? forge_fail_errno(err, errno, "look at guarded files") : 0;
	close(in[0]);
	close(out[1]);
	*ret = (struct forge_guard_child){ .pid = pid > 0 ? pid : 0,
					   .in = in[1],
					   .out = out[0] };
	if (rc < 0)
		forge_guard_child_end(ret);
	return rc;
}

void forge_guard_child_end(struct forge_guard_child *c)
{
	if (c->in >= 0)
		close(c->in);
	if (c->out >= 0)
		close(c->out);
	if (c->pid > 0) {
		forge_auto_close int pidfd = sys_pidfd_open(c->pid, 0);
		struct pollfd p = { .fd = pidfd, .events = POLLIN };
		(void)kill(c->pid, SIGKILL); /* it has answered, or it hangs */
		if (pidfd >= 0)
			(void)poll(&p, 1, REAP_MSEC);
		(void)waitpid(c->pid, NULL, WNOHANG);
	}
	*c = FORGE_GUARD_CHILD_INIT;
}

/* One line of JSON. */
static int receive(const struct forge_guard_child *c, int stop_fd, uint64_t wait_usec,
		   json_t **ret, struct forge_error *err)
{
	forge_auto_free char *text = NULL;
	size_t len = 0;
	uint64_t deadline = forge_now_usec() + wait_usec;

	while (len == 0 || text[len - 1] != '\n') {
		struct pollfd p[] = { { .fd = c->out, .events = POLLIN },
				      { .fd = stop_fd, .events = POLLIN } };
		uint64_t now = forge_now_usec();
		if (now >= deadline)
			return forge_fail(err, ETIMEDOUT,
					  "guarded files: the disk does not answer");
		if (poll(p, 2, (int)((deadline - now) / 1000) + 1) < 0 && errno != EINTR)
			return forge_fail_errno(err, errno, "look at guarded files");
		if (p[1].revents)
			return forge_fail(err, ECANCELED, "cancelled");
		if (!p[0].revents)
			continue;
		char *grown = len < ANSWER_MAX ? realloc(text, len + 65536) : NULL;
		if (!grown)
			return forge_fail(err, ENOMEM, "out of memory");
		text = grown;
		ssize_t n = read(c->out, text + len, 65536);
		if (n <= 0)
			return forge_fail(
				err, EIO,
				"the process that looks at guarded files ended");
		len += (size_t)n;
	}
	forge_auto_json json_t *j = json_loadb(text, len, 0, NULL);
	const char *error = forge_json_string(j, "error");
	if (!j || error)
		return forge_fail(err, EIO, "%s", error ? error : "no answer");
	*ret = forge_take_ptr(j);
	return 0;
}

int forge_guard_child_snapshot(const struct forge_guard_set *set, int stop_fd,
			       struct forge_guard_child *ret, struct forge_error *err)
{
	struct forge_guard_child c = FORGE_GUARD_CHILD_INIT;
	json_t *answer = NULL;
	int rc = spawn(&(struct task){ .set = set, .compares = true }, &c, err);

	if (rc == 0)
		rc = receive(&c, stop_fd, FORGE_GUARD_WAIT_USEC, &answer, err);
	json_decref(answer);
	if (rc < 0)
		forge_guard_child_end(&c);
	else
		*ret = c;
	return rc;
}

int forge_guard_child_compare(struct forge_guard_child *c, int stop_fd, json_t **ret,
			      struct forge_error *err)
{
	if (forge_write_all(c->in, "g", 1) < 0)
		return forge_fail(err, EIO,
				  "the process that looks at guarded files is gone");
	return receive(c, stop_fd, FORGE_GUARD_WAIT_USEC, ret, err);
}

int forge_guard_child_since(const struct forge_guard_set *set,
			    const struct timespec *since, int stop_fd, uint64_t wait_usec,
			    json_t **ret, struct forge_error *err)
{
	struct forge_guard_child c = FORGE_GUARD_CHILD_INIT;
	int rc = spawn(&(struct task){ .set = set, .since = since }, &c, err);

	if (rc == 0)
		rc = receive(&c, stop_fd, wait_usec, ret, err);
	forge_guard_child_end(&c);
	return rc;
}

/* The types of file systems that may wait for a server, or for a disk that is mounted on demand. */
static bool is_distant(const char *type)
{
	static const char *const known[] = { "nfs",  "nfs4",   "cifs",	   "smb3",
					     "ceph", "lustre", "9p",	   "afs",
					     "gpfs", "beegfs", "virtiofs", "autofs" };

	if (strcmp(type, "fuse") == 0 || strncmp(type, "fuse.", 5) == 0)
		return true;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(known); i++)
		if (strcmp(type, known[i]) == 0)
			return true;
	return false;
}

/* Links may lead to any of them, and to follow links is to ask the server: so it matters only whether there is one. */
static bool has_distant_mounts(void)
{
	forge_auto_file FILE *mounts = fopen("/proc/self/mountinfo", "re");
	forge_auto_free char *line = NULL;
	size_t cap = 0;

	while (mounts && getline(&line, &cap, mounts) > 0) {
		const char *rest = strstr(line, " - ");
		char type[64];
		if (rest && sscanf(rest + 3, "%63s", type) == 1 && is_distant(type))
			return true;
	}
	return !mounts;
}

int forge_guard_child_reach(const struct forge_health_config *h,
			    const struct forge_guard_own *own, int stop_fd,
			    struct forge_error *err)
{
	struct forge_guard_child c = FORGE_GUARD_CHILD_INIT;
	struct forge_error why = FORGE_ERROR_INIT;
	forge_auto_json json_t *answer = NULL;
	bool has_files = false;

	for (size_t i = 0; i < h->n_checks && !has_files; i++)
		has_files = strcmp(h->checks[i].kind, "files") == 0;
	if (!has_files || h->mode == FORGE_GUARD_OFF || !has_distant_mounts())
		return 0;
	int rc = spawn(&(struct task){ .config = h, .own = own }, &c, err);
	if (rc < 0)
		return rc;
	rc = receive(&c, stop_fd, REACH_USEC, &answer, &why);
	forge_guard_child_end(&c);
	if (rc == -ETIMEDOUT)
		return forge_fail(err, EHOSTDOWN,
				  "guarded files: their file server does not answer");
	if (rc < 0 && err)
		*err = why;
	return rc;
}
