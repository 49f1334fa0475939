/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks on identity and privileges: our ids, ids that we could get, new namespaces. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The value of a line "Key:\tvalue" of /proc/self/status; "" when it is not there. */
static const char *status_line(const char *key, char buf[256])
{
	FILE *f = fopen("/proc/self/status", "re");
	size_t len = strlen(key);

	buf[0] = '\0';
	for (char line[256]; f && fgets(line, sizeof(line), f);)
		if (strncmp(line, key, len) == 0 && line[len] == ':') {
			(void)snprintf(buf, 256, "%s", line + len + 1 + strspn(line + len + 1, "\t "));
			buf[strcspn(buf, "\n")] = '\0';
			break;
		}
	if (f)
		fclose(f);
	return buf;
}

/* Is this the name of uid 1000? Without NSS, which a static program cannot load. */
static bool has_name(const char *want)
{
	FILE *f = fopen("/etc/passwd", "re");
	bool found = false;

	for (struct passwd *pw; f && (pw = fgetpwent(f));)
		found |= pw->pw_uid == getuid() && strcmp(pw->pw_name, want) == 0;
	if (f)
		fclose(f);
	return found;
}

static int identity(int argc, char **argv)
{
	struct tally t = { 0 };
	uid_t u[3];
	gid_t g[3];
	char host[65] = "";

	(void)argc, (void)argv;
	(void)getresuid(&u[0], &u[1], &u[2]); /* cannot fail */
	(void)getresgid(&g[0], &g[1], &g[2]);
	(void)gethostname(host, sizeof(host) - 1);
	note_as(&t, u[0] == 1000 && u[1] == 1000 && u[2] == 1000, "uid %u %u %u", u[0], u[1], u[2]);
	note_as(&t, g[0] == 1000 && g[1] == 1000 && g[2] == 1000, "gid %u %u %u", g[0], g[1], g[2]);
	note_as(&t, has_name("forge"), "name in /etc/passwd");
	note_as(&t, strcmp(host, "forge") == 0, "host %s", host);
	return judge(&t);
}

/* [OWN]: OWN 1 where the caller itself is uid 0 of its namespace (nested runs). */
static int host_uid(int argc, char **argv)
{
	FILE *f = fopen("/proc/self/uid_map", "re");
	unsigned inside, outside, count;
	char more[2];

	if (!f)
		return skip("uid_map: %s", error_name(errno));
	int n = fscanf(f, "%u %u %u %1s", &inside, &outside, &count, more);
	fclose(f);
	if (n != 3)
		return broke("the map has %s", n < 3 ? "no line" : "several lines");
	if (count != 1 || inside != 1000)
		return broke("%u ids from %u are mapped", count, inside);
	if (outside == 0 && !number_arg(argc, argv, 0, 0))
		return broke("we are uid 0 of the host");
	return held("we are uid %u outside", outside);
}

static int groups(int argc, char **argv)
{
	gid_t list[64];
	int n = getgroups(64, list);

	(void)argc, (void)argv;
	if (n != 0)
		return broke("%d supplementary groups, the first is %u", n, n > 0 ? list[0] : 0);
	return held("no supplementary groups");
}

static int caps(int argc, char **argv)
{
	static const char *const sets[] = { "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb" };
	struct tally t = { 0 };
	char value[256];

	(void)argc, (void)argv;
	for (size_t i = 0; i < 5; i++) {
		status_line(sets[i], value);
		note_as(&t, *value && strspn(value, "0") == strlen(value), "%s %s", sets[i], value);
	}
	return judge(&t);
}

static int flags(int argc, char **argv)
{
	struct tally t = { 0 };
	char value[256];
	const int want = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
			 SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
			 SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

	(void)argc, (void)argv;
	status_line("NoNewPrivs", value);
	note_as(&t, strcmp(value, "1") == 0, "NoNewPrivs %s", value);
	status_line("Seccomp", value);
	note_as(&t, strcmp(value, "2") == 0, "Seccomp %s", value);
	int bits = prctl(PR_GET_SECUREBITS);
	note_as(&t, (bits & want) == want, "securebits %#x", (unsigned)bits);
	note(&t, "set securebits", prctl(PR_SET_SECUREBITS, 0));
	return judge(&t);
}

/* No signal may be blocked, ignored or caught from before our start. */
static int signals(int argc, char **argv)
{
	static const char *const masks[] = { "SigBlk", "SigIgn", "SigCgt" };
	struct tally t = { 0 };
	char value[256];

	(void)argc, (void)argv;
	for (size_t i = 0; i < 3; i++) {
		status_line(masks[i], value);
		note_as(&t, strspn(value, "0") == strlen(value), "%s %s", masks[i], value);
	}
	return judge(&t);
}

