/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks on the kernel's own memory: objects that a process can make, that no cgroup is
 * charged for, and that stay as long as the process does. Each probe takes MIB of them as fast
 * as it can, prints how much it has by its own count, and keeps it for SECONDS. Also BPF
 * programs, whose memory and release concern the whole host.
 */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/filter.h>
#include <linux/net_tstamp.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1L << 20)

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

/* The end of all these probes: keeps the objects. */
static int keep(const char *what, long bytes, long seconds)
{
	printf("has %ld MiB in %s\n", bytes / MIB, what);
	fflush(stdout);
	for (; seconds > 0; seconds--)
		(void)sleep(1);
	return broke("kept %ld MiB in %s", bytes / MIB, what);
}

/* With "burst" as the last argument: pauses after every 33 MiB, while a watcher may be looking. */
static bool is_bursting;

static void pause_between_bursts(long got)
{
	static long next = 33 * MIB;

	if (is_bursting && got >= next) {
		next = got + 33 * MIB;
		(void)usleep(800000);
	}
}

static void use_all_descriptors(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &r);
	}
}

/* Makes a socket on loopback, connected to itself (datagrams) or listening (streams). */
static int bound_socket(int type, int protocol, struct sockaddr_in *at)
{
	socklen_t len = sizeof(*at);
	int fd = socket(AF_INET, type, protocol);

	*at = (struct sockaddr_in){ .sin_family = AF_INET };
	at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)at, sizeof(*at)) < 0 ||
	    getsockname(fd, (struct sockaddr *)at, &len) < 0) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

/* Makes a connected pair of streams over loopback. */
static int stream_pair(int listener, const struct sockaddr_in *at, int protocol, int ret[2])
{
	ret[0] = socket(AF_INET, SOCK_STREAM, protocol);
	if (ret[0] < 0)
		return -1;
	if (connect(ret[0], (const struct sockaddr *)at, sizeof(*at)) < 0) {
		close(ret[0]);
		return -1;
	}
	ret[1] = accept(listener, NULL, NULL);
	if (ret[1] >= 0)
		return 0;
	close(ret[0]);
	return -1;
}

