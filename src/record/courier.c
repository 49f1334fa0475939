/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's side of the courier's socket. */
#include "record/courier.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "record/courier_wire.h"

void forge_courier_start(struct forge_courier *c)
{
	int fds[2];

	if (c->fd >= 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return;
	pid_t pid = fork();
	if (pid == 0) {
		close(fds[0]);
		forge_courier_serve(fds[1], false, c->url);
	}
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return;
	}
	c->pid = pid;
	c->fd = fds[0];
	(void)fcntl(c->fd, F_SETFL, O_NONBLOCK);
}

/* Waits until fd is ready for events. False: not before the deadline. */
static bool ready_by(int fd, short events, uint64_t deadline)
{
	for (;;) {
		uint64_t now = forge_now_usec();
		struct pollfd p = { .fd = fd, .events = events };
		struct timespec ts = { .tv_sec = 0 };
		if (deadline > now) {
			ts.tv_sec = (time_t)((deadline - now) / 1000000);
			ts.tv_nsec = (long)((deadline - now) % 1000000) * 1000;
		}
		int n = ppoll(&p, 1, &ts, NULL);
		if (n > 0)
			return true;
		if (n == 0 || errno != EINTR)
			return false;
	}
}

static void note_failure(struct forge_courier *c, int code, const char *what)
{
	if (!c->error.code)
		(void)forge_fail_errno(&c->error, code, "%s", what);
}

/* Of a shared courier only the socket is closed: it works for others, and stores what it has received. */
void forge_courier_stop(struct forge_courier *c)
{
	if (c->fd >= 0)
		close(c->fd);
	if (c->pid > 0) {
		/*
		 * After its last reply the courier may still tidy the store; there is no
		 * need to wait for that.
		 */
		if (c->in_flight)
			(void)kill(c->pid, SIGKILL); /* transactions are atomic */
		while (waitpid(c->pid, NULL, c->in_flight ? 0 : WNOHANG) < 0 &&
		       errno == EINTR)
			;
	}
	c->fd = -1;
	c->pid = 0;
	c->in_flight = 0;
}

static int take_reply(struct forge_courier *c, uint64_t deadline)
{
	struct forge_courier_reply r;
	size_t have = 0;

	while (have < sizeof(r)) {
		if (!ready_by(c->fd, POLLIN, deadline))
			return -ETIMEDOUT;
		ssize_t n = read(c->fd, (char *)&r + have, sizeof(r) - have);
		if (n == 0)
			return -EPIPE;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		have += n > 0 ? (size_t)n : 0;
	}
	c->in_flight--;
	if (r.rc < 0 && !c->error.code) {
		c->error = r.error;
		memcpy(c->other_run, r.other_run, sizeof(c->other_run));
		c->is_same = r.is_same;
	}
	return 0;
}

static int write_by(int fd, const void *data, size_t len, uint64_t deadline)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN && !ready_by(fd, POLLOUT, deadline))
			return -ETIMEDOUT;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n > 0) {
			p += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

/* Reads the replies that have arrived. True: the courier has exited, as when idle. */
static bool is_gone(struct forge_courier *c)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };

	while (poll(&p, 1, 0) > 0) {
		if (!c->in_flight)
			return true;
		int rc = take_reply(c, forge_now_usec() + 1000000);
		if (rc < 0) {
			note_failure(c, -rc, "the store's courier");
			return true;
		}
	}
	return false;
}

static int write_batch(const struct forge_courier *c,
		       const struct forge_courier_header *h, const char *text,
		       uint64_t deadline)
{
	int rc = c->fd >= 0 ? write_by(c->fd, h, sizeof(*h), deadline) : -EAGAIN;

	return rc < 0 ? rc : write_by(c->fd, text, h->len, deadline);
}

void forge_courier_send(struct forge_courier *c, const json_t *batch, bool durable,
			bool is_last, uint64_t timeout_usec)
{
	forge_auto_free char *text =
		json_dumps(batch, JSON_COMPACT); /* post-process needs all digits */
	uint64_t deadline = forge_now_usec() + timeout_usec;

	if (c->fd >= 0 && is_gone(c))
		forge_courier_stop(c);
	if (!text)
		note_failure(c, ENOMEM, "report to the store");
	if (c->error.code)
		return; /* after a failure the whole run is reported again later */
	struct forge_courier_header h = { (uint32_t)strlen(text), durable, is_last };
	forge_courier_start(c);
	int rc = write_batch(c, &h, text, deadline);
	if (rc == -EPIPE && !c->in_flight) {
		forge_courier_stop(c); /* it has just exited */
		forge_courier_start(c);
		rc = write_batch(c, &h, text, deadline);
	}
	c->in_flight++;
	if (rc < 0) {
		note_failure(c, -rc, "report to the store");
		forge_courier_stop(c); /* it may have received half of the batch */
	}
}

int forge_courier_wait(struct forge_courier *c, uint64_t timeout_usec,
		       struct forge_error *err)
{
	uint64_t deadline = forge_now_usec() + timeout_usec;
	int rc = 0;

	while (c->in_flight && rc == 0)
		rc = take_reply(c, deadline);
	if (rc < 0)
		note_failure(c, -rc,
			     rc == -ETIMEDOUT ? "the store does not answer"
					      : "the store's courier");
	if (!c->error.code)
		return 0;
	forge_courier_stop(c);
	if (err)
		*err = c->error;
	return -c->error.code;
}

/* ---- a courier for many runs ---- */

int forge_courier_share(const char *url, struct forge_shared_courier *ret)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	pid_t pid = fork();
	if (pid == 0) {
		close(fds[0]);
		forge_courier_serve(fds[1], true, url);
	}
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return -errno;
	}
	*ret = (struct forge_shared_courier){ pid, fds[0] };
	return 0;
}

int forge_courier_connect(struct forge_shared_courier *s)
{
	int fds[2];
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { .buf = "" };
	char byte = 0;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.buf,
			    .msg_controllen = sizeof(control.buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	if (s->fd < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return s->fd < 0 ? -ENOTCONN : -errno;
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fds[1], sizeof(int));
	/* Never waits for a courier that a slow store keeps busy: then the run starts one of its own. */
	int rc = sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? 0 : -errno;
	close(fds[1]);
	if (rc < 0)
		close(fds[0]);
	else
		(void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
	return rc < 0 ? rc : fds[0];
}

void forge_courier_unshare(struct forge_shared_courier *s)
{
	if (s->fd >= 0)
		close(s->fd);
	*s = FORGE_SHARED_COURIER_INIT;
}
