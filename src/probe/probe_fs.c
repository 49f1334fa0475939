/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks on the file system view: writing to read-only files, reaching files outside of the
 * view.
 */
#include "probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Opens and closes; only the success of the open matters. */
static long try_open(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);

	if (fd >= 0)
		close(fd);
	return fd;
}

static void attack_dir(struct tally *t, const char *path)
{
	char inner[PATH_MAX + 8];

	(void)snprintf(inner, sizeof(inner), "%s/.probe", path);
	note(t, "create", try_open(inner, O_WRONLY | O_CREAT));
	note(t, "mkdir", mkdir(inner, 0700));
	note(t, "symlink", symlink("/", inner));
	note(t, "mkfifo", mkfifo(inner, 0600));
}

/* PATH: a file or directory; nothing about it may be changed. */
static int ro_write(int argc, char **argv)
{
	struct tally t = { 0 };
	const struct timespec now[2] = { { 0 }, { 0 } };
	char path[PATH_MAX], other[PATH_MAX + 8];
	struct stat st;

	/* The path may be a link in a writable place; the target counts. */
	if (argc < 1 || !realpath(argv[0], path) || stat(path, &st) < 0)
		return skip("give a path that exists");
	(void)snprintf(other, sizeof(other), "%s.moved", argv[0]);
	if (S_ISDIR(st.st_mode)) {
		attack_dir(&t, path);
	} else {
		note(&t, "open for writing", try_open(path, O_WRONLY));
		note(&t, "open for both", try_open(path, O_RDWR));
		note(&t, "open to append", try_open(path, O_WRONLY | O_APPEND));
		note(&t, "open to truncate", try_open(path, O_RDONLY | O_TRUNC));
		note(&t, "truncate", truncate(path, 0));
		note(&t, "link", link(path, other));
	}
	note(&t, "chmod", chmod(path, st.st_mode ^ 0200));
	note(&t, "chown", chown(path, 1000, 1000));
	note(&t, "setxattr", setxattr(path, "user.probe", "x", 1, 0));
	note(&t, "utimes", utimensat(AT_FDCWD, path, now, 0));
	note(&t, "rename", rename(path, other));
	note(&t, "remove", S_ISDIR(st.st_mode) ? rmdir(path) : unlink(path));
	return judge(&t);
}

/* The kernel's struct mount_attr, which old headers lack. */
struct attr {
	uint64_t set, clear, propagation, userns;
};

/* PATH: a read-only mount point. */
static int remount(int argc, char **argv)
{
	struct tally t = { 0 };
	struct attr writable = { .clear = 1 /* MOUNT_ATTR_RDONLY */ };
	const char *path = argc > 0 ? argv[0] : "/usr";

	if (!is_inside() && argc == 0)
		return skip("give a path that may be lost");
	note(&t, "remount", mount(NULL, path, NULL, MS_REMOUNT | MS_BIND, NULL));
	if (is_inside())
		note(&t, "remount the root", mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL));
	note(&t, "mount_setattr",
	     syscall(442, AT_FDCWD, path, 0x8000 /* AT_RECURSIVE */, &writable, sizeof(writable)));
	note(&t, "bind", mount("/tmp", path, NULL, MS_BIND, NULL));
	note(&t, "tmpfs", mount("none", path, "tmpfs", 0, NULL));
	note(&t, "open_tree", syscall(428, AT_FDCWD, path, 1 /* OPEN_TREE_CLONE */));
	note(&t, "fsopen", syscall(430, "tmpfs", 0));
	note(&t, "umount", umount2(path, MNT_DETACH));
	if (is_inside())
		note(&t, "umount of /proc", umount2("/proc", MNT_DETACH));
	return judge(&t);
}

/* Does the file at path contain the marker? */
static bool shows(const char *path, const char *marker)
{
	char buf[4096];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return false;
	ssize_t n = read(fd, buf, sizeof(buf) - 1);
	int saved = errno;
	close(fd);
	errno = saved;
	return n > 0 && memmem(buf, (size_t)n, marker, strlen(marker));
}

/* MARKER PATH...: reading any of the paths must not give the marker. */
static int reads(int argc, char **argv)
{
	struct tally t = { 0 };

	for (int i = 1; i < argc; i++) {
		errno = 0;
		bool is_shown = shows(argv[i], argv[0]);
		note_as(&t, !is_shown, "%s %s", argv[i],
			is_shown ? "shows it" : errno ? error_name(errno) : "differs");
	}
	return judge(&t);
}

