/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks on the budget: processes, memory, CPU, time and output. Each has a maximum, so that
 * it ends even where nothing stops it; a larger number in the answer is worse.
 */
#include "probe.h"

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
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1L << 20)

static int refused(const char *what, long n, long max)
{
	if (n >= max)
		return broke("%ld %s", n, what);
	return held("%s after %ld %s", error_name(errno), n, what);
}

/* MAX [EXIT]: children that stay; EXIT is our status instead of the answer. */
static int bomb_fork(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 5000), n = 0;

	for (; n < max; n++) {
		pid_t pid = fork();
		if (pid < 0)
			break;
		if (pid == 0)
			for (;;)
				pause();
	}
	int answer = refused("processes", n, max);
	return argc > 1 ? (int)number_arg(argc, argv, 1, 0) : answer;
}

/* All processes fork all the time, for SECONDS; none waits for another. */
static int bomb_wild(int argc, char **argv)
{
	time_t end = time(NULL) + number_arg(argc, argv, 0, 5);
	pid_t self = getpid();

	while (time(NULL) < end)
		(void)!fork();
	if (getpid() != self)
		_exit(0);
	return held("over");
}

/* Each child makes the next while its parent is stopped in vfork. */
__attribute__((noinline)) static int bomb_vfork(int argc, char **argv)
{
	static volatile long n;
	static volatile pid_t top;
	long max = number_arg(argc, argv, 0, 5000);

	top = getpid();
	for (;;) {
		pid_t pid = n < max ? vfork() : -1;
		if (pid == 0) {
			n++; /* all processes share this memory */
			continue;
		}
		if (getpid() != top)
			_exit(0); /* the parent continues, and ends the same way */
		break;
	}
	errno = EAGAIN;
	return refused("vforks", n, max);
}

static void *wait_for_ever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static int bomb_threads(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 5000), n = 0;
	pthread_attr_t attr;
	pthread_t thread;

	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setstacksize(&attr, 64 * 1024);
	for (; n < max; n++) {
		int rc = pthread_create(&thread, &attr, wait_for_ever, NULL);
		if (rc != 0) {
			errno = rc;
			break;
		}
	}
	return refused("threads", n, max);
}

/* Touches every page; returns how many MiB there were. */
static long touch(long mib)
{
	for (long i = 0; i < mib; i++) {
		char *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			return i;
		memset(p, 0x5a, MIB);
	}
	return mib;
}

static int mem_one(int argc, char **argv)
{
	return broke("%ld MiB in one process", touch(number_arg(argc, argv, 0, 256)));
}

/* A process may have any name; what forge prints of it outside must be harmless. */
static int mem_named(int argc, char **argv)
{
	(void)prctl(PR_SET_NAME, argc > 1 ? argv[1] : "\033[31m\"\\\xff\n). `x", 0, 0, 0);
	return broke("%ld MiB in one process", touch(number_arg(argc, argv, 0, 256)));
}

/* MIB [EACH]: many processes, none of them large. */
static int mem_many(int argc, char **argv)
{
	long total = number_arg(argc, argv, 0, 256), each = number_arg(argc, argv, 1, 8);
	int ready[2];
	long n = 0;
	char byte;

	if (pipe(ready) < 0)
		return skip("pipe: %s", error_name(errno));
	for (; n < total / each; n++) {
		pid_t pid = fork();
		if (pid < 0)
			break;
		if (pid == 0) {
			(void)touch(each);
			(void)!write(ready[1], "x", 1);
			for (;;)
				pause();
		}
		if (read(ready[0], &byte, 1) != 1)
			break;
	}
	return broke("%ld MiB in %ld processes", n * each, n);
}

static int fill_file(int fd, long mib, const char *where)
{
	static char block[MIB];

	memset(block, 0x5a, sizeof(block));
	for (long i = 0; i < mib; i++)
		if (write(fd, block, sizeof(block)) != (ssize_t)sizeof(block))
			return held("%s after %ld MiB in %s", error_name(errno), i, where);
	return broke("%ld MiB in %s", mib, where);
}

