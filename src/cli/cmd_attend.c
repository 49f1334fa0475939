/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hidden; other commands start them. forge __attend SLOT: the next supervisor of a run that has none; forge
 * __retry RUN: that of the attempt after this run; forge __watch EXECUTOR: the watcher of all runs there; forge
 * __guard all: the process that watches guarded files.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sys.h"
#include "cli/cli.h"
#include "health/guard_serve.h"
#include "record/reconcile.h"
#include "run/resume.h"
#include "run/retry.h"
#include "run/watch.h"

static void on_taken(void *arg)
{
	int *pipe = arg;

	if (*pipe >= 0)
		close(*pipe);
	*pipe = -1;
}

/* Nothing of the caller's is kept: neither its terminal nor its pipes. */
static void detach(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)setsid();
	for (int fd = 0; fd < 3 && null >= 0; fd++)
		(void)dup2(null, fd);
}

/*
 * Does work in a process of its own. Returns when that process has called on_taken() with its argument, or
 * is gone.
 */
static int in_background(int (*work)(const char *word, int *pipe), const char *word)
{
	int fds[2];
	char nothing;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return FORGE_EXIT_FAILED;
	pid_t pid = fork();
	if (pid < 0)
		return FORGE_EXIT_FAILED;
	if (pid > 0) {
		close(fds[1]);
		while (read(fds[0], &nothing, 1) < 0 && errno == EINTR)
			;
		return FORGE_EXIT_OK;
	}
	detach();
	(void)sys_close_range(3, (unsigned)fds[1] - 1, 0);
	(void)sys_close_range((unsigned)fds[1] + 1, ~0u, 0);
	return work(word, &fds[1]) < 0 ? FORGE_EXIT_FAILED : FORGE_EXIT_OK;
}

static int attend(const char *word, int *pipe)
{
	struct forge_error err = FORGE_ERROR_INIT; /* the slot has it */
	int rc = forge_resume((unsigned)strtoul(word, NULL, 10), false, on_taken, pipe,
			      &err);

	/* Gone, for certain, or only to be cleaned up after: the slot gets its end now. */
	if (rc == -ESRCH || rc == -EALREADY)
		(void)!forge_reconcile_slot((unsigned)strtoul(word, NULL, 10), NULL);
	/* There may be a next attempt. */
	if (rc == 0 || rc == -ESRCH || rc == -EALREADY)
		(void)!forge_reconcile(NULL, false, NULL);
	return rc;
}

static int cmd_attend(int argc, char **argv)
{
	char *end;

	if (argc != 1)
		return FORGE_EXIT_USAGE;
	errno = 0;
	unsigned long slot = strtoul(argv[0], &end, 10);
	if (errno || *end || end == argv[0] || slot > UINT_MAX)
		return FORGE_EXIT_USAGE;
	return in_background(attend, argv[0]);
}

/* The record of the run before has the error, if there is one. */
static int retry(const char *word, int *pipe)
{
	struct forge_error err = FORGE_ERROR_INIT;

	return forge_retry_start(word, on_taken, pipe, &err);
}

static int cmd_retry(int argc, char **argv)
{
	return argc == 1 && forge_run_id_is_valid(argv[0]) ? in_background(retry, argv[0])
							   : FORGE_EXIT_USAGE;
}

static int watch(const char *word, int *pipe)
{
	struct forge_error err =
		FORGE_ERROR_INIT; /* the next command starts another one */

	(void)!chdir("/"); /* it may live for days */
	return forge_watch(word, on_taken, pipe, &err);
}

static int cmd_watch(int argc, char **argv)
{
	if (argc != 1 || strchr(argv[0], '/'))
		return FORGE_EXIT_USAGE;
	return in_background(watch, argv[0]);
}

static int guard(const char *word, int *pipe)
{
	struct forge_error err = FORGE_ERROR_INIT; /* supervisors go on without it */
	forge_auto_home struct forge_home home = FORGE_HOME_INIT;
	int rc = forge_home_open(false, &home, &err);

	(void)word;	   /* there is one kind */
	(void)!chdir("/"); /* it may live for days */
	return rc < 0 ? rc : forge_guard_serve(&home, on_taken, pipe, &err);
}

static int cmd_guard(int argc, char **argv)
{
	return argc == 1 ? in_background(guard, argv[0]) : FORGE_EXIT_USAGE;
}

static const struct forge_opt *hidden_opts(void)
{
	static const struct forge_opt opts[] = { FORGE_HELP_ROW, FORGE_OPTS_END };

	return opts;
}

const struct forge_cmd forge_cmd_attend = {
	.name = "__attend",
	.synopsis = "SLOT",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_attend,
	.opts = hidden_opts,
};

const struct forge_cmd forge_cmd_watch = {
	.name = "__watch",
	.synopsis = "EXECUTOR",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_watch,
	.opts = hidden_opts,
};

const struct forge_cmd forge_cmd_guard = {
	.name = "__guard",
	.synopsis = "all",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_guard,
	.opts = hidden_opts,
};

const struct forge_cmd forge_cmd_retry = {
	.name = "__retry",
	.synopsis = "RUN",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_retry,
	.opts = hidden_opts,
};
