/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks on the disk limit, and trees that are hard to measure or to remove. All of it happens
 * in the current directory. MIB is a maximum: "broke" when it was reached.
 */
#include "probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define MIB (1L << 20)

static char block[MIB];

bool add_mib(int fd)
{
	memset(block, 0x5a, sizeof(block));
	(void)usleep(10000);
	return write(fd, block, sizeof(block)) == (ssize_t)sizeof(block);
}

static int make_file(const char *name)
{
	return open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

int filled(long n, long max, const char *how)
{
	if (n < max)
		return held("%s after %ld MiB %s", error_name(errno), n, how);
	/* Wait until a watcher has looked once more, while the files are still there. */
	(void)sleep(1);
	return broke("%ld MiB %s", n, how);
}

static int fill_one(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 64), n = 0;
	int fd = make_file("fill");

	(void)signal(SIGXFSZ, SIG_IGN);
	while (n < max && add_mib(fd))
		n++;
	return filled(n, max, "in one file");
}

static int fill_many(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 64), n = 0;

	for (; n < max; n++) {
		char name[32];
		(void)snprintf(name, sizeof(name), "fill-%ld", n);
		int fd = make_file(name);
		if (fd < 0 || !add_mib(fd))
			break;
		close(fd);
	}
	return filled(n, max, "in many files");
}

/* Deleted but open: no walk of the tree finds these files. */
static int fill_deleted(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 64), n = 0;

	for (; n < max; n++) {
		int fd = make_file("fill");
		if (fd < 0 || unlink("fill") < 0 || !add_mib(fd))
			break;
	}
	return filled(n, max, "in deleted files");
}

/* Deleted and closed, but mapped: no list of descriptors has these files either. */
static int fill_mapped(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 64), n = 0;

	for (; n < max; n++) {
		int fd = make_file("fill");
		if (fd < 0 || unlink("fill") < 0 || !add_mib(fd))
			break;
		void *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
		if (p == MAP_FAILED)
			break;
	}
	return filled(n, max, "in mapped files");
}

/* Deleted, closed, and in flight in a socket that is not read. */
static int fill_sent(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 64), n = 0;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0)
		return skip("socketpair: %s", error_name(errno));
	for (; n < max; n++) {
		char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
		struct iovec iov = { &byte, 1 };
		struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
				      .msg_controllen = sizeof(control) };
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		int fd = make_file("fill");
		if (fd < 0 || unlink("fill") < 0 || !add_mib(fd))
			break;
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
		if (sendmsg(pair[0], &msg, MSG_DONTWAIT) < 0) {
			/* The queue is full: use a new one. */
			if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0 ||
			    sendmsg(pair[0], &msg, MSG_DONTWAIT) < 0)
				break;
		}
		close(fd);
	}
	return filled(n, max, "in sent files");
}

/* In a directory of mode 0, through descriptors opened before. */
static int fill_hidden(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 64), n = 0;
	int fds[512];

	max = max > 512 ? 512 : max;
	if (mkdir("hidden", 0700) < 0)
		return skip("mkdir: %s", error_name(errno));
	for (long i = 0; i < max; i++) {
		char name[32];
		(void)snprintf(name, sizeof(name), "hidden/fill-%ld", i);
		fds[i] = make_file(name);
	}
	if (chmod("hidden", 0) < 0)
		return skip("hidden: %s", error_name(errno));
	while (n < max && add_mib(fds[n]))
		n++;
	return filled(n, max, "in a hidden directory");
}

/*
 * The following probes print "at N MiB" as they go: a probe that is killed has then reported
 * how far it came, and other writers on the host's disk do not disturb the count.
 */
static void say_mib(long n)
{
	printf("at %ld MiB\n", n);
	fflush(stdout);
}

/* Fills deleted files that stay open, a MiB each. */
static int fill_and_say(long max, const char *how)
{
	long n = 0;

	while (n < max) {
		int fd = make_file("fill");
		if (fd < 0 || unlink("fill") < 0 || !add_mib(fd))
			break;
		say_mib(++n);
	}
	return filled(n, max, how);
}

struct filler {
	long max;
	bool is_alone; /* with its own descriptor table */
};