/* MIB DIR: a file on a file system in memory. */
static int mem_tmpfs(int argc, char **argv)
{
	char path[256];
	const char *dir = argc > 1 ? argv[1] : "/dev/shm";

	(void)snprintf(path, sizeof(path), "%s/probe-%ld", dir, (long)getpid());
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return skip("%s: %s", path, error_name(errno));
	(void)unlink(path);
	return fill_file(fd, number_arg(argc, argv, 0, 256), dir);
}

static int mem_memfd(int argc, char **argv)
{
	int fd = memfd_create("probe", MFD_CLOEXEC);

	return fd < 0 ? skip("memfd: %s", error_name(errno)) :
			fill_file(fd, number_arg(argc, argv, 0, 256), "a memfd");
}

/* System V segments outlive their makers: only the end of the namespace frees them. */
static int mem_sysv(int argc, char **argv)
{
	long mib = number_arg(argc, argv, 0, 256);

	for (long i = 0; i < mib; i += 8) {
		int id = shmget(IPC_PRIVATE, 8 * MIB, IPC_CREAT | 0600);
		char *p = id < 0 ? (void *)-1 : shmat(id, NULL, 0);
		if (p == (void *)-1)
			return held("%s after %ld MiB of segments", error_name(errno), i);
		(void)shmctl(id, IPC_RMID, NULL); /* then freed with its last user */
		memset(p, 0x5a, 8 * MIB);
	}
	return broke("%ld MiB of segments", mib);
}

/* Kernel memory: pipes that are not read. */
static int mem_pipes(int argc, char **argv)
{
	long mib = number_arg(argc, argv, 0, 256), n = 0;
	static char block[65536];

	for (; n * 64 < mib * 1024; n++) {
		int p[2];
		if (pipe2(p, O_NONBLOCK) < 0)
			break;
		memset(block, 0x5a, sizeof(block));
		if (write(p[1], block, sizeof(block)) < 0)
			break;
	}
	if (n * 64 >= mib * 1024)
		return broke("%ld KiB in pipes", n * 64);
	return held("%s after %ld KiB in pipes", error_name(errno), n * 64);
}

/* GIB: allocated and never touched. Held: this is allowed. */
static int mem_lazy(int argc, char **argv)
{
	size_t size = (size_t)number_arg(argc, argv, 0, 16) << 30;
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return broke("mmap: %s", error_name(errno));
	p[0] = p[size - 1] = 1;
	return held("%zu GiB reserved, two pages touched", size >> 30);
}

static void *spin(void *arg)
{
	long long end = *(long long *)arg;

	while (now_usec() < end)
		;
	return arg;
}

/* SECONDS THREADS: as much CPU as there is. */
static int cpu_threads(int argc, char **argv)
{
	long long end = now_usec() + number_arg(argc, argv, 0, 2) * 1000000LL;
	long n = number_arg(argc, argv, 1, 4);
	struct timespec used;

	for (long i = 1; i < n; i++) {
		pthread_t thread;
		(void)pthread_create(&thread, NULL, spin, &end);
	}
	(void)spin(&end);
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return held("%ld.%03ld s of CPU", (long)used.tv_sec, used.tv_nsec / 1000000);
}

/* SECONDS: CPU time split over children too short-lived to be seen. */
static int cpu_children(int argc, char **argv)
{
	long long end = now_usec() + number_arg(argc, argv, 0, 2) * 1000000LL;
	long n = 0;

	for (; now_usec() < end; n++) {
		pid_t pid = fork();
		if (pid == 0) {
			long long stop = now_usec() + 10000;
			(void)spin(&stop);
			_exit(0);
		}
		if (pid > 0)
			(void)waitpid(pid, NULL, 0);
	}
	return broke("%ld children of 10 ms each", n);
}

static int sleep_long(int argc, char **argv)
{
	unsigned seconds = (unsigned)number_arg(argc, argv, 0, 30);

	(void)sleep(seconds);
	return broke("slept for %u s", seconds);
}

