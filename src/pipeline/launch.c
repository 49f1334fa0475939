/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher: a small process that forks supervisors. */
#include "pipeline/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/sys.h"
#include "record/courier.h"
#include "spec/saved.h"

/* ---- in the launcher ---- */

/* Reads the length of a line and the descriptors that come with it. False: the head is gone. */
static bool receive_length(int fd, uint32_t *ret_len, int *ret_pipe, int *ret_lock)
{
	union {
		char buf[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control = { .buf = "" };
	struct iovec iov = { .iov_base = ret_len, .iov_len = sizeof(*ret_len) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.buf,
			    .msg_controllen = sizeof(control.buf) };
	ssize_t n;

	do
		n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_WAITALL);
	while (n < 0 && errno == EINTR);
	const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	if (n != sizeof(*ret_len) || !c || c->cmsg_type != SCM_RIGHTS)
		return false;
	memcpy(ret_pipe, CMSG_DATA(c), sizeof(int));
	*ret_lock = -1;
	if (c->cmsg_len == CMSG_LEN(2 * sizeof(int)))
		memcpy(ret_lock, CMSG_DATA(c) + sizeof(int), sizeof(int));
	return true;
}

static bool read_all(int fd, char *buf, size_t len)
{
	while (len > 0) {
		ssize_t n = read(fd, buf, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		buf += n;
		len -= (size_t)n;
	}
	return true;
}

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Of the head's descriptors, the lock of the pipeline among them, only these stay. */
static void close_others(const struct forge_home *home, int fd)
{
	int keep[] = { 2, fd, home->fd, home->runs_fd, home->active_fd };

	qsort(keep, FORGE_ARRAY_SIZE(keep), sizeof(int), by_number);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(keep); i++) {
		unsigned first = (unsigned)keep[i] + 1;
		unsigned last =
			i + 1 < FORGE_ARRAY_SIZE(keep) ? (unsigned)keep[i + 1] - 1 : ~0u;
		if (keep[i] >= 2 && first <= last)
			(void)sys_close_range(first, last, 0);
	}
}

/*
 * A socket to the courier that all runs share, for a run; negative: this one has a courier of its own. It is started with
 * the first run, and again if it was killed.
 */
static int connect_courier(const struct forge_launch_env *env,
			   struct forge_shared_courier *c)
{
	int fd = forge_courier_connect(c);

	if (fd >= 0 || (fd != -ENOTCONN && fd != -EPIPE && fd != -ECONNRESET))
		return fd;
	forge_courier_unshare(c);
	return forge_courier_share(env->store, c) == 0 ? forge_courier_connect(c) : -1;
}

/* Ends with the head: a task that was not begun then is not begun at all. */
_Noreturn static void serve(const struct forge_launch_env *env, int fd)
{
	struct forge_shared_courier courier = FORGE_SHARED_COURIER_INIT;
	uint32_t len;
	int pipe, lock;

	close_others(env->home, fd);
	(void)prctl(PR_SET_NAME, "forge-launcher"); /* for ps(1) */
	(void)signal(SIGCHLD, SIG_IGN); /* the head learns of an end by other means */
	(void)signal(SIGINT, SIG_IGN);	/* of the terminal: the head decides */
	while (receive_length(fd, &len, &pipe, &lock)) {
		char *text = malloc((size_t)len + 1);
		if (!text || !read_all(fd, text, len))
			break;
		int report = lock >= 0 ? connect_courier(env, &courier) : -1;
		pid_t pid = fork();
		if (pid == 0) {
			close(fd);
			forge_courier_unshare(&courier);
			json_t *job = json_loadb(text, len, 0, NULL);
			if (!job)
				_exit(1);
			forge_supervise_task(env, job, pipe, lock, report);
		}
		if (pid < 0) {
			static const char text_of[] = "{\"error\": \"cannot fork\"}\n";
			(void)!forge_write_all(pipe, text_of, sizeof(text_of) - 1);
		}
		free(text);
		close(pipe);
		if (lock >= 0)
			close(lock); /* the supervisor has it */
		if (report >= 0)
			close(report);
	}
	_exit(0);
}

/* ---- in the head ---- */

int forge_launcher_start(const struct forge_launch_env *env, struct forge_launcher *ret,
			 struct forge_error *err)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return forge_fail_errno(err, errno, "socketpair");
	pid_t pid = fork();
	if (pid == 0) {
		close(fds[0]);
		serve(env, fds[1]);
	}
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return forge_fail_errno(err, errno, "fork");
	}
	*ret = (struct forge_launcher){ pid, fds[0] };
	return 0;
}

static json_t *files_json(const struct forge_launch *job)
{
	json_t *a = json_array();

	for (size_t i = 0; i < job->files->n; i++) {
		const struct forge_task_file *f = &job->files->v[i];
		json_t *o = json_pack("{s:i, s:o, s:s}", "input", (int)f->input, "name",
				      forge_json_name(f->name), "sha256", f->digest);
		if (f->path)
			json_object_set_new(o, "path", forge_json_name(f->path));
		json_array_append_new(a, o);
	}
	return a;
}

static char *job_text(const struct forge_launch *job)
{
	json_t *o =
		json_pack("{s:i, s:s, s:o, s:O, s:o, s:i, s:s?, s:s?, s:O?}", "task",
			  (int)job->task, "key", job->key, "files", files_json(job),
			  "step", job->step, "limits", forge_saved_limits(&job->limits),
			  "attempt", (int)job->attempt, "previous", job->previous,
			  "kept_run", job->kept_run, "checkpoint", job->checkpoint);
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

	json_decref(o);
	return text;
}

static int send_job(int fd, const char *text, int pipe, int lock)
{
	uint32_t len = (uint32_t)strlen(text);
	const int fds[2] = { pipe, lock };
	size_t size = (lock >= 0 ? 2 : 1) * sizeof(int);
	union {
		char buf[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control = { .buf = "" };
	struct iovec iov = { .iov_base = &len, .iov_len = sizeof(len) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.buf,
			    .msg_controllen = CMSG_SPACE(size) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	ssize_t n;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(size);
	memcpy(CMSG_DATA(c), fds, size);
	do
		n = sendmsg(fd, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n != sizeof(len))
		return n < 0 ? -errno : -EIO;
	for (size_t at = 0; at < len;) {
		n = send(fd, text + at, len - at, MSG_NOSIGNAL);
		if (n < 0 && errno != EINTR)
			return -errno;
		at += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

int forge_launcher_run(struct forge_launcher *l, const struct forge_launch *job,
		       int *ret_fd, struct forge_error *err)
{
	forge_auto_free char *text = job_text(job);
	int fds[2];

	if (!text)
		return forge_fail(err, ENOMEM, "out of memory");
	if (pipe2(fds, O_CLOEXEC) < 0)
		return forge_fail_errno(err, errno, "pipe");
	int rc = send_job(l->fd, text, fds[1], job->lock_fd);
	close(fds[1]);
	if (rc < 0) {
		close(fds[0]);
		return forge_fail_errno(err, -rc, "the launcher does not answer");
	}
	*ret_fd = fds[0];
	return 0;
}

void forge_launcher_stop(struct forge_launcher *l)
{
	if (l->fd < 0)
		return;
	close(l->fd); /* it ends by itself */
	while (waitpid(l->pid, NULL, 0) < 0 && errno == EINTR)
		;
	*l = FORGE_LAUNCHER_INIT;
}