/* Sends with a request for a transmit time stamp as ancillary data, which no filter sees. */
static ssize_t send_stamped(int fd, const void *data, size_t len, const struct sockaddr_in *to)
{
	char control[CMSG_SPACE(sizeof(uint32_t))] = { 0 };
	struct iovec iov = { .iov_base = (void *)data, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	uint32_t flags = SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_SOFTWARE;

	if (to) {
		m.msg_name = (void *)to;
		m.msg_namelen = sizeof(*to);
	}
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SO_TIMESTAMPING;
	c->cmsg_len = CMSG_LEN(sizeof(flags));
	memcpy(CMSG_DATA(c), &flags, sizeof(flags));
	return sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static bool has_error_queue(int fd)
{
	struct pollfd p = { .fd = fd };

	return poll(&p, 1, 0) > 0 && (p.revents & POLLERR);
}

/* MIB SECONDS [options]: also with socket options, where they can be set. */
static int udp_stamps(int argc, char **argv)
{
	long want = number_arg(argc, argv, 0, 512) * MIB, seconds = number_arg(argc, argv, 1, 5);
	static char data[60000];
	int size = 1 << 30;
	uint32_t flags = SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_SOFTWARE;
	long got = 0, n = 0;

	use_all_descriptors();
	while (got < want) {
		struct sockaddr_in at;
		int fd = bound_socket(SOCK_DGRAM, 0, &at);
		if (fd < 0)
			break;
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
		(void)setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof(flags));
		long before = got;
		for (int i = 0; i < 64; i++) {
			if (send_stamped(fd, data, sizeof(data), &at) < 0)
				break;
			/* The queue itself is charged; the copies in the error queue are not. */
			(void)recv(fd, data, sizeof(data), MSG_DONTWAIT);
			if (has_error_queue(fd))
				got += (long)sizeof(data);
		}
		if (got == before && ++n > 8)
			return held("no time stamps are kept (%ld sockets tried)", n);
	}
	if (got == 0)
		return held("no datagrams: %s", error_name(errno));
	return keep("time stamps of datagrams", got, seconds);
}

static int tcp_stamps(int argc, char **argv)
{
	long want = number_arg(argc, argv, 0, 512) * MIB, seconds = number_arg(argc, argv, 1, 5);
	static char data[32768];
	long got = 0, n = 0;
	struct sockaddr_in at;

	use_all_descriptors();
	int listener = bound_socket(SOCK_STREAM, 0, &at), pair[2];
	if (listener < 0 || listen(listener, 64) < 0)
		return held("no streams: %s", error_name(errno));
	while (got < want && stream_pair(listener, &at, 0, pair) == 0) {
		long before = got;
		for (int i = 0; i < 4; i++) {
			if (send_stamped(pair[0], data, sizeof(data), NULL) < 0)
				break;
			while (recv(pair[1], data, sizeof(data), MSG_DONTWAIT) > 0)
				;
			if (has_error_queue(pair[0]))
				got += (long)sizeof(data);
		}
		if (got == before && ++n > 8)
			return held("no time stamps are kept (%ld connections tried)", n);
	}
	return keep("time stamps of streams", got, seconds);
}

/* Many connections with data in their queues, by children with their own descriptors. */
static int tcp_many(int argc, char **argv)
{
	long want = number_arg(argc, argv, 0, 512) * MIB, seconds = number_arg(argc, argv, 1, 5);
	int protocol = argc > 2 && strcmp(argv[2], "mptcp") == 0 ? IPPROTO_MPTCP : 0;
	static char data[16384];
	long *got = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (got == MAP_FAILED)
		return skip("mmap: %s", error_name(errno));
	for (int child = 0; child < 30; child++) {
		if (fork() != 0)
			continue;
		struct sockaddr_in at;
		use_all_descriptors();
		int listener = bound_socket(SOCK_STREAM, protocol, &at), pair[2];
		if (listener < 0 || listen(listener, 64) < 0)
			_exit(1);
		while (*got < want && stream_pair(listener, &at, protocol, pair) == 0)
			for (int i = 0; i < 2; i++) {
				ssize_t n = send(pair[i], data, sizeof(data), MSG_DONTWAIT);
				__atomic_fetch_add(got, n > 0 ? n : 0, __ATOMIC_RELAXED);
			}
		(void)sleep((unsigned)seconds + 5);
		_exit(0);
	}
	for (long last = -1; *got < want && *got != last;) {
		last = *got;
		(void)sleep(1);
	}
	return *got ? keep("queues of streams", *got, seconds)
		    : held("no such streams: %s", protocol ? "MPTCP" : "TCP");
}

/*
 * One socket connects, sends, dissolves the connection and connects again. The other ends stay,
 * full, because they are never accepted; no cgroup is charged for them before that.
 */
static int tcp_unaccepted(int argc, char **argv)
{
	long want = number_arg(argc, argv, 0, 512) * MIB, seconds = number_arg(argc, argv, 1, 5);
	static char data[65536];
	struct sockaddr nowhere = { .sa_family = AF_UNSPEC };
	long got = 0;
	int client = -1;

	is_bursting = argc > 2 && strcmp(argv[argc - 1], "burst") == 0;
	use_all_descriptors();
	while (got < want) {
		struct sockaddr_in at;
		int listener = bound_socket(SOCK_STREAM, 0, &at);
		if (listener < 0 || listen(listener, 4096) < 0)
			break;
		for (int i = 0; i < 1000 && got < want; i++) {
			if (client < 0)
				client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
			if (client < 0 ||
			    (connect(client, (struct sockaddr *)&at, sizeof(at)) < 0 &&
			     errno != EINPROGRESS))
				break;
			long before = got;
			for (ssize_t n; (n = send(client, data, sizeof(data), MSG_NOSIGNAL)) > 0;)
				got += n;
			if (got == before)
				break;
			if (connect(client, &nowhere, sizeof(nowhere)) < 0) {
				close(client);
				client = -1;
			}
			pause_between_bursts(got);
		}
		if (client < 0)
			break;
	}
	return keep("connections that are not accepted", got, seconds);
}

/*
 * One byte of every 32 KiB piece that the kernel copies for us stays in the queue of one
 * stream. The rest goes through another stream and is freed, but the piece is not.
 */
static int tcp_pin(int argc, char **argv)
{
	long want = number_arg(argc, argv, 0, 512) * MIB, seconds = number_arg(argc, argv, 1, 5);
	static char data[32768];
	int keeper[2], drain[2], one = 1;
	long got = 0, refused = 0;
	struct sockaddr_in at;

	is_bursting = argc > 2 && strcmp(argv[argc - 1], "burst") == 0;

	use_all_descriptors();
	int listener = bound_socket(SOCK_STREAM, 0, &at);
	if (listener < 0 || listen(listener, 64) < 0 ||
	    stream_pair(listener, &at, 0, drain) < 0 || stream_pair(listener, &at, 0, keeper) < 0)
		return held("no streams: %s", error_name(errno));
	(void)setsockopt(drain[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	while (got < want && refused < 500) {
		(void)setsockopt(keeper[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (send(keeper[0], data, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
			refused++;
			if (stream_pair(listener, &at, 0, keeper) < 0)
				break;
			continue;
		}
		got += (long)sizeof(data);
		pause_between_bursts(got);
		for (size_t left = sizeof(data) - 64; left > 0;) {
			ssize_t n = send(drain[0], data, left, MSG_DONTWAIT);
			left -= n > 0 ? (size_t)n : 0;
			while (recv(drain[1], data, sizeof(data), MSG_DONTWAIT) > 0)
				;
		}
	}
	return keep("pages pinned in queues of streams", got, seconds);
}

/* Each answer to a bad request contains the request, and stays queued until it is read. */
static int netlink_errors(int argc, char **argv)
{
	long want = number_arg(argc, argv, 0, 512) * MIB, seconds = number_arg(argc, argv, 1, 5);
	long got = 0;
	struct {
		struct nlmsghdr h;
		char body[16000];
	} request = { .h = { .nlmsg_len = sizeof(request), .nlmsg_type = 9999,
			     .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK } };

	use_all_descriptors();
	while (got < want) {
		int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
		if (fd < 0)
			break;
		for (int i = 0; i < 14; i++)
			if (send(fd, &request, sizeof(request), MSG_DONTWAIT) > 0)
				got += (long)sizeof(request);
	}
	return got ? keep("answers of netlink", got, seconds)
		   : held("no netlink: %s", error_name(errno));
}

/* KIND: posix or ofd. Locks every second byte of many files, by many processes. */
static int file_locks(int argc, char **argv)
{
	long want = number_arg(argc, argv, 0, 512) * MIB, seconds = number_arg(argc, argv, 1, 5);
	int command = argc > 2 && strcmp(argv[2], "ofd") == 0 ? F_OFD_SETLK : F_SETLK;
	long got = 0;

	is_bursting = argc > 2 && strcmp(argv[argc - 1], "burst") == 0;

	use_all_descriptors();
	for (int file = 0; got < want; file++) {
		char name[32];
		(void)snprintf(name, sizeof(name), "lock-%d", file);
		int fd = open(name, O_RDWR | O_CREAT, 0600);
		if (fd < 0)
			break;
		/* The kernel searches the list of a file from its start: short lists are fast. */
		for (int i = 0; i < 2000; i++) {
			struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET,
					   .l_start = 2L * (2000 - i), .l_len = 1 };
			if (fcntl(fd, command, &l) < 0)
				return held("locks: %s", error_name(errno));
			got += 216;
		}
		pause_between_bursts(got);
	}
	return keep("locks of files", got, seconds);
}

/*
 * A policy for every second page of shared memory that has no pages. The policies belong to the
 * file: they stay when the mapping through which they were set is gone.
 */
static int mem_policies(int argc, char **argv)
{
	long want = number_arg(argc, argv, 0, 512) * MIB, seconds = number_arg(argc, argv, 1, 5);
	const size_t window = 8192 * 4096UL;
	unsigned long nodes = 1;
	long got = 0;
	int fd = -1;

	for (off_t at = 0; got < want; at = (at + (off_t)window) % (1L << 33)) {
		if (at == 0)
			fd = memfd_create("policies", MFD_CLOEXEC);
		if (fd < 0 || (at == 0 && ftruncate(fd, 1L << 33) < 0))
			return skip("memfd: %s", error_name(errno));
		char *p = mmap(NULL, window, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);
		if (p == MAP_FAILED)
			break;
		for (size_t i = 0; i < window; i += 2 * 4096) {
			if (syscall(SYS_mbind, p + i, 4096, 2 /* MPOL_BIND */, &nodes, 64, 0) < 0)
				return held("mbind: %s", error_name(errno));
			got += 80;
		}
		(void)munmap(p, window);
	}
	return keep("memory policies", got, seconds);
}

/* No cgroup is charged for the data of an unfinished datagram (MSG_MORE). */
static int udp_cork(int argc, char **argv)
{
	long want = number_arg(argc, argv, 0, 512) * MIB, seconds = number_arg(argc, argv, 1, 5);
	static char data[60000];
	long *got = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (got == MAP_FAILED)
		return skip("mmap: %s", error_name(errno));
	for (int child = 0; child < 15; child++) {
		if (fork() != 0)
			continue;
		struct sockaddr_in at;
		int fd;
		use_all_descriptors();
		while (*got < want && (fd = bound_socket(SOCK_DGRAM, 0, &at)) >= 0)
			if (sendto(fd, data, sizeof(data), MSG_MORE | MSG_DONTWAIT,
				   (struct sockaddr *)&at, sizeof(at)) > 0)
				__atomic_fetch_add(got, (long)sizeof(data), __ATOMIC_RELAXED);
		(void)sleep((unsigned)seconds + 5);
		_exit(0);
	}
	for (long last = -1; *got < want && *got != last;) {
		last = *got;
		(void)sleep(1);
	}
	return *got ? keep("unfinished datagrams", *got, seconds) : held("no datagrams");
}

/* MAX: sockets of each kind that is counted; then one more, after some are closed. */
static int socket_bomb(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 5000), n = 0;
	int *fds = calloc((size_t)max, sizeof(int));

	use_all_descriptors();
	while (fds && n < max && (fds[n] = socket(AF_INET, SOCK_STREAM, 0)) >= 0)
		n++;
	if (!fds || n == max)
		return broke("%ld sockets", n);
	int error = errno;
	for (long i = 0; i < n; i++)
		close(fds[i]);
	if (socket(AF_INET, SOCK_STREAM, 0) < 0)
		return broke("%s though they were closed", error_name(errno));
	return held("%s after %ld sockets", error_name(error), n);
}

/* ---- BPF programs ---- */

static int attach(int option, const void *value, socklen_t len)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	int rc = setsockopt(fd, SOL_SOCKET, option, value, len), error = errno;

	close(fd);
	errno = error;
	return rc;
}

static int set_filter_by_prctl(struct sock_fprog *prog)
{
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, prog, 0, 0);
}

static int set_filter_by_seccomp(struct sock_fprog *prog)
{
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, prog);
}

static int in_process(int (*f)(struct sock_fprog *), struct sock_fprog *prog)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		_exit(f(prog) < 0 ? errno : 0);
	}
	(void)waitpid(pid, &status, 0);
	errno = WEXITSTATUS(status);
	return errno ? -1 : 0;
}

