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
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"

void forge_socket_count_open(struct forge_socket_count *c, int listener, pid_t init,
			     uint64_t max)
{
	*c = (struct forge_socket_count){
		.listener = listener, .sockstat = -1, .init = init, .max = max
	};
}

void forge_socket_count_note(struct forge_socket_count *c, int listener, pid_t init)
{
	forge_socket_count_open(c, listener, init, UINT64_MAX);
	c->notes_only = true;
}

/* Opened when it is needed: most runs never make a socket. */
static void open_count(struct forge_socket_count *c)
{
	char path[48];

	if (c->sockstat >= 0)
		return;
	(void)snprintf(path, sizeof(path), "/proc/%ld/net/sockstat", (long)c->init);
	c->sockstat = open(path, O_RDONLY | O_CLOEXEC);
}

/* "sockets: used N" counts every socket of the namespace, also those not accepted yet. */
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

/*
 * Does the call make a datagram or netlink socket? All other calls make streams, or may make
 * them.
 */
static bool is_datagram(const struct seccomp_data *call)
{
	return call->nr == SYS_socket && ((uint32_t)call->args[0] == AF_NETLINK ||
					  ((uint32_t)call->args[1] & 0xf) != SOCK_STREAM);
}

/*
 * UNIX sockets are charged to the run and do not count. Their number is the third word of the
 * rows "UNIX...".
 */
static uint64_t unix_sockets(const struct forge_socket_count *c)
{
	char path[48], line[256];
	uint64_t n = 0;
	unsigned long count;

	(void)snprintf(path, sizeof(path), "/proc/%ld/net/protocols", (long)c->init);
	forge_auto_file FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, "UNIX", 4) == 0 &&
		    sscanf(line, "%*s %*s %lu", &count) == 1)
			n += count;
	return n;
}

static bool may_have(struct forge_socket_count *c, const struct seccomp_data *call)
{
	bool is_unix = call->nr != SYS_connect && (uint32_t)call->args[0] == AF_UNIX;

	c->noted_unix += is_unix;
	if (c->notes_only)
		c->noted += (uint32_t)call->args[0] != AF_NETLINK;
	if (c->notes_only || is_unix)
		return true;
	open_count(c);
	uint64_t used = sockets_in_use(c), most = is_datagram(call) ? c->max / 4 : c->max;

	if (used < most || used == UINT64_MAX)
		return used < most;
	uint64_t charged = unix_sockets(c);
	return charged < used && used - charged < most;
}

void forge_socket_count_serve(struct forge_socket_count *c, short revents)
{
	struct seccomp_notif ask;
	struct seccomp_notif_resp answer;

	if (!(revents & POLLIN)) {
		c->is_over = true;
		return;
	}
	memset(&ask, 0, sizeof(ask)); /* the kernel requires zeros */
	memset(&answer, 0, sizeof(answer));
	if (ioctl(c->listener, SECCOMP_IOCTL_NOTIF_RECV, &ask) < 0)
		return; /* the caller has been killed */
	answer.id = ask.id;
	if (may_have(c, &ask.data)) {
		answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	} else {
		/* connect() has no such error; EADDRNOTAVAIL says that no port is left. */
		answer.error = ask.data.nr == SYS_socket ? -EMFILE : -EADDRNOTAVAIL;
		c->refused++;
	}
	/* Fails if the caller was killed meanwhile. */
	(void)ioctl(c->listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

#define TURNS "ending.lock"

/*
 * Mostly no other run ends at the same moment, and this costs one lock. When many end together,
 * each waits for its turn and then gives the kernel half a millisecond. After 3 s a supervisor
 * goes on without the lock, in case its holder never releases it.
 */
static void close_in_turn(int listener, int turns)
{
	forge_auto_close int fd =
		turns < 0 ? -1
			  : openat(turns, TURNS,
				   O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	long nsec = 500000, waited = 0;

	while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && waited < 3000000000L) {
		const struct timespec pause = { .tv_nsec = nsec };
		(void)nanosleep(&pause, NULL);
		waited += nsec;
		nsec = nsec < 32000000 ? 2 * nsec : nsec;
	}
	close(listener);
	if (waited > 0)
		(void)nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
}

void forge_socket_count_close(struct forge_socket_count *c, int turns)
{
	if (c->listener >= 0)
		close_in_turn(c->listener, turns);
	if (c->sockstat >= 0)
		close(c->sockstat);
	c->listener = c->sockstat = -1;
}
