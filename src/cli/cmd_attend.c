/* SPDX-License-Identifier: Apache-2.0 */
/* forge __attend SLOT: the next supervisor of a run whose supervisor died. Hidden: repair starts it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/sys.h"
#include "cli/cli.h"
#include "record/reconcile.h"
#include "run/resume.h"

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

static int attend(int argc, char **argv)
{
	int fds[2];
	char nothing;

	char *end;

	if (argc != 1)
		return FORGE_EXIT_USAGE;
	errno = 0;
	unsigned long slot = strtoul(argv[0], &end, 10);
	if (errno || *end || end == argv[0] || slot > UINT_MAX ||
	    pipe2(fds, O_CLOEXEC) < 0)
		return FORGE_EXIT_USAGE;
	pid_t pid = fork();
	if (pid < 0)
		return FORGE_EXIT_FAILED;
	if (pid > 0) {
		/* Ends when the slot is taken, or when the other process is gone. */
		close(fds[1]);
		while (read(fds[0], &nothing, 1) < 0 && errno == EINTR)
			;
		return FORGE_EXIT_OK;
	}
	detach();
	(void)sys_close_range(3, (unsigned)fds[1] - 1, 0);
	(void)sys_close_range((unsigned)fds[1] + 1, ~0u, 0);
	struct forge_error err = FORGE_ERROR_INIT; /* the slot has it */
	int rc = forge_resume((unsigned)slot, on_taken, &fds[1], &err);
	/* Gone, for certain: the record gets its end now. */
	if (rc == -ESRCH)
		(void)!forge_reconcile(NULL, false, NULL);
	return rc < 0 ? FORGE_EXIT_FAILED : FORGE_EXIT_OK;
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
