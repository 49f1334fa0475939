/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system call policy as tables. A small program of the build turns them into one BPF
 * program with libseccomp, so that nothing is compiled when a run starts; docs/SECURITY.md
 * names the same lists for people.
 *
 * Calls: a call that is not in `allowed` fails, with EPERM when it is in
 * `refused` and with ENOSYS when it is unknown, so that a newer kernel's calls are closed
 * until somebody here has looked at them. Another ABI's call kills the process.
 * Arguments: allowed calls that are refused for some values.
 */
#pragma once

#include <stdint.h>

struct forge_syscall_name {
	const char *name;
	int number; /* for calls younger than libseccomp: the number, same on every ABI; else 0 */
};

struct forge_syscall_arg {
	const char *name;
	unsigned arg;
	uint64_t mask; /* compared: (value & mask) == match */
	uint64_t match;
	int error;
	/* And at the same time, where mask2 is not 0: */
	unsigned arg2;
	uint64_t mask2, match2;
};

extern const struct forge_syscall_name forge_syscalls_allowed[]; /* ends with name NULL */
extern const struct forge_syscall_name forge_syscalls_refused[];
extern const struct forge_syscall_arg forge_syscalls_args[];
/* socket(2) families that exist inside; all others answer EAFNOSUPPORT. Ends with -1. */
extern const int forge_socket_families[];
