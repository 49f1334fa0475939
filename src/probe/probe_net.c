/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks on the network: families that bypass it, hosts, services, sockets of other processes. */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* Families that a run never needs. Numbers, because headers differ. */
static const struct {
	const char *name;
	int family, type, protocol;
} families[] = {
	{ "AX25", 3, SOCK_DGRAM, 0 },	   { "IPX", 4, SOCK_DGRAM, 0 },
	{ "APPLETALK", 5, SOCK_DGRAM, 0 }, { "X25", 9, SOCK_SEQPACKET, 0 },
	{ "KEY", 15, SOCK_RAW, 2 },	   { "PACKET", 17, SOCK_RAW, 0 },
	{ "PACKET dgram", 17, SOCK_DGRAM, 0 },
	{ "RDS", 21, SOCK_SEQPACKET, 0 },  { "PPPOX", 24, SOCK_STREAM, 0 },
	{ "CAN", 29, SOCK_RAW, 1 },	   { "TIPC", 30, SOCK_STREAM, 0 },
	{ "BLUETOOTH", 31, SOCK_RAW, 1 },  { "ALG", 38, SOCK_SEQPACKET, 0 },
	{ "VSOCK", 40, SOCK_STREAM, 0 },   { "QIPCRTR", 42, SOCK_DGRAM, 0 },
	{ "SMC", 43, SOCK_STREAM, 0 },	   { "XDP", 44, SOCK_RAW, 0 },
	{ "raw INET", AF_INET, SOCK_RAW, IPPROTO_ICMP },
	{ "raw INET6", AF_INET6, SOCK_RAW, IPPROTO_ICMPV6 },
};

static int do_families(int argc, char **argv)
{
	struct tally t = { 0 };

	(void)argc, (void)argv;
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
		int fd = socket(families[i].family, families[i].type, families[i].protocol);
		note(&t, families[i].name, fd);
		/* The kernel uses an int: bits above it must not fool a filter. */
		note(&t, "with high bits",
		     syscall(SYS_socket, (1UL << 32) | (unsigned long)families[i].family,
			     families[i].type, families[i].protocol));
		int pair[2];
		note(&t, "pair", socketpair(families[i].family, families[i].type,
					    families[i].protocol, pair));
		if (fd >= 0)
			close(fd);
	}
	return judge(&t);
}

/* 0, or -1 with errno; waits for at most two seconds. */
static int connect_soon(int fd, const struct sockaddr *sa, socklen_t len)
{
	int error = 0;
	socklen_t size = sizeof(error);
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	if (connect(fd, sa, len) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return -1;
	if (poll(&p, 1, 2000) == 0) {
		errno = ETIMEDOUT;
		return -1;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
		return -1;
	errno = error;
	return error ? -1 : 0;
}

static int connect_tcp(const char *host, long port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
	bool is_v6 = inet_pton(AF_INET6, host, &v6.sin6_addr) == 1;

	if (!is_v6 && inet_pton(AF_INET, host, &v4.sin_addr) != 1) {
		errno = EINVAL;
		return -1;
	}
	int fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	int rc = is_v6 ? connect_soon(fd, (struct sockaddr *)&v6, sizeof(v6)) :
			 connect_soon(fd, (struct sockaddr *)&v4, sizeof(v4));
	if (rc == 0)
		(void)send(fd, "broke\n", 6, MSG_NOSIGNAL);
	int saved = errno;
	close(fd);
	errno = saved;
	return rc;
}

/* PORT [ADDRESS...]: a service of the host, on its loopback, also in IPv6 notation. */
static int do_connect(int argc, char **argv)
{
	struct tally t = { 0 };
	static const char *const usual[] = { "127.0.0.1", "127.0.0.2", "0.0.0.0", "::1",
					     "::ffff:127.0.0.1" };

	if (argc < 1)
		return skip("give a port");
	long port = number_arg(argc, argv, 0, 0);
	for (size_t i = 0; argc == 1 && i < sizeof(usual) / sizeof(usual[0]); i++)
		note(&t, usual[i], connect_tcp(usual[i], port));
	for (int i = 1; i < argc; i++)
		note(&t, argv[i], connect_tcp(argv[i], port));
	return judge(&t);
}

/* Addresses outside of this host: cloud metadata, and addresses reserved for documentation. */
static int outside(int argc, char **argv)
{
	static const char *const hosts[] = { "169.254.169.254", "192.0.2.1", "2001:db8::1" };
	struct tally t = { 0 };
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(53) };

	(void)argc, (void)argv;
	for (size_t i = 0; i < 3; i++)
		note(&t, hosts[i], connect_tcp(hosts[i], 80));
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	(void)inet_pton(AF_INET, "192.0.2.1", &sa.sin_addr);
	note(&t, "udp", sendto(fd, "x", 1, 0, (struct sockaddr *)&sa, sizeof(sa)));
	int on = 1;
	(void)setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on));
	(void)inet_pton(AF_INET, "255.255.255.255", &sa.sin_addr);
	note(&t, "broadcast", sendto(fd, "x", 1, 0, (struct sockaddr *)&sa, sizeof(sa)));
	(void)inet_pton(AF_INET, "224.0.0.1", &sa.sin_addr);
	note(&t, "multicast", sendto(fd, "x", 1, 0, (struct sockaddr *)&sa, sizeof(sa)));
	if (fd >= 0)
		close(fd);
	return judge(&t);
}