/* The classic escape from a chroot: a new root below a directory that is open. */
static void chroot_out(void)
{
	int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || chroot("/tmp") < 0 || fchdir(fd) < 0)
		return;
	for (int i = 0; i < 64; i++)
		if (chdir("..") < 0)
			return;
	if (chroot(".") < 0)
		return;
}

/* MARKER PATH: a host file that contains the marker, by every spelling we know. */
static int dotdot(int argc, char **argv)
{
	static const char *const roots[] = {
		"", "/..", "/../../../..", "/proc/self/root", "/proc/self/root/..",
		"/proc/self/cwd/../../../../..", "/proc/1/root", "/proc/1/cwd/../..",
		"/proc/self/fd/0/../..", "/dev/fd/1/..", "/proc/self/task/../../1/root",
		"/proc/thread-self/root/..", "/dev/shm/../..", "/oldroot", "/.old",
	};
	struct tally t = { 0 };
	char path[PATH_MAX];

	if (argc < 2)
		return skip("give a marker and a path");
	for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s%s", roots[i], argv[1]);
		errno = 0;
		bool is_shown = shows(path, argv[0]);
		note_as(&t, !is_shown, "%s %s", *roots[i] ? roots[i] : "plain",
			is_shown ? "shows it" : error_name(errno));
	}
	chroot_out();
	note_as(&t, !shows(argv[1] + 1, argv[0]), "chroot %s", error_name(errno));
	return judge(&t);
}

/* By handle: inode 2 of the file system below us is the root of a host's disk. */
static int handle(int argc, char **argv)
{
	struct {
		struct file_handle h;
		unsigned char bytes[MAX_HANDLE_SZ];
	} u = { .h = { .handle_bytes = MAX_HANDLE_SZ } };
	struct tally t = { 0 };
	int mount_id;

	(void)argc, (void)argv;
	note(&t, "name_to_handle_at", name_to_handle_at(AT_FDCWD, ".", &u.h, &mount_id, 0));
	u.h.handle_bytes = 8;
	u.h.handle_type = 1; /* FILEID_INO32_GEN */
	memset(u.bytes, 0, 8);
	u.bytes[0] = 2;
	int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	note(&t, "open_by_handle_at", open_by_handle_at(fd, &u.h, O_RDONLY));
	if (fd >= 0)
		close(fd);
	return judge(&t);
}

/* Only the three standard streams may be open. */
static int fds(int argc, char **argv)
{
	struct tally t = { 0 };
	char link[PATH_MAX];
	DIR *dir = opendir("/proc/self/fd");

	(void)argc, (void)argv;
	if (!dir)
		return skip("/proc/self/fd: %s", error_name(errno));
	for (struct dirent *e; (e = readdir(dir));) {
		int fd = atoi(e->d_name);
		if (e->d_name[0] == '.' || fd == dirfd(dir))
			continue;
		ssize_t n = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);
		link[n < 0 ? 0 : n] = '\0';
		note_as(&t, fd <= 2, "%d is %s", fd, link);
	}
	closedir(dir);
	return judge(&t);
}

/* Settings of the running kernel. Opening a file is enough; nothing is ever written. */
static int proc_write(int argc, char **argv)
{
	static const char *const files[] = {
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname",
		"/proc/sys/kernel/modprobe", "/proc/sys/kernel/shmmax",
		"/proc/sys/kernel/ns_last_pid", "/proc/sys/vm/overcommit_memory",
		"/proc/sys/vm/drop_caches", "/proc/sys/fs/binfmt_misc/register",
		"/proc/sys/net/ipv4/ip_forward", "/proc/sys/user/max_user_namespaces",
		"/proc/sysrq-trigger", "/proc/irq/default_smp_affinity", "/proc/mtrr",
		"/proc/self/oom_score_adj", "/proc/self/uid_map", "/proc/self/setgroups",
		"/proc/self/loginuid", "/proc/self/attr/exec", "/proc/self/timens_offsets",
		"/proc/1/oom_score_adj", "/proc/acpi/wakeup", "/proc/bus/pci/00/00.0",
		"/proc/scsi/scsi", "/proc/self/mem",
	};
	struct tally t = { 0 };

	(void)argc, (void)argv;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		note(&t, files[i] + strlen("/proc"), try_open(files[i], O_WRONLY));
	return judge(&t);
}

