/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside: process 1 of the new pid namespace. It builds the sandbox, starts the command, and
 * then only reaps processes and passes signals on. When the command ends, or when the
 * supervisor is gone (the control socket hangs up), init exits, and the kernel kills all
 * processes that are left in the namespace.
 */
#include "sandbox/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sys.h"
#include "sandbox/netns.h"

/* Blocks until the supervisor sends the expected message; exits when the supervisor is gone. */
static void wait_for(const struct forge_child *c, char expected)
{
	char msg[8];
	ssize_t n;

	do
		n = recv(c->control, msg, sizeof(msg), 0);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		_exit(125);
	if (msg[0] != expected) {
		errno = EPROTO;
		forge_child_die(c->report, FORGE_STAGE_SYNC, "control socket");
	}
}

/* Called before the ids change: some kernels check the ids of the writer, not of the opener. */
static void enter_cgroups(const struct forge_child *c)
{
	for (const int *fd = c->cgroups; *fd >= 0; fd++)
		if (write(*fd, "0", 1) != 1)
			forge_child_die(c->report, FORGE_STAGE_CGROUP, "tasks");
}

static void bring_up_loopback(int report)
{
	int rc = forge_netns_loopback();

	if (rc == 0)
		return;
	errno = -rc;
	forge_child_die(report, FORGE_STAGE_LOOPBACK, "lo");
}

/* Reaps all ended children. Returns true, with *ret filled, once the command itself has ended. */
static bool reap(pid_t command, struct forge_ctl_exit *ret)
{
	bool is_done = false;
	int status;
	pid_t pid;

	/* __WALL: also children that were cloned with another exit signal than SIGCHLD. */
	while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
		/*
		 * A child that called PTRACE_TRACEME made init its tracer, which it did not
		 * want: detach.
		 */
		if (WIFSTOPPED(status)) {
			int sig = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
			(void)ptrace(PTRACE_DETACH, pid, NULL, (void *)(intptr_t)sig);
		} else if (pid == command) {
			ret->status = status;
			is_done = true;
		}
	}
	/* Orphans in this namespace become children of init, so without children init is alone. */
	ret->is_alone = pid < 0 && errno == ECHILD;
	return is_done;
}

static void report_end(int control, struct forge_ctl_exit *msg)
{
	struct rusage u = { 0 };

	(void)getrusage(RUSAGE_CHILDREN, &u); /* a valid argument */
	msg->blocks_in = (uint64_t)u.ru_inblock;
	msg->blocks_out = (uint64_t)u.ru_oublock;
	/* A supervisor that is gone needs no answer. */
	(void)send(control, msg, sizeof(*msg), MSG_NOSIGNAL);
}