/* NAME: an abstract socket of the host. */
static int abstract(int argc, char **argv)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	if (argc < 1 || strlen(argv[0]) >= sizeof(sa.sun_path) - 1)
		return skip("give a name");
	memcpy(sa.sun_path + 1, argv[0], strlen(argv[0]));
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(argv[0]));
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return skip("socket: %s", error_name(errno));
	if (connect(fd, (struct sockaddr *)&sa, len) < 0)
		return held("connect %s", error_name(errno));
	(void)send(fd, "broke\n", 6, MSG_NOSIGNAL);
	return broke("connected to @%s", argv[0]);
}

/* The run's own loopback must work: many programs connect to themselves. */
static int loopback(int argc, char **argv)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)argc, (void)argv;
	if (bind(fd, (struct sockaddr *)&sa, len) < 0 || listen(fd, 1) < 0 ||
	    getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
		return broke("cannot listen: %s", error_name(errno));
	if (connect_tcp("127.0.0.1", ntohs(sa.sin_port)) < 0)
		return broke("cannot connect: %s", error_name(errno));
	return held("127.0.0.1:%u talks to itself", ntohs(sa.sin_port));
}

/* Fills the receive buffer of a new socket that is not read; returns its size, or -1. */
static long fill_socket(int from)
{
	static char data[60000];
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sa);
	const int most = 1 << 22;
	uint32_t info[9] = { 0 }; /* SK_MEMINFO_VARS */
	socklen_t info_len = sizeof(info);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &most, sizeof(most));
	if (bind(fd, (struct sockaddr *)&sa, len) < 0 ||
	    getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
		return -1;
	for (int i = 0; i < 16; i++)
		(void)sendto(from, data, sizeof(data), MSG_DONTWAIT, (struct sockaddr *)&sa, len);
	if (getsockopt(fd, SOL_SOCKET, 55 /* SO_MEMINFO */, info, &info_len) < 0)
		return -1;
	return (long)info[0]; /* SK_MEMINFO_RMEM_ALLOC */
}

/* MIB: kernel memory in datagrams that are not read. */
static int sockets(int argc, char **argv)
{
	long max = number_arg(argc, argv, 0, 64) << 20, total = 0;
	int from = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), n = 0;

	for (; total < max; n++) {
		long size = fill_socket(from);
		if (size < 0)
			break;
		total += size;
	}
	if (total >= max)
		return broke("%ld MiB in %d sockets", total >> 20, n);
	return held("%ld MiB in %d sockets", total >> 20, n);
}

/* Only "lo" may exist, and it must be impossible to change it or to add another. */
static int interfaces(int argc, char **argv)
{
	struct tally t = { 0 };
	struct ifreq ifr = { .ifr_name = "lo" };
	struct {
		struct nlmsghdr h;
		struct ifinfomsg i;
	} req = { .h = { .nlmsg_len = sizeof(req), .nlmsg_type = RTM_NEWLINK,
			 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK },
		  .i = { .ifi_index = 1, .ifi_change = IFF_UP } };
	char reply[1024];

	(void)argc, (void)argv;
	struct if_nameindex *list = if_nameindex();
	for (struct if_nameindex *i = list; i && i->if_index; i++)
		note_as(&t, strcmp(i->if_name, "lo") == 0, "%s", i->if_name);
	if (list)
		if_freenameindex(list);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (is_inside())
		note(&t, "take lo down", ioctl(fd, SIOCSIFFLAGS, &ifr));
	close(fd);
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (fd >= 0 && is_inside() && send(fd, &req, sizeof(req), 0) > 0) {
		ssize_t n = recv(fd, reply, sizeof(reply), MSG_DONTWAIT);
		struct nlmsghdr *h = (void *)reply;
		if (n >= (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)) &&
		    h->nlmsg_type == NLMSG_ERROR) {
			errno = -((struct nlmsgerr *)NLMSG_DATA(h))->error;
			note(&t, "netlink", errno ? -1 : 0);
		}
	}
	if (fd >= 0)
		close(fd);
	return judge(&t);
}

const struct probe probe_net[] = {
	{ "families", "make sockets of families that go around the network", do_families },
	{ "connect", "PORT [ADDRESS...]: reach a service of the host by TCP", do_connect },
	{ "outside", "send anything to an address outside", outside },
	{ "abstract", "NAME: reach an abstract socket of the host", abstract },
	{ "loopback", "own 127.0.0.1 (held: it works)", loopback },
	{ "sockets", "MIB: queue that much in sockets", sockets },
	{ "interfaces", "find interfaces besides lo, or change one", interfaces },
	{ NULL, NULL, NULL },
};