/* Prints "ready", then ignores every signal that can be ignored. */
static int stubborn(int argc, char **argv)
{
	unsigned left = (unsigned)number_arg(argc, argv, 0, 30);

	for (int s = 1; s < NSIG; s++)
		(void)signal(s, SIG_IGN);
	puts("ready");
	fflush(stdout);
	while (left > 0)
		left = sleep(left);
	return broke("no signal stopped us");
}

/* Ends by itself on SIGTERM, after cleaning up: the grace period is for this. */
static volatile sig_atomic_t is_asked;

static void on_term(int sig)
{
	(void)sig;
	is_asked = 1;
}

static int polite(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = on_term };
	unsigned left = (unsigned)number_arg(argc, argv, 0, 30);

	(void)sigaction(SIGTERM, &sa, NULL);
	puts("ready");
	fflush(stdout);
	while (left > 0 && !is_asked)
		left = sleep(left);
	return is_asked ? held("ended when asked") : broke("no SIGTERM came");
}

static int stopped(int argc, char **argv)
{
	(void)argc, (void)argv;
	(void)raise(SIGSTOP);
	return broke("another process woke us up");
}

/* A parent in vfork cannot take signals until its child ends. */
static int vfork_wait(int argc, char **argv)
{
	(void)argc, (void)argv;
	for (int s = 1; s < NSIG; s++)
		(void)signal(s, SIG_IGN);
	if (vfork() == 0) {
		struct timespec ts = { .tv_sec = 30 };
		(void)nanosleep(&ts, NULL);
		_exit(0);
	}
	return broke("the child ended by itself");
}

/* FD [BYTES] [LETTER]: writes BYTES, or forever; LETTER 0 is NUL. No newlines. */
static int flood(int argc, char **argv)
{
	static char block[65536];
	int fd = (int)number_arg(argc, argv, 0, 1);
	long left = number_arg(argc, argv, 1, 1L << 40);

	memset(block, argc > 2 ? (argv[2][0] == '0' ? 0 : argv[2][0]) : 'x', sizeof(block));
	while (left > 0) {
		size_t want = left < (long)sizeof(block) ? (size_t)left : sizeof(block);
		ssize_t n = write(fd, block, want);
		if (n < 0)
			return 1;
		left -= n;
	}
	return 0; /* no answer: it would be part of the flood */
}

/* MAX: descriptors of one process. */
static int open_files(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 4096), n = 3;
	struct rlimit more = { (rlim_t)max * 4, (rlim_t)max * 4 };

	if (setrlimit(RLIMIT_NOFILE, &more) == 0)
		return broke("the limit could be raised");
	for (; n < max; n++)
		if (dup(0) < 0)
			break;
	return refused("descriptors", n, max);
}

/* MAX [SECONDS]: instances are counted per user of the host; ours stay for SECONDS. */
static int inotify(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 64), n = 0;

	while (n <= max && inotify_init1(IN_CLOEXEC) >= 0)
		n++;
	int answer = refused("instances", n, max + 1);
	(void)sleep((unsigned)number_arg(argc, argv, 1, 0));
	return answer;
}

/* PROCESSES EACH SECONDS: descriptors for a watcher to look at, in a nearly full workdir. */
static int descriptors(int argc, char **argv)
{
	long n = number_arg(argc, argv, 0, 20), each = number_arg(argc, argv, 1, 500);
	unsigned seconds = (unsigned)number_arg(argc, argv, 2, 5);
	static char block[MIB];
	int fd = open("full", O_WRONLY | O_CREAT | O_CLOEXEC, 0600), ready[2];
	char byte;

	for (int i = 0; i < 15; i++)
		(void)!write(fd, block, sizeof(block));
	if (pipe(ready) < 0)
		return skip("pipe: %s", error_name(errno));
	for (long i = 0; i < n; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			for (long k = 0; k < each; k++)
				(void)!open("/dev/null", O_RDONLY | O_CLOEXEC);
			(void)!write(ready[1], "x", 1);
			(void)sleep(seconds);
			_exit(0);
		}
		if (pid < 0 || read(ready[0], &byte, 1) != 1)
			return skip("%s after %ld processes", error_name(errno), i);
	}
	puts("ready");
	fflush(stdout);
	(void)sleep(seconds);
	return held("%ld descriptors", n * each);
}

