/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Raw system calls that the oldest glibc we build with (2.31) does not wrap. Each returns
 * what the kernel returns: -1 and errno. All are async-signal-safe.
 */
#pragma once

#include <signal.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Some are newer than the headers we may be built with; the numbers are the same on all ABIs. */
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif
#ifndef MOVE_MOUNT_F_EMPTY_PATH
#define MOVE_MOUNT_F_EMPTY_PATH 0x4
#endif
#ifndef MOVE_MOUNT_T_EMPTY_PATH
#define MOVE_MOUNT_T_EMPTY_PATH 0x40
#endif
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
/* glibc 2.36 has these in sys/mount.h, which clashes with linux/mount.h. */
#ifndef MNT_DETACH
#define MNT_DETACH 2
#endif

/* The first 88 bytes of the kernel's struct clone_args (5.7), under our own name. */
struct forge_clone_args {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	uint64_t set_tid, set_tid_size, cgroup;
};

static inline long sys_clone3(struct forge_clone_args *args)
{
	return syscall(SYS_clone3, args, sizeof(*args));
}

static inline int sys_openat2(int dirfd, const char *path, uint64_t flags, uint64_t mode,
			      uint64_t resolve)
{
	struct open_how how = { .flags = flags, .mode = mode, .resolve = resolve };

	return (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
}

static inline int sys_open_tree(int dirfd, const char *path, unsigned flags)
{
	return (int)syscall(SYS_open_tree, dirfd, path, flags);
}

static inline int sys_move_mount(int from, const char *from_path, int to,
				 const char *to_path, unsigned flags)
{
	return (int)syscall(SYS_move_mount, from, from_path, to, to_path, flags);
}

static inline int sys_fsopen(const char *type, unsigned flags)
{
	return (int)syscall(SYS_fsopen, type, flags);
}

static inline int sys_fsconfig(int fd, unsigned cmd, const char *key, const void *value,
			       int aux)
{
	return (int)syscall(SYS_fsconfig, fd, cmd, key, value, aux);
}

static inline int sys_fsmount(int fd, unsigned flags, unsigned attrs)
{
	return (int)syscall(SYS_fsmount, fd, flags, attrs);
}

static inline int sys_mount_setattr(int dirfd, const char *path, unsigned flags,
				    uint64_t set, uint64_t propagation)
{
	struct mount_attr attr = { .attr_set = set, .propagation = propagation };

	return (int)syscall(SYS_mount_setattr, dirfd, path, flags, &attr, sizeof(attr));
}

static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
	return (int)syscall(SYS_pivot_root, new_root, put_old);
}

static inline int sys_pidfd_open(pid_t pid, unsigned flags)
{
	return (int)syscall(SYS_pidfd_open, pid, flags);
}

/* info: NULL, or the data that sigqueue(3) would send. */
static inline int sys_pidfd_send_signal(int pidfd, int sig, siginfo_t *info)
{
	return (int)syscall(SYS_pidfd_send_signal, pidfd, sig, info, 0);
}

static inline int sys_close_range(unsigned first, unsigned last, unsigned flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}
