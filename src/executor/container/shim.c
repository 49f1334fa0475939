/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forge-shim: process 1 of a container. It starts the command as the supervisor says, reaps, passes signals
 * on, and reports how the command ended. It then waits until the supervisor has read the counters of the
 * container's cgroup, which are gone when the container ends. It enforces nothing but the last moment:
 * limits, logs and verdicts are the supervisor's. Static, so that it runs in every image.
 */
#include "executor/container/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "sandbox/child.h"
#include "sandbox/landlock.h"

/* How often a connection to a new supervisor is tried. */
#define RETRY_MSEC 200
/* How long an ended command waits for a new supervisor; then the exit status has to do. */
#define ORPHAN_USEC 600000000ull

extern char **environ;

struct shim {
	int control; /* -1: no supervisor */
	int signals;
	int filter; /* the command sends the listener of its filter here; -1: it has done so, or has none */
	int listener; /* every supervisor gets it: it decides about sockets; -1: none */
	int fds[FORGE_SHIM_FDS];
	char **argv;
	pid_t command; /* 0: not started */
	bool own_network, has_ended;
	uint64_t sockets, file_bytes;
	uint64_t last_moment, orphaned_at;
	struct forge_ctl_exit end;
};

static void connect_supervisor(struct shim *s)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX, .sun_path = FORGE_SHIM_SOCKET };
	/* A supervisor that is stopped must not stop the reaping and the last moment. */
	const struct timeval soon = { .tv_sec = 10 };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	const struct forge_shim_ready ready = { .landlock_abi = s->end.landlock_abi };

	if (fd >= 0) {
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
		(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon));
	}
	if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 &&
	    send(fd, &ready, sizeof(ready), MSG_NOSIGNAL) == (ssize_t)sizeof(ready))
		s->control = fd;
	else if (fd >= 0)
		close(fd);
}

