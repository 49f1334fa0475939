/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executor "container": a run in a container of Docker or Podman on this machine. The engine makes
 * namespaces, mounts and cgroup; forge-shim is process 1 in it and speaks with the supervisor over a socket.
 * Limits, logs, usage and verdict come from the same event loop as those of a sandbox of our own.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "sandbox/landlock.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/helper.h"
#include "base/json.h"
#include "base/sys.h"
#include "executor/container/create.h"
#include "executor/container/engine.h"
#include "executor/container/shim.h"
#include "executor/supervise.h"
#include "executor/workdir.h"
#include "sandbox/cgroup.h"
#include "sandbox/ids.h"
#include "sandbox/sandbox.h"

/* How long forge-shim may take from the start of the container until it connects. */
#define CONNECT_MSEC 30000
/* forge-shim ends everything by itself when the supervisor is gone: so long after the last moment. */
#define SLACK_USEC 2000000
/* How long a container may take to end once its process 1 was killed. */
#define END_MSEC 10000

struct container {
	struct forge_execution base;
	const struct forge_job *job;
	const struct forge_executor_decl *decl;
	struct forge_ids ids;
	struct forge_workdir workdir;
	struct forge_engine engine;
	struct forge_cgroup *cg;
	struct forge_sandbox *sb; /* what the supervisor has of it */
	struct forge_quota quota;
	char name[48];		  /* "forge-<run id>" */
	char *control;		  /* the directory of socket and fifos */
	int control_fd, listener; /* -1: none */
	bool is_open, is_made, is_ended, is_stuck;
	bool has_ended;	  /* before another supervisor attached to it */
	int landlock_abi; /* of the command, as forge-shim says */
	json_t *mounts;	  /* [{target, dev, ino}]: what was to be mounted */
};
_Static_assert(offsetof(struct container, base) == 0, "base must come first");

static struct container *of(struct forge_execution *e)
{
	return (struct container *)e;
}

static const char *name_of(const char *run_id, char buf[48])
{
	(void)snprintf(buf, 48, "forge-%s", run_id);
	return buf;
}

static char *control_path(const struct forge_job *job)
{
	return forge_asprintf("%s/containers/%s", job->home->path ? job->home->path : "",
			      job->run_id);
}

/* The image of the runtime, or that of the executor. */
static int image_of(const struct forge_job *job, const char **ret,
		    struct forge_error *err)
{
	*ret = job->image ? job->image : job->executor->image;
	if (*ret)
		return 0;
	return forge_hint(
		err,
		forge_fail(err, EINVAL, "executor %s: no image is named",
			   job->executor->name),
		"Set executors.%s.image in forge.yaml, or use a runtime of kind "
		"image",
		job->executor->name);
}

static bool has_path(const json_t *image)
{
	size_t i;
	const json_t *pair;

	json_array_foreach (json_object_get(json_object_get(image, "Config"), "Env"), i,
			    pair)
		if (strncmp(json_string_value(pair) ? json_string_value(pair) : "",
			    "PATH=", 5) == 0)
			return true;
	return false;
}

/* The body of the create call; image may be NULL in a dry run. */
static int body_of(const struct forge_job *job, const struct forge_ids *ids,
		   const struct forge_engine *engine, const json_t *image, json_t **ret,
		   struct forge_error *err)
{
	char shim[PATH_MAX];
	const char *name;
	int rc = image_of(job, &name, err);

	if (rc == 0)
		rc = forge_helper_find("forge-shim", "../executor/container", shim, err);
	if (rc < 0)
		return rc;
	forge_auto_free char *control = control_path(job);
	forge_auto_free char *work =
		forge_asprintf("%s/%s", job->workdir, FORGE_WORKDIR_INNER);
	if (!control || !work)
		return forge_fail(err, ENOMEM, "out of memory");
	const struct forge_create c = {
		.job = job,
		.image = forge_json_string_or(image, "Id", name),
		.volumes = json_object_get(json_object_get(image, "Config"), "Volumes"),
		.workdir = work,
		.control = control,
		.shim = shim,
		.uid = ids->uid,
		.gid = ids->gid,
		.keeps_ids = engine && engine->is_podman && engine->is_rootless,
		.joins_paths = engine && engine->is_podman,
		.has_path = job->image && has_path(image),
	};
	*ret = forge_create_body(&c, err);
	return *ret ? 0 : -EINVAL;
}

