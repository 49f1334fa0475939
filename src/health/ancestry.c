/* SPDX-License-Identifier: Apache-2.0 */
/* Listens to the process connector. */
#include "health/ancestry.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/entries.h"
#include "base/fd.h"
#include "base/proc.h"

#define RECEIVE_BUFFER (8 << 20)
#define PID_LIMIT      (4u << 20) /* no kernel has more */

struct forge_ancestry {
	int fd;
	bool is_complete;
	unsigned losses;
	/* By pid. It has room for every pid, but only what is used has memory. */
	pid_t *parents;
	size_t n;
};

static size_t count_pids(void)
{
	uint64_t most;

	return forge_read_u64_at(AT_FDCWD, "/proc/sys/kernel/pid_max", &most) == 0 &&
			       most < PID_LIMIT
		       ? (size_t)most + 1
		       : PID_LIMIT + 1;
}

/* Of all that processes do, only forks are of interest. */
static void filter_forks(int fd)
{
	const unsigned what =
		NLMSG_LENGTH(sizeof(struct cn_msg)) + offsetof(struct proc_event, what);
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, what),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(PROC_EVENT_FORK), 0, 1),
		BPF_STMT(BPF_RET | BPF_K, ~0u),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program = { FORGE_ARRAY_SIZE(code), code };

	/* Without it, more is read, and thrown away here. */
	(void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

static int listen_to_kernel(int fd)
{
	struct sockaddr_nl to = { .nl_family = AF_NETLINK, .nl_groups = CN_IDX_PROC };
	const enum proc_cn_mcast_op op = PROC_CN_MCAST_LISTEN;
	const struct cn_msg message = { .id = { CN_IDX_PROC, CN_VAL_PROC },
					.len = sizeof(op) };
	const struct nlmsghdr header = { .nlmsg_len = NLMSG_LENGTH(sizeof(message) +
								   sizeof(op)),
					 .nlmsg_type = NLMSG_DONE };
	struct iovec request[] = {
		{ (void *)&header, NLMSG_HDRLEN },
		{ (void *)&message, sizeof(message) },
		{ (void *)&op, sizeof(op) },
	};
	int size = RECEIVE_BUFFER;

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	if (bind(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
		return -errno;
	filter_forks(fd);
	return writev(fd, request, FORGE_ARRAY_SIZE(request)) < 0 ? -errno : 0;
}

/* Records the present parent of each process that was there before the connector was opened. */
static void look_at_living(struct forge_ancestry *a)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	(void)forge_entries_open(&d, AT_FDCWD, "/proc"); /* then there are none */
	for (const char *name; (name = forge_entries_next(&d));) {
		char *end;
		unsigned long pid = strtoul(name, &end, 10);
		if (*end == '\0' && pid > 0 && pid < a->n && a->parents[pid] == 0)
			a->parents[pid] = forge_proc_parent((pid_t)pid);
	}
}

/* In another network namespace nothing comes, and no error says so. */
static bool hears_a_fork(struct forge_ancestry *a)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	if (pid < 0)
		return false;
	(void)waitpid(pid, NULL, 0);
	forge_ancestry_update(a);
	return a->is_complete && forge_ancestry_parent(a, pid) == getpid();
}

int forge_ancestry_open(struct forge_ancestry **ret, struct forge_error *err)
{
	struct forge_ancestry *a = calloc(1, sizeof(*a));

	if (!a)
		return forge_fail(err, ENOMEM, "out of memory");
	a->n = count_pids();
	a->parents = mmap(NULL, a->n * sizeof(*a->parents), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (a->parents == MAP_FAILED) {
		free(a);
		return forge_fail_errno(err, errno, "map memory");
	}
	a->fd = socket(PF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
		       NETLINK_CONNECTOR);
	a->is_complete = a->fd >= 0 && listen_to_kernel(a->fd) == 0;
	a->is_complete = a->is_complete && hears_a_fork(a);
	if (a->is_complete)
		look_at_living(a);
	*ret = a;
	return 0;
}

void forge_ancestry_close(struct forge_ancestry *a)
{
	if (!a)
		return;
	if (a->fd >= 0)
		close(a->fd);
	(void)munmap(a->parents, a->n * sizeof(*a->parents));
	free(a);
}

int forge_ancestry_fd(const struct forge_ancestry *a)
{
	return a->is_complete ? a->fd : -1;
}

static void take(struct forge_ancestry *a, const char *buffer, size_t len)
{
	for (const struct nlmsghdr *h = (const void *)buffer; NLMSG_OK(h, len);
	     h = NLMSG_NEXT(h, len)) {
		const struct cn_msg *m = NLMSG_DATA(h);
		struct proc_event e;
		if (h->nlmsg_len < NLMSG_LENGTH(sizeof(*m) + sizeof(e)))
			continue;
		memcpy(&e, m->data, sizeof(e));
		const struct fork_proc_event *f = &e.event_data.fork;
		/* A new thread is no new process. */
		if (e.what == PROC_EVENT_FORK && f->child_pid == f->child_tgid &&
		    f->child_tgid > 0 && (size_t)f->child_tgid < a->n)
			a->parents[f->child_tgid] = f->parent_tgid;
	}
}

/* Forks were lost: of what is known, it is not known what is true. */
static void lose_all(struct forge_ancestry *a)
{
	a->losses++;
	(void)madvise(a->parents, a->n * sizeof(*a->parents), MADV_DONTNEED);
	look_at_living(a);
}

void forge_ancestry_update(struct forge_ancestry *a)
{
	char buffer[8192] __attribute__((aligned(8)));

	for (;;) {
		struct sockaddr_nl from = { 0 };
		socklen_t size = sizeof(from);
		ssize_t n = recvfrom(a->fd, buffer, sizeof(buffer), 0,
				     (struct sockaddr *)&from, &size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == ENOBUFS) {
			lose_all(a);
			continue;
		}
		if (n < 0 && errno != EAGAIN)
			a->is_complete = false;
		if (n <= 0)
			return;
		/* Others could send, too. */
		if (from.nl_pid == 0)
			take(a, buffer, (size_t)n);
	}
}

bool forge_ancestry_is_complete(const struct forge_ancestry *a)
{
	return a->is_complete;
}

unsigned forge_ancestry_losses(const struct forge_ancestry *a)
{
	return a->losses;
}

pid_t forge_ancestry_parent(const struct forge_ancestry *a, pid_t pid)
{
	return pid > 0 && (size_t)pid < a->n ? a->parents[pid] : 0;
}