static int receive_hello(int control, struct forge_shim_hello *ret,
			 int fds[FORGE_SHIM_FDS])
{
	char room[CMSG_SPACE(sizeof(int) * FORGE_SHIM_FDS)];
	struct iovec iov = { .iov_base = ret, .iov_len = sizeof(*ret) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = sizeof(room) };
	ssize_t n;

	do
		n = recvmsg(control, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	const struct cmsghdr *c = n == (ssize_t)sizeof(*ret) ? CMSG_FIRSTHDR(&m) : NULL;
	if (!c || ret->what != FORGE_SHIM_START || c->cmsg_type != SCM_RIGHTS ||
	    c->cmsg_len != CMSG_LEN(sizeof(int) * FORGE_SHIM_FDS))
		return -EPROTO;
	memcpy(fds, CMSG_DATA(c), sizeof(int) * FORGE_SHIM_FDS);
	return 0;
}

_Noreturn static void die(int report, const char *what, int error)
{
	(void)signal(SIGPIPE,
		     SIG_IGN); /* the supervisor that reads reports may be dead */
	errno = error;
	forge_child_die(report, FORGE_STAGE_EXEC, what);
}

/*
 * The engine has its own mechanisms; these are added. Landlock is left out where the engine's filter refuses
 * it: the record says so.
 */
static void confine(const struct shim *s, int filter)
{
	static const char *const devices[] = {
		"/dev/null",   "/dev/zero",    "/dev/full",
		"/dev/random", "/dev/urandom", "/dev/tty"
	};
	/* At this value the kernel writes no core, and starts no handler of the host for one. */
	const struct rlimit no_core = { 1, 1 }, signals = { 4096, 4096 };
	const struct rlimit file = { s->file_bytes, s->file_bytes };
	int report = s->fds[FORGE_SHIM_REPORT];

	if (setrlimit(RLIMIT_CORE, &no_core) < 0)
		forge_child_die(report, FORGE_STAGE_RLIMIT, "core");
	if (setrlimit(RLIMIT_FSIZE, &file) < 0)
		forge_child_die(report, FORGE_STAGE_RLIMIT, "file size");
	(void)setrlimit(RLIMIT_SIGPENDING,
			&signals); /* a lower one of the engine's will do */
	if (s->end.landlock_abi > 0) {
		int rules = forge_child_landlock_begin(s->end.landlock_abi, report);
		forge_child_landlock_allow(rules, s->end.landlock_abi, ".", false,
					   report);
		forge_child_landlock_allow(rules, s->end.landlock_abi, "/tmp", false,
					   report);
		forge_child_landlock_allow(rules, s->end.landlock_abi, "/dev/shm", false,
					   report);
		for (size_t i = 0; i < FORGE_ARRAY_SIZE(devices); i++)
			forge_child_landlock_allow(rules, s->end.landlock_abi, devices[i],
						   true, report);
		forge_child_landlock_end(rules, report);
	}
	forge_child_filter(&(struct forge_child_filter){ .own_network = s->own_network,
							 .sockets = s->sockets,
							 .control = filter,
							 .report = report });
}

/* As execvp(3), but a file that is no program is an error and not a script. */
_Noreturn static void execute(char **argv, int report)
{
	const char *path = getenv("PATH"), *tried = argv[0];
	int error = ENOENT;

	if (strchr(argv[0], '/')) {
		execve(argv[0], argv, environ);
		die(report, argv[0], errno);
	}
	for (const char *p = path ? path : "/usr/local/bin:/usr/bin:/bin"; *p;) {
		static char file[PATH_MAX];
		size_t len = strcspn(p, ":");
		int n = snprintf(file, sizeof(file), "%.*s/%s", (int)len, p, argv[0]);
		p += len + (p[len] == ':');
		if (n >= (int)sizeof(file))
			continue;
		execve(file, argv, environ);
		if (errno == ENOENT || errno == ENOTDIR)
			continue;
		tried = file;
		error = errno;
		if (errno != EACCES)
			break;
	}
	die(report, tried, error);
}

_Noreturn static void be_command(struct shim *s, int filter)
{
	sigset_t none;

	sigemptyset(&none);
	(void)setsid(); /* cannot fail in a new child */
	for (int i = 0; i < 3; i++)
		if (dup2(s->fds[i], i) < 0)
			die(s->fds[FORGE_SHIM_REPORT], "dup2", errno);
	confine(s, filter);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	execute(s->argv, s->fds[FORGE_SHIM_REPORT]); /* all others are close-on-exec */
}

static void start_command(struct shim *s)
{
	int filter[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, filter) < 0)
		die(s->fds[FORGE_SHIM_REPORT], "socketpair", errno);
	s->command = fork();
	if (s->command < 0)
		die(s->fds[FORGE_SHIM_REPORT], s->argv[0], errno);
	if (s->command == 0)
		be_command(s, filter[1]);
	close(filter[1]);
	s->filter = filter[0];
	for (int i = 0; i < FORGE_SHIM_KEEP_OUT; i++)
		close(s->fds[i]);
}

/* One descriptor with a message of one byte; -1: there is none. */
static int receive_listener(int from)
{
	char what, room[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { .iov_base = &what, .iov_len = 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = sizeof(room) };
	ssize_t n = recvmsg(from, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	const struct cmsghdr *c = n == 1 ? CMSG_FIRSTHDR(&m) : NULL;
	int fd = -1;

	if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(c), sizeof(int));
	return fd;
}

static void hand_over_listener(const struct shim *s)
{
	if (s->listener >= 0 && s->control >= 0)
		(void)!forge_child_send_listener(
			s->control, s->listener); /* or the next one gets it */
}

static void serve_filter(struct shim *s)
{
	s->listener = receive_listener(s->filter);
	close(s->filter);
	s->filter = -1;
	hand_over_listener(s);
}

/* Everything that the command left is killed before its end is reported: then nothing runs any more. */
static void end_rest(struct shim *s)
{
	(void)kill(-1, SIGKILL); /* not us; ESRCH: there is none */
	while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR)
		;
	s->end.is_alone = 1;
}

static void report_end(struct shim *s)
{
	struct rusage u = { 0 };

	(void)getrusage(RUSAGE_CHILDREN, &u); /* a valid argument */
	s->end.blocks_in = (uint64_t)u.ru_inblock;
	s->end.blocks_out = (uint64_t)u.ru_oublock;
	if (s->control >= 0)
		(void)send(s->control, &s->end, sizeof(s->end),
			   MSG_NOSIGNAL); /* gone: the next supervisor gets it */
}

static void reap(struct shim *s)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0)
		if (pid == s->command) {
			s->end.status = status;
			s->has_ended = true;
		}
	if (!s->has_ended)
		return;
	end_rest(s);
	forge_child_count_tmp(&s->end);
	if (s->end.status && s->own_network)
		s->end.network_tries = forge_child_count_network_tries();
	report_end(s);
}

