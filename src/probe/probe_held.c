/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More attacks on the disk limit: blocks that a run holds in unusual places, or takes without
 * writing. All of it happens in the current directory. MIB is a maximum: "broke" when it was
 * reached. The blocks are then kept for a second, so that a watcher looks once more.
 */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB (1L << 20)

/* The kernel prints a newline in a name as four characters. */
static int names_of_lines(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 64), n = 0;
	char name[250];

	memset(name, '\n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	for (int i = 0; i < 12; i++) {
		if (mkdir(name, 0700) < 0 || chdir(name) < 0)
			return skip("mkdir: %s", error_name(errno));
	}
	for (; n < max; n++) {
		int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0 || !add_mib(fd))
			break;
		void *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
		close(fd);
		if (unlink(name) < 0 || p == MAP_FAILED)
			break;
	}
	return filled(n, max, "in mapped files with long names");
}

/* Starts copies of this program, padded and then deleted, that execute the probe named verb. */
static int start_programs(long max, const char *verb, const char *what)
{
	long each = 16, n = 0;
	static char self[4 * MIB];
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, self, sizeof(self));

	if (len <= 0)
		return skip("read: %s", error_name(errno));
	for (; n < max; n += each) {
		int out = open("program", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
		if (out < 0 || write(out, self, (size_t)len) != len)
			break;
		for (long i = 0; i < each; i++)
			if (!add_mib(out))
				return filled(n, max, what);
		close(out);
		int ready[2];
		if (pipe2(ready, O_CLOEXEC) < 0)
			break;
		pid_t pid = fork();
		if (pid == 0) {
			execl("./program", "program", verb, NULL);
			_exit(1);
		}
		/* The pipe closes when the program runs. */
		close(ready[1]);
		char byte;
		(void)!read(ready[0], &byte, 1);
		close(ready[0]);
		if (unlink("program") < 0)
			break;
	}
	return filled(n, max, what);
}

/* Only the process holds the file of the program that it runs. */
static int programs(int argc, char **argv)
{
	return start_programs(number_arg(argc, argv, 0, 64), "hold-still", "in programs that run");
}

static int hold_still(int argc, char **argv)
{
	(void)argc, (void)argv;
	for (int i = 0; i < 60; i++)
		(void)sleep(1);
	return held("over");
}

/*
 * The same without any mapping of the file: only the kernel's reference to the executed file is
 * left.
 */
static int unmapped_programs(int argc, char **argv)
{
	return start_programs(number_arg(argc, argv, 0, 64), "hold-unmapped", "in programs without a mapping");
}

struct range {
	unsigned long start, len; /* len 0: the end */
};

/*
 * Unmaps all ranges of r, then waits forever. It is copied elsewhere before it runs, so it uses
 * only registers: no stack, no data, no other function.
 */
#if defined(__x86_64__)
__asm__(".pushsection .text\n"
	"unmap_code:\n"
	"	mov %rdi, %rbx\n"
	"1:	mov (%rbx), %rdi\n"
	"	mov 8(%rbx), %rsi\n"
	"	test %rsi, %rsi\n"
	"	jz 2f\n"
	"	mov $11, %eax\n" /* munmap */
	"	syscall\n"
	"	add $16, %rbx\n"
	"	jmp 1b\n"
	"2:	mov $34, %eax\n" /* pause */
	"	syscall\n"
	"	jmp 2b\n"
	"unmap_code_end:\n"
	".popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection .text\n"
	"unmap_code:\n"
	"	mov x19, x0\n"
	"1:	ldp x0, x1, [x19], #16\n"
	"	cbz x1, 2f\n"
	"	mov x8, #215\n" /* munmap */
	"	svc #0\n"
	"	b 1b\n"
	"2:	mov x0, xzr\n"
	"	mov x1, xzr\n"
	"	mov x2, xzr\n"
	"	mov x3, xzr\n"
	"	mov x8, #73\n" /* ppoll, of nothing */
	"	svc #0\n"
	"	b 2b\n"
	"unmap_code_end:\n"
	".popsection\n");
#endif