/* Attempts run in a child: one that works must not affect the next. */
static void in_child(struct tally *t, const char *what, long (*attempt)(void))
{
	pid_t pid = fork();

	if (pid == 0) {
		errno = 0;
		_exit(attempt() >= 0 ? 0 : errno ? errno : 255);
	}
	int status;
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return;
	if (WIFSIGNALED(status))
		note_as(t, true, "%s signal %d", what, WTERMSIG(status));
	else if (WEXITSTATUS(status) == 0)
		note_as(t, false, "%s worked", what);
	else
		note_as(t, true, "%s %s", what, error_name(WEXITSTATUS(status)));
}

static long try_setuid(void)
{
	return setuid(0);
}

static long try_setgid(void)
{
	return setgid(0);
}

static long try_setresuid_other(void)
{
	return setresuid(12345, 12345, 12345);
}

static long try_setgroups(void)
{
	const gid_t g[] = { 0 };

	return setgroups(1, g);
}

static long try_capset(void)
{
	struct __user_cap_header_struct hdr = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct all[2] = { { ~0U, ~0U, ~0U }, { 0x1ff, 0x1ff, 0x1ff } };

	return syscall(SYS_capset, &hdr, all);
}

static long try_ambient(void)
{
	return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0);
}

static long try_keepcaps(void)
{
	return prctl(PR_SET_KEEPCAPS, 1);
}

static long try_clear_nnp(void)
{
	return prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0);
}

static int gain(int argc, char **argv)
{
	struct tally t = { 0 };

	(void)argc, (void)argv;
	in_child(&t, "setuid 0", try_setuid);
	in_child(&t, "setgid 0", try_setgid);
	in_child(&t, "setresuid", try_setresuid_other);
	in_child(&t, "setgroups", try_setgroups);
	in_child(&t, "capset", try_capset);
	in_child(&t, "ambient", try_ambient);
	in_child(&t, "keepcaps", try_keepcaps);
	in_child(&t, "clear no_new_privs", try_clear_nnp);
	return judge(&t);
}

static const struct {
	const char *name;
	unsigned long flag;
} spaces[] = {
	{ "user", CLONE_NEWUSER }, { "mnt", CLONE_NEWNS },   { "pid", CLONE_NEWPID },
	{ "net", CLONE_NEWNET },   { "ipc", CLONE_NEWIPC },  { "uts", CLONE_NEWUTS },
	{ "cgroup", 0x02000000 },  { "time", 0x00000080 },
};
#define N_SPACES (sizeof(spaces) / sizeof(spaces[0]))

static unsigned long wanted;

static long try_unshare(void)
{
	return unshare((int)wanted);
}

static int do_unshare(int argc, char **argv)
{
	struct tally t = { 0 };

	(void)argc, (void)argv;
	for (size_t i = 0; i < N_SPACES; i++) {
		wanted = spaces[i].flag;
		in_child(&t, spaces[i].name, try_unshare);
		wanted = spaces[i].flag | CLONE_NEWUSER;
		in_child(&t, "with user", try_unshare);
	}
	return judge(&t);
}

/* The child of a clone that worked ends at once; its parent reaps it. */
static void reap_clone(struct tally *t, const char *what, long pid)
{
	if (pid == 0)
		_exit(0);
	note(t, what, pid);
	if (pid > 0)
		(void)waitpid((pid_t)pid, NULL, __WALL);
}

static int do_clone(int argc, char **argv)
{
	struct tally t = { 0 };

	(void)argc, (void)argv;
	for (size_t i = 0; i < N_SPACES; i++) {
		/* CLONE_NEWTIME overlaps clone's signal number and exists for clone3 only. */
		if (strcmp(spaces[i].name, "time") == 0)
			continue;
		unsigned long f = spaces[i].flag | SIGCHLD;
		reap_clone(&t, spaces[i].name, syscall(SYS_clone, f, 0, 0, 0, 0));
		/* The kernel looks only at the low half, so a filter must too. */
		reap_clone(&t, "with high bits", syscall(SYS_clone, f | 1UL << 40, 0, 0, 0, 0));
		reap_clone(&t, "with user",
			   syscall(SYS_clone, f | CLONE_NEWUSER, 0, 0, 0, 0));
	}
	return judge(&t);
}

static int do_clone3(int argc, char **argv)
{
	struct tally t = { 0 };

	(void)argc, (void)argv;
	for (size_t i = 0; i < N_SPACES; i++) {
		struct {
			uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, size, tls;
		} args = { .flags = spaces[i].flag, .exit_signal = SIGCHLD };
		reap_clone(&t, spaces[i].name, syscall(435, &args, sizeof(args)));
		args.flags |= CLONE_NEWUSER;
		reap_clone(&t, "with user", syscall(435, &args, sizeof(args)));
	}
	return judge(&t);
}

/*
 * Closes fd, judges the mode that it or path has now, and removes path. errno is that of the
 * attempt.
 */
static void note_mode(struct tally *t, const char *what, long rc, int fd, const char *path)
{
	struct stat st = { 0 };
	int error = errno;

	if (rc >= 0 && (fd >= 0 ? fstat(fd, &st) : lstat(path, &st)) < 0)
		rc = -1;
	if (rc < 0)
		note_as(t, true, "%s %s", what, error_name(error));
	else
		note_as(t, !(st.st_mode & (S_ISUID | S_ISGID)), "%s %04o", what,
			(unsigned)st.st_mode & 07777);
	if (fd >= 0)
		close(fd);
	(void)unlink(path);
}

