/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks by system call number. Every call has arguments that the kernel itself would refuse
 * (EFAULT, EINVAL, EBADF ...), so that it does nothing where nothing stops it. This also tells
 * "reached the kernel" from "refused": only EPERM and ENOSYS are refusals.
 */
#include "probe.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BAD 8 /* a pointer that is never mapped */
#define NO  -1L

static const struct call {
	const char *name;
	long number;
	long args[6];
	bool is_inside_only; /* the call has no invalid arguments */
} calls[] = {
	{ "mount", SYS_mount, { BAD, BAD, BAD, 0, 0 }, false },
	{ "umount2", SYS_umount2, { BAD, 0 }, false },
	{ "pivot_root", SYS_pivot_root, { BAD, BAD }, false },
	{ "chroot", SYS_chroot, { BAD }, false },
	{ "setns", SYS_setns, { NO, 0 }, false },
	{ "open_tree", 428, { NO, BAD, 0 }, false },
	{ "move_mount", 429, { NO, BAD, NO, BAD, 0 }, false },
	{ "fsopen", 430, { BAD, 0 }, false },
	{ "fsconfig", 431, { NO, 0, BAD, BAD, 0 }, false },
	{ "fsmount", 432, { NO, 0, 0 }, false },
	{ "fspick", 433, { NO, BAD, 0 }, false },
	{ "mount_setattr", 442, { NO, BAD, 0, BAD, 32 }, false },
	{ "statmount", 457, { BAD, BAD, 0, 0 }, false },
	{ "listmount", 458, { BAD, BAD, 0, 0 }, false },
	{ "name_to_handle_at", SYS_name_to_handle_at, { NO, BAD, BAD, BAD, 0 }, false },
	{ "open_by_handle_at", SYS_open_by_handle_at, { NO, BAD, 0 }, false },
	{ "quotactl", SYS_quotactl, { NO, BAD, 0, BAD }, false },
	{ "quotactl_fd", 443, { NO, NO, 0, BAD }, false },
	{ "acct", SYS_acct, { BAD }, false },
	{ "swapon", SYS_swapon, { BAD, 0 }, false },
	{ "swapoff", SYS_swapoff, { BAD }, false },
	{ "fanotify_init", SYS_fanotify_init, { NO, NO }, false },
	{ "fanotify_mark", SYS_fanotify_mark, { NO, 0, 0, NO, BAD }, false },
	{ "bpf", SYS_bpf, { NO, BAD, 8 }, false },
	{ "perf_event_open", SYS_perf_event_open, { BAD, 0, NO, NO, 0 }, false },
	{ "userfaultfd", SYS_userfaultfd, { NO }, false },
	{ "init_module", SYS_init_module, { BAD, 1, BAD }, false },
	{ "finit_module", SYS_finit_module, { NO, BAD, 0 }, false },
	{ "delete_module", SYS_delete_module, { BAD, 0 }, false },
	{ "kexec_load", SYS_kexec_load, { 0, 17, BAD, NO }, false },
	{ "kexec_file_load", SYS_kexec_file_load, { NO, NO, 0, 0, NO }, false },
	{ "reboot", SYS_reboot, { 0, 0, 0, 0 }, false },
	{ "syslog", SYS_syslog, { 99, BAD, 1 }, false },
	{ "add_key", SYS_add_key, { BAD, BAD, BAD, 1, 0 }, false },
	{ "request_key", SYS_request_key, { BAD, BAD, BAD, 0 }, false },
	{ "keyctl", SYS_keyctl, { 0, -3L, 0, 0, 0 }, false },
	{ "settimeofday", SYS_settimeofday, { BAD, 0 }, false },
	{ "clock_settime", SYS_clock_settime, { 0, BAD }, false },
	{ "adjtimex", SYS_adjtimex, { BAD }, false },
	{ "clock_adjtime", SYS_clock_adjtime, { 0, BAD }, false },
	{ "sethostname", SYS_sethostname, { BAD, 1 }, false },
	{ "setdomainname", SYS_setdomainname, { BAD, 1 }, false },
	{ "process_vm_readv", SYS_process_vm_readv, { 1, BAD, 1, BAD, 1, 0 }, false },
	{ "process_vm_writev", SYS_process_vm_writev, { 1, BAD, 1, BAD, 1, 0 }, false },
	{ "process_madvise", 440, { NO, BAD, 1, 0, 0 }, false },
	{ "process_mrelease", 448, { NO, 0 }, false },
	{ "pidfd_getfd", 438, { NO, 0, 0 }, false },
	{ "kcmp", SYS_kcmp, { 1, 1, 99, 0, 0 }, false },
	{ "clone3", 435, { BAD, 64 }, false },
	{ "io_uring_setup", 425, { 1, BAD }, false },
	{ "io_uring_enter", 426, { NO, 0, 0, 0, 0, 0 }, false },
	{ "io_uring_register", 427, { NO, 0, BAD, 0 }, false },
	{ "memfd_secret", 447, { NO }, false },
	{ "personality no-random", SYS_personality, { 0x0040000 }, false },
	{ "personality read-exec", SYS_personality, { 0x0400000 }, false },
	{ "vhangup", SYS_vhangup, { 0 }, true },
#ifdef __x86_64__
	{ "iopl", SYS_iopl, { 4 }, false },
	{ "ioperm", SYS_ioperm, { 1L << 20, 1, 1 }, false },
	{ "modify_ldt", SYS_modify_ldt, { 1, BAD, 16 }, false },
	{ "uselib", SYS_uselib, { BAD }, false },
	{ "lookup_dcookie", SYS_lookup_dcookie, { 0, BAD, 1 }, false },
#endif
};