/* Finds where the program of this process is mapped. */
static bool find_image(struct range *r, size_t max)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[4096];
	size_t n = 0;

	while (f && n + 1 < max && fgets(line, sizeof(line), f)) {
		unsigned long start, end, inode;
		if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &start, &end, &inode) == 3 && inode)
			r[n++] = (struct range){ start, end - start };
	}
	if (f)
		fclose(f);
	r[n] = (struct range){ 0, 0 };
	return n > 0;
}

static int hold_unmapped(int argc, char **argv)
{
	(void)argc, (void)argv;
#if defined(__x86_64__) || defined(__aarch64__)
	extern const char unmap_code[], unmap_code_end[];
	size_t len = (size_t)(unmap_code_end - unmap_code);
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct range *r = (struct range *)(void *)(page + 4096);
	void (*unmap)(struct range *);

	if (page == MAP_FAILED || !find_image(r, 64))
		return skip("map: %s", error_name(errno));
	memcpy(page, unmap_code, len);
	__builtin___clear_cache(page, page + len);
	if (mprotect(page, 4096, PROT_READ | PROT_EXEC) < 0)
		return skip("mprotect: %s", error_name(errno));
	memcpy(&unmap, &page, sizeof(unmap));
	unmap(r);
#endif
	return skip("no code for this processor");
}

/*
 * Files in flight in a socket that is not read, and locks on the socket, which fdinfo lists
 * before them.
 */
static int locked_socket(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 64), n = 0;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0)
		return skip("socketpair: %s", error_name(errno));
	for (int i = 0; i < 100; i++) {
		struct flock l = { .l_type = F_WRLCK, .l_start = 2L * i, .l_len = 1 };
		(void)fcntl(pair[1], F_SETLK, &l);
		(void)fcntl(pair[0], F_SETLK, &l);
	}
	for (; n < max; n += 4) {
		char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
		struct iovec iov = { &byte, 1 };
		struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
				      .msg_controllen = sizeof(control) };
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		int fd = open("sent", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0 || unlink("sent") < 0)
			break;
		for (int i = 0; i < 4; i++)
			if (!add_mib(fd))
				return filled(n, max, "in a locked socket");
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
		if (sendmsg(pair[0], &msg, MSG_DONTWAIT) < 0)
			break;
		close(fd);
	}
	return filled(n, max, "in a locked socket");
}

/* Fills a directory with long names and removes them: the directory stays as large as it was. */
static bool grow(const char *dir, long count)
{
	char name[256];

	if (chdir(dir) < 0)
		return false;
	for (int pass = 0; pass < 2; pass++)
		for (long i = 0; i < count; i++) {
			int len = snprintf(name, sizeof(name), "%0240ld", i);
			if (pass == 0) {
				/* Another name of a file costs no inode. */
				if (i == 0)
					close(open("first", O_WRONLY | O_CREAT, 0600));
				if (link("first", name) < 0 && errno == EMLINK) {
					(void)unlink("first");
					close(open("first", O_WRONLY | O_CREAT, 0600));
					if (link("first", name) < 0)
						return false;
				}
			} else {
				(void)unlink(name);
			}
			(void)len;
		}
	(void)unlink("first");
	return true;
}

/* MIB [cwd]: directories that are deleted but open, or the current directory of a process. */
static int directories(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 64), n = 0;
	bool is_cwd = argc > 1 && strcmp(argv[1], "cwd") == 0;
	struct stat st;

	for (; n < max * MIB;) {
		if (mkdir("dir", 0700) < 0 || !grow("dir", 12000))
			break;
		int fd = open(".", O_RDONLY | O_DIRECTORY);
		if (fd < 0 || fstat(fd, &st) < 0 || chdir("..") < 0)
			break;
		n += st.st_blocks * 512;
		if (is_cwd) {
			int ready[2];
			if (pipe2(ready, O_CLOEXEC) < 0)
				break;
			if (fork() == 0) {
				(void)!fchdir(fd);
				close(fd);
				close(ready[1]);
				(void)sleep(60);
				_exit(0);
			}
			close(ready[1]);
			char byte;
			(void)!read(ready[0], &byte, 1);
			close(ready[0]);
			close(fd);
		}
		if (rmdir("dir") < 0)
			break;
		if (st.st_blocks * 512 < 64 * 1024)
			return skip("this file system shrinks directories");
	}
	return filled(n / MIB, max, "in deleted directories");
}

