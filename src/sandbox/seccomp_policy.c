/* SPDX-License-Identifier: Apache-2.0 */
/* Which system calls a run may make. Grouped by what they are for. */
#include "sandbox/seccomp_policy.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
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

/* linux/falloc.h has these too, but with a struct on whose size the number depends. */
#define IOC_ALLOCSP    0x4030580aU
#define IOC_RESVSP     0x40305828U
#define IOC_ALLOCSP64  0x40305824U
#define IOC_RESVSP64   0x4030582aU
#define IOC_ZERO_RANGE 0x40305839U

/* clang-format off: tables */
#define S(n)                                                                             \
	{                                                                                \
#n, 0                                                                    \
	}

const struct forge_syscall_name forge_syscalls_allowed[] = {
	/* files and directories */
	S(open),
	S(openat),
	S(creat),
	S(close),
	S(close_range),
	S(read),
	S(write),
	S(readv),
	S(writev),
	S(pread64),
	S(pwrite64),
	S(preadv),
	S(pwritev),
	S(preadv2),
	S(pwritev2),
	S(lseek),
	S(_llseek),
	S(sendfile),
	S(sendfile64),
	S(copy_file_range),
	S(splice),
	S(tee),
	S(vmsplice),
	S(stat),
	S(fstat),
	S(lstat),
	S(newfstatat),
	S(statx),
	S(stat64),
	S(fstat64),
	S(lstat64),
	S(fstatat64),
	S(statfs),
	S(fstatfs),
	S(statfs64),
	S(fstatfs64),
	S(access),
	S(faccessat),
	S(faccessat2),
	S(chmod),
	S(fchmod),
	S(fchmodat),
	S(chown),
	S(fchown),
	S(lchown),
	S(fchownat),
	S(truncate),
	S(ftruncate),
	S(fallocate),
	S(fadvise64),
	S(readahead),
	S(fsync),
	S(fdatasync),
	S(sync),
	S(syncfs),
	S(sync_file_range),
	S(rename),
	S(renameat),
	S(renameat2),
	S(link),
	S(linkat),
	S(unlink),
	S(unlinkat),
	S(symlink),
	S(symlinkat),
	S(readlink),
	S(readlinkat),
	S(mkdir),
	S(mkdirat),
	S(rmdir),
	S(mknod),
	S(mknodat),
	S(getdents),
	S(getdents64),
	S(getcwd),
	S(chdir),
	S(fchdir),
	S(umask),
	S(utime),
	S(utimes),
	S(utimensat),
	S(futimesat),
	S(setxattr),
	S(lsetxattr),
	S(fsetxattr),
	S(getxattr),
	S(lgetxattr),
	S(fgetxattr),
	S(listxattr),
	S(llistxattr),
	S(flistxattr),
	S(removexattr),
	S(lremovexattr),
	S(fremovexattr),
	S(flock),
	S(fcntl),
	S(ioctl),
	S(dup),
	S(dup2),
	S(dup3),
	S(pipe),
	S(pipe2),
	S(inotify_init),
	S(inotify_init1),
	S(inotify_add_watch),
	S(inotify_rm_watch),
	{ "cachestat", 451 },
	/* waiting */
	S(poll),
	S(ppoll),
	S(select),
	S(pselect6),
	S(epoll_create),
	S(epoll_create1),
	S(epoll_ctl),
	S(epoll_wait),
	S(epoll_pwait),
	S(epoll_pwait2),
	S(eventfd),
	S(eventfd2),
	S(signalfd),
	S(signalfd4),
	S(timerfd_create),
	S(timerfd_settime),
	S(timerfd_gettime),
	/* memory */
	S(brk),
	S(mmap),
	S(munmap),
	S(mprotect),
	S(mremap),
	S(madvise),
	S(msync),
	S(mincore),
	S(mlock),
	S(mlock2),
	S(munlock),
	S(mlockall),
	S(munlockall),
	S(memfd_create),
	S(membarrier),
	S(pkey_alloc),
	S(pkey_free),
	S(pkey_mprotect),
	S(get_mempolicy),
	S(set_mempolicy),
	S(migrate_pages),
	S(move_pages),
	{ "map_shadow_stack", 453 },
	{ "mseal", 462 },
	S(remap_file_pages),
	/* processes, threads, time, signals */
	S(clone),
	S(fork),
	S(vfork),
	S(execve),
	S(execveat),
	S(exit),
	S(exit_group),
	S(wait4),
	S(waitid),
	S(kill),
	S(tkill),
	S(tgkill),
	S(pidfd_open),
	S(pidfd_send_signal),
	S(getpid),
	S(getppid),
	S(gettid),
	S(getpgid),
	S(setpgid),
	S(getpgrp),
	S(getsid),
	S(setsid),
	S(getuid),
	S(geteuid),
	S(getgid),
	S(getegid),
	S(getresuid),
	S(getresgid),
	S(getgroups),
	S(setuid),
	S(setgid),
	S(setreuid),
	S(setregid),
	S(setresuid),
	S(setresgid),
	S(setfsuid),
	S(setfsgid),
	S(setgroups),
	S(capget),
	S(capset),
	S(prctl),
	S(arch_prctl),
	S(landlock_create_ruleset),
	S(landlock_restrict_self),
	S(unshare),
	S(ptrace),
	S(futex),
	S(futex_waitv),
	{ "futex_wake", 454 },
	{ "futex_wait", 455 },
	{ "futex_requeue", 456 },
	S(set_robust_list),
	S(get_robust_list),
	S(set_tid_address),
	S(rseq),
	S(sched_yield),
	S(sched_getaffinity),
	S(sched_setaffinity),
	S(sched_getparam),
	S(sched_setparam),
	S(sched_getscheduler),
	S(sched_setscheduler),
	S(sched_getattr),
	S(sched_setattr),
	S(sched_get_priority_max),
	S(sched_get_priority_min),
	S(sched_rr_get_interval),
	S(getpriority),
	S(setpriority),
	S(ioprio_get),
	S(ioprio_set),
	S(getrlimit),
	S(setrlimit),
	S(prlimit64),
	S(getrusage),
	S(times),
	S(getcpu),
	S(nanosleep),
	S(clock_nanosleep),
	S(clock_gettime),
	S(clock_getres),
	S(gettimeofday),
	S(time),
	S(getitimer),
	S(setitimer),
	S(alarm),
	S(timer_create),
	S(timer_settime),
	S(timer_gettime),
	S(timer_getoverrun),
	S(timer_delete),
	S(pause),
	S(rt_sigaction),
	S(rt_sigprocmask),
	S(rt_sigpending),
	S(rt_sigqueueinfo),
	S(rt_tgsigqueueinfo),
	S(rt_sigreturn),
	S(rt_sigsuspend),
	S(rt_sigtimedwait),
	S(sigaltstack),
	S(restart_syscall),
	/* sockets (families: below) and System V and POSIX IPC of the run's own namespace */
	S(socket),
	S(socketpair),
	S(bind),
	S(listen),
	S(accept),
	S(accept4),
	S(connect),
	S(getsockname),
	S(getpeername),
	S(getsockopt),
	S(setsockopt),
	S(sendto),
	S(recvfrom),
	S(sendmsg),
	S(recvmsg),
	S(sendmmsg),
	S(recvmmsg),
	S(shutdown),
	S(shmget),
	S(shmat),
	S(shmdt),
	S(shmctl),
	S(semget),
	S(semop),
	S(semtimedop),
	S(semctl),
	S(msgget),
	S(msgsnd),
	S(msgrcv),
	S(msgctl),
	S(mq_open),
	S(mq_unlink),
	S(mq_timedsend),
	S(mq_timedreceive),
	S(mq_notify),
	S(mq_getsetattr),
	/* facts about the system */
	S(uname),
	S(sysinfo),
	S(getrandom),
	S(readdir),
	S(ustat),
	S(sysfs),
	{ NULL, 0 },
};

