/* SPDX-License-Identifier: Apache-2.0 */
/* How a supervisor and forge-shim find each other: socket, streams, mounts, limits, start. */
#include "executor/container/container.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/sys.h"
#include "executor/container/shim.h"
#include "sandbox/landlock.h"

/* How long forge-shim may take from the start of the container until it connects. */
#define CONNECT_MSEC 30000
/* forge-shim ends everything by itself when the supervisor is gone: so long after the last moment. */
#define SLACK_USEC 2000000
static int make_fifo(int dir, const char *name)
{
	return mkfifoat(dir, name, 0600) < 0 ? -errno : 0;
}

/* Bound by way of the descriptor: the path may be longer than an address can be. */
static int listen_at(int dir)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	forge_auto_close int fd =
		socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	(void)snprintf(at.sun_path, sizeof(at.sun_path), "/proc/self/fd/%d/control", dir);
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
	    fchmodat(dir, "control", 0666, 0) < 0 || listen(fd, 64) < 0)
		return -errno;
	return forge_take_fd(fd);
}

/* Only its owner gets to it: the directories above are closed to others. */
int forge_container_make_control(struct forge_container *e, struct forge_error *err)
{
	forge_auto_close int top = forge_home_subdir(e->job->home, "containers", err);

	if (top < 0)
		return top;
	e->control = forge_container_control_path(e->job);
	if (!e->control)
		return forge_fail(err, ENOMEM, "out of memory");
	int rc = mkdirat(top, e->job->run_id, 0755) < 0 ? -errno : 0;
	if (rc == 0)
		e->control_fd = openat(top, e->job->run_id,
				       O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (rc == 0 && (e->control_fd < 0 || fchmod(e->control_fd, 0755) < 0))
		rc = -errno;
	if (rc == 0)
		rc = make_fifo(e->control_fd, "stdout");
	if (rc == 0)
		rc = make_fifo(e->control_fd, "stderr");
	if (rc == 0) {
		e->listener = listen_at(e->control_fd);
		rc = e->listener < 0 ? e->listener : 0;
	}
	return rc < 0 ? forge_fail_errno(err, -rc, "make %s", e->control) : 0;
}

void forge_container_remove_control(const char *path)
{
	static const char *const files[] = { "control", "stdout", "stderr" };
	forge_auto_close int dir =
		path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) : -1;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(files) && dir >= 0; i++)
		(void)unlinkat(dir, files[i], 0); /* maybe it was never made */
	if (path)
		(void)rmdir(path);
}

/* What is at a path now, without following a link. */
static int identify(const char *path, struct stat *ret)
{
	forge_auto_close int fd = forge_open_nolink(path, O_PATH);

	return fd < 0 ? fd : fstat(fd, ret) < 0 ? -errno : 0;
}

/* The engine resolves the paths again, with its own rights: what they mean now is what must be mounted. */
int forge_container_note_mounts(struct forge_container *e, const json_t *body,
				struct forge_error *err)
{
	const json_t *list =
		json_object_get(json_object_get(body, "HostConfig"), "Mounts");
	size_t i;
	const json_t *m;

	e->mounts = json_array();
	json_array_foreach (list, i, m) {
		const char *source = forge_json_string_or(m, "Source", "");
		struct stat st;
		int rc = identify(source, &st);
		if (rc < 0)
			return forge_fail_errno(err, -rc, "look at %s", source);
		json_array_append_new(e->mounts, json_pack("{s:O, s:I, s:I}", "target",
							   json_object_get(m, "Target"),
							   "dev", (json_int_t)st.st_dev,
							   "ino", (json_int_t)st.st_ino));
	}
	return 0;
}

/* Why a container ended before forge-shim connected. */
static int fail_early(struct forge_container *e, struct forge_error *err)
{
	json_t *c = NULL;
	int rc = forge_engine_inspect(&e->engine, e->name, &c, err);

	if (rc == 0) {
		const json_t *state = json_object_get(c, "State");
		rc = forge_fail(
			err, ECHILD,
			"%s started the container, but forge-shim did not connect "
			"within %d s (state %s, exit code %lld%s%.100s)",
			e->engine.name, CONNECT_MSEC / 1000,
			forge_json_string_or(state, "Status", "?"),
			(long long)json_integer_value(json_object_get(state, "ExitCode")),
			*forge_json_string_or(state, "Error", "") ? ": " : "",
			forge_json_string_or(state, "Error", ""));
	}
	json_decref(c);
	return rc;
}

/*
 * Before the command runs, the first to connect is forge-shim. Later, only a connection of the container's
 * process 1 is taken (shim_pid): the command could connect too.
 */