/* Files with information about the host's kernel. An empty file is as good as none. */
static int proc_read(int argc, char **argv)
{
	static const char *const files[] = {
		"/proc/kcore", "/proc/kallsyms", "/proc/keys", "/proc/key-users",
		"/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats", "/proc/kmsg",
		"/proc/kpagecount", "/proc/kpageflags", "/proc/vmallocinfo", "/proc/slabinfo",
		"/proc/acpi/wakeup", "/proc/scsi/scsi", "/sys/firmware/acpi/tables/DSDT",
		"/sys/kernel/notes", "/sys/kernel/vmcoreinfo", "/proc/sys/kernel/cad_pid",
	};
	struct tally t = { 0 };
	char byte;

	(void)argc, (void)argv;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		int fd = open(files[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		ssize_t n = fd < 0 ? -1 : read(fd, &byte, 1);
		note_as(&t, n <= 0, "%s %s", files[i], n > 0 ? "is readable" :
						       n == 0 ? "empty" : error_name(errno));
		if (fd >= 0)
			close(fd);
	}
	return judge(&t);
}

static struct tally walk_tally;
static unsigned walked;

static int visit_sys(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)ftw;
	if (type == FTW_F && S_ISREG(st->st_mode) && try_open(path, O_WRONLY) >= 0)
		note_as(&walk_tally, false, "%s can be opened for writing", path);
	return ++walked > 20000;
}

/* All of /sys that the run sees. */
static int sys_write(int argc, char **argv)
{
	static const char *const absent[] = {
		"/sys/fs/cgroup", "/sys/firmware", "/sys/kernel", "/sys/module", "/sys/class",
		"/sys/bus", "/sys/power",
	};

	(void)argc, (void)argv;
	for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
		note_as(&walk_tally, access(absent[i], F_OK) < 0, "%s", absent[i]);
	if (!is_inside())
		return judge(&walk_tally); /* do not open all of a host's /sys */
	if (nftw("/sys", visit_sys, 32, FTW_PHYS) < 0 && walked == 0)
		note_as(&walk_tally, true, "no /sys");
	else
		note_as(&walk_tally, true, "%u other files", walked);
	return judge(&walk_tally);
}

static const char *const known_devices[] = {
	"null", "zero", "full", "random", "urandom", "fd", "stdin", "stdout", "stderr", "shm",
};

static bool is_known_device(const char *name)
{
	for (size_t i = 0; i < sizeof(known_devices) / sizeof(known_devices[0]); i++)
		if (strcmp(name, known_devices[i]) == 0)
			return true;
	return false;
}

/* Device nodes: those that exist, and those that a run could make. */
static int devices(int argc, char **argv)
{
	static const char *const places[] = { "probe-node", "/tmp/probe-node", "/dev/shm/probe-node",
					      "/dev/probe-node" };
	static const char *const nodes[] = { "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/uinput",
					     "/dev/port", "/dev/loop0", "/dev/fuse", "/dev/kvm",
					     "/dev/net/tun", "/dev/console", "/dev/vda" };
	struct tally t = { 0 };
	DIR *dir = opendir("/dev");

	(void)argc, (void)argv;
	for (struct dirent *e; dir && (e = readdir(dir));)
		if (e->d_name[0] != '.' && !is_known_device(e->d_name))
			note_as(&t, false, "/dev/%s exists", e->d_name);
	if (dir)
		closedir(dir);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		long c = mknod(places[i], S_IFCHR | 0666, makedev(1, 1));
		note(&t, "mknod c", c);
		if (c == 0)
			(void)unlink(places[i]);
		long b = mknod(places[i], S_IFBLK | 0666, makedev(8, 0));
		note(&t, "mknod b", b);
		if (b == 0)
			(void)unlink(places[i]);
	}
	for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
		note(&t, nodes[i], try_open(nodes[i], O_RDONLY));
	return judge(&t);
}

/* EXTRA...: names in / besides the documented ones. */
static int top(int argc, char **argv)
{
	static const char *const documented[] = {
		".", "..", "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "proc",
		"dev", "sys", "tmp", "var", "run", "home", "mnt",
	};
	struct tally t = { 0 };
	DIR *dir = opendir("/");

	if (!dir)
		return skip("/: %s", error_name(errno));
	for (struct dirent *e; (e = readdir(dir));) {
		bool is_known = false;
		for (size_t i = 0; i < sizeof(documented) / sizeof(documented[0]); i++)
			is_known |= strcmp(e->d_name, documented[i]) == 0;
		for (int i = 0; i < argc; i++)
			is_known |= strcmp(e->d_name, argv[i]) == 0;
		note_as(&t, is_known, "/%s", e->d_name);
	}
	closedir(dir);
	return judge(&t);
}

