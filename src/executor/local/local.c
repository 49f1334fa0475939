/* SPDX-License-Identifier: Apache-2.0 */
/* Executor "local": a sandbox on this machine. Puts workdir, plan, cgroup and supervisor together. */
#include "executor/local/repair.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "executor/supervise.h"
#include "executor/workdir.h"
#include "sandbox/cgroup.h"
#include "sandbox/connections.h"
#include "sandbox/ids.h"
#include "sandbox/landlock.h"
#include "sandbox/netns.h"
#include "sandbox/sandbox.h"

struct local {
	struct forge_execution base;
	const struct forge_job *job;
	struct forge_ids ids;
	struct forge_workdir workdir;
	struct forge_netns netns;
	struct forge_quota quota;
	struct forge_plan *plan;
	struct forge_cgroup *cg;
	struct forge_sandbox *sb;
	struct forge_connections connections;
	struct forge_error uncounted; /* why its connections are not */
	bool is_open;
	bool is_stuck; /* processes of the run do not die */
};
_Static_assert(offsetof(struct local, base) == 0, "base must come first");

static struct local *local_of(struct forge_execution *e)
{
	return (struct local *)e;
}

static int build_plan(const struct forge_job *job, const struct forge_ids *ids,
		      bool has_workdir, int landlock_abi, struct forge_plan **ret,
		      struct forge_error *err)
{
	struct forge_plan_spec spec = {
		.run_id = job->run_id,
		.argv = job->argv,
		.env = job->env,
		.read_only = job->read_only,
		.aliases = job->aliases,
		.links = job->tools,
		.root = job->root,
		.workdir = job->workdir,
		.place = job->place,
		.workdir_exists = has_workdir,
		.own_network = job->own_network,
		.notes_sockets = job->on_connections != NULL,
		.tmp_bytes = job->config->tmp_bytes,
		.shm_bytes = job->config->shm_bytes,
		.host_uid = ids->uid,
		.host_gid = ids->gid,
		.privileged = ids->privileged,
		.landlock_abi = landlock_abi,
		.limits = job->limits,
	};
	return forge_plan_build(&spec, ret, err);
}

/*
 * Fail closed: what is missing must be in the configuration's list, or nothing starts. An I/O
 * rate is missing for a reason of this run's, which io_error says.
 */
static int check_missing(unsigned missing, unsigned allowed, bool is_chosen,
			 const struct forge_error *io_error, struct forge_error *err)
{
	char list[FORGE_MECHANISMS_MAX];

	missing &= ~allowed;
	if (!missing)
		return 0;
	if (missing == 1u << FORGE_MECH_IO && io_error->code) {
		if (err)
			*err = *io_error;
		return -io_error->code;
	}
	return forge_hint(
		err,
		forge_fail(err, EOPNOTSUPP, "%s: %s",
			   is_chosen ? "without a cgroup nothing enforces"
				     : "this host cannot enforce",
			   forge_mechanism_list(missing, list)),
		"`forge doctor` shows why and what to do; to run without, name them in "
		"sandbox.allow_missing of forge.yaml");
}

/* Any user id will do for a plan that is only shown: that the first one is in use is no error. */
static int local_explain(const struct forge_job *job, json_t **ret,
			 struct forge_error *err)
{
	struct forge_error in_use = FORGE_ERROR_INIT;
	struct forge_ids ids = { .lock_fd = -1 };
	forge_auto_plan struct forge_plan *plan = NULL;
	int rc = forge_ids_choose(job->config->uid_base, 0, &ids, &in_use);

	forge_ids_done(&ids);
	if (rc < 0 && rc != -EAGAIN) {
		if (err)
			*err = in_use;
		return rc;
	}
	rc = build_plan(job, &ids, false, forge_landlock_abi(), &plan, err);
	if (rc < 0)
		return rc;
	*ret = forge_plan_json(plan);
	return *ret ? 0 : forge_fail(err, ENOMEM, "out of memory");
}

static int local_probe(const struct forge_executor_decl *decl, char *buf, size_t size,
		       struct forge_error *err)
{
	(void)decl; /* there is nothing to configure */
	(void)err;  /* what this machine cannot enforce, forge doctor finds out */
	(void)snprintf(buf, size, "this machine (forge doctor)");
	return 0;
}

static int local_open(struct forge_execution *base,
		      const struct forge_executor_decl *decl,
		      const struct forge_config *cfg, unsigned slot,
		      struct forge_error *err)
{
	struct local *e = local_of(base);

	(void)decl; /* there is nothing to configure */
	e->is_open = true;
	e->ids.lock_fd = -1;
	e->workdir.fd = -1;
	e->quota.fd = -1;
	e->netns = FORGE_NETNS_INIT;
	e->connections = FORGE_CONNECTIONS_INIT;
	return forge_ids_choose(cfg->uid_base, slot, &e->ids, err);
}

