/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executor "container": a run in a container of Docker or Podman on this machine. The engine makes
 * namespaces, mounts and cgroup; forge-shim is process 1 in it and speaks with the supervisor over a socket.
 * Limits, logs, usage and verdict come from the same event loop as those of a sandbox of our own.
 */
#include "executor/container/container.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/helper.h"
#include "base/json.h"
#include "executor/container/create.h"
#include "executor/container/shim.h"
#include "executor/supervise.h"

/* How long a container may take to end once its process 1 was killed. */
#define END_MSEC 10000

static struct forge_container *of(struct forge_execution *e)
{
	return (struct forge_container *)e;
}

static const char *name_of(const char *run_id, char buf[48])
{
	(void)snprintf(buf, 48, "forge-%s", run_id);
	return buf;
}

char *forge_container_control_path(const struct forge_job *job)
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
	forge_auto_free char *control = forge_container_control_path(job);
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
	struct forge_container *e = of(base);

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
	forge_auto_free char *control = forge_container_control_path(job);

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
	struct forge_container *e = of(base);

	e->job = job;
	(void)name_of(job->run_id, e->name);
	return forge_workdir_make_noted(&e->workdir, job, &e->ids, err);
}

static int container_prepare(struct forge_execution *base, struct forge_outcome *ret,
			     struct forge_error *err)
{
	struct forge_container *e = of(base);
	json_t *image = NULL, *body = NULL;
	const char *name = NULL;
	int rc = image_of(e->job, &name, err);

	*ret = FORGE_OUTCOME_INIT;
	if (rc == 0)
		rc = forge_engine_open(e->decl->socket, &e->engine, err);
	if (rc == 0)
		rc = forge_engine_image(&e->engine, name, &image, err);
	if (rc == 0)
		rc = forge_container_make_control(e, err);
	if (rc == 0)
		rc = body_of(e->job, &e->ids, &e->engine, image, &body, err);
	if (rc == 0)
		rc = forge_container_note_mounts(e, body, err);
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

/* A descriptor that is not there is -1. */
static int new_sandbox(struct forge_container *e, struct forge_error *err)
{
	e->sb = calloc(1, sizeof(*e->sb));
	if (!e->sb)
		return forge_fail(err, ENOMEM, "out of memory");
	e->sb->pidfd = e->sb->control = e->sb->report = e->sb->out = e->sb->err =
		e->sb->in = -1;
	return 0;
}

static int container_start(struct forge_execution *base, struct forge_error *err)
{
	struct forge_container *e = of(base);
	int rc = new_sandbox(e, err);

	if (rc == 0)
		rc = forge_engine_start(&e->engine, e->name, err);
	return rc < 0 ? rc : forge_container_connect(e, 0, err);
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

static int attach_running(struct forge_container *e, pid_t shim_pid,
			  struct forge_error *err)
{
	int rc = forge_container_listen(e, err);

	return rc < 0 ? rc : forge_container_connect(e, shim_pid, err);
}

/* 1: it ends just now, and is to be looked at again. */
static int attach_to(struct forge_container *e, const json_t *state,
		     struct forge_outcome *ret, struct forge_error *err)
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

static int inspect_and_attach(struct forge_container *e, struct forge_outcome *ret,
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
static void detach(struct forge_container *e)
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
	struct forge_container *e = of(base);

	*ret = FORGE_OUTCOME_INIT;
	e->job = job;
	(void)name_of(job->run_id, e->name);
	e->control = forge_container_control_path(job);
	if (!e->control)
		return forge_fail(err, ENOMEM, "out of memory");
	int rc = new_sandbox(e, err);
	if (rc < 0)
		return rc;
	e->sb->start_usec =
		(uint64_t)json_integer_value(json_object_get(slot, "start_usec"));
	e->control_fd = open(e->control, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	const char *socket = forge_json_string_or(slot, "socket", e->decl->socket);
	rc = forge_engine_open(socket ? socket : "", &e->engine, err);
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
	struct forge_container *e = of(base);
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
	return ((const struct forge_container *)base)->workdir.fd;
}

static bool container_drop_empty(struct forge_execution *base)
{
	return forge_workdir_drop_empty(&of(base)->workdir);
}

static int container_keep(struct forge_execution *base, struct forge_kept *ret,
			  struct forge_error *err)
{
	struct forge_container *e = of(base);

	return forge_workdir_keep_as(&e->workdir, e->job->run_id, ret, err);
}

static int container_clean(struct forge_execution *base, struct forge_rmtree_stats *ret,
			   struct forge_error *err)
{
	struct forge_container *e = of(base);

	return e->workdir.fd < 0 ? 0
				 : forge_workdir_remove(&e->workdir, e->job->home,
							e->job->slot->number, ret, err);
}

/* forge-shim ends when it is left alone; a killed one takes everything with it. */
static void end_shim(struct forge_container *e)
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
static int remove_container(struct forge_container *e, struct forge_error *err)
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
	struct forge_container *e = of(base);
	int rc = 0;

	if (!e->is_open || e->is_ended)
		return 0;
	e->is_ended = true;
	if (e->sb)
		end_shim(e);
	if (e->is_made)
		rc = remove_container(e, err);
	if (rc == 0 && e->control) {
		forge_container_remove_control(e->control);
		free(forge_take_ptr(e->control));
	}
	forge_cgroup_free(forge_take_ptr(e->cg));
	return rc;
}

static void container_close(struct forge_execution *base)
{
	struct forge_container *e = of(base);

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
		forge_container_remove_control(control);
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
	.size = sizeof(struct forge_container),
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
