/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many sockets a run may have in its own network at the same time.
 *
 * No cgroup is charged for all that a socket over IP, or one of netlink, can keep in the kernel
 * (error queues, unfinished datagrams, answers that nobody reads; on v1 also the least that each
 * stream may queue). What one can keep is bounded, so their number is what has to be. The filter
 * stops the calls that make one, socket() and connect(), and hands them to the supervisor (SECCOMP_RET_USER_NOTIF), which
 * lets them go on, or not, by the kernel's own count for the network namespace. The arguments are
 * numbers in registers, so nothing can change between the look and the call.
 *
 * Sockets that are counted by the time of the next question are those whose call has ended: as
 * many more as the run has processes can come to be.
 *
 * The listener also keeps the filter's BPF program alive. Kernels have hung for good when some
 * thousand programs were freed at one moment, so runs that end together give theirs back one after
 * the other.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct forge_socket_count {
	int listener; /* readable when a call waits, -1: none */
	bool is_over; /* nobody is left who could ask */
	int sockstat; /* of the run's network namespace, -1: not open */
	pid_t init;
	uint64_t max; /* of all; datagrams and netlink stop at a quarter of it */
	uint64_t refused;
};
#define FORGE_SOCKET_COUNT_INIT                                                          \
	((struct forge_socket_count){ .listener = -1, .sockstat = -1 })

/* Takes the listener; init is any process in the namespace. */
void forge_socket_count_open(struct forge_socket_count *c, int listener, pid_t init,
			     uint64_t max);
/* The listener is readable, or everybody who could ask is gone: then there is no more to serve. */
void forge_socket_count_serve(struct forge_socket_count *c, short revents);
/* In turn with others by a lock in the directory turns (-1: at once); takes up to 3 s in a crowd. */
void forge_socket_count_close(struct forge_socket_count *c, int turns);
