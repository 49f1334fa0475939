/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system call policy as tables. A small program of the build turns them into one BPF
 * program with libseccomp, so that nothing is compiled when a run starts; docs/SECURITY.md
 * names the same lists for people.
 *
 * Calls: a call that is not in `allowed` fails, with EPERM when it is in `refused` and with
 * ENOSYS when it is in neither, so that calls of newer kernels are closed until a developer has
 * reviewed them. A call of another ABI kills the process. Arguments: allowed calls that are
 * refused for some values.
 */
#pragma once

#include <stdint.h>

struct forge_syscall_name {
	const char *name;
	int number; /* for calls younger than libseccomp: the number, same on every ABI; else 0 */
};

/*
 * Answers that are decided at the start of a run. The program has a mark in their place, which
 * child_exec.c replaces by an action; a mark that stays would refuse (ENOSYS).
 */
enum forge_filter_slot {
	FORGE_SLOT_STREAM,	   /* a socket for streams over IP */
	FORGE_SLOT_DATAGRAM,	   /* a socket for datagrams over IP, or netlink */
	FORGE_SLOT_UNIX,	   /* a UNIX socket that can turn to others */
	FORGE_SLOT_CONNECT,	   /* connecting: the other side gets a socket too */
	FORGE_SLOT_NETWORK_SOCKET, /* other sockets that make sense with a network only */
	FORGE_SLOT_NETWORK_OPTION, /* the same for socket options */
	/* Options that, without a network, succeed and change nothing. */
	FORGE_SLOT_IGNORED_OPTION,
	FORGE_SLOT_ALLOCATE, /* taking blocks of a disk without writing them */
	FORGE_SLOT_COUNT,
};
#define FORGE_SLOT_MARK(slot) (0x7ff00000u | (0x100u + (unsigned)(slot))) /* RET_TRACE */

struct forge_syscall_arg {
	const char *name;
	unsigned arg;
	uint64_t mask; /* compared: (value & mask) == match */
	uint64_t match;
	int error; /* negative: -1 - enum forge_filter_slot */
	/* Both must match where mask2 is not 0: */
	unsigned arg2;
	uint64_t mask2, match2;
};

/*
 * Calls of which only the listed arguments are allowed. The arguments are of type int: the kernel
 * looks at the low half of each register, and so does the program.
 */
#define FORGE_ANY	   (-1)
#define FORGE_ALLOW	   0		     /* the answer of a row is this, */
#define FORGE_DECIDE(slot) (1 + (int)(slot)) /* or what the start of the run decides */

struct forge_call_row {
	int value[3]; /* of the arguments; FORGE_ANY ends the comparison */
	int answer;
};

struct forge_call_list {
	const char *name; /* of the call */
	unsigned n_args, first_arg;
	uint32_t mask[3]; /* of each argument, 0: all of it */
	int otherwise[3]; /* errno where that argument is not listed; 0: last_answer */
	int last_answer;  /* instead of an errno, for the last argument */
	const struct forge_call_row
		*rows; /* equal values stand together; ends with answer -1 */
};
extern const struct forge_call_list forge_call_lists[]; /* ends with name NULL */

extern const struct forge_syscall_name forge_syscalls_allowed[]; /* ends with name NULL */
extern const struct forge_syscall_name forge_syscalls_refused[];
extern const struct forge_syscall_arg forge_syscalls_args[];