static int local_plan(const struct forge_job *job, json_t **ret, struct forge_error *err)
{
	forge_auto_strv struct forge_strv cgroups = { 0 };
	int rc = forge_cgroup_predict(job->run_id, &cgroups);

	if (rc < 0)
		return forge_fail_errno(err, -rc, "find our cgroups (/proc/self/cgroup)");
	json_t *dirs = json_array();
	forge_strv_foreach (dir, &cgroups)
		json_array_append_new(dirs, json_string(dir));
	*ret = json_pack("{s:s, s:o}", "workdir", job->place ? job->place : job->workdir,
			 "cgroups", dirs);
	return *ret ? 0
		    : forge_fail(err, EINVAL, "the workdir's path is not valid UTF-8");
}

/*
 * Nothing may fork while the thread of the network namespace runs. When the name of the workdir is taken,
 * the door may have to fork before it calls again: the thread has ended by then.
 */
static int local_make_workdir(struct forge_execution *base, const struct forge_job *job,
			      struct forge_error *err)
{
	struct local *e = local_of(base);

	e->job = job;
	if (e->ids.privileged && job->own_network)
		forge_netns_begin(&e->netns);
	int rc = forge_workdir_make_noted(&e->workdir, job, &e->ids, err);
	if (rc < 0) {
		forge_netns_done(&e->netns);
		e->netns = FORGE_NETNS_INIT;
	}
	return rc;
}

/* How long init may take to end without using CPU time: after that its file systems do not answer. */
#define END_MSEC 5000

/* Init frees what was in /tmp and /dev/shm; for many gigabytes that takes CPU time. */
static int end_init(struct local *e)
{
	uint64_t used = forge_cgroup_cpu_usec(e->cg), before;
	int rc;

	do {
		before = used;
		rc = forge_sandbox_end(e->sb, END_MSEC);
		used = forge_cgroup_cpu_usec(e->cg);
	} while (rc < 0 && used != UINT64_MAX && used - before > END_MSEC * 10);
	if (rc < 0)
		forge_sandbox_abandon(e->sb);
	return rc;
}

static int start_sandbox(struct local *e, struct forge_outcome *ret,
			 struct forge_error *err)
{
	const struct forge_job *job = e->job;

	/* Root's runs have a uid each: it serves as project id too. */
	if (e->ids.privileged)
		ret->has_quota = forge_quota_start(&e->quota, e->workdir.fd, e->ids.uid,
						   job->limits->disk_bytes,
						   job->limits->inodes) == 0;
	e->plan->may_allocate = ret->has_quota;
	return forge_sandbox_start(e->plan, e->cg, &e->netns, job->pass_stdin, &e->sb,
				   err);
}

/* Without it the run goes on: less is known of it then, and the report says why. */
static void watch_connections(struct local *e)
{
	if (e->job->on_connections && !e->job->own_network)
		(void)!forge_connections_watch(&e->connections, e->cg, &e->uncounted);
}

static void report_connections(struct local *e, const struct forge_outcome *o)
{
	json_t *found = NULL;

	if (!e->job->on_connections)
		return;
	if (e->job->own_network)
		found = json_object();
	else if (e->connections.map < 0 ||
		 forge_connections_read(&e->connections, &found, &e->uncounted) < 0)
		found = json_pack("{s:o}", "why", forge_json_text(e->uncounted.msg));
	if (found && !e->job->own_network)
		json_object_set_new(found, "sockets", forge_json_number(o->sockets_made));
	if (found)
		json_object_set_new(found, "sockets_unix",
				    forge_json_number(o->unix_sockets_made));
	e->job->on_connections(e->job->arg, found);
}

static int prepare(struct local *e, struct forge_outcome *ret, struct forge_error *err)
{
	const struct forge_job *job = e->job;

	*ret = FORGE_OUTCOME_INIT;
	ret->landlock_abi = forge_landlock_abi();
	ret->missing = forge_landlock_missing(ret->landlock_abi, job->own_network);
	int rc = build_plan(job, &e->ids, true, ret->landlock_abi, &e->plan, err);
	if (rc < 0)
		return rc;
	if (e->plan->io_error.code)
		ret->missing |= 1u << FORGE_MECH_IO;
	rc = forge_cgroup_new(job->config->cgroup, job->run_id, job->limits,
			      &e->plan->io_disk, &e->cg, err);
	if (rc < 0) {
		ret->missing |= FORGE_MECH_ALL_CGROUP;
		return rc;
	}
	ret->cgroup_manager = e->cg->ops->name;
	ret->missing |= e->cg->missing;
	rc = check_missing(ret->missing, job->config->allow_missing,
			   job->config->cgroup == FORGE_CGROUP_NONE,
			   e->plan->io_error.code ? &e->plan->io_error : &e->cg->io_error,
			   err);
	if (rc == 0)
		watch_connections(e);
	return rc < 0 ? rc : start_sandbox(e, ret, err);
}