const struct forge_syscall_name forge_syscalls_refused[] = {
	/* mounts, and namespaces of other processes */
	S(mount),
	S(umount),
	S(umount2),
	S(pivot_root),
	S(chroot),
	S(setns),
	S(fsopen),
	S(fsconfig),
	S(fsmount),
	S(fspick),
	S(open_tree),
	S(move_mount),
	S(mount_setattr),
	{ "statmount", 457 },
	{ "listmount", 458 },
	/* file handles bypass the view; quotas, accounting, swap, disks */
	S(open_by_handle_at),
	S(name_to_handle_at),
	S(quotactl),
	S(quotactl_fd),
	S(acct),
	S(swapon),
	S(swapoff),
	S(fanotify_init),
	S(fanotify_mark),
	S(lookup_dcookie),
	/* the kernel itself */
	S(bpf),
	S(perf_event_open),
	S(userfaultfd),
	S(init_module),
	S(finit_module),
	S(delete_module),
	S(kexec_load),
	S(kexec_file_load),
	S(reboot),
	S(syslog),
	S(iopl),
	S(ioperm),
	S(modify_ldt),
	S(nfsservctl),
	S(_sysctl),
	S(vhangup),
	S(memfd_secret),
	/* not namespaced */
	S(add_key),
	S(request_key),
	S(keyctl),
	S(settimeofday),
	S(clock_settime),
	S(adjtimex),
	S(clock_adjtime),
	S(stime),
	S(sethostname),
	S(setdomainname),
	/* other processes' memory and descriptors */
	S(process_vm_readv),
	S(process_vm_writev),
	S(process_madvise),
	S(process_mrelease),
	S(pidfd_getfd),
	S(kcmp),
	/*
	 * memory policies for shared pages take memory that no limit counts; libnuma works
	 * without
	 */
	S(mbind),
	{ "set_mempolicy_home_node", 450 },
	{ NULL, 0 },
};
/*
 * In neither list, so ENOSYS: clone3 (its flags are behind a pointer; libc falls back to
 * clone), io_uring_* (a second way to make system calls; libraries fall back), io_setup (its
 * slots are counted for the whole host, and one run could take them all), openat2 and fchmodat2
 * (they could make setuid files unseen; libraries fall back), seccomp (see PR_SET_SECCOMP
 * below), landlock_add_rule (a rule keeps a deleted file's blocks where no limit finds them),
 * and every newer call.
 */

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
	/* The kernel looks only at the low half of ioctl's command, so this must too. */
	{ "ioctl", 1, LOW32, TIOCSTI, EPERM, 0, 0, 0 },
	{ "ioctl", 1, LOW32, TIOCLINUX, EPERM, 0, 0, 0 },
	{ "ioctl", 1, LOW32, TIOCSCTTY, EPERM, 0, 0, 0 },
	{ "ioctl", 1, LOW32, TIOCCONS, EPERM, 0, 0, 0 },
	/*
	 * These work on any socket, and the kernel would load the modules bridge and 8021q for
	 * them.
	 */
	{ "ioctl", 1, LOW32 & ~1ULL, 0x8940 /* SIOCGIFBR */, EINVAL, 0, 0, 0 },
	{ "ioctl", 1, LOW32 & ~1ULL, 0x8982 /* SIOCGIFVLAN */, EINVAL, 0, 0, 0 },
	{ "ioctl", 1, LOW32 & ~3ULL, 0x89a0 /* SIOCBRADDBR */, EINVAL, 0, 0, 0 },
	/* Connections must be made by connect(), which is counted. */
	{ "sendto", 3, MSG_FASTOPEN, MSG_FASTOPEN, EOPNOTSUPP, 0, 0, 0 },
	{ "sendmsg", 2, MSG_FASTOPEN, MSG_FASTOPEN, EOPNOTSUPP, 0, 0, 0 },
	{ "sendmmsg", 3, MSG_FASTOPEN, MSG_FASTOPEN, EOPNOTSUPP, 0, 0, 0 },
	/* Debuggers start their child with TRACEME; attaching to others is refused. */
	{ "ptrace", 0, LOW32, PTRACE_ATTACH, EPERM, 0, 0, 0 },
	{ "ptrace", 0, LOW32, PTRACE_SEIZE, EPERM, 0, 0, 0 },
	/* A lease on a shared read-only file would stall other runs. */
	{ "fcntl", 1, LOW32, F_SETLEASE, EPERM, 0, 0, 0 },
	/*
	 * A setuid file in the workdir would be setuid for every user of the host who can reach
	 * it: nosuid holds only for the sandbox's own view of it.
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
	/*
	 * BPF programs use memory that the whole host shares, and freeing thousands of them at
	 * once has hung kernels. So no process inside can make one: setting a seccomp filter
	 * fails as on a kernel without them; for socket filters see the options below.
	 */
	{ "prctl", 0, LOW32, PR_SET_SECCOMP, EINVAL, 0, 0, 0 },
	/* As the locked securebits of a sandbox answer; a container has none. */
	{ "prctl", 0, LOW32, PR_SET_KEEPCAPS, EPERM, 0, 0, 0 },
	/*
	 * RLIMIT_CORE already has the value at which the kernel writes no core and starts no
	 * handler of the host for one. Changing it is answered with success: gpg and `ulimit -c
	 * 0` only want no core.
	 */
	{ "setrlimit", 0, LOW32, RLIMIT_CORE, 0, 0, 0, 0 },
	/* XFS's own commands for fallocate, which other file systems know too. */
	{ "ioctl", 1, LOW32, IOC_RESVSP, -1 - FORGE_SLOT_ALLOCATE, 0, 0, 0 },
	{ "ioctl", 1, LOW32, IOC_RESVSP64, -1 - FORGE_SLOT_ALLOCATE, 0, 0, 0 },
	{ "ioctl", 1, LOW32, IOC_ALLOCSP, -1 - FORGE_SLOT_ALLOCATE, 0, 0, 0 },
	{ "ioctl", 1, LOW32, IOC_ALLOCSP64, -1 - FORGE_SLOT_ALLOCATE, 0, 0, 0 },
	{ "ioctl", 1, LOW32, IOC_ZERO_RANGE, -1 - FORGE_SLOT_ALLOCATE, 0, 0, 0 },
	/* Huge pages are the host's, and no memory limit counts them. */
	{ "mmap", 3, MAP_HUGETLB, MAP_HUGETLB, ENOMEM, 0, 0, 0 },
	/* EINVAL: Chromium probes for this call with all flags, and handles this error. */
	{ "memfd_create", 1, MFD_HUGETLB, MFD_HUGETLB, EINVAL, 0, 0, 0 },
	{ "shmget", 2, SHM_HUGETLB, SHM_HUGETLB, ENOMEM, 0, 0, 0 },
	{ NULL, 0, 0, 0, 0, 0, 0, 0 },
};