/* Huge pages are a pool of the host, outside of all memory limits. */
static int hugepages(int argc, char **argv)
{
	const size_t size = 2 * MIB;
	struct tally t = { 0 };

	(void)argc, (void)argv;
	/*
	 * Without MAP_NORESERVE the kernel would refuse for an empty pool, and hide the
	 * sandbox's answer.
	 */
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
	note(&t, "mmap", p == MAP_FAILED ? -1 : 0);
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
	note(&t, "memfd_create", fd);
	int id = shmget(IPC_PRIVATE, size, IPC_CREAT | SHM_HUGETLB | SHM_NORESERVE | 0600);
	note(&t, "shmget", id);
	if (id >= 0)
		(void)shmctl(id, IPC_RMID, NULL);
	return judge(&t);
}

/* Two writes, each of them a packet: a reader that takes part of one loses the rest. */
static int packet(int argc, char **argv)
{
	static char block[4096];

	(void)argc, (void)argv;
	if (fcntl(1, F_SETFL, O_WRONLY | O_DIRECT) < 0)
		return skip("O_DIRECT: %s", error_name(errno));
	memset(block, 'a', sizeof(block));
	(void)!write(1, block, 1000);
	memset(block, 'b', sizeof(block));
	(void)!write(1, block, sizeof(block));
	(void)sleep(5);
	return 0; /* no answer: it would be part of the packets */
}

/* Tries to set a limit in every possible way. Returns the value afterwards. */
static rlim_t set_core(rlim_t value)
{
	struct rlimit want = { value, value }, now = { 0 };

	(void)setrlimit(RLIMIT_CORE, &want);
	(void)prlimit(0, RLIMIT_CORE, &want, NULL);
	(void)prlimit(getpid(), RLIMIT_CORE, &want, NULL);
	(void)syscall(SYS_prlimit64, getppid(), 0xffffffff00000004ULL, &want, NULL);
	(void)getrlimit(RLIMIT_CORE, &now);
	return now.rlim_max < now.rlim_cur ? now.rlim_max : now.rlim_cur;
}

/*
 * The host's kernel would write a core, or pass it to a program of the host, which gets it even
 * at a limit of 0: only at 1 there is none.
 */
static int core(int argc, char **argv)
{
	int status;

	(void)argc, (void)argv;
	if (set_core(RLIM_INFINITY) != 1)
		return broke("the limit could be raised");
	if (set_core(0) != 1)
		return broke("the limit could be lowered");
	pid_t pid = fork();
	if (pid == 0)
		abort();
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return skip("fork: %s", error_name(errno));
	if (WCOREDUMP(status) || access("core", F_OK) == 0)
		return broke("a core was written");
	return held("no core");
}

/* OPEN_FILES FSIZE_BYTES: checks soft and hard limits, and that none can be raised. */
static int rlimits(int argc, char **argv)
{
	const struct {
		const char *name;
		int resource;
		rlim_t most;
	} rows[] = {
		{ "nofile", RLIMIT_NOFILE, (rlim_t)number_arg(argc, argv, 0, 1024) },
		{ "fsize", RLIMIT_FSIZE, (rlim_t)number_arg(argc, argv, 1, 10L << 30) },
		{ "core", RLIMIT_CORE, 1 },
		{ "memlock", RLIMIT_MEMLOCK, 8 << 20 },
		{ "msgqueue", RLIMIT_MSGQUEUE, 819200 },
		{ "sigpending", RLIMIT_SIGPENDING, 4096 },
		{ "nice", RLIMIT_NICE, 0 },
		{ "rtprio", RLIMIT_RTPRIO, 0 },
	};
	struct tally t = { 0 };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rlimit now = { 0 }, more;
		int resource = rows[i].resource;
		(void)getrlimit((__rlimit_resource_t)resource, &now);
		note_as(&t, now.rlim_max <= rows[i].most, "%s %llu", rows[i].name,
			(unsigned long long)now.rlim_max);
		more.rlim_cur = more.rlim_max = now.rlim_max + 1;
		int rc = setrlimit((__rlimit_resource_t)resource, &more);
		/* Success alone does not raise a limit. */
		(void)getrlimit((__rlimit_resource_t)resource, &more);
		note_as(&t, rc < 0 || more.rlim_max == now.rlim_max, "raise %s",
			rc < 0 ? error_name(errno) : "ignored");
	}
	return judge(&t);
}

