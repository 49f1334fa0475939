/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's side of starting and ending a sandbox; see sandbox.h for the theory. */
#include "sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/sys.h"
#include "sandbox/diagnose.h"

/* Both ends of every channel, until the supervisor and init own one each. */
struct wiring {
	int control[2]; /* [0] supervisor, [1] init */
	int report[2];	/* read, write */
	int out[2], err[2], in[2];
	int *sources; /* one for each mount of the plan */
	size_t n_sources;
};

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void wiring_done(struct wiring *w)
{
	int *pairs[] = { w->control, w->report, w->out, w->err, w->in };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(pairs); i++) {
		close_fd(&pairs[i][0]);
		close_fd(&pairs[i][1]);
	}
	for (size_t i = 0; i < w->n_sources; i++)
		close_fd(&w->sources[i]);
	free(w->sources);
}

static int open_stdin(struct wiring *w, bool pipe_stdin)
{
	if (pipe_stdin)
		return pipe2(w->in, O_CLOEXEC);
	w->in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return w->in[0] < 0 ? -1 : 0;
}

static int open_channels(struct wiring *w, bool pipe_stdin, struct forge_error *err)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, w->control) < 0 ||
	    pipe2(w->report, O_CLOEXEC) < 0 || pipe2(w->out, O_CLOEXEC) < 0 ||
	    pipe2(w->err, O_CLOEXEC) < 0 || open_stdin(w, pipe_stdin) < 0)
		return forge_fail_errno(err, errno, "open pipes");
	/*
	 * Larger pipes cause fewer wake-ups when there is much output. Where the user's pipe
	 * budget is used up, the default size stays.
	 */
	(void)fcntl(w->out[0], F_SETPIPE_SZ, 1 << 18);
	(void)fcntl(w->err[0], F_SETPIPE_SZ, 1 << 18);
	int nonblock[] = { w->out[0], w->err[0], w->report[0], w->in[1] };
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(nonblock); i++)
		if (nonblock[i] >= 0 && fcntl(nonblock[i], F_SETFL, O_NONBLOCK) < 0)
			return forge_fail_errno(err, errno, "set non-blocking");
	return 0;
}

/*
 * Opens the sources with the supervisor's rights, for paths that the sandbox's uid could not
 * reach.
 */
static int open_sources(const struct forge_plan *p, struct wiring *w,
			struct forge_error *err)
{
	w->sources = malloc((p->n_mounts ? p->n_mounts : 1) * sizeof(int));
	if (!w->sources)
		return forge_fail(err, ENOMEM, "out of memory");
	w->n_sources = p->n_mounts;
	for (size_t i = 0; i < p->n_mounts; i++)
		w->sources[i] = -1;
	for (size_t i = 0; i < p->n_mounts && p->privileged; i++) {
		const struct forge_mount *m = &p->mounts[i];
		if (m->type != FORGE_MOUNT_RO && m->type != FORGE_MOUNT_RW)
			continue;
		enum forge_stage stage;
		w->sources[i] = forge_child_open_source(m, &stage);
		if (w->sources[i] < 0) {
			struct forge_child_report r = { .stage = (int32_t)stage,
							.error = errno };
			(void)snprintf(r.what, sizeof(r.what), "%s", m->source);
			return forge_sandbox_explain(&r, err);
		}
	}
	return 0;
}

/* clone3, or clone where a filter answers ENOSYS; then init enters the v2 group by itself. */
static pid_t clone_init(struct forge_clone_args *args, struct forge_cgroup *cg)
{
	pid_t pid = (pid_t)sys_clone3(args);

	if (pid >= 0 || errno != ENOSYS)
		return pid;
	if (cg->v2_fd >= 0 &&
	    forge_cgroup_add_entry(cg, cg->v2_fd, "cgroup.procs", NULL) < 0)
		return -1;
	unsigned long flags = (unsigned long)(args->flags & ~CLONE_INTO_CGROUP) | SIGCHLD;
	return (pid_t)syscall(SYS_clone, flags, 0UL, args->pidfd, 0UL, 0UL);
}

static int write_proc(pid_t pid, const char *file, const char *text)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%ld/%s", (long)pid, file);
	return forge_write_at(AT_FDCWD, path, text);
}

static int map_ids(const struct forge_plan *p, pid_t pid, struct forge_error *err)
{
	char map[64];
	int rc = 0;

	/* An unprivileged gid map is accepted only when groups can no longer be dropped. */
	if (!p->privileged)
		rc = write_proc(pid, "setgroups", "deny");
	if (rc == 0) {
		(void)snprintf(map, sizeof(map), "%d %u 1", FORGE_INSIDE_GID,
			       p->host_gid);
		rc = write_proc(pid, "gid_map", map);
	}
	if (rc == 0) {
		(void)snprintf(map, sizeof(map), "%d %u 1", FORGE_INSIDE_UID,
			       p->host_uid);
		rc = write_proc(pid, "uid_map", map);
	}
	if (rc < 0)
		return forge_diagnose_refused(
			forge_fail_errno(err, -rc, "map ids of the sandbox"), err);
	/*
	 * If the host runs out of memory, the kernel should kill the analysis before the
	 * services.
	 */
	(void)!write_proc(pid, "oom_score_adj", "500"); /* best effort */
	return 0;
}

