/* SPDX-License-Identifier: Apache-2.0 */
/* On a node: the local executor around a job that came as a file. */
#include "executor/slurm/node.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/sys.h"
#include "config-build.h"
#include "executor/outcome.h"
#include "executor/slurm/job_dir.h"
#include "executor/slurm/job_file.h"
#include "executor/slurm/node_health.h"
#include "sandbox/cgroup.h"

/* From one sample of usage.json to the next; the first comes sooner. */
#define SAMPLE_MSEC 2000
#define FIRST_MSEC  200
#define EVENTS_MAX  1000

struct node {
	int fd; /* the directory of the job */
	const char *path;
	char host[64];
	const char *job; /* its number */
	struct forge_job_read read;
	struct forge_home home;
	struct forge_slot slot;
	struct forge_execution *execution;
	json_t *events; /* [[name, detail or null], ...] */
	int logs[2];
	pid_t sampler;
	/* In memory: the supervisor must not wait for a shared file system. */
	struct forge_samples samples;
	struct forge_node_health health;
};

static void on_event(void *arg, const char *event, const char *detail)
{
	struct node *n = arg;

	if (strcmp(event, "started") == 0) {
		int fd = openat(n->fd, "started", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		if (fd >= 0)
			close(fd);
		return; /* the outcome says so, too */
	}
	if (json_array_size(n->events) < EVENTS_MAX)
		json_array_append_new(
			n->events,
			json_pack("[s, o]", event,
				  detail ? forge_json_text(detail) : json_null()));
}

static int open_logs(struct node *n, struct forge_error *err)
{
	static const char *const names[] = { "stdout", "stderr" };

	for (int i = 0; i < 2; i++) {
		n->logs[i] = openat(n->fd, names[i],
				    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (n->logs[i] < 0)
			return forge_fail_errno(err, errno, "make %s", names[i]);
	}
	if (!n->read.job.pass_stdin)
		return 0;
	forge_auto_close int in = openat(n->fd, "stdin", O_RDONLY | O_CLOEXEC);
	return in < 0 || dup2(in, STDIN_FILENO) < 0
		       ? forge_fail_errno(err, errno, "open stdin of the job")
		       : 0;
}

/* A FORGE_HOME for this job alone: slots and locks of other nodes are not valid here. */
static int open_home(struct node *n, struct forge_error *err)
{
	forge_auto_free char *path = forge_asprintf("%s/home", n->path);

	if (!path || setenv("FORGE_HOME", path, 1) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	return forge_home_open(true, &n->home, err);
}

/* Another job on this node may have the user id that goes with a slot. */
static int open_execution(struct node *n, struct forge_error *err)
{
	const struct forge_config *cfg = n->read.config;
	struct forge_error why;
	unsigned attempt = 0;
	int rc;

	n->execution = forge_execution_new(&forge_executor_local);
	if (!n->execution)
		return forge_fail(err, ENOMEM, "out of memory");
	do {
		forge_slot_release(&n->slot);
		why = FORGE_ERROR_INIT;
		rc = forge_slot_claim(&n->home, &attempt, cfg->uid_count, &n->slot, &why);
		if (rc == 0)
			rc = forge_executor_local.open(n->execution, n->read.job.executor,
						       cfg, n->slot.number, &why);
	} while (rc == -EAGAIN && n->slot.fd >= 0);
	if (rc < 0 && err)
		*err = why;
	return rc;
}

static void sample(struct node *n, const json_t *plan)
{
	struct forge_usage_now now = { UINT64_MAX, UINT64_MAX };

	forge_executor_local.usage(plan, &now);
	(void)!forge_job_dir_store(n->fd, "usage.json",
				   json_pack("{s:o, s:o}", "memory_bytes",
					     forge_json_number(now.memory_bytes),
					     "cpu_usec", forge_json_number(now.cpu_usec)),
				   NULL); /* the next one may be written */
}

/* A process of its own: writing to a shared file system may take long, and the supervisor must not wait. */
static void start_sampler(struct node *n, const json_t *plan)
{
	pid_t parent = getpid();

	n->sampler = fork();
	if (n->sampler != 0)
		return;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The pipes of the run among them, which would never end otherwise. */
	(void)sys_close_range(0, (unsigned)n->fd - 1, 0);
	(void)sys_close_range((unsigned)n->fd + 1, ~0u, 0);
	for (int wait = FIRST_MSEC; getppid() == parent; wait = SAMPLE_MSEC) {
		(void)poll(NULL, 0, wait);
		sample(n, plan);
	}
	_exit(0);
}

static void stop_sampler(struct node *n)
{
	if (n->sampler <= 0)
		return;
	(void)kill(n->sampler, SIGKILL);
	while (waitpid(n->sampler, NULL, 0) < 0 && errno == EINTR)
		;
}

static int begin_slot(struct node *n, json_t **ret_plan, struct forge_error *err)
{
	struct forge_slot_run run = { .run_id = n->read.job.run_id,
				      .store = "",
				      .executor = "local",
				      .executor_kind = "local" };
	int rc = forge_executor_local.plan(&n->read.job, ret_plan, err);

	run.plan = *ret_plan;
	return rc < 0 ? rc : forge_slot_begin(&n->slot, &run, err);
}

static int check_before(struct node *n, struct forge_error *err)
{
	n->health.config = n->read.config;
	n->health.home = &n->home;
	n->health.run_id = n->read.job.run_id;
	n->health.workdir = n->read.workdir;
	return n->read.job.is_checked ? forge_node_health_before(&n->health, err) : 0;
}

/* Calls the local executor in the order of executor.h. Negative: the command was not run. */
static int execute(struct node *n, struct forge_outcome *ret, struct forge_error *err)
{
	const struct forge_executor_ops *local = &forge_executor_local;
	json_t *plan = NULL;
	int rc = open_home(n, err);

	n->read.job.home = &n->home;
	n->read.job.slot = &n->slot;
	n->read.job.samples = &n->samples;
	n->samples.interval_usec = n->read.config->sample_usec;
	n->read.job.log_fd = n->logs;
	n->read.job.on_event = on_event;
	n->read.job.arg = n;
	if (rc == 0)
		rc = open_logs(n, err);
	if (rc == 0)
		rc = check_before(n, err);
	if (rc == 0)
		rc = open_execution(n, err);
	if (rc == 0)
		rc = begin_slot(n, &plan, err);
	if (rc == 0)
		rc = local->make_workdir(n->execution, &n->read.job, err);
	if (rc == 0)
		rc = local->prepare(n->execution, ret, err);
	if (rc == 0 && n->read.job.is_checked)
		rc = forge_node_health_guard(&n->health, err);
	if (rc == 0) {
		start_sampler(n, plan);
		rc = local->start(n->execution, err);
	}
	if (rc == 0)
		rc = local->wait(n->execution, ret, err);
	stop_sampler(n);
	if (n->health.json && ret->has_started)
		forge_node_health_after(&n->health);
	json_decref(plan);
	return rc;
}

/* The cgroups of the run must be gone before Slurm removes those around them. */
static void end(struct node *n)
{
	struct forge_error late = FORGE_ERROR_INIT;

	if (n->execution && forge_executor_local.end(n->execution, &late) < 0)
		on_event(n, "cgroup_left", late.msg);
	for (int i = 0; i < 2; i++)
		if (n->logs[i] >= 0)
			(void)fsync(n->logs[i]);
}

static int write_outcome(struct node *n, const struct forge_outcome *o,
			 const struct forge_error *refused, struct forge_error *err)
{
	json_t *j = json_pack("{s:s, s:s, s:s, s:O}", "forge_version", FORGE_VERSION,
			      "node", n->host, "job", n->job, "events", n->events);

	if (j && refused->code)
		json_object_set_new(j, "refused", forge_error_json(refused));
	if (j && n->health.json)
		json_object_set(j, "health", n->health.json);
	if (j && n->samples.n)
		json_object_set_new(j, "samples", forge_samples_json(&n->samples));
	if (j)
		json_object_set_new(j, "outcome", forge_outcome_json(o));
	return forge_job_dir_store(n->fd, "outcome.json", j, err);
}

static int run_job(struct node *n, struct forge_error *err)
{
	struct forge_outcome outcome = FORGE_OUTCOME_INIT;
	struct forge_error refused = FORGE_ERROR_INIT;
	json_t *file = NULL;

	/* What forge left on this node when it was killed: no other process would remove it. */
	forge_cgroup_sweep("job_");
	int rc = forge_job_dir_load(n->fd, "job.json", &file, &refused);

	if (rc == 0 && !file)
		rc = forge_fail(&refused, ENOENT, "job.json is not there");
	/* It has the environment of the run, which may be secret, and is not read again. */
	if (rc == 0)
		(void)unlinkat(n->fd, "job.json", 0);
	if (rc == 0)
		rc = forge_job_file_read(file, &n->read, &refused);
	if (rc == 0)
		rc = execute(n, &outcome, &refused);
	if (rc < 0 && !refused.code)
		refused.code = EIO;
	end(n);
	rc = write_outcome(n, &outcome, &refused, err);
	json_decref(file); /* the job points into it */
	if (rc < 0)
		return rc;
	return refused.code ? 125
	       : outcome.has_status && WIFEXITED(outcome.wait_status)
		       ? WEXITSTATUS(outcome.wait_status)
		       : 1;
}

static void node_done(struct node *n)
{
	forge_node_health_done(&n->health);
	forge_execution_free(n->execution);
	forge_slot_close(&n->slot);
	forge_home_close(&n->home);
	forge_job_read_done(&n->read);
	forge_samples_done(&n->samples);
	json_decref(n->events);
	for (int i = 0; i < 2; i++)
		if (n->logs[i] >= 0)
			close(n->logs[i]);
	if (n->fd >= 0)
		close(n->fd);
}

int forge_node_run(const char *job_dir, const struct forge_node_hooks *hooks,
		   struct forge_error *err)
{
	struct node n = { .path = job_dir,
			  .home = FORGE_HOME_INIT,
			  .slot = FORGE_SLOT_INIT,
			  .samples = FORGE_SAMPLES_INIT,
			  .events = json_array(),
			  .logs = { -1, -1 },
			  .health = { .hooks = hooks } };
	char claim[FORGE_CLAIM_MAX], owner[FORGE_CLAIM_MAX];
	const char *node = getenv("SLURMD_NODENAME");
	int rc;

	n.job = getenv("SLURM_JOB_ID");
	n.job = n.job ? n.job : "";

	n.fd = forge_open_nolink(job_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (n.fd < 0) {
		rc = forge_fail_errno(err, -n.fd, "open %s", job_dir);
		node_done(&n);
		return rc;
	}
	if (node)
		(void)snprintf(n.host, sizeof(n.host), "%s", node);
	else if (gethostname(n.host, sizeof(n.host) - 1) < 0)
		n.host[0] = '\0';
	(void)snprintf(claim, sizeof(claim), "node %.60s job %.20s time %llu", n.host,
		       n.job, (unsigned long long)forge_now_usec());
	rc = forge_job_dir_claim(n.fd, claim, owner);
	if (rc == -EEXIST)
		rc = forge_fail(err, EEXIST, "the job is not to be run again: %s", owner);
	else if (rc < 0)
		rc = forge_fail_errno(err, -rc, "claim %s", job_dir);
	else
		rc = run_job(&n, err);
	node_done(&n);
	return rc;
}
