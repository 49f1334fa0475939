/* SPDX-License-Identifier: Apache-2.0 */
/* Inside: the seccomp filter of the command, in a sandbox and in a container. */
#include "sandbox/child.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

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
static void choose_answers(const struct forge_child_filter *p, bool has_listener,
			   uint32_t answer[FORGE_SLOT_COUNT])
{
	bool is_open = !p->own_network;
	bool is_counted = has_listener &&
			  (is_open ? p->notes_sockets : p->sockets != FORGE_UNLIMITED);

	answer[FORGE_SLOT_STREAM] =
		is_counted ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ALLOW;
	/* A run with a limit gets no datagram sockets where the supervisor cannot count them. */
	answer[FORGE_SLOT_DATAGRAM] = is_counted ? SECCOMP_RET_USER_NOTIF
				      : is_open || p->sockets == FORGE_UNLIMITED
					      ? SECCOMP_RET_ALLOW
					      : REFUSE(EPROTONOSUPPORT);
	/* They are charged to the run; they may lead to programs that listen in one of its inputs. */
	answer[FORGE_SLOT_UNIX] = has_listener && p->notes_sockets
					  ? SECCOMP_RET_USER_NOTIF
					  : SECCOMP_RET_ALLOW;
	answer[FORGE_SLOT_CONNECT] =
		is_counted && !is_open ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ALLOW;
	answer[FORGE_SLOT_NETWORK_SOCKET] = !is_open	 ? REFUSE(EPROTONOSUPPORT)
					    : is_counted ? SECCOMP_RET_USER_NOTIF
							 : SECCOMP_RET_ALLOW;
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
int forge_child_send_listener(int control, int listener)
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
void forge_child_filter(const struct forge_child_filter *c)
{
	uint32_t answer[FORGE_SLOT_COUNT];

	choose_answers(c, true, answer);
	set_answers(answer);
	int listener = load_filter(SECCOMP_FILTER_FLAG_NEW_LISTENER);
	if (listener >= 0 && forge_child_send_listener(c->control, listener) == 0)
		return;
	/*
	 * EBUSY: a container manager around us has a listener already, and there can be only
	 * one. Other errors mean that a filter refuses the call or that the kernel does not
	 * know it.
	 */
	if (listener >= 0 || is_shortage(errno))
		forge_child_die(c->report, FORGE_STAGE_SECCOMP, "filter");
	choose_answers(c, false, answer);
	set_answers(answer);
	if (load_filter(0) < 0 && (is_shortage(errno) || load_by_prctl() < 0))
		forge_child_die(c->report, FORGE_STAGE_SECCOMP, "filter");
}