/* The status in which the engine sees the command end. */
_Noreturn static void leave(const struct shim *s)
{
	_exit(!s->has_ended		 ? 125
	      : WIFEXITED(s->end.status) ? WEXITSTATUS(s->end.status)
					 : 128 + WTERMSIG(s->end.status));
}

static void lose_supervisor(struct shim *s)
{
	close(s->control);
	s->control = -1;
	s->orphaned_at = forge_now_usec();
}

static void serve_control(struct shim *s)
{
	unsigned char msg[8];
	ssize_t n = recv(s->control, msg, sizeof(msg), MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		lose_supervisor(s);
	else if (n == 2 && msg[0] == FORGE_CTL_SIGNAL)
		(void)kill(-1, msg[1]); /* ESRCH: there is nothing to signal */
	else if (n == 1 && msg[0] == FORGE_SHIM_LEAVE)
		leave(s);
}

/* A supervisor that attaches cannot know how far the one before it got: both say the same. */
static void find_supervisor(struct shim *s)
{
	struct forge_shim_hello hello;
	int fds[FORGE_SHIM_FDS];

	connect_supervisor(s);
	if (s->control < 0)
		return;
	if (receive_hello(s->control, &hello, fds) < 0) {
		close(s->control);
		s->control = -1;
		return;
	}
	if (!s->command) {
		s->own_network = hello.own_network;
		s->sockets = hello.sockets;
		s->file_bytes = hello.file_bytes;
		if (hello.most_usec != UINT64_MAX)
			s->last_moment = forge_now_usec() + hello.most_usec;
		memcpy(s->fds, fds, sizeof(fds));
		start_command(s);
		return;
	}
	for (int i = 0; i < FORGE_SHIM_FDS; i++)
		close(fds[i]);
	hand_over_listener(s);
	if (s->has_ended)
		report_end(s);
}

_Noreturn static void serve(struct shim *s)
{
	for (;;) {
		struct pollfd fds[] = { { .fd = s->signals, .events = POLLIN },
					{ .fd = s->control, .events = POLLIN },
					{ .fd = s->filter, .events = POLLIN } };
		uint64_t now = forge_now_usec();

		/* Without a supervisor a command is never started. */
		if (!s->command && now - s->orphaned_at > ORPHAN_USEC)
			leave(s);
		if (now >= s->last_moment && !s->has_ended) {
			s->end.is_shim = FORGE_SHIM_LATE;
			(void)kill(-1, SIGKILL);
		}
		if (s->control < 0 && s->has_ended && now - s->orphaned_at > ORPHAN_USEC)
			leave(s);
		if (s->control < 0)
			find_supervisor(s);
		fds[1].fd = s->control;
		fds[2].fd = s->filter;
		uint64_t left = s->last_moment > now ? s->last_moment - now : 1000000;
		int msec = s->control < 0	  ? RETRY_MSEC
			   : left > 3600000000ull ? 3600000
						  : (int)(left / 1000) + 1;
		if (poll(fds, 3, msec) < 0 && errno != EINTR)
			leave(s);
		if (fds[0].revents) {
			struct signalfd_siginfo si;
			(void)!read(s->signals, &si,
				    sizeof(si)); /* its arrival matters */
			if (!s->has_ended)
				reap(s);
		}
		if (s->filter >= 0 && fds[2].revents)
			serve_filter(s);
		if (s->control >= 0 && fds[1].revents)
			serve_control(s);
	}
}

int main(int argc, char **argv)
{
	struct shim s = {
		.control = -1, .filter = -1, .listener = -1, .last_moment = UINT64_MAX
	};
	sigset_t all, chld;

	if (argc < 2 || getpid() != 1) {
		fputs("forge-shim is process 1 of the containers that forge starts.\n",
		      stderr);
		return 2;
	}
	/* Other processes of the container must not read or change this one. */
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	s.signals = signalfd(-1, &chld, SFD_CLOEXEC);
	if (s.signals < 0)
		return 125;
	s.argv = argv + 1;
	s.end.is_shim = 1;
	s.end.landlock_abi = forge_landlock_abi();
	s.orphaned_at = forge_now_usec();
	serve(&s);
}