static void *fill_in_thread(void *arg)
{
	const struct filler *f = arg;

	if (f->is_alone && unshare(CLONE_FILES) < 0)
		exit(skip("unshare: %s", error_name(errno)));
	exit(fill_and_say(f->max, f->is_alone ? "in a thread's own files" : "without a leader"));
}

/* /proc/PID/fd of a process whose first thread has ended is empty. */
static int fill_leader(int argc, char **argv)
{
	static struct filler f;
	pthread_t thread;

	f.max = number_arg(argc, argv, 0, 64);
	if (pthread_create(&thread, NULL, fill_in_thread, &f) != 0)
		return skip("no thread");
	(void)syscall(SYS_exit, 0); /* only this thread */
	return 1;
}

/* Descriptors of a thread with its own table are not in the list of its process. */
static int fill_unshared(int argc, char **argv)
{
	static struct filler f = { .is_alone = true };
	pthread_t thread;

	f.max = number_arg(argc, argv, 0, 64);
	if (pthread_create(&thread, NULL, fill_in_thread, &f) != 0)
		return skip("no thread");
	(void)pthread_join(thread, NULL);
	return 1;
}

/* So many deleted files that a watcher that lists them has no room for the large ones. */
static int fill_crowd(int argc, char **argv)
{
	for (int i = 0; i < 600; i++) {
		int fd = make_file("tiny");
		if (fd < 0 || unlink("tiny") < 0 || write(fd, "x", 1) != 1)
			return skip("%s after %d files", error_name(errno), i);
	}
	return fill_and_say(number_arg(argc, argv, 0, 64), "behind a crowd");
}

/*
 * Three directories in the order in which a scan meets them: one that is scanned first, one
 * that takes long, one that is scanned last.
 */
struct dodge {
	char first[8], slow[8], last[8];
	int watch, wd_first, wd_slow;
	bool is_first;	   /* the files are in the first directory */
	long long back_at; /* when they leave it again; 0: not planned */
};

static bool find_order(struct dodge *d)
{
	DIR *dir;
	int n = 0;

	for (int i = 0; i < 8; i++) {
		char name[8];
		(void)snprintf(name, sizeof(name), "d%d", i);
		if (mkdir(name, 0700) < 0)
			return false;
	}
	dir = opendir(".");
	for (struct dirent *e; dir && (e = readdir(dir));) {
		if (e->d_name[0] != 'd' || strlen(e->d_name) != 2)
			continue;
		memcpy(n == 0 ? d->first : n == 1 ? d->slow : d->last, e->d_name, 3);
		n++;
	}
	if (dir)
		closedir(dir);
	return n == 8;
}

static void move_files(struct dodge *d, bool to_first)
{
	char from[32], to[32];

	(void)snprintf(from, sizeof(from), "%s/D", to_first ? d->last : d->first);
	(void)snprintf(to, sizeof(to), "%s/D", to_first ? d->first : d->last);
	if (d->is_first != to_first && rename(from, to) == 0)
		d->is_first = to_first;
}

/*
 * Moves the files behind the scanner's back: into the first directory once it has been scanned,
 * and back after the slow one.
 */
static void dodge_scan(struct dodge *d)
{
	char buf[16384] __attribute__((aligned(8)));
	ssize_t len = read(d->watch, buf, sizeof(buf));

	for (ssize_t i = 0; i < len;) {
		const struct inotify_event *e = (const void *)(buf + i);
		i += (ssize_t)(sizeof(*e) + e->len);
		if (e->wd == d->wd_first)
			move_files(d, (e->mask & IN_CLOSE_NOWRITE) != 0);
		else if (e->wd == d->wd_slow && (e->mask & IN_CLOSE_NOWRITE))
			d->back_at = now_usec() + 5000;
	}
	if (d->back_at && now_usec() > d->back_at) {
		move_files(d, false);
		d->back_at = 0;
	}
}

