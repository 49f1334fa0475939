/* SPDX-License-Identifier: Apache-2.0 */
/* Opens listening sockets. */
#include "server/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/parse.h"

#define FIRST_PASSED 3 /* sd_listen_fds(3) */
#define BACKLOG	     512

static bool is_loopback(const struct sockaddr_storage *a)
{
	const struct sockaddr_in *in = (const void *)a;
	const struct sockaddr_in6 *in6 = (const void *)a;

	if (a->ss_family == AF_INET)
		return ntohl(in->sin_addr.s_addr) >> 24 == 127;
	if (a->ss_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
	return a->ss_family == AF_UNIX; /* who may open it is a matter of its file */
}

/* Where a socket listens. The one of a service manager can be of any kind. */
static int describe(int fd, struct forge_listen *l, struct forge_error *err)
{
	struct sockaddr_storage a = { 0 };
	socklen_t len = sizeof(a);
	char host[INET6_ADDRSTRLEN + 1] = "", port[8] = "";
	int is_listening = 0;
	socklen_t size = sizeof(is_listening);

	if (getsockname(fd, (void *)&a, &len) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &size) < 0)
		return forge_fail_errno(err, errno, "descriptor %d", fd);
	if (!is_listening)
		return forge_fail(err, EINVAL, "descriptor %d does not listen", fd);
	l->is_loopback = l->is_loopback && is_loopback(&a);
	if (l->n > 1)
		return 0;
	if (a.ss_family == AF_UNIX) {
		(void)snprintf(l->address, sizeof(l->address), "unix:%.200s",
			       ((struct sockaddr_un *)(void *)&a)->sun_path);
		return 0;
	}
	int rc = getnameinfo((void *)&a, len, host, sizeof(host), port, sizeof(port),
			     NI_NUMERICHOST | NI_NUMERICSERV);
	if (rc != 0)
		return forge_fail(err, EIO, "descriptor %d: %s", fd, gai_strerror(rc));
	(void)snprintf(l->address, sizeof(l->address),
		       a.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
	return 0;
}

static int take_passed(struct forge_listen *l, struct forge_error *err)
{
	const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
	uint64_t count;

	if (!pid || !n || strtol(pid, NULL, 10) != (long)getpid())
		return 0;
	int rc = forge_parse_count(n, &count, err);
	if (rc < 0 || count > FORGE_LISTEN_MAX)
		return forge_fail(err, EINVAL, "LISTEN_FDS=%.16s is not 1 to %d", n,
				  FORGE_LISTEN_MAX);
	for (uint64_t i = 0; i < count && rc == 0; i++) {
		int fd = FIRST_PASSED + (int)i;
		if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
			return forge_fail_errno(err, errno, "descriptor %d of LISTEN_FDS",
						fd);
		l->fd[l->n++] = fd;
		rc = describe(fd, l, err);
	}
	/* They are not for the programs that we start. */
	(void)unsetenv("LISTEN_PID");
	(void)unsetenv("LISTEN_FDS");
	(void)unsetenv("LISTEN_FDNAMES");
	return rc;
}

static int bind_one(const struct addrinfo *ai)
{
	forge_auto_close int fd =
		socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1;

	if (fd < 0)
		return -errno;
	/* Two servers cannot share a port by this; it only allows a quick restart. */
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (ai->ai_family == AF_INET6)
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	return forge_take_fd(fd);
}

/* forge_parse_address() has no port 0. */
static int split(const char *address, char host[FORGE_HOST_MAX],
		 char port[FORGE_PORT_MAX], struct forge_error *err)
{
	const char *colon = strrchr(address, ':');
	char with_one[FORGE_HOST_MAX + 8];

	if (!colon || strcmp(colon, ":0") != 0)
		return forge_parse_address(address, host, port, err);
	(void)snprintf(with_one, sizeof(with_one), "%.*s:1",
		       (int)(colon - address < FORGE_HOST_MAX ? colon - address
							      : FORGE_HOST_MAX),
		       address);
	int rc = forge_parse_address(with_one, host, port, err);
	(void)snprintf(port, FORGE_PORT_MAX, "0");
	return rc;
}

static int bind_to(const char *address, struct forge_listen *l, struct forge_error *err)
{
	char host[FORGE_HOST_MAX], port[FORGE_PORT_MAX];
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
					.ai_flags = AI_PASSIVE };
	struct addrinfo *found = NULL;
	int rc = split(address, host, port, err);

	if (rc < 0)
		return forge_hint(err, forge_wrap(err, rc, "--listen"),
				  "Port 0 is any free one");
	int code = getaddrinfo(host, port, &hints, &found);
	if (code != 0)
		return forge_fail(err, EINVAL, "%s: %s", address, gai_strerror(code));
	int fd = bind_one(found);
	freeaddrinfo(found);
	if (fd < 0)
		return forge_hint(err,
				  forge_fail_errno(err, -fd, "listen on %s", address),
				  fd == -EADDRINUSE ? "Is another server there? --listen "
						      "HOST:PORT chooses another port"
						    : "");
	l->fd[l->n++] = fd;
	return describe(fd, l, err);
}

int forge_listen_open(const char *address, struct forge_listen *ret,
		      struct forge_error *err)
{
	*ret = (struct forge_listen){ .is_loopback = true };
	int rc = take_passed(ret, err);
	if (rc == 0 && ret->n == 0)
		rc = bind_to(address, ret, err);
	if (rc < 0)
		forge_listen_close(ret);
	return rc;
}

void forge_listen_close(struct forge_listen *l)
{
	for (size_t i = 0; i < l->n; i++)
		close(l->fd[i]);
	l->n = 0;
}