#define NETWORK_SOCKET FORGE_DECIDE(FORGE_SLOT_NETWORK_SOCKET)
#define NETWORK	       FORGE_DECIDE(FORGE_SLOT_NETWORK_OPTION)
#define IGNORED	       FORGE_DECIDE(FORGE_SLOT_IGNORED_OPTION)

/*
 * Protocols are listed, because for any other the kernel would load a module. The memory that a
 * stream or datagram socket can keep is not, or not fully, charged to a cgroup, so these
 * sockets are counted (socket_count.c).
 */
static const struct forge_call_row socket_rows[] = {
	{ { AF_UNIX, FORGE_ANY }, FORGE_DECIDE(FORGE_SLOT_UNIX) },
	{ { AF_INET, SOCK_STREAM, 0 }, FORGE_DECIDE(FORGE_SLOT_STREAM) },
	{ { AF_INET, SOCK_STREAM, IPPROTO_TCP }, FORGE_DECIDE(FORGE_SLOT_STREAM) },
	{ { AF_INET, SOCK_DGRAM, 0 }, FORGE_DECIDE(FORGE_SLOT_DATAGRAM) },
	{ { AF_INET, SOCK_DGRAM, IPPROTO_UDP }, FORGE_DECIDE(FORGE_SLOT_DATAGRAM) },
	{ { AF_INET, SOCK_DGRAM, IPPROTO_ICMP }, NETWORK_SOCKET },
	{ { AF_INET6, SOCK_STREAM, 0 }, FORGE_DECIDE(FORGE_SLOT_STREAM) },
	{ { AF_INET6, SOCK_STREAM, IPPROTO_TCP }, FORGE_DECIDE(FORGE_SLOT_STREAM) },
	{ { AF_INET6, SOCK_DGRAM, 0 }, FORGE_DECIDE(FORGE_SLOT_DATAGRAM) },
	{ { AF_INET6, SOCK_DGRAM, IPPROTO_UDP }, FORGE_DECIDE(FORGE_SLOT_DATAGRAM) },
	{ { AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6 }, NETWORK_SOCKET },
	/* NETLINK_ROUTE (0) is how libc lists interfaces. */
	{ { AF_NETLINK, SOCK_DGRAM, 0 }, FORGE_DECIDE(FORGE_SLOT_DATAGRAM) },
	{ { AF_NETLINK, SOCK_RAW, 0 }, FORGE_DECIDE(FORGE_SLOT_DATAGRAM) },
	{ { 0 }, -1 },
};