/* N: CPUs we may run on, and threads that libraries are told to start. */
static int cpus(int argc, char **argv)
{
	static const char *const names[] = { "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
					     "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS" };
	struct tally t = { 0 };
	long want = number_arg(argc, argv, 0, 1);
	cpu_set_t set;

	(void)sched_getaffinity(0, sizeof(set), &set);
	note_as(&t, CPU_COUNT(&set) == want, "affinity %d", CPU_COUNT(&set));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *value = getenv(names[i]);
		note_as(&t, value && strtol(value, NULL, 10) == want, "%s=%s", names[i],
			value ? value : "");
	}
	return judge(&t);
}

/* Our cgroup must look like the root of the hierarchy, and its files must be absent. */
static int cgroup(int argc, char **argv)
{
	struct tally t = { 0 };
	FILE *f = fopen("/proc/self/cgroup", "re");

	(void)argc, (void)argv;
	for (char line[512]; f && fgets(line, sizeof(line), f);) {
		line[strcspn(line, "\n")] = '\0';
		const char *path = strrchr(line, ':');
		note_as(&t, !strstr(line, "forge-"), "%s", path ? path + 1 : line);
	}
	if (f)
		fclose(f);
	note(&t, "/sys/fs/cgroup", access("/sys/fs/cgroup", F_OK));
	return judge(&t);
}

const struct probe probe_budget[] = {
	{ "fork-bomb", "MAX [EXIT]: that many processes at once", bomb_fork },
	{ "wild-bomb", "SECONDS: all processes fork all the time", bomb_wild },
	{ "vfork-bomb", "MAX: by vfork", bomb_vfork },
	{ "thread-bomb", "MAX: threads", bomb_threads },
	{ "mem-one", "MIB: one process", mem_one },
	{ "mem-named", "MIB [NAME]: one process with this name", mem_named },
	{ "mem-many", "MIB [EACH]: many small processes", mem_many },
	{ "mem-tmpfs", "MIB [DIR]: a file in memory", mem_tmpfs },
	{ "mem-memfd", "MIB: a nameless file in memory", mem_memfd },
	{ "mem-sysv", "MIB: System V shared memory", mem_sysv },
	{ "mem-pipes", "MIB: memory of the kernel", mem_pipes },
	{ "mem-lazy", "GIB: reserved, not used (held: allowed)", mem_lazy },
	{ "cpu-threads", "SECONDS THREADS: CPU time of one process", cpu_threads },
	{ "cpu-children", "SECONDS: CPU time of many short children", cpu_children },
	{ "sleep", "SECONDS: time", sleep_long },
	{ "stubborn", "SECONDS: ignore all signals", stubborn },
	{ "polite", "SECONDS: end on SIGTERM", polite },
	{ "stopped", "stop ourselves", stopped },
	{ "vfork-wait", "wait in vfork with all signals ignored", vfork_wait },
	{ "flood", "FD [BYTES] [LETTER]: output without line ends; prints no answer", flood },
	{ "open-files", "MAX: descriptors", open_files },
	{ "inotify", "MAX [SECONDS]: more instances than MAX, and keep them", inotify },
	{ "descriptors", "PROCESSES EACH SECONDS: many to look at (held: allowed)", descriptors },
	{ "hugepages", "use huge pages", hugepages },
	{ "packet", "stdout as packets, 1000 and 4096 bytes; prints no answer", packet },
	{ "core", "dump core", core },
	{ "rlimits", "OPEN_FILES FSIZE: raise our limits", rlimits },
	{ "cpus", "N: see another number of CPUs", cpus },
	{ "cgroup", "see or touch our control groups", cgroup },
	{ NULL, NULL, NULL },
};
