/* SPDX-License-Identifier: Apache-2.0 */
/* Which system calls a run may make. Grouped by what they are for. */
#include "sandbox/seccomp_policy.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define LOW32 0xffffffffULL
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#ifndef TIOCLINUX
#define TIOCLINUX 0x541C
#endif
#ifndef F_SETLEASE
#define F_SETLEASE 1024
#endif

/* clang-format off: tables */
#define S(n) { #n, 0 }

const struct forge_syscall_name forge_syscalls_allowed[] = {
	/* files and directories */
	S(open), S(openat), S(creat), S(close), S(close_range), S(read), S(write),
	S(readv), S(writev), S(pread64), S(pwrite64), S(preadv), S(pwritev), S(preadv2),
	S(pwritev2), S(lseek), S(_llseek), S(sendfile), S(sendfile64), S(copy_file_range),
	S(splice), S(tee), S(vmsplice), S(stat), S(fstat), S(lstat), S(newfstatat), S(statx),
	S(stat64), S(fstat64), S(lstat64), S(fstatat64), S(statfs), S(fstatfs), S(statfs64),
	S(fstatfs64), S(access), S(faccessat), S(faccessat2), S(chmod), S(fchmod), S(fchmodat),
	S(chown), S(fchown), S(lchown), S(fchownat), S(truncate),
	S(ftruncate), S(fallocate), S(fadvise64), S(readahead), S(fsync), S(fdatasync), S(sync),
	S(syncfs), S(sync_file_range), S(rename), S(renameat), S(renameat2), S(link), S(linkat),
	S(unlink), S(unlinkat), S(symlink), S(symlinkat), S(readlink), S(readlinkat), S(mkdir),
	S(mkdirat), S(rmdir), S(mknod), S(mknodat), S(getdents), S(getdents64), S(getcwd),
	S(chdir), S(fchdir), S(umask), S(utime), S(utimes), S(utimensat), S(futimesat),
	S(setxattr), S(lsetxattr), S(fsetxattr), S(getxattr), S(lgetxattr), S(fgetxattr),
	S(listxattr), S(llistxattr), S(flistxattr), S(removexattr), S(lremovexattr),
	S(fremovexattr), S(flock), S(fcntl), S(ioctl), S(dup), S(dup2), S(dup3), S(pipe),
	S(pipe2), S(inotify_init), S(inotify_init1), S(inotify_add_watch), S(inotify_rm_watch),
	{ "cachestat", 451 },
	/* waiting */
	S(poll), S(ppoll), S(select), S(pselect6), S(epoll_create), S(epoll_create1),
	S(epoll_ctl), S(epoll_wait), S(epoll_pwait), S(epoll_pwait2), S(eventfd), S(eventfd2),
	S(signalfd), S(signalfd4), S(timerfd_create), S(timerfd_settime), S(timerfd_gettime),
	/* memory */
	S(brk), S(mmap), S(munmap), S(mprotect), S(mremap), S(madvise), S(msync), S(mincore),
	S(mlock), S(mlock2), S(munlock), S(mlockall), S(munlockall), S(memfd_create),
	S(membarrier), S(pkey_alloc), S(pkey_free), S(pkey_mprotect), S(mbind),
	S(get_mempolicy), S(set_mempolicy), S(migrate_pages), S(move_pages),
	{ "set_mempolicy_home_node", 450 }, { "map_shadow_stack", 453 }, { "mseal", 462 },
	S(remap_file_pages),
	/* processes, threads, time, signals */
	S(clone), S(fork), S(vfork), S(execve), S(execveat), S(exit), S(exit_group), S(wait4),
	S(waitid), S(kill), S(tkill), S(tgkill), S(pidfd_open), S(pidfd_send_signal), S(getpid),
	S(getppid), S(gettid), S(getpgid), S(setpgid), S(getpgrp), S(getsid), S(setsid),
	S(getuid), S(geteuid), S(getgid), S(getegid), S(getresuid), S(getresgid), S(getgroups),
	S(setuid), S(setgid), S(setreuid), S(setregid), S(setresuid), S(setresgid), S(setfsuid),
	S(setfsgid), S(setgroups), S(capget), S(capset), S(prctl), S(arch_prctl), S(seccomp),
	S(landlock_create_ruleset), S(landlock_add_rule), S(landlock_restrict_self),
	S(unshare), S(ptrace), S(futex), S(futex_waitv), { "futex_wake", 454 },
	{ "futex_wait", 455 }, { "futex_requeue", 456 }, S(set_robust_list), S(get_robust_list),
	S(set_tid_address), S(rseq), S(sched_yield), S(sched_getaffinity), S(sched_setaffinity),
	S(sched_getparam), S(sched_setparam), S(sched_getscheduler), S(sched_setscheduler),
	S(sched_getattr), S(sched_setattr), S(sched_get_priority_max),
	S(sched_get_priority_min), S(sched_rr_get_interval), S(getpriority), S(setpriority),
	S(ioprio_get), S(ioprio_set), S(getrlimit), S(setrlimit), S(prlimit64), S(getrusage),
	S(times), S(getcpu), S(nanosleep), S(clock_nanosleep), S(clock_gettime),
	S(clock_getres), S(gettimeofday), S(time), S(getitimer), S(setitimer), S(alarm),
	S(timer_create), S(timer_settime), S(timer_gettime), S(timer_getoverrun),
	S(timer_delete), S(pause), S(rt_sigaction), S(rt_sigprocmask), S(rt_sigpending),
	S(rt_sigqueueinfo), S(rt_tgsigqueueinfo), S(rt_sigreturn), S(rt_sigsuspend),
	S(rt_sigtimedwait), S(sigaltstack), S(restart_syscall),
	/* sockets (families: below) and System V and POSIX IPC of the run's own namespace */
	S(socket), S(socketpair), S(bind), S(listen), S(accept), S(accept4), S(connect),
	S(getsockname), S(getpeername), S(getsockopt), S(setsockopt), S(sendto), S(recvfrom),
	S(sendmsg), S(recvmsg), S(sendmmsg), S(recvmmsg), S(shutdown), S(shmget), S(shmat),
	S(shmdt), S(shmctl), S(semget), S(semop), S(semtimedop), S(semctl), S(msgget),
	S(msgsnd), S(msgrcv), S(msgctl), S(mq_open), S(mq_unlink), S(mq_timedsend),
	S(mq_timedreceive), S(mq_notify), S(mq_getsetattr),
	/* facts about the system */
	S(uname), S(sysinfo), S(getrandom), S(readdir), S(ustat), S(sysfs),
	{ NULL, 0 },
};

