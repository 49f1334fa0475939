/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between supervisors and the process that watches guarded files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "health/guard_watch.h"

#define MESSAGE_MAX (8u << 20)

static int send_all(int fd, const void *data, size_t len)
{
	for (const char *p = data; len > 0;) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static int receive_all(int fd, void *data, size_t len)
{
	for (char *p = data; len > 0;) {
		ssize_t n = recv(fd, p, len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EPIPE;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int forge_guard_send(int fd, const json_t *message)
{
	forge_auto_free char *text = json_dumps(message, JSON_COMPACT);
	uint32_t len = text ? (uint32_t)strlen(text) : 0;

	if (!text || len > MESSAGE_MAX)
		return text ? -EMSGSIZE : -ENOMEM;
	int rc = send_all(fd, &len, sizeof(len));
	return rc < 0 ? rc : send_all(fd, text, len);
}

int forge_guard_receive(int fd, json_t **ret)
{
	uint32_t len;
	int rc = receive_all(fd, &len, sizeof(len));

	if (rc < 0 || len > MESSAGE_MAX)
		return rc < 0 ? rc : -EMSGSIZE;
	forge_auto_free char *text = malloc(len + 1);
	if (!text)
		return -ENOMEM;
	rc = receive_all(fd, text, len);
	if (rc < 0)
		return rc;
	*ret = json_loadb(text, len, 0, NULL);
	return json_is_object(*ret) ? 0 : (json_decref(*ret), -EPROTO);
}

static int open_socket(int dir, struct sockaddr_un *ret_address)
{
	*ret_address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	(void)snprintf(ret_address->sun_path, sizeof(ret_address->sun_path),
		       "/proc/self/fd/%d/" FORGE_GUARD_SOCKET, dir);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

int forge_guard_connect(int dir)
{
	struct sockaddr_un address;
	forge_auto_close int fd = open_socket(dir, &address);

	if (fd < 0)
		return fd;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	return forge_take_fd(fd);
}

int forge_guard_bind(int dir)
{
	struct sockaddr_un address;
	forge_auto_close int fd = open_socket(dir, &address);

	if (fd < 0)
		return fd;
	/* The caller has the lock: a socket that is there belongs to nobody. */
	if (unlinkat(dir, FORGE_GUARD_SOCKET, 0) < 0 && errno != ENOENT)
		return -errno;
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, 128) < 0)
		return -errno;
	return forge_take_fd(fd);
}
