/* SPDX-License-Identifier: Apache-2.0 */
/* Answers the calls that would make a socket; see socket_count.h. */
#include "sandbox/socket_count.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

void forge_socket_count_open(struct forge_socket_count *c, int listener, pid_t init,
			     uint64_t max)
{
	char path[48];

	(void)snprintf(path, sizeof(path), "/proc/%ld/net/sockstat", (long)init);
	*c = (struct forge_socket_count){ .listener = listener,
					  .sockstat = open(path, O_RDONLY | O_CLOEXEC),
					  .max = max };
}

/* "sockets: used N" counts every socket of the namespace, also those that wait to be accepted. */
static uint64_t sockets_in_use(const struct forge_socket_count *c)
{
	char text[256];
	ssize_t n = c->sockstat < 0 ? -1 : pread(c->sockstat, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return UINT64_MAX;
	text[n] = '\0';
	const char *used = strstr(text, "used ");
	return used ? strtoull(used + strlen("used "), NULL, 10) : UINT64_MAX;
}

static bool may_have(const struct forge_socket_count *c, const struct seccomp_data *call)
{
	bool is_stream = (uint32_t)call->args[0] != AF_NETLINK &&
			 ((uint32_t)call->args[1] & 0xf) == SOCK_STREAM;

	return sockets_in_use(c) < (is_stream ? c->max : c->max / 4);
}

void forge_socket_count_serve(struct forge_socket_count *c, short revents)
{
	struct seccomp_notif ask;
	struct seccomp_notif_resp answer;

	if (!(revents & POLLIN)) {
		close(c->listener);
		c->listener = -1;
		return;
	}
	memset(&ask, 0, sizeof(ask)); /* the kernel refuses anything else */
	memset(&answer, 0, sizeof(answer));
	if (ioctl(c->listener, SECCOMP_IOCTL_NOTIF_RECV, &ask) < 0)
		return; /* whoever asked has been killed */
	answer.id = ask.id;
	if (may_have(c, &ask.data)) {
		answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	} else {
		answer.error = -EMFILE;
		c->refused++;
	}
	(void)ioctl(c->listener, SECCOMP_IOCTL_NOTIF_SEND,
		    &answer); /* or killed meanwhile */
}

void forge_socket_count_close(struct forge_socket_count *c)
{
	if (c->listener >= 0)
		close(c->listener);
	if (c->sockstat >= 0)
		close(c->sockstat);
	c->listener = c->sockstat = -1;
}