const struct forge_syscall_name forge_syscalls_refused[] = {
	/* mounts and other people's namespaces */
	S(mount), S(umount), S(umount2), S(pivot_root), S(chroot), S(setns), S(fsopen),
	S(fsconfig), S(fsmount), S(fspick), S(open_tree), S(move_mount), S(mount_setattr),
	{ "statmount", 457 }, { "listmount", 458 },
	/* file handles reach around the view; quotas, accounting, swap, disks */
	S(open_by_handle_at), S(name_to_handle_at), S(quotactl), S(quotactl_fd), S(acct),
	S(swapon), S(swapoff), S(fanotify_init), S(fanotify_mark), S(lookup_dcookie),
	/* the kernel itself */
	S(bpf), S(perf_event_open), S(userfaultfd), S(init_module), S(finit_module),
	S(delete_module), S(kexec_load), S(kexec_file_load), S(reboot), S(syslog), S(iopl),
	S(ioperm), S(modify_ldt), S(nfsservctl), S(_sysctl), S(vhangup), S(memfd_secret),
	/* not namespaced */
	S(add_key), S(request_key), S(keyctl), S(settimeofday), S(clock_settime), S(adjtimex),
	S(clock_adjtime), S(stime), S(sethostname), S(setdomainname),
	/* other processes' memory and descriptors */
	S(process_vm_readv), S(process_vm_writev), S(process_madvise), S(process_mrelease),
	S(pidfd_getfd), S(kcmp),
	{ NULL, 0 },
};
/* Neither list: clone3 (its flags are behind a pointer; libc falls back to clone), io_uring_*
 * (a second way to make system calls, libraries fall back), io_setup (its slots are counted for
 * the whole host, one run could take them all), openat2 and fchmodat2 (they could make setuid
 * files unseen, libraries fall back) and everything younger: ENOSYS. */