static bool start_dodge(struct dodge *d)
{
	const uint32_t mask = IN_OPEN | IN_CLOSE_NOWRITE;
	char name[32];

	if (!find_order(d))
		return false;
	for (int i = 0; i < 20000; i++) {
		(void)snprintf(name, sizeof(name), "%s/%d", d->slow, i);
		close(make_file(name));
	}
	(void)snprintf(name, sizeof(name), "%s/D", d->last);
	if (mkdir(name, 0700) < 0)
		return false;
	d->watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	d->wd_first = inotify_add_watch(d->watch, d->first, mask);
	d->wd_slow = inotify_add_watch(d->watch, d->slow, mask);
	return d->wd_first >= 0 && d->wd_slow >= 0;
}

static int fill_dodge(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 256), n = 0;
	struct dodge d = { .watch = -1 };
	long long next = 0;

	if (!start_dodge(&d))
		return skip("%s", error_name(errno));
	memset(block, 0x5a, sizeof(block));
	while (n < max) {
		char name[32];
		dodge_scan(&d);
		if (now_usec() < next)
			continue;
		(void)snprintf(name, sizeof(name), "%s/D/%ld", d.is_first ? d.first : d.last, n);
		int fd = make_file(name);
		if (fd < 0 || write(fd, block, sizeof(block)) != (ssize_t)sizeof(block))
			break;
		close(fd);
		say_mib(++n);
		next = now_usec() + 10000;
	}
	return filled(n, max, "in a directory that moves");
}

/* COUNT: empty files, in directories of a thousand. */
static int fill_inodes(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 100000), n = 0;

	for (; n < max; n++) {
		char name[64];
		(void)snprintf(name, sizeof(name), "d%ld", n / 1000);
		if (n % 1000 == 0 && mkdir(name, 0700) < 0)
			break;
		(void)snprintf(name, sizeof(name), "d%ld/f%ld", n / 1000, n % 1000);
		int fd = make_file(name);
		if (fd < 0)
			break;
		close(fd);
		if (n % 100 == 0)
			(void)usleep(1000);
	}
	return n < max ? held("%s after %ld files", error_name(errno), n) : broke("%ld files", n);
}

/* GIB: large in size, without blocks. Held: this is allowed. */
static int sparse(int argc, char **argv)
{
	int fd = make_file("sparse");

	(void)signal(SIGXFSZ, SIG_IGN);
	if (fd < 0)
		return skip("open: %s", error_name(errno));
	if (ftruncate(fd, number_arg(argc, argv, 0, 1024) << 30) < 0)
		return broke("ftruncate: %s", error_name(errno));
	(void)!pwrite(fd, "x", 1, 4096);
	(void)usleep(300000);
	return held("allowed");
}

/* LEVELS [MODE]: nested directories, each with MODE in the end. */
static int deep(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 20000), n = 0;

	for (; n < max; n++)
		if (mkdir("d", 0700) < 0 || chdir("d") < 0)
			break;
	return n < max ? skip("%s after %ld levels", error_name(errno), n) :
			 held("%ld levels", n);
}

/* Makes a socket file in the current directory. */
static void make_socket(const char *name)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(sa.sun_path, name, strlen(name) + 1);
	(void)!bind(fd, (struct sockaddr *)&sa, sizeof(sa));
	close(fd);
}

/* TARGET...: links to these, and one of everything that could confuse a deleter or collector. */
static int hostile(int argc, char **argv)
{
	static const char *const names[] = { "new\nline", "-rf", " ", "*", "\033[31mred",
					     "\xff\xfe", "..." , "a\\b", "$(reboot)" };

	(void)signal(SIGXFSZ, SIG_IGN);
	for (int i = 0; i < argc; i++) {
		char name[32];
		(void)snprintf(name, sizeof(name), "link-%d", i);
		if (symlink(argv[i], name) < 0)
			return skip("symlink: %s", error_name(errno));
	}
	(void)!symlink("loop", "loop");
	(void)!symlink("..", "up");
	(void)!symlink("/", "root");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int fd = make_file(names[i]);
		if (fd < 0)
			return skip("a name: %s", error_name(errno));
		close(fd);
	}
	char longest[256];
	memset(longest, 'n', 255);
	longest[255] = '\0';
	(void)mkdir(longest, 0700);
	(void)mkfifo("fifo", 0600);
	make_socket("socket");
	(void)mkdir("closed", 0700);
	(void)mkdir("closed/inner", 0700);
	close(make_file("closed/inner/file"));
	(void)mkdir("outputs", 0700);
	(void)!symlink("/etc/passwd", "outputs/passwd");
	(void)mkfifo("outputs/fifo", 0600);
	close(make_file("read-only"));
	(void)chmod("read-only", 0);
	int fd = make_file("sparse");
	(void)!ftruncate(fd, 1L << 40);
	(void)!link("sparse", "hard-link");
	(void)chmod("closed/inner", 0);
	(void)chmod("closed", 0);
	/* A read-only directory: its mode must change before its content can be removed. */
	(void)mkdir("locked", 0700);
	close(make_file("locked/file"));
	(void)chmod("locked", 0500);
	(void)chmod(".", 0);
	return held("the tree stands");
}