/* One of each is enough: thousands at once have hung kernels for good. */
static int make_bpf(int argc, char **argv)
{
	struct sock_filter allow[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_fprog prog = { .len = 1, .filter = allow };
	struct tally t = { 0 };

	(void)argc, (void)argv;
	note(&t, "SO_ATTACH_FILTER", attach(SO_ATTACH_FILTER, &prog, sizeof(prog)));
	note(&t, "SO_ATTACH_REUSEPORT_CBPF", attach(SO_ATTACH_REUSEPORT_CBPF, &prog, sizeof(prog)));
	note(&t, "SO_LOCK_FILTER", attach(SO_LOCK_FILTER, &(int){ 1 }, sizeof(int)));
	note(&t, "prctl", in_process(set_filter_by_prctl, &prog));
	note(&t, "seccomp", in_process(set_filter_by_seccomp, &prog));
	return judge(&t);
}

/* Protocols whose modules the kernel would load, and options that load or keep something. */
static int protocols(int argc, char **argv)
{
	static const struct {
		const char *name;
		int family, type, protocol;
	} sockets[] = {
		{ "SCTP", AF_INET, SOCK_STREAM, 132 },	 { "SCTP seqpacket", AF_INET6, SOCK_SEQPACKET, 132 },
		{ "DCCP", AF_INET, 6, 33 },		 { "L2TP", AF_INET, SOCK_DGRAM, 115 },
		{ "MPTCP", AF_INET, SOCK_STREAM, 262 },	 { "UDPLITE", AF_INET6, SOCK_DGRAM, 136 },
		{ "SMC", AF_INET, SOCK_STREAM, 256 },	 { "raw", AF_INET, SOCK_RAW, 1 },
		{ "SCTP with garbage above", AF_INET, SOCK_STREAM, 132 },
	};
	struct tally t = { 0 };

	(void)argc, (void)argv;
	for (size_t i = 0; i < sizeof(sockets) / sizeof(sockets[0]); i++) {
		uint64_t high = strstr(sockets[i].name, "garbage") ? 1ULL << 32 : 0;
		long fd = syscall(SYS_socket, (uint64_t)sockets[i].family | high,
				  (uint64_t)sockets[i].type | high,
				  (uint64_t)sockets[i].protocol | high);
		note(&t, sockets[i].name, fd);
	}
	return judge(&t);
}

static int socket_options(int argc, char **argv)
{
	static const struct {
		const char *name;
		int level, option;
	} options[] = {
		{ "SO_TIMESTAMPING", SOL_SOCKET, 37 }, { "SO_TIMESTAMPING_NEW", SOL_SOCKET, 65 },
		{ "SO_ZEROCOPY", SOL_SOCKET, 60 },     { "SO_TXTIME", SOL_SOCKET, 61 },
		{ "TCP_ULP", IPPROTO_TCP, 31 },	       { "TCP_CONGESTION", IPPROTO_TCP, 13 },
		{ "TCP_MD5SIG", IPPROTO_TCP, 14 },     { "TCP_REPAIR", IPPROTO_TCP, 19 },
		{ "IP_OPTIONS", IPPROTO_IP, 4 },       { "IP_ADD_MEMBERSHIP", IPPROTO_IP, 35 },
	};
	static char value[256];
	struct tally t = { 0 };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	(void)argc, (void)argv;
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		int rc = setsockopt(fd, options[i].level, options[i].option, value, sizeof(value));
		/* The kernel may refuse it too, but with another error. */
		note_as(&t, rc < 0 && errno == ENOPROTOOPT, "%s %s", options[i].name,
			rc < 0 ? error_name(errno) : "worked");
	}
	return judge(&t);
}