static int send_ready(struct forge_sandbox *sb, char what, struct forge_error *err)
{
	if (send(sb->control, &what, 1, MSG_NOSIGNAL) == 1)
		return 0;
	/* Init died during setup and has reported why. */
	struct forge_child_report r;
	int error = errno;
	if (forge_sandbox_read_report(sb, &r) == 1)
		return forge_sandbox_explain(&r, err);
	return forge_fail_errno(err, error, "talk to the sandbox");
}

/*
 * The creator of a user namespace owns it, and is charged for what is counted per user of the
 * host (inotify instances, namespaces). Root's runs must not use up root's share, so during
 * clone we have the run's uid, with our own capabilities.
 */
static int clone_as(uid_t uid, struct forge_clone_args *args, struct forge_cgroup *cg)
{
	struct __user_cap_header_struct hdr = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];

	if (syscall(SYS_capget, &hdr, caps) < 0 || setresuid(uid, uid, 0) < 0)
		return -1;
	pid_t pid = syscall(SYS_capset, &hdr, caps) < 0 ? -1 : clone_init(args, cg);
	if (pid == 0)
		return 0;
	int error = errno;
	/* Our saved uid is 0, so this works; if it did not, nothing after it would be safe. */
	if (setresuid(0, 0, 0) < 0 || syscall(SYS_capset, &hdr, caps) < 0)
		abort();
	errno = error;
	return pid;
}

/*
 * Enters a network namespace, so that the child is made in it. Returns a descriptor of our own
 * one; -1: refused, and we stay in our own.
 */
static int enter_network(int net)
{
	forge_auto_close int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	return own < 0 || setns(net, CLONE_NEWNET) < 0 ? -1 : forge_take_fd(own);
}

static void leave_network(int own)
{
	int error = errno;

	/*
	 * We came from this namespace. If we could not return, we would have no network to
	 * report anything.
	 */
	if (setns(own, CLONE_NEWNET) < 0)
		abort();
	close(own);
	errno = error;
}

static int start_init(const struct forge_plan *plan, struct forge_cgroup *cg,
		      struct forge_netns *netns, struct wiring *w,
		      struct forge_sandbox *sb, struct forge_error *err)
{
	int net = plan->own_network && netns ? forge_netns_fd(netns) : -1;
	int own = net >= 0 ? enter_network(net) : -1;
	bool needs_network = plan->own_network && own < 0;
	struct forge_clone_args args = {
		.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC |
			 CLONE_NEWUTS | CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)&sb->pidfd,
		.exit_signal = SIGCHLD,
	};

	if (needs_network)
		args.flags |= CLONE_NEWNET;
	if (cg->v2_fd >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)cg->v2_fd;
	}
	pid_t pid = plan->privileged ? clone_as(plan->host_uid, &args, cg)
				     : clone_init(&args, cg);
	if (pid == 0) {
		struct forge_child c = {
			.plan = plan,
			.sources = w->sources,
			.cgroups = cg->enter_fds,
			.needs_loopback = needs_network,
			.control = w->control[1],
			.report = w->report[1],
			.stdio = { w->in[0], w->out[1], w->err[1] },
		};
		/*
		 * Otherwise init's own copy would keep the socket open when the supervisor is
		 * gone.
		 */
		close(w->control[0]);
		forge_child_main(&c);
	}
	if (own >= 0)
		leave_network(own);
	if (pid < 0)
		return forge_diagnose_clone(
			forge_fail_errno(err, errno, "make the sandbox's namespaces"),
			err);
	sb->pid = pid;
	sb->control = forge_take_fd(w->control[0]);
	sb->report = forge_take_fd(w->report[0]);
	sb->out = forge_take_fd(w->out[0]);
	sb->err = forge_take_fd(w->err[0]);
	sb->in = forge_take_fd(w->in[1]);
	close_fd(&w->control[1]);
	close_fd(&w->report[1]);
	int rc = map_ids(plan, pid, err);
	if (rc == 0)
		rc = send_ready(sb, FORGE_CTL_IDS_READY, err);
	/* Init builds its root meanwhile. */
	if (rc == 0)
		rc = forge_cgroup_configure(cg, err);
	return rc;
}

int forge_sandbox_go(struct forge_sandbox *sb, struct forge_error *err)
{
	sb->start_usec = forge_now_usec();
	return send_ready(sb, FORGE_CTL_GO, err);
}

