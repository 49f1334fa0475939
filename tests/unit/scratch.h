/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests with files and processes: a directory of their own, and children that report over a pipe. No
 * test waits for a duration; a wait for something that should happen has SCRATCH_MSEC, then it fails.
 */
#pragma once

#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

#define SCRATCH_MSEC 60000

static char scratch_top[64];

static inline const char *scratch(const char *name)
{
	static char path[4][192];
	static unsigned next;
	char *p = path[next++ % 4];

	(void)snprintf(p, sizeof(path[0]), "%s/%s", scratch_top, name);
	return p;
}

/* Makes the directory, and names one in it FORGE_HOME. */
static inline void scratch_make(void)
{
	(void)snprintf(scratch_top, sizeof(scratch_top), "/tmp/forge-unit-XXXXXX");
	assert_non_null(mkdtemp(scratch_top));
	assert_int_equal(setenv("FORGE_HOME", scratch("home"), 1), 0);
}

static inline int scratch_remove_one(const char *path, const struct stat *st, int type,
				     struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static inline void scratch_remove(void)
{
	assert_int_equal(nftw(scratch_top, scratch_remove_one, 8, FTW_DEPTH | FTW_PHYS),
			 0);
}

/* A byte from fd. */
static inline char scratch_read(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char byte = 0;

	if (poll(&p, 1, SCRATCH_MSEC) != 1)
		fail_msg("nothing to read");
	if (read(fd, &byte, 1) != 1)
		fail_msg("the other side ended");
	return byte;
}

/* A process of the test: it reports bytes, and may wait for bytes. */
struct child {
	pid_t pid;
	int from, to;
};

/* In the child: reports a byte. No assertions there, cmocka would go on in two processes. */
static inline void child_say(const struct child *c, char byte)
{
	if (write(c->to, &byte, 1) != 1)
		_exit(9);
}

/* In the child: waits for child_go(); ends when the test has ended. */
static inline void child_wait(const struct child *c)
{
	char byte;

	if (read(c->from, &byte, 1) != 1)
		_exit(8);
}

/* Forks; body reports over its struct child, and then the child ends with 0. */
static inline struct child child_start(void (*body)(const struct child *c, void *arg),
				       void *arg)
{
	int up[2], down[2];

	assert_int_equal(pipe2(up, O_CLOEXEC), 0);
	assert_int_equal(pipe2(down, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		/* A test that fails, or is killed, leaves nothing behind that waits for it. */
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
			_exit(7);
		close(up[0]);
		close(down[1]);
		body(&(struct child){ .pid = getpid(), .from = down[0], .to = up[1] },
		     arg);
		_exit(0);
	}
	close(up[1]);
	close(down[0]);
	return (struct child){ .pid = pid, .from = up[0], .to = down[1] };
}

static inline void child_go(const struct child *c)
{
	assert_int_equal(write(c->to, "", 1), 1);
}

/* Reaps it; its exit status, or minus the signal that ended it. */
static inline int child_end(struct child *c)
{
	int status = 0;

	close(c->to);
	close(c->from);
	assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static inline void child_kill(struct child *c)
{
	assert_int_equal(kill(c->pid, SIGKILL), 0);
	assert_int_equal(child_end(c), -SIGKILL);
}