const struct probe probe_kernel[] = {
	{ "udp-stamps", "MIB SECONDS: keep time stamps of datagrams", udp_stamps },
	{ "udp-cork", "MIB SECONDS: keep datagrams that are not finished", udp_cork },
	{ "tcp-stamps", "MIB SECONDS: keep time stamps of streams", tcp_stamps },
	{ "tcp-many", "MIB SECONDS [mptcp]: fill the queues of many streams", tcp_many },
	{ "tcp-unaccepted", "MIB SECONDS [burst]: connect, and accept nothing", tcp_unaccepted },
	{ "tcp-pin", "MIB SECONDS [burst]: pin pages by single bytes in queues", tcp_pin },
	{ "netlink-errors", "MIB SECONDS: keep answers of netlink", netlink_errors },
	{ "file-locks", "MIB SECONDS [ofd] [burst]: lock every second byte", file_locks },
	{ "mem-policies", "MIB SECONDS: policies for pages of shared memory", mem_policies },
	{ "socket-bomb", "MAX: sockets", socket_bomb },
	{ "make-bpf", "make one BPF program of each kind", make_bpf },
	{ "protocols", "sockets of protocols that the kernel would load", protocols },
	{ "socket-options", "options that load modules or keep memory", socket_options },
	{ NULL, NULL, NULL },
};