/* The workdir itself is a large directory. */
static int large_workdir(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 64);
	struct stat st = { 0 };

	for (long count = 12000; st.st_blocks * 512 < max * MIB; count *= 2) {
		long before = st.st_blocks;
		if (!grow(".", count) || stat(".", &st) < 0)
			break;
		if (st.st_blocks == before)
			return skip("this file system shrinks directories");
	}
	return filled(st.st_blocks * 512 / MIB, max, "in the workdir's own directory");
}

/* Blocks that are allocated but not written: any number of them takes no time. */
static int allocate(int argc, char **argv)
{
	off_t len = number_arg(argc, argv, 0, 256) * MIB;
	struct tally t = { 0 };
	int fd = open("allocated", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct {
		int16_t type, whence;
		int64_t start, len;
		int32_t sysid;
		uint32_t pid;
		int32_t pad[4];
	} space = { .len = len };

	note(&t, "fallocate", fallocate(fd, 0, 0, len));
	note(&t, "fallocate KEEP_SIZE", fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, len));
	note(&t, "fallocate ZERO_RANGE", fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, len));
	note(&t, "FS_IOC_RESVSP", ioctl(fd, 0x40305828UL, &space));
	note(&t, "FS_IOC_RESVSP64", ioctl(fd, 0x4030582aUL, &space));
	note(&t, "FS_IOC_ZERO_RANGE", ioctl(fd, 0x40305839UL, &space));
	note(&t, "... with garbage above", syscall(SYS_ioctl, fd, 0xffffffff4030582aUL, &space));
	/* Freeing blocks is allowed, and posix_fallocate() writes instead. */
	if (ftruncate(fd, MIB) < 0 ||
	    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0)
		note_as(&t, errno == EOPNOTSUPP, "holes cannot be punched (%s)", error_name(errno));
	if ((errno = posix_fallocate(fd, 0, 64 * 1024)))
		note_as(&t, false, "posix_fallocate %s", error_name(errno));
	return judge(&t);
}

/* A Landlock rule keeps a file without a descriptor or a mapping. */
static int landlock_rules(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 64), n = 0;
	uint64_t access = 4; /* READ_FILE */
	long rules = syscall(444, &access, sizeof(access), 0);

	if (rules < 0)
		return held("no rulesets: %s", error_name(errno));
	for (; n < max; n++) {
		struct {
			uint64_t access;
			int32_t fd;
		} __attribute__((packed)) rule = { .access = access };
		rule.fd = open("ruled", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (rule.fd < 0 || !add_mib(rule.fd))
			break;
		if (syscall(445, rules, 1, &rule, 0) < 0)
			return held("no rules: %s", error_name(errno));
		(void)unlink("ruled");
		close(rule.fd);
	}
	return filled(n, max, "in files with Landlock rules");
}

/* SECONDS FILE: keeps FILE mapped after closing it; another process deletes it. */
static int map_only(int argc, char **argv)
{
	int fd = argc < 2 ? -1 : open(argv[1], O_RDONLY | O_CLOEXEC);
	void *p = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);

	if (p == MAP_FAILED)
		return skip("map: %s", error_name(errno));
	close(fd);
	printf("mapped\n");
	fflush(stdout);
	(void)sleep((unsigned)number_arg(argc, argv, 0, 5));
	return held("still here");
}

const struct probe probe_held[] = {
	{ "fill-lines", "MIB: deleted files, mapped, with names full of line ends", names_of_lines },
	{ "fill-programs", "MIB: deleted programs that run", programs },
	{ "hold-still", "do nothing for a minute", hold_still },
	{ "fill-unmapped", "MIB: deleted programs that have unmapped themselves", unmapped_programs },
	{ "hold-unmapped", "unmap the program and do nothing", hold_unmapped },
	{ "fill-locked", "MIB: deleted files inside a socket with locks", locked_socket },
	{ "fill-dirs", "MIB [cwd]: deleted directories that are held", directories },
	{ "fill-workdir", "MIB: the workdir's own directory", large_workdir },
	{ "fill-rules", "MIB: deleted files with Landlock rules", landlock_rules },
	{ "allocate", "MIB: blocks without writing", allocate },
	{ "map-only", "SECONDS FILE: keep a file mapped", map_only },
	{ NULL, NULL, NULL },
};
