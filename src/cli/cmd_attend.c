/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Supervisors that repair starts; hidden. forge __attend SLOT: the next one of a run whose supervisor died;
 * forge __retry RUN: the one of the attempt after this run.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sys.h"
#include "cli/cli.h"
#include "record/reconcile.h"
#include "run/resume.h"
#include "run/retry.h"

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

/* What the process in the background does with the word; pipe is for on_taken(). */
typedef int forge_attendant(const char *word, int *pipe, struct forge_error *err);

/* Returns when the other process has taken what it is for, or is gone. */
static int start(forge_attendant *attendant, const char *word)
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
	struct forge_error err = FORGE_ERROR_INIT;
	return attendant(word, &fds[1], &err) < 0 ? FORGE_EXIT_FAILED : FORGE_EXIT_OK;
}

/* The slot has the error, if there is one. */
static int resume(const char *word, int *pipe, struct forge_error *err)
{
	int rc = forge_resume((unsigned)strtoul(word, NULL, 10), on_taken, pipe, err);

	/* Gone, for certain: the record gets its end now. Or it is over, and may have a next attempt. */
	if (rc == 0 || rc == -ESRCH)
		(void)!forge_reconcile(NULL, false, NULL);
	return rc;
}

/* The record of the run before has the error, if there is one. */
static int retry(const char *word, int *pipe, struct forge_error *err)
{
	return forge_retry_start(word, on_taken, pipe, err);
}

static int attend(int argc, char **argv)
{
	char *end;

	if (argc != 1)
		return FORGE_EXIT_USAGE;
	errno = 0;
	unsigned long slot = strtoul(argv[0], &end, 10);
	if (errno || *end || end == argv[0] || slot > UINT_MAX)
		return FORGE_EXIT_USAGE;
	return start(resume, argv[0]);
}

static int attend_retry(int argc, char **argv)
{
	return argc == 1 && forge_run_id_is_valid(argv[0]) ? start(retry, argv[0])
							   : FORGE_EXIT_USAGE;
}

static const struct forge_opt *attend_opts(void)
{
	static const struct forge_opt opts[] = { FORGE_HELP_ROW, FORGE_OPTS_END };

	return opts;
}

const struct forge_cmd forge_cmd_attend = {
	.name = "__attend",
	.synopsis = "SLOT",
	.bad_value = FORGE_EXIT_FAILED,
	.run = attend,
	.opts = attend_opts,
};

const struct forge_cmd forge_cmd_retry = {
	.name = "__retry",
	.synopsis = "RUN",
	.bad_value = FORGE_EXIT_FAILED,
	.run = attend_retry,
	.opts = attend_opts,
};
