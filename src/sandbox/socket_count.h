/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits how many sockets a run may have in its own network at the same time.
 *
 * No cgroup is charged for everything that an IP or netlink socket can keep in the kernel
 * (error queues, unfinished datagrams, answers that are not read; on v1 also the least that
 * each stream may queue). What one socket can keep is bounded, so the number of sockets must be
 * bounded too. The filter stops the calls that make one, socket() and connect(), and hands them
 * to the supervisor (SECCOMP_RET_USER_NOTIF). The supervisor allows or refuses them by the
 * kernel's own count for the network namespace. The arguments are numbers in registers, so
 * nothing can change between the check and the call.
 *
 * A socket is counted only once its call has ended. So a run can get as many sockets more as it
 * has processes.
 *
 * With the network of the host nothing is limited. There the supervisor only notes, where it matters, that a run made
 * a socket at all, over IP or of UNIX: a run that made none has not talked to any other program. Pairs of
 * sockets that talk to each other only are not noted. In its own network, UNIX sockets are noted in the same way: they may
 * lead to a program that listens in an input.
 *
 * The listener also keeps the filter's BPF program alive. Kernels have hung for good when some
 * thousand programs were freed at one moment, so runs that end together release theirs one
 * after the other.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct forge_socket_count {
	int listener; /* readable when a call waits, -1: none */
	bool is_over; /* no process is left that could make a call */
	int sockstat; /* of the run's network namespace, -1: not open */
	pid_t init;
	uint64_t max; /* of all; datagrams and netlink stop at a quarter of it */
	uint64_t refused;
	bool notes_only; /* nothing is limited */
	uint64_t noted;	 /* ... calls that made a socket, but for netlink */
	/* Those of UNIX, in both cases, if the filter hands them over. */
	uint64_t noted_unix;
};
#define FORGE_SOCKET_COUNT_INIT                                                          \
	((struct forge_socket_count){ .listener = -1, .sockstat = -1 })

/* Takes the listener; init is any process in the namespace. */
void forge_socket_count_open(struct forge_socket_count *c, int listener, pid_t init,
			     uint64_t max);
/* The same for a run with the network of the host. */
void forge_socket_count_note(struct forge_socket_count *c, int listener, pid_t init);
/* Called when the listener is readable, or when no process is left that could make a call. */
void forge_socket_count_serve(struct forge_socket_count *c, short revents);
/*
 * Waits for its turn with other runs by a lock in the directory turns (-1: does not wait);
 * takes up to 3 s when many runs end together.
 */
void forge_socket_count_close(struct forge_socket_count *c, int turns);