int forge_sandbox_start(const struct forge_plan *plan, struct forge_cgroup *cg,
			struct forge_netns *netns, bool pipe_stdin,
			struct forge_sandbox **ret, struct forge_error *err)
{
	struct wiring w = { { -1, -1 }, { -1, -1 }, { -1, -1 }, { -1, -1 },
			    { -1, -1 }, NULL,	    0 };
	forge_auto_sandbox struct forge_sandbox *sb = calloc(1, sizeof(*sb));

	if (!sb)
		return forge_fail(err, ENOMEM, "out of memory");
	sb->pidfd = sb->control = sb->report = sb->out = sb->err = sb->in = -1;
	int rc = open_channels(&w, pipe_stdin, err);
	if (rc == 0)
		rc = open_sources(plan, &w, err);
	if (rc == 0)
		rc = start_init(plan, cg, netns, &w, sb, err);
	wiring_done(&w);
	if (rc < 0)
		return rc;
	*ret = forge_take_ptr(sb);
	return 0;
}

void forge_sandbox_signal(struct forge_sandbox *sb, int sig)
{
	unsigned char msg[2] = { FORGE_CTL_SIGNAL, (unsigned char)sig };

	(void)!send(sb->control, msg, sizeof(msg), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void forge_sandbox_kill(struct forge_sandbox *sb)
{
	if (sb->pidfd >= 0)
		(void)sys_pidfd_send_signal(sb->pidfd, SIGKILL, NULL); /* ESRCH: dead already */
}

int forge_sandbox_read_report(struct forge_sandbox *sb, struct forge_child_report *ret)
{
	ssize_t n = read(sb->report, ret, sizeof(*ret));

	if (n == (ssize_t)sizeof(*ret)) {
		ret->what[sizeof(ret->what) - 1] = '\0';
		return 1;
	}
	return n == 0 ? 0 : -EAGAIN;
}

int forge_sandbox_explain(const struct forge_child_report *r, struct forge_error *err)
{
	int stage = r->stage >= 0 && r->stage < FORGE_STAGE_COUNT ? r->stage
								  : FORGE_STAGE_NONE;
	int rc = forge_fail_errno(err, r->error, "%s %s", forge_stage_names[stage],
				  r->what);

	if (stage == FORGE_STAGE_MOUNT && strcmp(r->what, "/proc") == 0 &&
	    r->error == EPERM)
		return forge_diagnose_proc(rc, err);
	/* 524 is the kernel's own ENOTSUPP, which has no name outside of it. */
	if (stage == FORGE_STAGE_SECCOMP && (r->error == 524 || r->error == ENOMEM))
		return forge_hint(
			err,
			forge_fail(err, ENOMEM,
				   "this host's memory for BPF programs, which seccomp "
				   "filters are, stayed used up for 2 s"),
			"Raise it: sysctl net.core.bpf_jit_limit; `bpftool prog` shows "
			"what uses it");
	if (stage == FORGE_STAGE_OPEN && r->error == EACCES)
		return forge_hint(err, rc, "Your user cannot read it");
	if (r->error == ENOSYS || (stage == FORGE_STAGE_READ_ONLY && r->error == EINVAL))
		return forge_hint(err, rc,
				  "Linux 5.14 or newer is needed (open_tree, "
				  "mount_setattr, move_mount)");
	/* For the command itself these errors say nothing about the host. */
	if ((r->error == EPERM || r->error == EACCES) && stage != FORGE_STAGE_EXEC)
		return forge_diagnose_refused(rc, err);
	return rc;
}

void forge_sandbox_reap(struct forge_sandbox *sb)
{
	if (sb->pid <= 0)
		return;
	while (waitpid(sb->pid, NULL, 0) < 0 && errno == EINTR)
		;
	sb->pid = 0;
}

int forge_sandbox_end(struct forge_sandbox *sb, int msec)
{
	struct pollfd p = { .fd = sb->pidfd, .events = POLLIN };

	if (sb->pid <= 0)
		return 0;
	forge_sandbox_kill(sb);
	while (poll(&p, 1, msec) < 0 && errno == EINTR)
		; /* our signals are blocked */
	if (!p.revents)
		return -ETIMEDOUT;
	forge_sandbox_reap(sb);
	return 0;
}

void forge_sandbox_abandon(struct forge_sandbox *sb)
{
	sb->pid = 0;
}

void forge_sandbox_free(struct forge_sandbox *sb)
{
	if (!sb)
		return;
	forge_sandbox_kill(sb);
	forge_sandbox_reap(sb);
	int *fds[] = {
		&sb->pidfd, &sb->control, &sb->report, &sb->out, &sb->err, &sb->in
	};
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(fds); i++)
		close_fd(fds[i]);
	free(sb);
}
