/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that connect: kinds tcp and unix. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/parse.h"
#include "health/kinds.h"

/* ---- tcp ---- */

/* 0 or an errno. Not in time is ETIMEDOUT. */
static int connect_within(const struct addrinfo *a, uint64_t usec)
{
	forge_auto_close int fd =
		socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int error = 0;
	socklen_t len = sizeof(error);

	if (fd < 0)
		return errno;
	if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return errno;
	int n = poll(&p, 1, (int)(usec / 1000));
	if (n <= 0)
		return n < 0 ? errno : ETIMEDOUT;
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 ? errno : error;
}

static void report_connection(const char *what, uint64_t usec,
			      struct forge_check_report *ret)
{
	char took[FORGE_FORMAT_MAX];

	forge_check_say(ret, true, "%s accepts connections (%s)", what,
			forge_format_duration(took, usec));
	ret->numbers = json_pack("{s:o}", "connect_seconds", forge_json_seconds(usec));
}

/* A name may have several addresses: the first that accepts is enough, and none takes all of the time. */
FORGE_CHECK(forge_check_tcp)
{
	char host[FORGE_HOST_MAX], port[FORGE_PORT_MAX];
	const struct addrinfo wanted = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *list = NULL;
	uint64_t begin = forge_now_usec(), end = begin + d->timeout_usec;
	struct forge_error err = FORGE_ERROR_INIT;
	unsigned left = 0;
	int why = 0;

	(void)env; /* nothing of it is needed */
	if (forge_parse_address(d->address, host, port, &err) < 0) {
		forge_check_say(ret, false, "%s", err.msg);
		return;
	}
	int rc = getaddrinfo(host, port, &wanted, &list);
	if (rc != 0) {
		forge_check_say(ret, false, "%s: %s", d->address,
				rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
		return;
	}
	for (const struct addrinfo *a = list; a; a = a->ai_next)
		left++;
	for (const struct addrinfo *a = list; a; a = a->ai_next) {
		uint64_t start = forge_now_usec();
		int now_why = connect_within(a, start < end ? (end - start) / left-- : 0);
		if (now_why == 0) {
			report_connection(d->address, forge_now_usec() - start, ret);
			freeaddrinfo(list);
			return;
		}
		why = why ? why : now_why;
	}
	freeaddrinfo(list);
	forge_check_say(ret, false, "%s: %s", d->address, strerror(why));
}

/* ---- unix ---- */

/* 0 or an errno. The address is relative: this is a process of its own, and a long path would not fit. */
static int connect_to(const struct sockaddr_un *to)
{
	static const int types[] = { SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM };
	int why = EPROTOTYPE;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(types) && why == EPROTOTYPE; i++) {
		forge_auto_close int fd = socket(AF_UNIX, types[i] | SOCK_CLOEXEC, 0);
		why = fd < 0 ? errno : 0;
		if (why == 0 && connect(fd, (const struct sockaddr *)to, sizeof(*to)) < 0)
			why = errno;
	}
	return why;
}

FORGE_CHECK(forge_check_unix)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	const char *slash = strrchr(d->path, '/'), *name = slash + 1;
	forge_auto_free char *dir = strndup(d->path, (size_t)(slash - d->path) + 1);
	struct stat st;

	(void)env; /* nothing of it is needed */
	if (stat(d->path, &st) < 0) {
		forge_check_say(ret, false, "%s: %s", d->path, strerror(errno));
		return;
	}
	if (!S_ISSOCK(st.st_mode)) {
		forge_check_say(ret, false, "%s is not a socket", d->path);
		return;
	}
	if (!dir || strlen(name) >= sizeof(to.sun_path) || chdir(dir) < 0) {
		forge_check_say(ret, false, "%s cannot be reached", d->path);
		return;
	}
	(void)snprintf(to.sun_path, sizeof(to.sun_path), "%s", name);
	uint64_t begin = forge_now_usec();
	int why = connect_to(&to);
	if (why == 0)
		report_connection(d->path, forge_now_usec() - begin, ret);
	else if (why == ECONNREFUSED)
		forge_check_say(ret, false, "%s: no program listens", d->path);
	else
		forge_check_say(ret, false, "%s: %s", d->path, strerror(why));
}