/* Init builds the sandbox in the background; the caller has work of its own meanwhile. */
static int local_prepare(struct forge_execution *base, struct forge_outcome *ret,
			 struct forge_error *err)
{
	struct local *e = local_of(base);
	int rc = prepare(e, ret, err);

	forge_netns_done(&e->netns);
	e->netns = FORGE_NETNS_INIT;
	return rc;
}

static int local_start(struct forge_execution *base, struct forge_error *err)
{
	return forge_sandbox_go(local_of(base)->sb, err);
}

static int local_wait(struct forge_execution *base, struct forge_outcome *ret,
		      struct forge_error *err)
{
	struct local *e = local_of(base);
	const struct forge_supervision what = { .job = e->job,
						.workdir = e->plan->workdir,
						.n_cpus = e->plan->n_cpus,
						.cg = e->cg,
						.quota = &e->quota,
						.sb = e->sb,
						.workdir_fd = e->workdir.fd,
						.notes_sockets =
							e->job->on_connections != NULL,
						.own_network = e->job->own_network,
						.watches_kernel_memory = true };
	int rc = forge_supervise(&what, ret, err);

	/* The command was allowed to start, and the supervisor has not seen whether it did. */
	if (rc < 0 && !ret->has_started)
		e->job->on_event(e->job->arg, "started", NULL);
	forge_quota_stop(&e->quota);
	/* Nothing supervises it: it must not go on while its outputs are collected. */
	if (rc < 0 && end_init(e) < 0)
		ret->is_stuck = true;
	e->is_stuck = ret->is_stuck;
	/* What does not die may go on. */
	if (!e->is_stuck)
		report_connections(e, ret);
	return rc;
}

static int local_workdir_fd(const struct forge_execution *base)
{
	return ((const struct local *)base)->workdir.fd;
}

static bool local_drop_empty(struct forge_execution *base)
{
	return forge_workdir_drop_empty(&local_of(base)->workdir);
}

static int local_keep(struct forge_execution *base, struct forge_kept *ret,
		      struct forge_error *err)
{
	struct local *e = local_of(base);

	return forge_workdir_keep_as(&e->workdir, e->job->run_id, ret, err);
}

static int local_clean(struct forge_execution *base, struct forge_rmtree_stats *ret,
		       struct forge_error *err)
{
	struct local *e = local_of(base);

	return e->workdir.fd < 0 ? 0
				 : forge_workdir_remove(&e->workdir, e->job->home,
							e->job->slot->number, ret, err);
}

static int local_end(struct forge_execution *base, struct forge_error *err)
{
	struct local *e = local_of(base);
	int rc = 0;

	if (!e->is_open)
		return 0;
	if (e->sb && !e->is_stuck)
		e->is_stuck = end_init(e) < 0;
	if (e->is_stuck)
		rc = forge_fail(
			err, EBUSY,
			"processes of the run wait for a file system that does not "
			"answer (FUSE, NFS) and cannot die; once it does, forge gc "
			"removes their cgroups");
	else if (e->cg)
		rc = forge_cgroup_remove(e->cg, err);
	forge_quota_stop(&e->quota);
	forge_sandbox_free(e->sb);
	forge_cgroup_free(e->cg);
	forge_plan_free(e->plan);
	e->sb = NULL;
	e->cg = NULL;
	e->plan = NULL;
	e->is_stuck = false;
	return rc;
}

static void local_close(struct forge_execution *base)
{
	struct local *e = local_of(base);

	if (!e->is_open)
		return;
	forge_connections_done(&e->connections);
	forge_workdir_close(&e->workdir);
	forge_ids_done(&e->ids);
}

const struct forge_executor_ops forge_executor_local = {
	.kind = "local",
	.cannot = "",
	.probe = local_probe,
	.size = sizeof(struct local),
	.explain = local_explain,
	.open = local_open,
	.plan = local_plan,
	.make_workdir = local_make_workdir,
	.prepare = local_prepare,
	.start = local_start,
	.wait = local_wait,
	.workdir_fd = local_workdir_fd,
	.drop_empty = local_drop_empty,
	.keep = local_keep,
	.clean = local_clean,
	.end = local_end,
	.close = local_close,
	.repair = forge_local_repair,
	.repair_kept = forge_workdir_repair_kept,
	.usage = forge_local_usage,
};
