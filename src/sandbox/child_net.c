/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside, run by init when a command without a network has failed: finds out whether it tried
 * to use one. In each network namespace the kernel counts packets without a route, and
 * datagrams for which no socket was open. Without a name server, a name lookup sends such a
 * datagram to loopback.
 */
#include "sandbox/child.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *read_whole(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, buf, size - 1);

	if (fd >= 0)
		close(fd);
	buf[n > 0 ? n : 0] = '\0';
	return buf;
}

/* The number below name in a pair of lines: "Ip: Forwarding ... OutNoRoutes", "Ip: 1 ... 7". */
static uint64_t number_below(const char *text, const char *group, const char *name)
{
	const char *names = strstr(text, group);
	const char *numbers = names ? strchr(names, '\n') : NULL;
	size_t len = strlen(name);

	if (!numbers || strncmp(++numbers, group, strlen(group)) != 0)
		return 0;
	while (*names && *names != '\n' && *numbers && *numbers != '\n') {
		if (strncmp(names, name, len) == 0 &&
		    (names[len] == ' ' || names[len] == '\n'))
			return strtoull(numbers, NULL, 10);
		names += strcspn(names, " \n");
		names += *names == ' ';
		numbers += strcspn(numbers, " \n");
		numbers += *numbers == ' ';
	}
	return 0;
}

uint64_t forge_child_count_network_tries(void)
{
	char text[4096];
	uint64_t n;

	(void)read_whole("/proc/self/net/snmp", text, sizeof(text));
	n = number_below(text, "Ip: ", "OutNoRoutes") +
	    number_below(text, "Udp: ", "NoPorts");
	const char *six = strstr(read_whole("/proc/self/net/snmp6", text, sizeof(text)),
				 "Ip6OutNoRoutes");
	return six ? n + strtoull(six + strlen("Ip6OutNoRoutes"), NULL, 10) : n;
}
