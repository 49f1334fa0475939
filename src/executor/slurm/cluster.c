/* SPDX-License-Identifier: Apache-2.0 */
/* sbatch, squeue, scancel and sinfo. */
#include "executor/slurm/cluster.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "executor/slurm/client.h"

#define NAME_PREFIX "forge-"
/* Fields without "|" first; the name of a job may be anything. */
#define FORMAT "%i|%T|%r|%N|%j"

/* A job that no node can ever take is not waited for longer than this. */
#define HOPELESS_SEC 60
/* So long forge tries to remove a job that would do nothing. */
#define DROP_MSEC 3000

const char *forge_cluster_name(const char *run_id, char buf[FORGE_JOB_NAME_MAX])
{
	(void)snprintf(buf, FORGE_JOB_NAME_MAX, NAME_PREFIX "%s", run_id);
	return buf;
}

/* The last line that a command wrote to stderr, which has the cause. */
static const char *last_line(char *text)
{
	char *end = text + strlen(text);

	while (end > text && isspace((unsigned char)end[-1]))
		*--end = '\0';
	char *line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	/* "sbatch: error: Batch job submission failed: ..." */
	for (char *colon; (colon = strstr(line, "error: "));)
		line = colon + 7;
	return *line ? line : "no message";
}

static bool has_succeeded(const struct forge_client *c)
{
	return WIFEXITED(c->status) && WEXITSTATUS(c->status) == 0;
}

static int run(const char *const *argv, const struct forge_cluster *c,
	       unsigned limit_msec, struct forge_client *ret, struct forge_error *err)
{
	const struct forge_client_call call = { .argv = (char *const *)argv,
						.conf = c->conf,
						.stop_fd = c->stop_fd,
						.limit_msec = limit_msec };
	int rc = forge_client_run(&call, ret, err);

	if (rc == 0 && !has_succeeded(ret))
		rc = forge_fail(err, EAGAIN, "%s: %.300s", argv[0], last_line(ret->err));
	return rc;
}

int forge_cluster_probe(const struct forge_cluster *c, const char *partition, char *buf,
			size_t size, struct forge_error *err)
{
	forge_auto_client struct forge_client version = { 0 }, nodes = { 0 };
	const char *const ask_version[] = { "sinfo", "--version", NULL };
	const char *const ask_nodes[] = { "sinfo",   "-h",    "-N",
					  "-o",	     "%N|%t", partition ? "-p" : NULL,
					  partition, NULL };
	int rc = run(ask_version, c, 0, &version, err);

	if (rc == 0)
		rc = run(ask_nodes, c, 0, &nodes, err);
	if (rc < 0)
		return rc;
	size_t n = 0, down = 0;
	const char *before = NULL;
	for (char *rest = nodes.out, *line; (line = strsep(&rest, "\n")) && *line;) {
		/* Sorted by node; one of two partitions has two lines. */
		if (before && strcmp(before, line) == 0)
			continue;
		before = line;
		n++;
		down += strstr(line, "|down") || strstr(line, "|drain") ||
			strchr(line, '*');
	}
	version.out[strcspn(version.out, "\n")] = '\0';
	const char *number = strchr(version.out, ' ');
	(void)snprintf(buf, size, "Slurm%s, %zu node%s", number ? number : "", n,
		       n == 1 ? "" : "s");
	size_t len = strlen(buf);
	if (down)
		(void)snprintf(buf + len, size - len, " (%zu not available)", down);
	if (n == 0)
		return forge_fail(err, ENODEV, "%s%s has no nodes",
				  partition ? "partition " : "the cluster",
				  partition ? partition : "");
	return 0;
}

/*
 * After these the request may be in the controller's queue, and the job come into being later. After any
 * other message the controller has answered, or was never reached.
 */
static bool is_unclear(const char *message)
{
	static const char *const words[] = { "timed out", "Zero Bytes",
					     "Unexpected message", "receive failure",
					     "Connection reset" };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(words); i++)
		if (strcasestr(message, words[i]))
			return true;
	return false;
}

/* "123" or "123;cluster" */
static bool take_id(const char *text, char ret_id[32])
{
	size_t len = strspn(text, "0123456789");

	if (len == 0 || len > 31 || !strchr(";\n", text[len]))
		return false;
	(void)snprintf(ret_id, 32, "%.*s", (int)len, text);
	return true;
}