static int accept_shim(struct forge_container *e, struct forge_sandbox *sb,
		       pid_t shim_pid, struct forge_error *err)
{
	struct pollfd p = { .fd = e->listener, .events = POLLIN };
	struct ucred peer;
	socklen_t len = sizeof(peer);
	uint64_t end = forge_now_usec() + CONNECT_MSEC * 1000ull;

	while (sb->control < 0) {
		uint64_t now = forge_now_usec();
		if (now >= end ||
		    (poll(&p, 1, (int)((end - now) / 1000)) < 0 && errno != EINTR))
			return fail_early(e, err);
		sb->control = accept4(e->listener, NULL, NULL, SOCK_CLOEXEC);
		if (sb->control < 0)
			continue;
		if (getsockopt(sb->control, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
			return forge_fail_errno(err, errno, "identify forge-shim");
		if (shim_pid && peer.pid != shim_pid) {
			close(sb->control);
			sb->control = -1;
		}
	}
	struct pollfd first = { .fd = sb->control, .events = POLLIN };
	struct forge_shim_ready ready;
	if (poll(&first, 1, CONNECT_MSEC) <= 0 ||
	    recv(sb->control, &ready, sizeof(ready), MSG_DONTWAIT) !=
		    (ssize_t)sizeof(ready))
		return forge_fail(err, EPROTO, "forge-shim of another version answered");
	e->landlock_abi = ready.landlock_abi;
	sb->pid = peer.pid;
	sb->pidfd = sys_pidfd_open(peer.pid, 0);
	if (peer.pid <= 0 || sb->pidfd < 0)
		return forge_fail(err, ESRCH,
				  "the engine is in another pid namespace than forge");
	close(e->listener);
	e->listener = -1;
	return 0;
}

static int open_streams(struct forge_container *e, struct forge_sandbox *sb,
			int fds[FORGE_SHIM_FDS], struct forge_error *err)
{
	int pipe_in[2] = { -1, -1 }, report[2] = { -1, -1 };

	/* For reading first: opening a fifo for writing needs a reader. */
	sb->out = openat(e->control_fd, "stdout", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	sb->err = openat(e->control_fd, "stderr", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	fds[FORGE_SHIM_OUT] = openat(e->control_fd, "stdout", O_WRONLY | O_CLOEXEC);
	fds[FORGE_SHIM_ERR] = openat(e->control_fd, "stderr", O_WRONLY | O_CLOEXEC);
	fds[FORGE_SHIM_KEEP_OUT] =
		openat(e->control_fd, "stdout", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	fds[FORGE_SHIM_KEEP_ERR] =
		openat(e->control_fd, "stderr", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	int rc = pipe2(report, O_CLOEXEC | O_NONBLOCK);
	if (rc == 0 && e->job->pass_stdin)
		rc = pipe2(pipe_in, O_CLOEXEC);
	else if (rc == 0)
		pipe_in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (rc == 0 && pipe_in[1] >= 0)
		rc = fcntl(pipe_in[1], F_SETFL, O_NONBLOCK);
	fds[FORGE_SHIM_IN] = pipe_in[0];
	fds[FORGE_SHIM_REPORT] = report[1];
	sb->in = pipe_in[1];
	sb->report = report[0];
	for (int i = 0; i < FORGE_SHIM_FDS && rc == 0; i++)
		rc = fds[i] < 0 ? -1 : 0;
	return rc < 0 || sb->out < 0 || sb->err < 0
		       ? forge_fail_errno(err, errno, "open the streams of the container")
		       : 0;
}

static int send_start(struct forge_container *e, const struct forge_sandbox *sb,
		      int fds[FORGE_SHIM_FDS], struct forge_error *err)
{
	const struct forge_limits *l = e->job->limits;
	bool is_bounded =
		l->wall_usec != FORGE_UNLIMITED && l->wall_usec < UINT64_MAX / 4;
	struct forge_shim_hello hello = {
		.what = FORGE_SHIM_START,
		.own_network = e->job->own_network,
		.sockets = l->sockets,
		.file_bytes =
			l->disk_bytes == FORGE_UNLIMITED ? UINT64_MAX : l->disk_bytes,
		.most_usec = is_bounded ? l->wall_usec + l->grace_usec + SLACK_USEC
					: UINT64_MAX,
	};
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int) * FORGE_SHIM_FDS)];
	} u = { 0 };
	struct iovec iov = { .iov_base = &hello, .iov_len = sizeof(hello) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = u.room,
			    .msg_controllen = sizeof(u.room) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int) * FORGE_SHIM_FDS);
	memcpy(CMSG_DATA(c), fds, sizeof(int) * FORGE_SHIM_FDS);
	return sendmsg(sb->control, &m, MSG_NOSIGNAL) < 0
		       ? forge_fail_errno(err, errno,
					  "start the command in the container")
		       : 0;
}

/* Only forge-shim runs by now, so nothing inside can change what is looked at. */
static int check_mounts(struct forge_container *e, struct forge_error *err)
{
	char path[40];
	size_t i;
	const json_t *m;

	/* An engine of an ordinary user has no more rights than that user. */
	if (geteuid() != 0)
		return 0;
	(void)snprintf(path, sizeof(path), "/proc/%d/root", (int)e->sb->pid);
	forge_auto_close int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return forge_fail_errno(err, errno, "open the root of the container");
	json_array_foreach (e->mounts, i, m) {
		const char *target = forge_json_string_or(m, "target", "/");
		struct stat st;
		forge_auto_close int fd =
			forge_open_inside(root, target + strspn(target, "/"), O_PATH);
		if (fd < 0 || fstat(fd, &st) < 0 ||
		    st.st_dev != (dev_t)json_integer_value(json_object_get(m, "dev")) ||
		    st.st_ino != (ino_t)json_integer_value(json_object_get(m, "ino")))
			return forge_fail(err, ESTALE,
					  "%s in the container is not what was to be "
					  "mounted there: it was replaced meanwhile",
					  target);
	}
	return 0;
}

/* What nothing enforces must be in the configuration's list, or the command does not start. */
static int limit(struct forge_container *e, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	char list[FORGE_MECHANISMS_MAX];
	int rc = forge_cgroup_adopt(e->sb->pid, e->job->run_id, e->job->limits, &e->cg,
				    err);

	if (rc < 0)
		return rc;
	/* The engine has set the same limits; without the right to write its group, they are checked. */
	unsigned missing = e->cg->missing |
			   forge_landlock_missing(e->landlock_abi, e->job->own_network);
	if (e->job->limits->io_bytes_per_second &&
	    e->job->limits->io_bytes_per_second != FORGE_UNLIMITED)
		missing |= 1u << FORGE_MECH_IO;
	if (forge_cgroup_configure(e->cg, &why) < 0)
		missing |= forge_cgroup_unlimited(e->cg);
	/* NEEDSWORK: neither we nor the engine set a rate; it is refused until one of them does. */
	if (e->job->limits->io_bytes_per_second != FORGE_UNLIMITED)
		missing |= 1u << FORGE_MECH_IO;
	e->cg->missing = missing; /* the record has those that are allowed too */
	missing &= ~e->job->config->allow_missing;
	if (!missing)
		return 0;
	return forge_hint(
		err,
		forge_fail(err, EOPNOTSUPP, "%s does not enforce here: %s",
			   e->engine.name, forge_mechanism_list(missing, list)),
		"Its containers have no cgroups of their own for that. Use the "
		"executor local, an engine of root, or cgroup v2 with delegation");
}

static int note_cgroups(struct forge_container *e, struct forge_error *err)
{
	json_t *dirs = forge_cgroup_paths(e->sb->pid);

	return forge_slot_add(e->job->slot, json_pack("{s:o}", "engine_cgroups", dirs),
			      err);
}

int forge_container_listen(struct forge_container *e, struct forge_error *err)
{
	(void)unlinkat(e->control_fd, "control", 0); /* of the dead supervisor */
	e->listener = listen_at(e->control_fd);
	return e->listener < 0
		       ? forge_fail_errno(err, -e->listener, "listen in %s", e->control)
		       : 0;
}

/* From here on the run may be under way: another supervisor would have to attach to it. */
static int note_start(struct forge_container *e, struct forge_error *err)
{
	e->sb->start_usec = forge_now_usec();
	return forge_slot_add(
		e->job->slot,
		json_pack("{s:I}", "start_usec", (json_int_t)e->sb->start_usec), err);
}

int forge_container_connect(struct forge_container *e, pid_t shim_pid,
			    struct forge_error *err)
{
	int fds[FORGE_SHIM_FDS] = { -1, -1, -1, -1, -1, -1 };
	bool is_new = shim_pid == 0;
	int rc = accept_shim(e, e->sb, shim_pid, err);

	if (rc == 0 && is_new)
		rc = check_mounts(e, err);
	if (rc == 0 && is_new)
		rc = note_cgroups(e, err);
	if (rc == 0)
		rc = limit(e, err);
	if (rc == 0)
		rc = open_streams(e, e->sb, fds, err);
	if (rc == 0 && is_new)
		e->job->on_init(e->job->arg, e->sb->pid);
	if (rc == 0 && is_new)
		rc = note_start(e, err);
	if (rc == 0)
		rc = send_start(e, e->sb, fds, err);
	for (int i = 0; i < FORGE_SHIM_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return rc;
}