/*
 * A connection makes a socket on the other side without a call of socket(). It stays when the
 * connecting socket is used again for the next connection.
 */
static const struct forge_call_row connect_rows[] = {
	{ { FORGE_ANY }, FORGE_DECIDE(FORGE_SLOT_CONNECT) },
	{ { 0 }, -1 },
};

/*
 * Sockets for streams and packets stay with each other. One for datagrams (SOCK_RAW is another name for it) can send to any
 * name, like one of socket().
 */
static const struct forge_call_row socketpair_rows[] = {
	{ { AF_UNIX, SOCK_STREAM }, FORGE_ALLOW },
	{ { AF_UNIX, SOCK_SEQPACKET }, FORGE_ALLOW },
	{ { AF_UNIX, SOCK_DGRAM }, FORGE_DECIDE(FORGE_SLOT_UNIX) },
	{ { AF_UNIX, SOCK_RAW }, FORGE_DECIDE(FORGE_SLOT_UNIX) },
	{ { 0 }, -1 },
};

/*
 * Not listed: filters (SO_ATTACH_*), time stamps and other things that wait in an error queue,
 * keys, modules to load by name (TCP_ULP, TCP_CONGESTION). They fail as on a kernel that has no
 * such option.
 */
static const struct forge_call_row option_rows[] = {
	{ { SOL_SOCKET, SO_REUSEADDR }, FORGE_ALLOW },
	{ { SOL_SOCKET, SO_DONTROUTE }, FORGE_ALLOW },
	{ { SOL_SOCKET, SO_BROADCAST }, FORGE_ALLOW },
	{ { SOL_SOCKET, SO_KEEPALIVE }, FORGE_ALLOW },
	{ { SOL_SOCKET, SO_OOBINLINE }, FORGE_ALLOW },
	{ { SOL_SOCKET, SO_PRIORITY }, FORGE_ALLOW },
	{ { SOL_SOCKET, SO_LINGER }, FORGE_ALLOW },
	{ { SOL_SOCKET, SO_REUSEPORT }, FORGE_ALLOW },
	{ { SOL_SOCKET, SO_PASSCRED }, FORGE_ALLOW },
	{ { SOL_SOCKET, SO_RCVLOWAT }, FORGE_ALLOW },
	{ { SOL_SOCKET, SO_RCVTIMEO_OLD }, FORGE_ALLOW },
	{ { SOL_SOCKET, SO_SNDTIMEO_OLD }, FORGE_ALLOW },
	{ { SOL_SOCKET, SO_RCVTIMEO_NEW }, FORGE_ALLOW },
	{ { SOL_SOCKET, SO_SNDTIMEO_NEW }, FORGE_ALLOW },
	{ { SOL_SOCKET, SO_BINDTODEVICE }, FORGE_ALLOW },
	{ { SOL_SOCKET, SO_PEEK_OFF }, FORGE_ALLOW },
	{ { SOL_SOCKET, 76 /* SO_PASSPIDFD */ }, FORGE_ALLOW },
	{ { SOL_SOCKET, SO_SNDBUF }, IGNORED },
	{ { SOL_SOCKET, SO_RCVBUF }, IGNORED },
	{ { IPPROTO_TCP, TCP_NODELAY }, FORGE_ALLOW },
	{ { IPPROTO_TCP, TCP_CORK }, FORGE_ALLOW },
	{ { IPPROTO_TCP, TCP_KEEPIDLE }, FORGE_ALLOW },
	{ { IPPROTO_TCP, TCP_KEEPINTVL }, FORGE_ALLOW },
	{ { IPPROTO_TCP, TCP_KEEPCNT }, FORGE_ALLOW },
	{ { IPPROTO_TCP, TCP_SYNCNT }, FORGE_ALLOW },
	{ { IPPROTO_TCP, TCP_LINGER2 }, FORGE_ALLOW },
	{ { IPPROTO_TCP, TCP_DEFER_ACCEPT }, FORGE_ALLOW },
	{ { IPPROTO_TCP, TCP_QUICKACK }, FORGE_ALLOW },
	{ { IPPROTO_TCP, TCP_USER_TIMEOUT }, FORGE_ALLOW },
	{ { IPPROTO_TCP, TCP_NOTSENT_LOWAT }, FORGE_ALLOW },
	{ { IPPROTO_TCP, TCP_INQ }, FORGE_ALLOW },
	{ { IPPROTO_TCP, TCP_FASTOPEN_CONNECT }, NETWORK },
	{ { IPPROTO_IP, IP_TOS }, FORGE_ALLOW },
	{ { IPPROTO_IP, IP_TTL }, FORGE_ALLOW },
	{ { IPPROTO_IP, IP_MTU_DISCOVER }, FORGE_ALLOW },
	{ { IPPROTO_IP, IP_FREEBIND }, FORGE_ALLOW },
	{ { IPPROTO_IP, IP_PKTINFO }, FORGE_ALLOW },
	{ { IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT }, FORGE_ALLOW },
	{ { IPPROTO_IP, 51 /* IP_LOCAL_PORT_RANGE */ }, FORGE_ALLOW },
	/* libc's resolver fails if this option does, but works as well without an error queue */
	{ { IPPROTO_IP, IP_RECVERR }, IGNORED },
	{ { IPPROTO_IP, IP_RECVTTL }, NETWORK },
	{ { IPPROTO_IP, IP_RECVTOS }, NETWORK },
	{ { IPPROTO_IP, IP_MULTICAST_IF }, NETWORK },
	{ { IPPROTO_IP, IP_MULTICAST_TTL }, NETWORK },
	{ { IPPROTO_IP, IP_MULTICAST_LOOP }, NETWORK },
	{ { IPPROTO_IP, IP_ADD_MEMBERSHIP }, NETWORK },
	{ { IPPROTO_IP, IP_DROP_MEMBERSHIP }, NETWORK },
	{ { IPPROTO_IPV6, IPV6_V6ONLY }, FORGE_ALLOW },
	{ { IPPROTO_IPV6, IPV6_UNICAST_HOPS }, FORGE_ALLOW },
	{ { IPPROTO_IPV6, IPV6_MTU_DISCOVER }, FORGE_ALLOW },
	{ { IPPROTO_IPV6, IPV6_TCLASS }, FORGE_ALLOW },
	{ { IPPROTO_IPV6, IPV6_RECVPKTINFO }, FORGE_ALLOW },
	{ { IPPROTO_IPV6, IPV6_RECVERR }, IGNORED },
	{ { IPPROTO_IPV6, IPV6_RECVHOPLIMIT }, NETWORK },
	{ { IPPROTO_IPV6, IPV6_RECVTCLASS }, NETWORK },
	{ { IPPROTO_IPV6, IPV6_MULTICAST_IF }, NETWORK },
	{ { IPPROTO_IPV6, IPV6_MULTICAST_HOPS }, NETWORK },
	{ { IPPROTO_IPV6, IPV6_MULTICAST_LOOP }, NETWORK },
	{ { IPPROTO_IPV6, IPV6_JOIN_GROUP }, NETWORK },
	{ { IPPROTO_IPV6, IPV6_LEAVE_GROUP }, NETWORK },
	{ { IPPROTO_UDP, 103 /* UDP_SEGMENT */ }, NETWORK },
	{ { IPPROTO_UDP, 104 /* UDP_GRO */ }, NETWORK },
	{ { SOL_NETLINK, 3 /* NETLINK_PKTINFO */ }, FORGE_ALLOW },
	{ { SOL_NETLINK, 10 /* NETLINK_CAP_ACK */ }, FORGE_ALLOW },
	{ { SOL_NETLINK, 11 /* NETLINK_EXT_ACK */ }, FORGE_ALLOW },
	{ { SOL_NETLINK, 12 /* NETLINK_GET_STRICT_CHK */ }, FORGE_ALLOW },
	{ { SOL_NETLINK, 1 /* NETLINK_ADD_MEMBERSHIP */ }, NETWORK },
	{ { 0 }, -1 },
};