int forge_cluster_submit(const struct forge_cluster *c, const struct forge_strv *argv,
			 const char *script, char ret_id[32], struct forge_error *err)
{
	forge_auto_client struct forge_client ran = { 0 };
	const struct forge_client_call call = {
		.argv = argv->v, .conf = c->conf, .input = script, .stop_fd = c->stop_fd
	};
	int rc = forge_client_run(&call, &ran, err);

	ret_id[0] = '\0';
	if (rc < 0) /* killed while it waited: anything may have happened */
		return rc == -ENOENT ? rc : 1;
	if (has_succeeded(&ran) && take_id(ran.out, ret_id))
		return 0;
	const char *why = last_line(ran.err);
	rc = forge_fail(err, EINVAL, "sbatch: %.300s", why);
	return !WIFEXITED(ran.status) || has_succeeded(&ran) || is_unclear(why) ? 1 : rc;
}

static enum forge_remote_state remote_of(const char *state)
{
	static const char *const pending[] = { "PENDING",      "CONFIGURING",
					       "REQUEUED",     "REQUEUE_FED",
					       "REQUEUE_HOLD", "RESV_DEL_HOLD",
					       "SPECIAL_EXIT" };
	static const char *const ended[] = { "COMPLETED", "FAILED",	   "TIMEOUT",
					     "DEADLINE",  "CANCELLED",	   "NODE_FAIL",
					     "BOOT_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
					     "REVOKED",	  "LAUNCH_FAILED" };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(pending); i++)
		if (strcmp(state, pending[i]) == 0)
			return FORGE_REMOTE_PENDING;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(ended); i++)
		if (strncmp(state, ended[i], strlen(ended[i])) == 0)
			return FORGE_REMOTE_ENDED;
	/* RUNNING, COMPLETING, SUSPENDED ..., and what a later version calls by a new name. */
	return FORGE_REMOTE_RUNNING;
}

static void copy(char *to, size_t size, const char *from)
{
	(void)snprintf(to, size, "%s", from ? from : "");
}

static bool parse_line(char *line, struct forge_cluster_job *ret)
{
	char *f[5];

	for (int i = 0; i < 4; i++)
		f[i] = strsep(&line, "|");
	f[4] = line;
	if (!f[4] || strncmp(f[4], NAME_PREFIX, strlen(NAME_PREFIX)) != 0)
		return false;
	copy(ret->id, sizeof(ret->id), f[0]);
	copy(ret->state, sizeof(ret->state), f[1]);
	copy(ret->reason, sizeof(ret->reason), f[2]);
	copy(ret->node, sizeof(ret->node), f[3]);
	copy(ret->name, sizeof(ret->name), f[4]);
	ret->remote = remote_of(ret->state);
	return true;
}

/* Of two jobs of one name the one that may still run comes first. */
static int compare(const void *a, const void *b)
{
	const struct forge_cluster_job *x = a, *y = b;
	int names = strcmp(x->name, y->name);

	return names ? names
		     : (x->remote == FORGE_REMOTE_ENDED) -
			       (y->remote == FORGE_REMOTE_ENDED);
}

static int parse(char *text, struct forge_cluster_job **ret, size_t *ret_n,
		 struct forge_error *err)
{
	size_t lines = 0, n = 0;

	for (const char *p = text; *p; p++)
		lines += *p == '\n';
	struct forge_cluster_job *jobs = calloc(lines + 1, sizeof(*jobs));
	if (!jobs)
		return forge_fail(err, ENOMEM, "out of memory");
	for (char *rest = text, *line; (line = strsep(&rest, "\n")) && n < lines;)
		n += parse_line(line, &jobs[n]);
	qsort(jobs, n, sizeof(*jobs), compare);
	*ret = jobs;
	*ret_n = n;
	return 0;
}

static int list(const struct forge_cluster *c, const char *name,
		struct forge_cluster_job **ret, size_t *ret_n, struct forge_error *err)
{
	forge_auto_client struct forge_client ran = { 0 };
	char user[16];