/* Makes an empty file that every user may open. */
static int plain_file(const char *path)
{
	return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
}

static void suid_change(struct tally *t, mode_t mode)
{
	int fd = plain_file("suid");

	note_mode(t, "chmod", chmod("suid", mode), fd, "suid");
	fd = plain_file("suid");
	note_mode(t, "fchmod", fchmod(fd, mode), fd, "suid");
	fd = plain_file("suid");
	note_mode(t, "fchmodat", syscall(SYS_fchmodat, AT_FDCWD, "suid", mode), fd, "suid");
	fd = plain_file("suid");
	note_mode(t, "fchmodat2", syscall(452, AT_FDCWD, "suid", mode, 0), fd, "suid");
	/* The kernel uses 16 bits: bits above them must not fool a filter. */
	fd = plain_file("suid");
	note_mode(t, "with high bits", syscall(SYS_chmod, "suid", (1UL << 32) | 0x10000 | mode), fd,
		  "suid");
}

static void suid_make(struct tally *t, mode_t mode)
{
	struct {
		uint64_t flags, mode, resolve;
	} how = { O_WRONLY | O_CREAT | O_CLOEXEC, mode, 0 };
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
	int fd = (int)syscall(SYS_open, "suid", flags, mode);

	note_mode(t, "open", fd, fd, "suid");
	fd = (int)syscall(SYS_openat, AT_FDCWD, "suid", flags, mode);
	note_mode(t, "openat", fd, fd, "suid");
	fd = (int)syscall(SYS_open, ".", O_TMPFILE | O_WRONLY, mode);
	note_mode(t, "O_TMPFILE", fd, fd, "suid");
	fd = (int)syscall(SYS_openat, AT_FDCWD, ".", O_TMPFILE | O_WRONLY, mode);
	note_mode(t, "openat O_TMPFILE", fd, fd, "suid");
	fd = (int)syscall(SYS_creat, "suid", mode);
	note_mode(t, "creat", fd, fd, "suid");
	fd = (int)syscall(437, AT_FDCWD, "suid", &how, sizeof(how));
	note_mode(t, "openat2", fd, fd, "suid");
	note_mode(t, "mknod", syscall(SYS_mknod, "suid", S_IFREG | mode, 0), -1, "suid");
	note_mode(t, "mknodat", syscall(SYS_mknodat, AT_FDCWD, "suid", S_IFREG | mode, 0), -1,
		  "suid");
}

/* A setuid file in a workdir would be one for every user of the host who can reach it. */
static int suid(int argc, char **argv)
{
	struct tally t = { 0 };

	(void)argc, (void)argv;
	(void)umask(0);
	for (mode_t bit = S_ISGID; bit <= S_ISUID; bit <<= 1) {
		suid_change(&t, bit | 0755);
		suid_make(&t, bit | 0755);
	}
	return judge(&t);
}

static int setns_fd;

static long try_setns(void)
{
	return setns(setns_fd, 0);
}

static int do_setns(int argc, char **argv)
{
	struct tally t = { 0 };

	(void)argc, (void)argv;
	for (size_t i = 0; i < 2 * N_SPACES; i++) {
		char path[64];
		(void)snprintf(path, sizeof(path), "/proc/%s/ns/%s", i < N_SPACES ? "self" : "1",
			       spaces[i % N_SPACES].name);
		setns_fd = open(path, O_RDONLY | O_CLOEXEC);
		if (setns_fd < 0) {
			note_as(&t, true, "%s %s", path, error_name(errno));
			continue;
		}
		in_child(&t, path, try_setns);
		close(setns_fd);
	}
	int pidfd = (int)syscall(434, 1, 0);
	if (pidfd >= 0) {
		setns_fd = pidfd;
		note(&t, "setns by pidfd", setns(pidfd, CLONE_NEWNS | CLONE_NEWNET));
	}
	return judge(&t);
}

const struct probe probe_priv[] = {
	{ "identity", "have another identity than uid 1000 'forge' on host 'forge'", identity },
	{ "host-uid", "[1]: be uid 0 outside (1: the caller's own namespace has only 0)", host_uid },
	{ "groups", "keep supplementary groups", groups },
	{ "caps", "keep a capability in any of the five sets", caps },
	{ "flags", "be without no_new_privs, a seccomp filter or locked securebits", flags },
	{ "signals", "start with blocked, ignored or caught signals", signals },
	{ "gain", "become another user or gain capabilities", gain },
	{ "unshare", "make each kind of namespace by unshare", do_unshare },
	{ "clone", "make each kind of namespace by clone", do_clone },
	{ "clone3", "make each kind of namespace by clone3", do_clone3 },
	{ "suid", "make a setuid or setgid file", suid },
	{ "setns", "enter our own namespaces again, and those of process 1", do_setns },
	{ NULL, NULL, NULL },
};
