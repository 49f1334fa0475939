/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks on other processes, on the caller's terminal and on the end of the run. */
#include "probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef TIOCLINUX
#define TIOCLINUX 0x541C
#endif

extern char **environ;

/* Signal 0 only checks whether a signal could be sent, and does no harm. */
static int kill_all(int argc, char **argv)
{
	struct tally t = { 0 };

	(void)argc, (void)argv;
	note(&t, "kill(-1)", kill(-1, 0));
	note(&t, "kill(1)", kill(1, 0));
	if (is_inside()) {
		note(&t, "SIGKILL to all", kill(-1, SIGKILL));
		note(&t, "SIGKILL to 1", kill(1, SIGKILL));
		note(&t, "SIGSTOP to 1", kill(1, SIGSTOP));
		note(&t, "SIGTERM to 1", kill(1, SIGTERM));
	}
	return judge(&t);
}

/* PID...: processes of the host. */
static int kill_pids(int argc, char **argv)
{
	struct tally t = { 0 };

	for (int i = 0; i < argc; i++) {
		pid_t pid = (pid_t)number_arg(argc, argv, i, 0);
		if (pid <= 0)
			continue;
		note(&t, "kill", kill(pid, 0));
		note(&t, "tgkill", syscall(SYS_tgkill, pid, pid, 0));
		note(&t, "pidfd_open", syscall(434, pid, 0));
		note(&t, "rt_sigqueueinfo", syscall(SYS_rt_sigqueueinfo, pid, 0, NULL));
		note(&t, "getpriority", getpriority(PRIO_PROCESS, (id_t)pid));
	}
	return judge(&t);
}

/* PID: a debugger's ways into another process. */
static int trace(int argc, char **argv)
{
	struct tally t = { 0 };
	pid_t pid = (pid_t)number_arg(argc, argv, 0, 1);
	char byte;
	struct iovec own = { &byte, 1 }, other = { (void *)8, 1 };

	if (!is_inside() && argc == 0)
		return skip("give a process that may be stopped");
	note(&t, "attach", ptrace(PTRACE_ATTACH, pid, NULL, NULL));
	note(&t, "seize", ptrace(PTRACE_SEIZE, pid, NULL, NULL));
	note(&t, "process_vm_readv", process_vm_readv(pid, &own, 1, &other, 1, 0));
	note(&t, "process_vm_writev", process_vm_writev(pid, &own, 1, &other, 1, 0));
	int pidfd = (int)syscall(434, pid, 0);
	if (pidfd >= 0)
		note(&t, "pidfd_getfd", syscall(438, pidfd, 0, 0));
	return judge(&t);
}

static long try_read(const char *path)
{
	char buf[64];
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	ssize_t n = read(fd, buf, sizeof(buf));
	int saved = n == 0 ? ENODATA : errno;
	close(fd);
	errno = saved;
	return n > 0 ? n : -1;
}

/* [PID]: files in /proc about init, which has a copy of the supervisor's memory. */
static int proc1(int argc, char **argv)
{
	static const char *const files[] = { "environ", "maps", "auxv", "stack", "syscall", "io",
					     "smaps", "pagemap" };
	static const char *const links[] = { "root", "cwd", "exe", "ns/mnt", "ns/user" };
	struct tally t = { 0 };
	char path[64], text[PATH_MAX];
	long pid = number_arg(argc, argv, 0, 1);

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		(void)snprintf(path, sizeof(path), "/proc/%ld/%s", pid, files[i]);
		note(&t, files[i], try_read(path));
	}
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		(void)snprintf(path, sizeof(path), "/proc/%ld/%s", pid, links[i]);
		note(&t, links[i], readlink(path, text, sizeof(text)));
	}
	(void)snprintf(path, sizeof(path), "/proc/%ld/mem", pid);
	note(&t, "mem", open(path, O_RDWR | O_CLOEXEC));
	/* The numbers alone are harmless; their targets are not. */
	for (int fd = 0; fd < 4; fd++) {
		(void)snprintf(path, sizeof(path), "/proc/%ld/fd/%d", pid, fd);
		note(&t, "fd", readlink(path, text, sizeof(text)));
		note(&t, "open fd", open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
	}
	return judge(&t);
}

/* WORD...: parts of the command line that started the run; init must not show them. */
static int cmdline(int argc, char **argv)
{
	struct tally t = { 0 };
	char buf[16384];
	int fd = open("/proc/1/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf));

	if (n < 0)
		return held("%s", error_name(errno));
	for (int i = 0; i < argc; i++)
		note_as(&t, !memmem(buf, (size_t)n, argv[i], strlen(argv[i])), "%s", argv[i]);
	return judge(&t);
}

/* [EXIT]: our parent becomes our tracer, and we stop until it lets us continue. */
static int traceme(int argc, char **argv)
{
	const char *code = argc > 0 ? argv[0] : "0";

	if (argc > 1) {
		(void)held("still there");
		return (int)number_arg(argc, argv, 0, 0);
	}
	if (!is_inside())
		return skip("our parent would have to know");
	/* A signal stops a traced process, even one that is ignored; init then detaches from it. */
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0)
		(void)raise(SIGWINCH);
	(void)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	(void)execl("/proc/self/exe", "forge-probe", "traceme", code, "again", NULL);
	return skip("exec: %s", error_name(errno));
}

/* [MAX]: processes that are not ours. Init and this process make two. */
static int processes(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 2), n = 0;
	DIR *dir = opendir("/proc");

	if (!dir)
		return skip("/proc: %s", error_name(errno));
	for (struct dirent *e; (e = readdir(dir));)
		n += e->d_name[0] >= '1' && e->d_name[0] <= '9';
	closedir(dir);
	return n > max ? broke("%ld processes are visible", n) : held("%ld processes", n);
}