static int container_explain(const struct forge_job *job, json_t **ret,
			     struct forge_error *err)
{
	struct forge_error in_use = FORGE_ERROR_INIT;
	struct forge_ids ids = { .lock_fd = -1 };
	int rc = forge_ids_choose(job->config->uid_base, 0, &ids, &in_use);

	forge_ids_done(&ids);
	if (rc < 0 && rc != -EAGAIN) {
		if (err)
			*err = in_use;
		return rc;
	}
	return body_of(job, &ids, NULL, NULL, ret, err);
}

static int container_probe(const struct forge_executor_decl *decl, char *buf, size_t size,
			   struct forge_error *err)
{
	forge_auto_engine struct forge_engine engine = { 0 };
	int rc = forge_engine_open(decl->socket, &engine, err);

	if (rc == 0)
		(void)snprintf(buf, size, "%s%s, image %s", engine.name,
			       engine.is_rootless ? " (rootless)" : "",
			       decl->image ? decl->image : "of the runtime only");
	return rc;
}

static int container_open(struct forge_execution *base,
			  const struct forge_executor_decl *decl,
			  const struct forge_config *cfg, unsigned slot,
			  struct forge_error *err)
{
	struct container *e = of(base);

	e->is_open = true;
	e->decl = decl;
	e->ids.lock_fd = -1;
	e->workdir.fd = -1;
	e->quota.fd = -1;
	e->control_fd = e->listener = -1;
	return forge_ids_choose(cfg->uid_base, slot, &e->ids, err);
}

static int container_plan(const struct forge_job *job, json_t **ret,
			  struct forge_error *err)
{
	char name[48];
	forge_auto_free char *control = control_path(job);

	if (!control)
		return forge_fail(err, ENOMEM, "out of memory");
	*ret = json_pack("{s:s, s:s, s:s, s:s}", "workdir", job->workdir, "container",
			 name_of(job->run_id, name), "socket", job->executor->socket,
			 "control", control);
	return *ret ? 0
		    : forge_fail(err, EINVAL, "the workdir's path is not valid UTF-8");
}

static int container_make_workdir(struct forge_execution *base,
				  const struct forge_job *job, struct forge_error *err)
{
	struct container *e = of(base);

	e->job = job;
	(void)name_of(job->run_id, e->name);
	return forge_workdir_make_noted(&e->workdir, job, &e->ids, err);
}

