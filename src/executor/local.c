/* SPDX-License-Identifier: Apache-2.0 */
/* Executor "local": a sandbox on this machine. Puts plan, cgroup and supervisor together. */
#include "executor/executor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "executor/supervise.h"
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

static int run_in(const struct forge_job *job, const struct forge_plan *plan,
		  struct forge_cgroup *cg, struct forge_outcome *ret,
		  struct forge_error *err)
{
	struct forge_quota quota = { .fd = -1 };
	/* Root's runs have a uid each: it serves as project id too. */
	if (job->privileged)
		ret->has_quota = forge_quota_start(&quota, job->workdir_fd, job->host_uid,
						   job->limits->disk_bytes,
						   job->limits->inodes) == 0;
	forge_auto_sandbox struct forge_sandbox *sb = NULL;
	int rc = forge_sandbox_start(plan, cg, job->pass_stdin, &sb, err);
	if (rc == 0)
		rc = job->on_building(job->arg, err);
	if (rc == 0)
		rc = forge_supervise(job, plan, cg, &quota, sb, ret, err);
	forge_quota_stop(&quota);
	return rc;
}

static int local_run(const struct forge_job *job, struct forge_outcome *ret,
		     struct forge_error *err)
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
	ret->missing = landlock_missing(ret->landlock_abi, job->own_network);
	forge_auto_plan struct forge_plan *plan = NULL;
	int rc = build_plan(job, ret->landlock_abi, &plan, err);
	if (rc < 0)
		return rc;
	forge_auto_cgroup struct forge_cgroup *cg = NULL;
	if (plan->io_error.code)
		ret->missing |= 1u << FORGE_MECH_IO;
	rc = forge_cgroup_new(job->config->cgroup, job->run_id, job->limits,
			      &plan->io_disk, &cg, err);
	if (rc < 0) {
		ret->missing |= FORGE_MECH_ALL_CGROUP;
		return rc;
	}
	ret->cgroup_manager = cg->ops->name;
	ret->missing |= cg->missing;
	rc = check_missing(ret->missing, job->config->allow_missing,
			   job->config->cgroup == FORGE_CGROUP_NONE,
			   plan->io_error.code ? &plan->io_error : &cg->io_error, err);
	if (rc == 0)
		rc = run_in(job, plan, cg, ret, err);
	struct forge_error late = FORGE_ERROR_INIT;
	if (ret->is_stuck)
		(void)forge_fail(
			&late, EBUSY,
			"processes of the run wait for a file system that does not "
			"answer (FUSE, NFS) and cannot die; once it does, forge gc "
			"removes their cgroups");
	if (ret->is_stuck || forge_cgroup_remove(cg, &late) < 0)
		job->on_event(job->arg, "cgroup_left", late.msg);
	return rc;
}

const struct forge_executor_ops forge_executor_local = {
	.name = "local",
	.explain = local_explain,
	.run = local_run,
};