static int try_call(const struct call *c)
{
	errno = 0;
	long rc = syscall(c->number, c->args[0], c->args[1], c->args[2], c->args[3], c->args[4],
			  c->args[5]);
	return rc >= 0 ? 0 : errno;
}

/* The errno of a child, 0 when the call worked, or minus the signal that killed it. */
static int in_child(int (*attempt)(const struct call *), const struct call *c)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(attempt(c) & 0xff);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -SIGCHLD;
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void judge_call(struct tally *t, const char *name, int error)
{
	if (error == EPERM || error == ENOSYS || error == -SIGSYS)
		note_as(t, true, "%s %s", name, error < 0 ? "killed" : error_name(error));
	else if (error < 0)
		note_as(t, false, "%s signal %d", name, -error);
	else
		note_as(t, false, "%s reached the kernel (%s)", name,
			error ? error_name(error) : "and worked");
}

/* [NAME...]: these calls, or all. */
static int syscalls(int argc, char **argv)
{
	struct tally t = { 0 };

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		bool is_wanted = argc == 0;
		for (int a = 0; a < argc; a++)
			is_wanted |= strcmp(argv[a], calls[i].name) == 0;
		if (is_wanted && (is_inside() || !calls[i].is_inside_only))
			judge_call(&t, calls[i].name, in_child(try_call, &calls[i]));
	}
	return judge(&t);
}

/*
 * Numbers that no known kernel uses must be refused. Not 335 and 336, which the kernel never
 * shows to filters: they return from its own breakpoints, or kill.
 */
static int unknown(int argc, char **argv)
{
	static const long numbers[] = { 337, 399, 500, 511, 600, 1000, 0xffff, 0x3fffffff };
	struct tally t = { 0 };

	(void)argc, (void)argv;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		struct call c = { "", numbers[i], { 0 }, false };
		char name[32];
		(void)snprintf(name, sizeof(name), "%ld", numbers[i]);
		judge_call(&t, name, in_child(try_call, &c));
	}
	return judge(&t);
}

#ifdef __x86_64__
/* Makes a call through the 32-bit entry, where the numbers mean other calls. */
static int try_i386(const struct call *c)
{
	long rc;

	__asm__ volatile("int $0x80"
			 : "=a"(rc)
			 : "a"(c->number), "b"(c->args[0]), "c"(c->args[1]), "d"(c->args[2])
			 : "memory", "r8", "r9", "r10", "r11");
	return rc >= 0 ? 0 : (int)-rc;
}

static int i386(int argc, char **argv)
{
	static const struct call tries[] = {
		{ "getpid", 20, { 0 }, false },
		{ "mount", 21, { BAD, BAD, BAD }, false },
		{ "unshare", 310, { 0x10000000 }, false },
		{ "socketcall", 102, { 1, BAD }, false },
	};
	struct tally t = { 0 };

	(void)argc, (void)argv;
	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		int error = in_child(try_i386, &tries[i]);
		/* A kernel without this entry causes a fault. */
		if (error == -SIGSEGV)
			return held("this kernel has no i386 calls");
		judge_call(&t, tries[i].name, error);
	}
	return judge(&t);
}

static int x32(int argc, char **argv)
{
	static const struct call tries[] = {
		{ "getpid", 0x40000000 | 39, { 0 }, false },
		{ "mount", 0x40000000 | 165, { BAD, BAD, BAD }, false },
		{ "unshare", 0x40000000 | 272, { 0x10000000 }, false },
		{ "ptrace", 0x40000000 | 521, { 16, 1 }, false },
	};
	struct tally t = { 0 };

	(void)argc, (void)argv;
	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++)
		judge_call(&t, tries[i].name, in_child(try_call, &tries[i]));
	return judge(&t);
}
#else
static int i386(int argc, char **argv)
{
	(void)argc, (void)argv;
	return skip("this processor has no i386 calls");
}
#define x32 i386
#endif

const struct probe probe_syscall[] = {
	{ "syscalls", "[NAME...]: make calls that are refused", syscalls },
	{ "unknown-calls", "make calls of a future kernel", unknown },
	{ "i386", "make calls through int 0x80", i386 },
	{ "x32", "make calls of the x32 ABI", x32 },
	{ NULL, NULL, NULL },
};
