/* SPDX-License-Identifier: Apache-2.0 */
/* Executor "local": a sandbox on this machine. Puts plan, cgroup and supervisor together. */
#include "executor/executor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/local/supervise.h"
#include "sandbox/cgroup.h"
#include "sandbox/landlock.h"
#include "sandbox/sandbox.h"

static int build_plan(const struct forge_job *job, int landlock_abi,
		      struct forge_plan **ret, struct forge_error *err)
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
		.workdir_exists = job->workdir_fd >= 0,
		.own_network = job->own_network,
		.tmp_bytes = job->config->tmp_bytes,
		.shm_bytes = job->config->shm_bytes,
		.host_uid = job->host_uid,
		.host_gid = job->host_gid,
		.privileged = job->privileged,
		.landlock_abi = landlock_abi,
		.limits = job->limits,
	};
	return forge_plan_build(&spec, ret, err);
}

/*
 * Scopes are what keeps abstract sockets of the host away when its network is shared. With a
 * network of its own a run cannot reach them anyway, and the pid namespace has its signals.
 */
static unsigned landlock_missing(int abi, bool own_network)
{
	return (abi < 1 ? 1u << FORGE_MECH_LANDLOCK : 0) |
	       (abi < 6 && !own_network ? 1u << FORGE_MECH_LANDLOCK_SCOPE : 0);
}

/*
 * Fail closed: what is missing must be in the configuration's list, or nothing starts. An I/O
 * rate is missing for a reason of this run's, which io_error says.
 */
static int check_missing(unsigned missing, unsigned allowed, bool is_chosen,
			 const struct forge_error *io_error, struct forge_error *err)
{
	char list[256] = "";
	size_t len = 0;

	missing &= ~allowed;
	if (!missing)
		return 0;
	if (missing == 1u << FORGE_MECH_IO && io_error->code) {
		if (err)
			*err = *io_error;
		return -io_error->code;
	}
	for (unsigned i = 0; i < FORGE_MECH_COUNT; i++)
		if (missing & (1u << i))
			len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s",
						len ? ", " : "",
						forge_mechanism_names[i]);
	return forge_hint(
		err,
		forge_fail(err, EOPNOTSUPP, "%s: %s",
			   is_chosen ? "without a cgroup nothing enforces"
				     : "this host cannot enforce",
			   list),
		"`forge doctor` shows why and what to do; to run without, name them in "
		"sandbox.allow_missing of forge.yaml");
}

static int local_explain(const struct forge_job *job, json_t **ret,
			 struct forge_error *err)
{
	forge_auto_plan struct forge_plan *plan = NULL;
	int rc = build_plan(job, forge_landlock_abi(), &plan, err);

	if (rc < 0)
		return rc;
	*ret = forge_plan_json(plan);
	return *ret ? 0 : forge_fail(err, ENOMEM, "out of memory");
}

struct forge_execution {
	struct forge_plan *plan;
	struct forge_cgroup *cg;
	struct forge_sandbox *sb;
	bool is_stuck;
};

/* How long init may take to end without doing anything: then its file systems do not answer. */
#define END_MSEC 5000

/* What was in /tmp and /dev/shm is freed by init, and that of many gigabytes takes CPU time. */
static int end_init(struct forge_execution *e)
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

static int run_in(const struct forge_job *job, struct forge_execution *e,
		  struct forge_outcome *ret, struct forge_error *err)
{
	struct forge_quota quota = { .fd = -1 };
	/* Root's runs have a uid each: it serves as project id too. */
	if (job->privileged)
		ret->has_quota = forge_quota_start(&quota, job->workdir_fd, job->host_uid,
						   job->limits->disk_bytes,
						   job->limits->inodes) == 0;
	e->plan->may_allocate = ret->has_quota;
	int rc = forge_sandbox_start(e->plan, e->cg, job->netns, job->pass_stdin, &e->sb,
				     err);
	/* Init needs longer for what it builds than we for this. */
	if (rc == 0)
		rc = job->on_building(job->arg, err);
	if (rc == 0)
		rc = job->before_start(job->arg, err);
	if (rc == 0)
		rc = forge_sandbox_go(e->sb, err);
	if (rc == 0) {
		rc = forge_supervise(job, e->plan, e->cg, &quota, e->sb, ret, err);
		/* Nobody has looked whether it did; it was told to. */
		if (rc < 0 && !ret->has_started)
			job->on_event(job->arg, "started", NULL);
	}
	forge_quota_stop(&quota);
	/* Nobody watches it: it must not go on while its outputs are looked at. */
	if (rc < 0 && e->sb && end_init(e) < 0)
		ret->is_stuck = true;
	e->is_stuck = ret->is_stuck;
	return rc;
}

static int local_run(const struct forge_job *job, struct forge_outcome *ret,
		     struct forge_execution **ret_execution, struct forge_error *err)
{
	*ret = (struct forge_outcome){
		.landlock_abi = forge_landlock_abi(),
		.wall_usec = UINT64_MAX,
		.cpu_usec = UINT64_MAX,
		.memory_peak_bytes = UINT64_MAX,
		.pids_peak = UINT64_MAX,
		.disk_peak_bytes = UINT64_MAX,
		.inodes_peak = UINT64_MAX,
		.io_read_bytes = UINT64_MAX,
		.io_write_bytes = UINT64_MAX,
	};
	struct forge_execution *e = *ret_execution = calloc(1, sizeof(*e));
	if (!e)
		return forge_fail(err, ENOMEM, "out of memory");
	ret->missing = landlock_missing(ret->landlock_abi, job->own_network);
	int rc = build_plan(job, ret->landlock_abi, &e->plan, err);
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
	return rc < 0 ? rc : run_in(job, e, ret, err);
}

static int local_end(struct forge_execution *e, struct forge_error *err)
{
	int rc = 0;

	if (!e)
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
	forge_sandbox_free(e->sb);
	forge_cgroup_free(e->cg);
	forge_plan_free(e->plan);
	free(e);
	return rc;
}

const struct forge_executor_ops forge_executor_local = {
	.name = "local",
	.explain = local_explain,
	.run = local_run,
	.end = local_end,
};