static void serve_control(int control)
{
	unsigned char msg[8];
	ssize_t n = recv(control, msg, sizeof(msg), MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		_exit(125); /* the supervisor is gone; everything ends with us */
	if (n == 2 && msg[0] == FORGE_CTL_SIGNAL)
		(void)kill(-1, msg[1]); /* ESRCH: no process is left */
}

/*
 * When init ends the run by itself: 2 s after the end of the grace period. The supervisor kills
 * in time, unless it was itself stopped (SIGSTOP).
 */
static uint64_t last_moment(const struct forge_limits *l)
{
	const uint64_t slack = 2000000;
	uint64_t now = forge_now_usec();

	if (l->wall_usec == FORGE_UNLIMITED || l->wall_usec > UINT64_MAX / 4)
		return UINT64_MAX;
	return now + l->wall_usec + l->grace_usec + slack;
}

static int msec_until(uint64_t at)
{
	uint64_t now = forge_now_usec();

	if (at == UINT64_MAX)
		return -1;
	if (at <= now)
		_exit(125);
	return at - now > 3600000000ULL ? 3600000 : (int)((at - now) / 1000) + 1;
}

_Noreturn static void serve(const struct forge_child *c, pid_t command, int sigfd)
{
	uint64_t at = last_moment(&c->plan->limits);
	struct pollfd fds[] = {
		{ .fd = sigfd, .events = POLLIN },
		{ .fd = c->control, .events = POLLIN },
	};

	for (;;) {
		if (poll(fds, 2, msec_until(at)) < 0 && errno != EINTR)
			_exit(125);
		if (fds[0].revents) {
			struct signalfd_siginfo si;
			struct forge_ctl_exit msg = { 0 };

			(void)!read(sigfd, &si,
				    sizeof(si)); /* only its arrival matters */
			if (reap(command, &msg)) {
				forge_child_count_tmp(&msg);
				if (msg.status && c->plan->own_network)
					msg.network_tries =
						forge_child_count_network_tries();
				report_end(c->control, &msg);
				_exit(0);
			}
		}
		if (fds[1].revents)
			serve_control(c->control);
	}
}

static bool has_message(int control)
{
	char msg;

	return recv(control, &msg, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/*
 * A run that is first in the queue waits here for its share of the host, possibly for hours.
 * The supervisor's locks (its slot, its ticket) must be free the moment it dies, so init keeps
 * only the descriptors that the command needs.
 */
static void close_while_waiting(const struct forge_child *c)
{
	const int keep[] = { c->control, c->report, c->stdio[0], c->stdio[1],
			     c->stdio[2] };
	unsigned from = 3;

	for (;;) {
		unsigned next = ~0u;
		for (size_t i = 0; i < FORGE_ARRAY_SIZE(keep); i++)
			if ((unsigned)keep[i] >= from && (unsigned)keep[i] < next)
				next = (unsigned)keep[i];
		if (next > from)
			(void)sys_close_range(from, next - (next != ~0u),
					      0); /* since 5.9 */
		if (next == ~0u)
			return;
		from = next + 1;
	}
}

/*
 * Keeps control and sigfd and closes all other descriptors, so that the pipes end with the
 * command.
 */
static void close_others(struct forge_child *c, int *sigfd)
{
	/* Descriptors 0 to 2 were open in the supervisor, so neither of these two is below 3. */
	c->control = dup2(c->control, 0);
	*sigfd = dup2(*sigfd, 1);
	(void)sys_close_range(2, ~0U, 0); /* since 5.9 */
}

/*
 * Inotify instances are counted per user, and one run may have a part of them; the host's
 * default is 128.
 */
static void limit_namespace(void)
{
	int fd = open("/proc/sys/user/max_inotify_instances", O_WRONLY | O_CLOEXEC);

	if (fd >= 0) {
		/* Best effort; a kernel without the file has no such limit. */
		(void)!write(fd, "64", 2);
		close(fd);
	}
}

/*
 * Every process inside can read /proc/1/cmdline, which would show forge's own command line with
 * the variables and files that it names. The strings of arguments and environment lie in one
 * block, which ends at the name of the program. Init erases its own copy; the supervisor's is
 * unchanged.
 */
static void hide_command_line(void)
{
	char *start = program_invocation_name;
	char *end =
		(char *)getauxval(AT_EXECFN); /* NOLINT: the kernel passes an address */

	if (start && end > start)
		memset(start, 0, (size_t)(end - start));
	(void)prctl(PR_SET_NAME, "forge-init", 0, 0, 0);
}

_Noreturn void forge_child_main(const struct forge_child *given)
{
	struct forge_child c = *given;
	sigset_t all, chld;

	hide_command_line();
	sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	enter_cgroups(&c);
	wait_for(&c, FORGE_CTL_IDS_READY);
	forge_child_set_ids(&c);
	limit_namespace();
	if (c.needs_loopback)
		bring_up_loopback(c.report);
	if (sethostname("forge", 5) < 0)
		forge_child_die(c.report, FORGE_STAGE_HOSTNAME, "forge");
	forge_child_build_root(&c);
	forge_child_confine(&c);
	if (!has_message(c.control))
		close_while_waiting(&c);
	wait_for(&c, FORGE_CTL_GO);
	int sigfd = signalfd(-1, &chld, SFD_CLOEXEC);
	if (sigfd < 0)
		forge_child_die(c.report, FORGE_STAGE_FORK, "signalfd");
	/*
	 * vfork: init is suspended until the command has called execve or reported a failure,
	 * and no page tables are copied. The child never returns from forge_child_exec().
	 */
	pid_t command = vfork();
	if (command < 0)
		forge_child_die(c.report, FORGE_STAGE_FORK, c.plan->argv.v[0]);
	if (command == 0)
		forge_child_exec(&c);
	close_others(&c, &sigfd);
	serve(&c, command, sigfd);
}
