/* SPDX-License-Identifier: Apache-2.0 */
/* Inside: the last steps of the command's own process, from fork to execve. */
#include "sandbox/child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"
#include "filter.h"
#include "sandbox/seccomp_policy.h"

#ifndef ENOTSUPP
/* Internal to the kernel: no memory is left for compiled BPF programs. */
#define ENOTSUPP 524
#endif

size_t forge_filter_length(void)
{
	return sizeof(forge_filter) / sizeof(forge_filter[0]);
}

#define REFUSE(error) (SECCOMP_RET_ERRNO | (uint32_t)(error))

/* Chooses the seccomp actions that depend on the run; see enum forge_filter_slot. */
static void choose_answers(const struct forge_plan *p, bool is_counted,
			   uint32_t answer[FORGE_SLOT_COUNT])
{
	bool is_open = !p->own_network;

	answer[FORGE_SLOT_STREAM] =
		is_counted ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ALLOW;
	/* A run with a limit gets no datagram sockets where the supervisor cannot count them. */
	answer[FORGE_SLOT_DATAGRAM] = is_counted ? SECCOMP_RET_USER_NOTIF
				      : is_open || p->limits.sockets == FORGE_UNLIMITED
					      ? SECCOMP_RET_ALLOW
					      : REFUSE(EPROTONOSUPPORT);
	answer[FORGE_SLOT_CONNECT] =
		is_counted ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ALLOW;
	answer[FORGE_SLOT_NETWORK_SOCKET] =
		is_open ? SECCOMP_RET_ALLOW : REFUSE(EPROTONOSUPPORT);
	answer[FORGE_SLOT_NETWORK_OPTION] =
		is_open ? SECCOMP_RET_ALLOW : REFUSE(ENOPROTOOPT);
	answer[FORGE_SLOT_IGNORED_OPTION] = is_open ? SECCOMP_RET_ALLOW : REFUSE(0);
	answer[FORGE_SLOT_ALLOCATE] =
		p->may_allocate ? SECCOMP_RET_ALLOW : REFUSE(EOPNOTSUPP);
}

static void set_answers(const uint32_t answer[FORGE_SLOT_COUNT])
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(forge_filter_marks); i++)
		forge_filter[forge_filter_marks[i].at].k =
			answer[forge_filter_marks[i].slot];
}

/*
 * Errors that go away when other processes free memory for BPF programs, which the whole host
 * shares.
 */
static bool is_shortage(int error)
{
	return error == ENOTSUPP || error == ENOMEM || error == EAGAIN;
}

/* Returns the listener's descriptor, 0 without a listener, or -1. */
static int load_filter(unsigned flags)
{
	struct sock_fprog prog = {
		.len = (unsigned short)forge_filter_length(),
		.filter = forge_filter,
	};
	const struct timespec pause = { .tv_nsec = 20000000 };
	long rc = -1;

	for (int tries = 0; tries < 100; tries++) {
		rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
		if (rc >= 0 || !is_shortage(errno))
			break;
		(void)nanosleep(&pause, NULL);
	}
	return (int)rc;
}

/* For places where a seccomp filter around forge refuses seccomp(2). */
static int load_by_prctl(void)
{
	struct sock_fprog prog = {
		.len = (unsigned short)forge_filter_length(),
		.filter = forge_filter,
	};

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0);
}

/* The supervisor, which is outside, decides about sockets. */
static int send_listener(int control, int listener)
{
	char what = FORGE_CTL_LISTENER, room[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { .iov_base = &what, .iov_len = 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = sizeof(room) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &listener, sizeof(int));
	return sendmsg(control, &m, MSG_NOSIGNAL) == 1 ? 0 : -1;
}

/*
 * The supervisor gets the listener in any case: with it, the supervisor decides when the kernel
 * frees the program (socket_count.h).
 */
static void install_filter(const struct forge_child *c)
{
	bool is_counted =
		c->plan->own_network && c->plan->limits.sockets != FORGE_UNLIMITED;
	uint32_t answer[FORGE_SLOT_COUNT];

	choose_answers(c->plan, is_counted, answer);
	set_answers(answer);
	int listener = load_filter(SECCOMP_FILTER_FLAG_NEW_LISTENER);
	if (listener >= 0 && send_listener(c->control, listener) == 0)
		return;
	/*
	 * EBUSY: a container manager around us has a listener already, and there can be only
	 * one. Other errors mean that a filter refuses the call or that the kernel does not
	 * know it.
	 */
	if (listener >= 0 || is_shortage(errno))
		forge_child_die(c->report, FORGE_STAGE_SECCOMP, "filter");
	choose_answers(c->plan, false, answer);
	set_answers(answer);
	if (load_filter(0) < 0 && (is_shortage(errno) || load_by_prctl() < 0))
		forge_child_die(c->report, FORGE_STAGE_SECCOMP, "filter");
}

static void connect_stdio(const struct forge_child *c)
{
	for (int i = 0; i < 3; i++)
		if (dup2(c->stdio[i], i) < 0)
			forge_child_die(c->report, FORGE_STAGE_STDIO, "dup2");
	/* All other descriptors, the report pipe too, close at execve. */
	if (sys_close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		forge_child_die(c->report, FORGE_STAGE_STDIO, "close_range");
}

static void reset_signals(void)
{
	/*
	 * The kernel's own struct: libc's sigaction() would leave out the two signals that libc
	 * uses itself.
	 */
	const struct {
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		uint64_t mask;
	} dfl = { .handler = SIG_DFL };
	sigset_t none;

	for (int s = 1; s <= 64; s++)
		(void)syscall(SYS_rt_sigaction, s, &dfl, NULL,
			      sizeof(dfl.mask)); /* not KILL, STOP */
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/*
 * The workdir must be the directory that the plan saw: a cwd outside the root would be an
 * escape.
 */
static void enter_workdir(const struct forge_child *c)
{
	struct stat here;

	if (chdir(c->plan->workdir) < 0 || stat(".", &here) < 0)
		forge_child_die(c->report, FORGE_STAGE_CHDIR, c->plan->workdir);
	for (size_t i = 0; i < c->plan->n_mounts; i++) {
		const struct forge_mount *m = &c->plan->mounts[i];
		if (m->type == FORGE_MOUNT_RW &&
		    (m->dev != here.st_dev || m->ino != here.st_ino)) {
			errno = ESTALE;
			forge_child_die(c->report, FORGE_STAGE_CHDIR, c->plan->workdir);
		}
	}
}

_Noreturn void forge_child_exec(const struct forge_child *c)
{
	const struct forge_plan *p = c->plan;
	const char *tried = p->argv.v[0];
	int error = ENOENT;

	(void)setsid(); /* cannot fail in a fresh child */
	(void)prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
	enter_workdir(c);
	connect_stdio(c);
	if (p->landlock_abi > 0)
		forge_child_landlock(p, c->report);
	forge_child_limit_files(c);
	reset_signals();
	install_filter(c);
	for (size_t i = 0; i < p->exec_paths.n; i++) {
		execve(p->exec_paths.v[i], p->argv.v, p->env.v);
		/*
		 * As execvp does: try the next path, but remember the error of a file that
		 * exists.
		 */
		if (errno == ENOENT || errno == ENOTDIR)
			continue;
		tried = p->exec_paths.v[i];
		error = errno;
		if (errno != EACCES)
			break;
	}
	errno = error;
	forge_child_die(c->report, FORGE_STAGE_EXEC, tried);
}