/* Freeing blocks is always fine. */
static const struct forge_call_row fallocate_rows[] = {
	{ { FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE }, FORGE_ALLOW },
	{ { 0 }, -1 },
};

const struct forge_call_list forge_call_lists[] = {
	{ .name = "socket",
	  .n_args = 3,
	  .mask = { 0, 0xf /* the rest are flags */, 0 },
	  .otherwise = { EAFNOSUPPORT, EPROTONOSUPPORT, EPROTONOSUPPORT },
	  .rows = socket_rows },
	{ .name = "socketpair",
	  .n_args = 2,
	  .mask = { 0, 0xf },
	  .otherwise = { EAFNOSUPPORT, ESOCKTNOSUPPORT },
	  .rows = socketpair_rows },
	{ .name = "connect",
	  .n_args = 1,
	  .otherwise = { EAFNOSUPPORT },
	  .rows = connect_rows },
	{ .name = "setsockopt",
	  .n_args = 2,
	  .first_arg = 1,
	  .otherwise = { ENOPROTOOPT, ENOPROTOOPT },
	  .rows = option_rows },
	{ .name = "fallocate",
	  .n_args = 1,
	  .first_arg = 1,
	  .last_answer = FORGE_DECIDE(FORGE_SLOT_ALLOCATE),
	  .rows = fallocate_rows },
	{ .name = NULL },
};