	(void)snprintf(user, sizeof(user), "%u", (unsigned)geteuid());
	const char *const argv[] = { "squeue", "-h",   "-t",
				     "all",    "-u",   user,
				     "-o",     FORMAT, name ? "-n" : NULL,
				     name,     NULL };
	int rc = run(argv, c, 0, &ran, err);
	return rc < 0 ? rc : parse(ran.out, ret, ret_n, err);
}

int forge_cluster_list(const struct forge_cluster *c, struct forge_cluster_job **ret,
		       size_t *ret_n, struct forge_error *err)
{
	return list(c, NULL, ret, ret_n, err);
}

/* The first of a name, as compare() has sorted them. */
const struct forge_cluster_job *forge_cluster_pick(const struct forge_cluster_job *jobs,
						   size_t n, const char *name)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (strcmp(jobs[middle].name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < n && strcmp(jobs[low].name, name) == 0 ? &jobs[low] : NULL;
}

int forge_cluster_find(const struct forge_cluster *c, const char *name,
		       struct forge_cluster_job *ret, struct forge_error *err)
{
	forge_auto_free struct forge_cluster_job *jobs = NULL;
	size_t n = 0;
	int rc = list(c, name, &jobs, &n, err);

	*ret = (struct forge_cluster_job){ .remote = rc < 0 ? FORGE_REMOTE_UNKNOWN
							    : FORGE_REMOTE_ENDED };
	const struct forge_cluster_job *job =
		rc == 0 ? forge_cluster_pick(jobs, n, name) : NULL;
	if (job)
		*ret = *job;
	return rc;
}

int forge_cluster_exit(const struct forge_cluster *c, const struct forge_cluster_job *job,
		       int *ret_status, struct forge_error *err)
{
	forge_auto_client struct forge_client ran = { 0 };
	const char *const argv[] = { "squeue", "-h",	    "-t", "all",
				     "-j",     job->id,	    "-n", job->name,
				     "-O",     "exit_code", NULL };
	int rc = run(argv, c, 0, &ran, err);
	char *end;

	if (rc < 0)
		return rc;
	long status = strtol(ran.out, &end, 10);
	if (end == ran.out || status < 0 || status > INT_MAX)
		return forge_fail(err, EBADMSG, "squeue: no exit code of job %s",
				  job->id);
	*ret_status = (int)status;
	return 0;
}

int forge_cluster_cancel(const struct forge_cluster *c, const char *name,
			 enum forge_cluster_cancel how, struct forge_error *err)
{
	forge_auto_client struct forge_client ran = { 0 };
	char user[16];

	(void)snprintf(user, sizeof(user), "%u", (unsigned)geteuid());
	const char *const ask[] = {
		"scancel", "-u", user, "-n",
		name,	   "-b", "-s", how == FORGE_CLUSTER_INSIST ? "INT" : "TERM",
		NULL
	};
	const char *const end[] = { "scancel", "-u", user, "-n", name, NULL };
	bool asks = how == FORGE_CLUSTER_ASK || how == FORGE_CLUSTER_INSIST;
	return run(asks ? ask : end, c, how == FORGE_CLUSTER_DROP ? DROP_MSEC : 0, &ran,
		   err);
}

static bool is_hopeless(const char *reason)
{
	static const char *const words[] = {
		"PartitionConfig",   "BadConstraints", "DependencyNeverSatisfied",
		"InvalidAccount",    "InvalidQOS",     "PartitionNodeLimit",
		"PartitionTimeLimit"
	};

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(words); i++)
		if (strcmp(reason, words[i]) == 0)
			return true;
	return false;
}

bool forge_cluster_is_overdue(uint64_t submitted_at, uint64_t reason_since,
			      uint64_t max_pending, const char *reason)
{
	uint64_t now = (uint64_t)time(NULL);

	if (is_hopeless(reason) && reason_since && now >= reason_since &&
	    now - reason_since >= HOPELESS_SEC)
		return true;
	return max_pending && now >= submitted_at && now - submitted_at >= max_pending;
}

const char *forge_cluster_describe(const struct forge_cluster_job *j, char *buf,
				   size_t size)
{
	(void)snprintf(buf, size, "Slurm job %s is pending: %s", j->id, j->reason);
	return buf;
}