static char aligned[MIB] __attribute__((aligned(4096)));

/* Milliseconds for n MiB with O_DIRECT; -1: not possible. */
static long long time_direct(int flags, long n)
{
	int fd = open("direct", flags | O_DIRECT | O_CREAT | O_CLOEXEC, 0600);
	long long start = now_usec();

	if (fd < 0)
		return -1;
	for (long i = 0; i < n; i++) {
		ssize_t did = flags == O_RDONLY ? read(fd, aligned, MIB)
						: write(fd, aligned, MIB);
		if (did != MIB)
			return -1;
	}
	close(fd);
	return (now_usec() - start) / 1000;
}

/* The kernel allows a little more at the start, so three quarters of the time must pass. */
static int io_rate(int argc, char **argv)
{
	long n = number_arg(argc, argv, 0, 8), rate = number_arg(argc, argv, 1, 4);
	long long least = n * 750LL / rate;
	long long wrote = time_direct(O_WRONLY, n), did_read = time_direct(O_RDONLY, n);

	if (wrote < 0 || did_read < 0)
		return skip("direct I/O: %s", error_name(errno));
	if (wrote < least || did_read < least)
		return broke("%ld MiB: write %lld ms, read %lld ms", n, wrote, did_read);
	return held("%ld MiB: write %lld ms, read %lld ms", n, wrote, did_read);
}

/* One write of MIB at the limited rate: the process cannot be killed in the middle of it. */
static int io_stuck(int argc, char **argv)
{
	size_t size = (size_t)number_arg(argc, argv, 0, 64) * MIB;
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	int fd = open("direct", O_WRONLY | O_DIRECT | O_CREAT | O_CLOEXEC, 0600);

	if (p == MAP_FAILED || fd < 0)
		return skip("direct I/O: %s", error_name(errno));
	/* With a second argument a child writes, and we end meanwhile. */
	if (argc > 1 && fork() > 0) {
		(void)usleep(300000);
		return held("left while it writes");
	}
	ssize_t n = write(fd, p, size);
	return broke("%zd bytes written", n);
}

const struct probe probe_disk[] = {
	{ "fill-one", "MIB: one file", fill_one },
	{ "fill-many", "MIB: many files", fill_many },
	{ "fill-deleted", "MIB: deleted files, still open", fill_deleted },
	{ "fill-mapped", "MIB: deleted files, still mapped", fill_mapped },
	{ "fill-sent", "MIB: deleted files, inside a socket", fill_sent },
	{ "fill-hidden", "MIB: below a directory of mode 0", fill_hidden },
	{ "fill-leader", "MIB: deleted files of a process without its first thread", fill_leader },
	{ "fill-unshared", "MIB: deleted files of a thread with its own descriptors", fill_unshared },
	{ "fill-crowd", "MIB: deleted files behind many small ones", fill_crowd },
	{ "fill-dodge", "MIB: in a directory that moves behind the scanner", fill_dodge },
	{ "fill-inodes", "COUNT: empty files", fill_inodes },
	{ "sparse", "GIB: a file of holes (held: allowed)", sparse },
	{ "io-rate", "MIB RATE: past the page cache, faster than RATE MiB a second", io_rate },
	{ "io-stuck", "MIB [leave]: be waiting for the disk at the end", io_stuck },
	{ "deep", "LEVELS: one directory in another", deep },
	{ "hostile", "[TARGET...]: leave a tree that is hard to remove", hostile },
	{ NULL, NULL, NULL },
};