/* PATH...: none may exist, not even as a name. */
static int absent(int argc, char **argv)
{
	struct tally t = { 0 };
	struct stat st;

	for (int i = 0; i < argc; i++)
		note(&t, argv[i], lstat(argv[i], &st));
	return judge(&t);
}

/* DIR...: must be empty. */
static int empty(int argc, char **argv)
{
	struct tally t = { 0 };

	for (int i = 0; i < argc; i++) {
		DIR *dir = opendir(argv[i]);
		for (struct dirent *e; dir && (e = readdir(dir));)
			if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
				note_as(&t, false, "%s/%s exists", argv[i], e->d_name);
		note_as(&t, true, "%s", argv[i]);
		if (dir)
			closedir(dir);
	}
	return judge(&t);
}

/*
 * FIFO: a read-only mount does not prevent writing into a pipe that a process outside reads;
 * Landlock does. So this shows that Landlock works by itself.
 */
static int fifo(int argc, char **argv)
{
	struct stat st;

	if (argc < 1 || stat(argv[0], &st) < 0 || !S_ISFIFO(st.st_mode))
		return skip("give a fifo");
	int fd = open(argv[0], O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENXIO ? broke("allowed, but there is no reader") :
					held("open %s", error_name(errno));
	(void)!write(fd, "broke\n", 6);
	return broke("the pipe took bytes");
}

/* SOCKET: a host service that listens in a directory that is an input of the run. */
static int unix_socket(int argc, char **argv)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	if (argc < 1 || strlen(argv[0]) >= sizeof(sa.sun_path))
		return skip("give the path of a socket");
	memcpy(sa.sun_path, argv[0], strlen(argv[0]) + 1);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return held("connect %s", error_name(errno));
	(void)send(fd, "broke\n", 6, MSG_NOSIGNAL);
	return broke("connected");
}

/* FILE: a lease would block other processes that open the same file outside. */
static int lease(int argc, char **argv)
{
	struct tally t = { 0 };
	int fd = open(argc > 0 ? argv[0] : "/proc/self/exe", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return skip("open: %s", error_name(errno));
	note(&t, "lease", fcntl(fd, F_SETLEASE, F_RDLCK));
	note(&t, "lease with high bits",
	     syscall(SYS_fcntl, fd, (1UL << 32) | F_SETLEASE, F_RDLCK));
	return judge(&t);
}

/* It must not be possible to replace our own program, or the one that started us. */
static int own_exe(int argc, char **argv)
{
	struct tally t = { 0 };

	(void)argc, (void)argv;
	note(&t, "/proc/self/exe", try_open("/proc/self/exe", O_WRONLY));
	note(&t, "/proc/1/exe", try_open("/proc/1/exe", O_WRONLY));
	note(&t, "reading /proc/1/exe", try_open("/proc/1/exe", O_RDONLY));
	return judge(&t);
}

const struct probe probe_fs[] = {
	{ "ro-write", "PATH: change a read-only file or directory in every way", ro_write },
	{ "remount", "[PATH]: make a read-only mount writable, or take it away", remount },
	{ "reads", "MARKER PATH...: read a host file through these paths", reads },
	{ "dotdot", "MARKER PATH: reach a host file around the root", dotdot },
	{ "handle", "open a host file by its handle", handle },
	{ "fds", "find inherited descriptors", fds },
	{ "proc-write", "change settings of the kernel in /proc", proc_write },
	{ "proc-read", "read secrets of the kernel in /proc and /sys", proc_read },
	{ "sys-write", "write anywhere in /sys", sys_write },
	{ "devices", "find or make device nodes", devices },
	{ "top", "[NAME...]: find undocumented names in /", top },
	{ "absent", "PATH...: find paths that must not exist", absent },
	{ "empty", "DIR...: find anything in these directories", empty },
	{ "fifo", "FIFO: write into a host's pipe through a read-only mount", fifo },
	{ "unix", "SOCKET: talk to a host's service through a read-only mount", unix_socket },
	{ "lease", "[FILE]: take a lease on a shared file", lease },
	{ "own-exe", "open the running program, and init's, for writing", own_exe },
	{ NULL, NULL, NULL },
};
