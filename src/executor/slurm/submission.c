/* SPDX-License-Identifier: Apache-2.0 */
/* Limits as options of sbatch; a script that starts forge on the node. */
#include "executor/slurm/submission.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "executor/slurm/cluster.h"

/* For forge itself on the node, beside what the run may have. */
#define MEMORY_MORE (64ull << 20)
/* Slurm ends a job only when forge on the node has not ended the run in time. */
#define TIME_MORE_USEC (60 * 1000000ull)

static int add_option(struct forge_strv *argv, const char *name, const char *value)
{
	if (!value)
		return 0;
	forge_auto_free char *option = forge_asprintf("%s=%s", name, value);
	return option ? forge_strv_add(argv, option) : -ENOMEM;
}

/* Rounded up: the cluster must not have less than the run may use. */
static int add_resources(const struct forge_limits *l, struct forge_strv *argv)
{
	char text[32];
	int rc = 0;

	(void)snprintf(text, sizeof(text), "0"); /* all that the node has */
	if (l->memory_bytes != FORGE_UNLIMITED)
		(void)snprintf(text, sizeof(text), "%lluM",
			       (unsigned long long)((l->memory_bytes + MEMORY_MORE +
						     (1u << 20) - 1) >>
						    20));
	rc = add_option(argv, "--mem", text);
	if (rc == 0 && l->cpus_milli != FORGE_UNLIMITED) {
		(void)snprintf(text, sizeof(text), "%llu",
			       (unsigned long long)((l->cpus_milli + 999) / 1000));
		rc = add_option(argv, "--cpus-per-task", text);
	}
	if (rc == 0 && l->wall_usec != FORGE_UNLIMITED) {
		uint64_t usec = l->wall_usec + TIME_MORE_USEC +
				(l->grace_usec == FORGE_UNLIMITED ? 0 : l->grace_usec);
		(void)snprintf(text, sizeof(text), "%llu",
			       (unsigned long long)((usec + 59999999) / 60000000));
		rc = add_option(argv, "--time", text);
	}
	return rc;
}

/*
 * Options of the configuration come first: of two that contradict each other sbatch takes the last. With
 * --export=NONE the node would run the user's login shell for an environment, which may take long or fail;
 * ALL is what client.h lets through.
 */
int forge_submission_argv(const struct forge_job *job, const struct forge_job_dir *dir,
			  struct forge_strv *ret)
{
	static const char *const fixed[] = { "--parsable", "--no-requeue", "--export=ALL",
					     "--nodes=1", "--ntasks=1" };
	char name[FORGE_JOB_NAME_MAX];
	forge_auto_free char *out = forge_asprintf("%s/slurm.out", dir->path);
	int rc = out ? forge_strv_add(ret, "sbatch") : -ENOMEM;

	forge_strv_foreach (option, &job->executor->options)
		if (rc == 0)
			rc = forge_strv_add(ret, option);
	if (rc == 0)
		rc = add_option(ret, "--partition", job->executor->partition);
	if (rc == 0)
		rc = add_option(ret, "--account", job->executor->account);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(fixed) && rc == 0; i++)
		rc = forge_strv_add(ret, fixed[i]);
	if (rc == 0)
		rc = add_option(ret, "--job-name", forge_cluster_name(job->run_id, name));
	if (rc == 0)
		rc = add_option(ret, "--chdir", dir->path);
	if (rc == 0)
		rc = add_option(ret, "--output", out);
	if (rc == 0)
		rc = add_resources(job->limits, ret);
	return rc;
}

/* For a shell, between single quotes. */
static char *quote(const char *text)
{
	size_t len = 3;

	for (const char *p = text; *p; p++)
		len += *p == '\'' ? 4 : 1;
	char *quoted = malloc(len), *to = quoted;
	if (!quoted)
		return NULL;
	*to++ = '\'';
	for (const char *p = text; *p; p++) {
		if (*p == '\'') {
			memcpy(to, "'\\''", 4);
			to += 4;
		} else {
			*to++ = *p;
		}
	}
	memcpy(to, "'", 2);
	return quoted;
}

char *forge_submission_script(const struct forge_job *job,
			      const struct forge_job_dir *dir)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[n < 0 ? 0 : n] = '\0';
	forge_auto_free char *forge =
		quote(job->executor->forge ? job->executor->forge : self);
	forge_auto_free char *path = quote(dir->path);
	return forge && path
		       ? forge_asprintf("#!/bin/sh\n"
					"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:"
					"/usr/bin:/sbin:/bin\n"
					"export PATH\n"
					"exec %s __node %s\n",
					forge, path)
		       : NULL;
}