/*
 * Types into the caller's terminal. Without one the kernel returns ENOTTY, so only a refusal by
 * a filter counts. The kernel looks only at the low half of the command, so the filter must
 * too.
 */
static int tty(int argc, char **argv)
{
	static const struct {
		const char *name;
		unsigned long cmd;
	} cmds[] = { { "TIOCSTI", TIOCSTI }, { "TIOCLINUX", TIOCLINUX }, { "TIOCSCTTY", TIOCSCTTY },
		     { "TIOCCONS", TIOCCONS } };
	struct tally t = { 0 };
	char letter = 'x';

	(void)argc, (void)argv;
	for (int fd = 0; fd < 3; fd++) {
		note_as(&t, !isatty(fd), "%d %s a terminal", fd, isatty(fd) ? "is" : "is not");
		for (size_t i = 0; i < sizeof(cmds) / sizeof(cmds[0]); i++) {
			long rc = syscall(SYS_ioctl, fd, cmds[i].cmd, &letter);
			note_as(&t, rc < 0 && errno == EPERM, "%s %s", cmds[i].name,
				rc < 0 ? error_name(errno) : "worked");
			rc = syscall(SYS_ioctl, fd, cmds[i].cmd | 0xdeadbeef00000000UL, &letter);
			note_as(&t, rc < 0 && errno == EPERM, "with high bits %s",
				rc < 0 ? error_name(errno) : "worked");
		}
	}
	note(&t, "/dev/tty", open("/dev/tty", O_RDWR | O_CLOEXEC));
	return judge(&t);
}

/*
 * NAME [SECONDS]: leaves a process behind that does everything to survive: own session, no
 * parent, all signals ignored, a descriptor in the workdir. Its name is NAME, so that a test
 * can find it.
 */
static int daemonise(int argc, char **argv)
{
	const char *name = argc > 0 ? argv[0] : "probe-daemon";
	unsigned seconds = (unsigned)number_arg(argc, argv, 1, 60);
	int ready[2];

	if (pipe(ready) < 0)
		return skip("pipe: %s", error_name(errno));
	pid_t pid = fork();
	if (pid == 0) {
		(void)setsid();
		if (fork() != 0)
			_exit(0);
		(void)setsid();
		for (int s = 1; s < NSIG; s++)
			(void)signal(s, SIG_IGN);
		(void)prctl(PR_SET_PDEATHSIG, 0);
		(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
		(void)prctl(PR_SET_NAME, name);
		(void)open(".", O_RDONLY | O_DIRECTORY);
		(void)!write(ready[1], "x", 1);
		for (int fd = 0; fd < 3; fd++)
			close(fd);
		while (seconds > 0)
			seconds = sleep(seconds);
		_exit(0);
	}
	char byte;
	close(ready[1]);
	if (pid < 0 || read(ready[0], &byte, 1) != 1)
		return skip("no daemon: %s", error_name(errno));
	return held("%s stays behind", name);
}

/* NAME...: variables that must not be set, besides those that never may be. */
static int env(int argc, char **argv)
{
	static const char *const never[] = { "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT",
					     "GCONV_PATH", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS",
					     "XDG_RUNTIME_DIR", "DISPLAY", "SUDO_USER",
					     "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "OLDPWD" };
	struct tally t = { 0 };

	for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
		if (getenv(never[i]))
			note_as(&t, false, "%s is set", never[i]);
	for (int i = 0; i < argc; i++)
		if (getenv(argv[i]))
			note_as(&t, false, "%s is set", argv[i]);
	int n = 0;
	while (environ[n])
		n++;
	note_as(&t, true, "%d variables, none of those", n);
	return judge(&t);
}

/* The working directory must be the run's, and inside the root. */
static int cwd(int argc, char **argv)
{
	char path[PATH_MAX];
	const char *want = getenv("FORGE_WORKDIR");

	(void)argc, (void)argv;
	if (!getcwd(path, sizeof(path)))
		return broke("getcwd: %s", error_name(errno));
	if (!want || strcmp(path, want) != 0)
		return broke("we are in %s", path);
	if (access(".", W_OK) < 0)
		return broke("it is not writable");
	return held("we are in %s", path);
}

/* Standard input must be at its end at once. */
static int stdin_empty(int argc, char **argv)
{
	char buf[64];
	ssize_t n = read(0, buf, sizeof(buf));

	(void)argc, (void)argv;
	if (n < 0)
		return broke("read: %s", error_name(errno));
	return n > 0 ? broke("%zd bytes", n) : held("end of file");
}

const struct probe probe_proc[] = {
	{ "kill-all", "signal all processes, and process 1", kill_all },
	{ "kill-pids", "PID...: signal or watch processes of the host", kill_pids },
	{ "trace", "[PID]: debug or read process 1", trace },
	{ "proc1", "[PID]: read process 1 through /proc", proc1 },
	{ "cmdline", "WORD...: find words of forge's command line in init's", cmdline },
	{ "traceme", "[EXIT]: stop as our parent's tracee (held: it lets us go on)", traceme },
	{ "processes", "[MAX]: see more processes than MAX", processes },
	{ "tty", "type into the caller's terminal", tty },
	{ "daemon", "NAME [SECONDS]: leave a process behind", daemonise },
	{ "env", "[NAME...]: find variables of the caller", env },
	{ "cwd", "be anywhere but in the workdir", cwd },
	{ "stdin", "read something from standard input", stdin_empty },
	{ NULL, NULL, NULL },
};
