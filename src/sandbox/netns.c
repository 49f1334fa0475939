/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the network namespace in a thread; see netns.h. */
#include "sandbox/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"

/*
 * Reduces the kernel memory that no cgroup is charged for. A kernel that has a setting only for
 * the whole host, or a read-only /proc/sys, leaves it unchanged: the number of sockets is
 * bounded anyway.
 */
static void tune(void)
{
	static const struct {
		const char *path, *value;
	} settings[] = {
		/* Time stamps of sending would keep a copy of the data in an error queue. */
		{ "/proc/sys/net/core/tstamp_allow_data", "0" },
		/*
		 * A byte in a queue can pin 32 KiB, and until a connection is accepted no
		 * cgroup is charged for what it has received. Loopback is as fast with short
		 * queues (3 GB/s); with queues shorter than two of its packets of 64 KiB it
		 * stalls.
		 */
		{ "/proc/sys/net/ipv4/tcp_wmem", "4096 16384 262144" },
		{ "/proc/sys/net/ipv4/tcp_rmem", "4096 131072 131072" },
	};

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(settings); i++) {
		forge_auto_close int fd = open(settings[i].path, O_WRONLY | O_CLOEXEC);
		if (fd >= 0)
			(void)!write(fd, settings[i].value, strlen(settings[i].value));
	}
}

int forge_netns_loopback(void)
{
	struct ifreq ifr = { .ifr_name = "lo" };

	tune();
	forge_auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	ifr.ifr_flags = IFF_UP | IFF_RUNNING;
	return fd < 0 || ioctl(fd, SIOCSIFFLAGS, &ifr) < 0 ? -errno : 0;
}

/* In a thread, unshare() moves this thread alone. The thread makes only system calls. */
static void *make(void *arg)
{
	struct forge_netns *n = arg;

	if (unshare(CLONE_NEWNET) == 0 && forge_netns_loopback() == 0)
		n->fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	return NULL;
}

void forge_netns_begin(struct forge_netns *n)
{
	pthread_attr_t attr;

	if (pthread_attr_init(&attr) != 0)
		return;
	if (pthread_attr_setstacksize(&attr, 64 << 10) == 0)
		n->is_begun = pthread_create(&n->thread, &attr, make, n) == 0;
	(void)pthread_attr_destroy(&attr); /* never fails */
}

int forge_netns_fd(struct forge_netns *n)
{
	if (n->is_begun)
		(void)pthread_join(n->thread, NULL); /* this is the only join */
	n->is_begun = false;
	return n->fd;
}

void forge_netns_done(struct forge_netns *n)
{
	int fd = forge_netns_fd(n);

	if (fd >= 0)
		close(fd);
	*n = FORGE_NETNS_INIT;
}