/* ---- the socket and the streams ---- */

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
static int make_control(struct container *e, struct forge_error *err)
{
	forge_auto_close int top = forge_home_subdir(e->job->home, "containers", err);

	if (top < 0)
		return top;
	e->control = control_path(e->job);
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

static void remove_control(const char *path)
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
static int note_mounts(struct container *e, const json_t *body, struct forge_error *err)
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

static int container_prepare(struct forge_execution *base, struct forge_outcome *ret,
			     struct forge_error *err)
{
	struct container *e = of(base);
	json_t *image = NULL, *body = NULL;
	const char *name = NULL;
	int rc = image_of(e->job, &name, err);

	*ret = FORGE_OUTCOME_INIT;
	if (rc == 0)
		rc = forge_engine_open(e->decl->socket, &e->engine, err);
	if (rc == 0)
		rc = forge_engine_image(&e->engine, name, &image, err);
	if (rc == 0)
		rc = make_control(e, err);
	if (rc == 0)
		rc = body_of(e->job, &e->ids, &e->engine, image, &body, err);
	if (rc == 0)
		rc = note_mounts(e, body, err);
	if (rc == 0)
		rc = forge_engine_create(&e->engine, e->name, body, err);
	e->is_made = rc == 0;
	(void)snprintf(ret->engine, sizeof(ret->engine), "%s", e->engine.name);
	(void)snprintf(ret->image, sizeof(ret->image), "%s", name ? name : "");
	(void)snprintf(ret->image_id, sizeof(ret->image_id), "%s",
		       forge_json_string_or(image, "Id", ""));
	json_decref(image);
	json_decref(body);
	return rc;
}

/* Why a container ended before forge-shim connected. */
static int fail_early(struct container *e, struct forge_error *err)
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
static int accept_shim(struct container *e, struct forge_sandbox *sb, pid_t shim_pid,
		       struct forge_error *err)
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

static int open_streams(struct container *e, struct forge_sandbox *sb,
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

static int send_start(struct container *e, const struct forge_sandbox *sb,
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
static int check_mounts(struct container *e, struct forge_error *err)
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
static int limit(struct container *e, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	char list[256] = "";
	size_t len = 0;
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
	for (unsigned i = 0; i < FORGE_MECH_COUNT; i++)
		if (missing & (1u << i))
			len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s",
						len ? ", " : "",
						forge_mechanism_names[i]);
	if (!missing)
		return 0;
	return forge_hint(
		err,
		forge_fail(err, EOPNOTSUPP, "%s does not enforce here: %s",
			   e->engine.name, list),
		"Its containers have no cgroups of their own for that. Use the "
		"executor local, an engine of root, or cgroup v2 with delegation");
}

static int note_cgroups(struct container *e, struct forge_error *err)
{
	json_t *dirs = forge_cgroup_paths(e->sb->pid);

	return forge_slot_add(e->job->slot, json_pack("{s:o}", "engine_cgroups", dirs),
			      err);
}

static int container_start(struct forge_execution *base, struct forge_error *err)
{
	struct container *e = of(base);
	int fds[FORGE_SHIM_FDS] = { -1, -1, -1, -1, -1, -1 };
	struct forge_sandbox *sb = e->sb = calloc(1, sizeof(*sb));

	if (!sb)
		return forge_fail(err, ENOMEM, "out of memory");
	sb->pidfd = sb->control = sb->report = sb->out = sb->err = sb->in = -1;
	int rc = forge_engine_start(&e->engine, e->name, err);
	if (rc == 0)
		rc = accept_shim(e, sb, 0, err);
	if (rc == 0)
		rc = check_mounts(e, err);
	if (rc == 0)
		rc = note_cgroups(e, err);
	if (rc == 0)
		rc = limit(e, err);
	if (rc == 0)
		rc = open_streams(e, sb, fds, err);
	sb->start_usec = forge_now_usec();
	/* From here on the run may be under way: another supervisor would have to attach to it. */
	if (rc == 0)
		rc = forge_slot_add(
			e->job->slot,
			json_pack("{s:I}", "start_usec", (json_int_t)sb->start_usec),
			err);
	if (rc == 0)
		rc = send_start(e, sb, fds, err);
	for (int i = 0; i < FORGE_SHIM_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return rc;
}

/* Seconds of "2026-01-31T12:00:00.123456789Z"; 0: it is no such time. */
static double seconds_of(const char *text)
{
	struct tm t = { 0 };
	double seconds;

	if (sscanf(text, "%d-%d-%dT%d:%d:%lf", &t.tm_year, &t.tm_mon, &t.tm_mday,
		   &t.tm_hour, &t.tm_min, &seconds) != 6)
		return 0;
	t.tm_year -= 1900;
	t.tm_mon -= 1;
	return (double)timegm(&t) + seconds;
}

/* It ended while no supervisor was there: all there is, is what the engine has of it. */
static void take_exit(const json_t *state, struct forge_outcome *ret)
{
	int code = (int)json_integer_value(json_object_get(state, "ExitCode"));

	ret->has_started = ret->has_status = true;
	ret->wait_status = code > 128 && code <= 192 ? code - 128 : (code & 0xff) << 8;
	ret->oom_kills = json_is_true(json_object_get(state, "OOMKilled"));
	double wall = seconds_of(forge_json_string_or(state, "FinishedAt", "")) -
		      seconds_of(forge_json_string_or(state, "StartedAt", ""));
	if (wall >= 0 && wall < 1e9)
		ret->wall_usec = (uint64_t)(wall * 1e6);
}

/* Everything that start does, but with a container that is running. */
static int attach_running(struct container *e, pid_t shim_pid, struct forge_error *err)
{
	int fds[FORGE_SHIM_FDS] = { -1, -1, -1, -1, -1, -1 };
	int rc = 0;

	(void)unlinkat(e->control_fd, "control", 0); /* of the dead supervisor */
	e->listener = listen_at(e->control_fd);
	if (e->listener < 0)
		rc = forge_fail_errno(err, -e->listener, "listen in %s", e->control);
	if (rc == 0)
		rc = accept_shim(e, e->sb, shim_pid, err);
	if (rc == 0)
		rc = limit(e, err);
	if (rc == 0)
		rc = open_streams(e, e->sb, fds, err);
	if (rc == 0)
		rc = send_start(e, e->sb, fds, err);
	for (int i = 0; i < FORGE_SHIM_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return rc;
}

/* 1: it ends just now, and is to be looked at again. */
static int attach_to(struct container *e, const json_t *state, struct forge_outcome *ret,
		     struct forge_error *err)
{
	static const char *const ended[] = { "exited", "dead", "stopped" };
	static const char *const never_ran[] = { "created", "configured", "initialized" };
	const char *status = forge_json_string_or(state, "Status", "");

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(ended); i++)
		if (strcmp(status, ended[i]) == 0) {
			take_exit(state, ret);
			e->has_ended = true;
			e->job->on_event(e->job->arg, "log_failed",
					 "no supervisor was there when the run ended");
			return 0;
		}
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(never_ran); i++)
		if (strcmp(status, never_ran[i]) == 0)
			return forge_fail(err, ESRCH, "the container is %s", status);
	if (strcmp(status, "running") != 0)
		return 1;
	return attach_running(e, (pid_t)json_integer_value(json_object_get(state, "Pid")),
			      err);
}

static int inspect_and_attach(struct container *e, struct forge_outcome *ret,
			      struct forge_error *err)
{
	uint64_t end = forge_now_usec() + END_MSEC * 1000ull;
	int rc;

	do {
		json_t *c = NULL;
		rc = forge_engine_inspect(&e->engine, e->name, &c, err);
		if (rc < 0)
			return rc == -ENOENT ? -ESRCH : rc;
		e->is_made = true;
		(void)snprintf(
			ret->image, sizeof(ret->image), "%s",
			forge_json_string_or(json_object_get(c, "Config"), "Image", ""));
		(void)snprintf(ret->image_id, sizeof(ret->image_id), "%s",
			       forge_json_string_or(c, "Image", ""));
		rc = attach_to(e, json_object_get(c, "State"), ret, err);
		json_decref(c);
		if (rc != 1)
			return rc;
		(void)poll(NULL, 0, 50);
	} while (forge_now_usec() < end);
	return forge_fail(err, EAGAIN, "the container is neither running nor ended");
}

/* Lets go of a container that could not be attached to: it goes on as it was. */
static void detach(struct container *e)
{
	if (e->sb->pidfd >= 0)
		close(e->sb->pidfd);
	e->sb->pidfd = -1;
	e->sb->pid = 0;
	forge_sandbox_free(forge_take_ptr(e->sb));
	free(forge_take_ptr(e->control));
}

static int container_attach(struct forge_execution *base, const struct forge_job *job,
			    const json_t *slot, struct forge_outcome *ret,
			    struct forge_error *err)
{
	struct container *e = of(base);

	*ret = FORGE_OUTCOME_INIT;
	e->job = job;
	(void)name_of(job->run_id, e->name);
	e->control = control_path(job);
	e->sb = calloc(1, sizeof(*e->sb));
	if (!e->sb || !e->control)
		return forge_fail(err, ENOMEM, "out of memory");
	e->sb->pidfd = e->sb->control = e->sb->report = e->sb->out = e->sb->err =
		e->sb->in = -1;
	e->sb->start_usec =
		(uint64_t)json_integer_value(json_object_get(slot, "start_usec"));
	e->control_fd = open(e->control, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	const char *socket = forge_json_string_or(slot, "socket", e->decl->socket);
	int rc = forge_engine_open(socket ? socket : "", &e->engine, err);
	if (rc == 0)
		rc = forge_workdir_reopen(slot, job->workdir, &e->workdir, err);
	/* Without its directory nothing of the run can be collected: repair ends it. */
	if (rc == -ENOENT || rc == -ESTALE)
		rc = -ESRCH;
	if (rc == 0)
		rc = inspect_and_attach(e, ret, err);
	e->is_made = rc == 0;
	if (rc < 0)
		detach(e);
	(void)snprintf(ret->engine, sizeof(ret->engine), "%s", e->engine.name);
	return rc;
}

static int container_wait(struct forge_execution *base, struct forge_outcome *ret,
			  struct forge_error *err)
{
	struct container *e = of(base);
	uint64_t milli = e->job->limits->cpus_milli;

	if (e->has_ended)
		return 0;
	const struct forge_supervision what = {
		.job = e->job,
		.workdir = e->job->workdir,
		.n_cpus = milli == FORGE_UNLIMITED
				  ? (uint64_t)sysconf(_SC_NPROCESSORS_ONLN)
				  : (milli + 999) / 1000,
		.cg = e->cg,
		.quota = &e->quota,
		.sb = e->sb,
		.workdir_fd = e->workdir.fd,
		/* That needs to freeze the run, which is done through cgroup v2. */
		.watches_kernel_memory = e->cg->v2_fd >= 0,
	};
	int rc = forge_supervise(&what, ret, err);

	ret->missing = e->cg->missing;
	ret->cgroup_manager = e->cg->ops->name;
	ret->landlock_abi = e->landlock_abi;
	if (rc < 0 && !ret->has_started)
		e->job->on_event(e->job->arg, "started", NULL);
	if (rc < 0)
		forge_sandbox_kill(e->sb);
	e->is_stuck = ret->is_stuck;
	return rc;
}

static int container_workdir_fd(const struct forge_execution *base)
{
	return ((const struct container *)base)->workdir.fd;
}

static bool container_drop_empty(struct forge_execution *base)
{
	return forge_workdir_drop_empty(&of(base)->workdir);
}

static int container_keep(struct forge_execution *base, struct forge_kept *ret,
			  struct forge_error *err)
{
	struct container *e = of(base);

	return forge_workdir_keep_as(&e->workdir, e->job->run_id, ret, err);
}

static int container_clean(struct forge_execution *base, struct forge_rmtree_stats *ret,
			   struct forge_error *err)
{
	struct container *e = of(base);

	return e->workdir.fd < 0 ? 0
				 : forge_workdir_remove(&e->workdir, e->job->home,
							e->job->slot->number, ret, err);
}

/* forge-shim ends when it is left alone; a killed one takes everything with it. */
static void end_shim(struct container *e)
{
	struct pollfd dead = { .fd = e->sb->pidfd, .events = POLLIN };

	const char leave = FORGE_SHIM_LEAVE;

	if (e->sb->control >= 0) {
		(void)!send(e->sb->control, &leave, 1,
			    MSG_NOSIGNAL | MSG_DONTWAIT); /* it is killed otherwise */
		close(e->sb->control);
	}
	e->sb->control = -1;
	/* Without a pidfd it never connected: poll would only wait. */
	if (dead.fd >= 0 && poll(&dead, 1, 100) == 0) {
		forge_sandbox_kill(e->sb);
		/* One that does not die may be frozen (docker pause): the engine can remove it all the same. */
		(void)poll(&dead, 1, e->is_stuck ? 0 : END_MSEC);
	}
	e->sb->pid = 0; /* it is a child of the engine */
	forge_sandbox_free(forge_take_ptr(e->sb));
}

/* Podman refuses for as long as it has not noticed that the container has ended. */
static int remove_container(struct container *e, struct forge_error *err)
{
	uint64_t end = forge_now_usec() + END_MSEC * 1000ull;
	int rc;

	do {
		struct forge_error why = FORGE_ERROR_INIT;
		rc = forge_engine_remove(&e->engine, e->name, &why);
		if (rc == 0)
			return 0;
		if (err)
			*err = why;
		(void)poll(NULL, 0, 50);
	} while (forge_now_usec() < end);
	return rc;
}

static int container_end(struct forge_execution *base, struct forge_error *err)
{
	struct container *e = of(base);
	int rc = 0;

	if (!e->is_open || e->is_ended)
		return 0;
	e->is_ended = true;
	if (e->sb)
		end_shim(e);
	if (e->is_made)
		rc = remove_container(e, err);
	if (rc == 0 && e->control) {
		remove_control(e->control);
		free(forge_take_ptr(e->control));
	}
	forge_cgroup_free(forge_take_ptr(e->cg));
	return rc;
}

static void container_close(struct forge_execution *base)
{
	struct container *e = of(base);

	if (!e->is_open)
		return;
	forge_workdir_close(&e->workdir);
	forge_ids_done(&e->ids);
	forge_engine_close(&e->engine);
	if (e->listener >= 0)
		close(e->listener);
	if (e->control_fd >= 0)
		close(e->control_fd);
	free(e->control);
	json_decref(e->mounts);
}

static int container_repair(const struct forge_repair *r, struct forge_error *err)
{
	const char *name = forge_json_string(r->slot, "container");
	const char *socket = forge_json_string(r->slot, "socket");
	const char *control = forge_json_string(r->slot, "control");
	forge_auto_engine struct forge_engine engine = { 0 };
	char own[48];
	int rc = 0;

	/* Only a container of this run's name. */
	if (name && socket && strcmp(name, name_of(r->run_id, own)) == 0) {
		r->report(r->arg, "remove container", name);
		if (!r->dry_run) {
			rc = forge_engine_open(socket, &engine, err);
			if (rc == 0)
				rc = forge_engine_remove(&engine, name, err);
		}
	}
	if (rc == 0 && control && !r->dry_run)
		remove_control(control);
	return rc < 0 ? rc : forge_workdir_repair(r, err);
}

static void container_usage(const json_t *slot, struct forge_usage_now *ret)
{
	forge_cgroup_read_now(json_object_get(slot, "engine_cgroups"), &ret->memory_bytes,
			      &ret->cpu_usec);
}

const struct forge_executor_ops forge_executor_container = {
	.kind = "container",
	.caps = FORGE_EXECUTOR_OUTLIVES,
	.cannot = "I/O rate; kernel memory with cgroup v1",
	.probe = container_probe,
	.size = sizeof(struct container),
	.explain = container_explain,
	.open = container_open,
	.plan = container_plan,
	.make_workdir = container_make_workdir,
	.prepare = container_prepare,
	.start = container_start,
	.attach = container_attach,
	.wait = container_wait,
	.workdir_fd = container_workdir_fd,
	.drop_empty = container_drop_empty,
	.keep = container_keep,
	.clean = container_clean,
	.end = container_end,
	.close = container_close,
	.repair = container_repair,
	.repair_kept = forge_workdir_repair_kept,
	.usage = container_usage,
};