const struct forge_syscall_arg forge_syscalls_args[] = {
	{ "clone", 0, CLONE_NEWUSER, CLONE_NEWUSER, EPERM, 0, 0, 0 },
	{ "clone", 0, CLONE_NEWNS, CLONE_NEWNS, EPERM, 0, 0, 0 },
	{ "clone", 0, CLONE_NEWPID, CLONE_NEWPID, EPERM, 0, 0, 0 },
	{ "clone", 0, CLONE_NEWNET, CLONE_NEWNET, EPERM, 0, 0, 0 },
	{ "clone", 0, CLONE_NEWIPC, CLONE_NEWIPC, EPERM, 0, 0, 0 },
	{ "clone", 0, CLONE_NEWUTS, CLONE_NEWUTS, EPERM, 0, 0, 0 },
	{ "clone", 0, CLONE_NEWCGROUP, CLONE_NEWCGROUP, EPERM, 0, 0, 0 },
	{ "unshare", 0, CLONE_NEWUSER, CLONE_NEWUSER, EPERM, 0, 0, 0 },
	{ "unshare", 0, CLONE_NEWNS, CLONE_NEWNS, EPERM, 0, 0, 0 },
	{ "unshare", 0, CLONE_NEWPID, CLONE_NEWPID, EPERM, 0, 0, 0 },
	{ "unshare", 0, CLONE_NEWNET, CLONE_NEWNET, EPERM, 0, 0, 0 },
	{ "unshare", 0, CLONE_NEWIPC, CLONE_NEWIPC, EPERM, 0, 0, 0 },
	{ "unshare", 0, CLONE_NEWUTS, CLONE_NEWUTS, EPERM, 0, 0, 0 },
	{ "unshare", 0, CLONE_NEWCGROUP, CLONE_NEWCGROUP, EPERM, 0, 0, 0 },
	{ "unshare", 0, CLONE_NEWTIME, CLONE_NEWTIME, EPERM, 0, 0, 0 },
	/* The kernel looks at the low half of ioctl's command only, so must we. */
	{ "ioctl", 1, LOW32, TIOCSTI, EPERM, 0, 0, 0 },
	{ "ioctl", 1, LOW32, TIOCLINUX, EPERM, 0, 0, 0 },
	{ "ioctl", 1, LOW32, TIOCSCTTY, EPERM, 0, 0, 0 },
	{ "ioctl", 1, LOW32, TIOCCONS, EPERM, 0, 0, 0 },
	/* Debuggers start their child with TRACEME; attaching to others is refused. */
	{ "ptrace", 0, LOW32, PTRACE_ATTACH, EPERM, 0, 0, 0 },
	{ "ptrace", 0, LOW32, PTRACE_SEIZE, EPERM, 0, 0, 0 },
	/* A lease on a shared read-only file would stall other runs. */
	{ "fcntl", 1, LOW32, F_SETLEASE, EPERM, 0, 0, 0 },
	/*
	 * A setuid file in the workdir would be one for everybody on the host who can get
	 * there: nosuid holds only for the sandbox's own view of it.
	 */
	{ "chmod", 1, S_ISUID, S_ISUID, EPERM, 0, 0, 0 },
	{ "chmod", 1, S_ISGID, S_ISGID, EPERM, 0, 0, 0 },
	{ "fchmod", 1, S_ISUID, S_ISUID, EPERM, 0, 0, 0 },
	{ "fchmod", 1, S_ISGID, S_ISGID, EPERM, 0, 0, 0 },
	{ "fchmodat", 2, S_ISUID, S_ISUID, EPERM, 0, 0, 0 },
	{ "fchmodat", 2, S_ISGID, S_ISGID, EPERM, 0, 0, 0 },
	{ "creat", 1, S_ISUID, S_ISUID, EPERM, 0, 0, 0 },
	{ "creat", 1, S_ISGID, S_ISGID, EPERM, 0, 0, 0 },
	{ "mknod", 1, S_ISUID, S_ISUID, EPERM, 0, 0, 0 },
	{ "mknod", 1, S_ISGID, S_ISGID, EPERM, 0, 0, 0 },
	{ "mknodat", 2, S_ISUID, S_ISUID, EPERM, 0, 0, 0 },
	{ "mknodat", 2, S_ISGID, S_ISGID, EPERM, 0, 0, 0 },
	{ "open", 2, S_ISUID, S_ISUID, EPERM, 1, O_CREAT, O_CREAT },
	{ "open", 2, S_ISGID, S_ISGID, EPERM, 1, O_CREAT, O_CREAT },
	{ "open", 2, S_ISUID, S_ISUID, EPERM, 1, O_TMPFILE, O_TMPFILE },
	{ "open", 2, S_ISGID, S_ISGID, EPERM, 1, O_TMPFILE, O_TMPFILE },
	{ "openat", 3, S_ISUID, S_ISUID, EPERM, 2, O_CREAT, O_CREAT },
	{ "openat", 3, S_ISGID, S_ISGID, EPERM, 2, O_CREAT, O_CREAT },
	{ "openat", 3, S_ISUID, S_ISUID, EPERM, 2, O_TMPFILE, O_TMPFILE },
	{ "openat", 3, S_ISGID, S_ISGID, EPERM, 2, O_TMPFILE, O_TMPFILE },
	/* Huge pages are the host's, and no memory limit counts them. */
	{ "mmap", 3, MAP_HUGETLB, MAP_HUGETLB, ENOMEM, 0, 0, 0 },
	{ "memfd_create", 1, MFD_HUGETLB, MFD_HUGETLB, ENOMEM, 0, 0, 0 },
	{ "shmget", 2, SHM_HUGETLB, SHM_HUGETLB, ENOMEM, 0, 0, 0 },
	{ NULL, 0, 0, 0, 0, 0, 0, 0 },
};

const int forge_socket_families[] = { AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, -1 };
