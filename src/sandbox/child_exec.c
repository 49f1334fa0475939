/* SPDX-License-Identifier: Apache-2.0 */
/* Inside: the last steps of the command's own process, from fork to execve. */
#include "sandbox/child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "filter.h"

size_t forge_filter_length(void)
{
	return sizeof(forge_filter) / sizeof(forge_filter[0]);
}

static void install_filter(const struct forge_child *c)
{
	struct sock_fprog prog = {
		.len = (unsigned short)forge_filter_length(),
		.filter = forge_filter,
	};

	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) < 0)
		forge_child_die(c->report, FORGE_STAGE_SECCOMP, "filter");
}

static void connect_stdio(const struct forge_child *c)
{
	for (int i = 0; i < 3; i++)
		if (dup2(c->stdio[i], i) < 0)
			forge_child_die(c->report, FORGE_STAGE_STDIO, "dup2");
	/* Whatever else is open, the report pipe too, closes at execve. */
	if (sys_close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		forge_child_die(c->report, FORGE_STAGE_STDIO, "close_range");
}

static void reset_signals(void)
{
	/* The kernel's own struct: libc's sigaction() would leave out the two it uses itself. */
	const struct {
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		uint64_t mask;
	} dfl = { .handler = SIG_DFL };
	sigset_t none;

	for (int s = 1; s <= 64; s++)
		(void)syscall(SYS_rt_sigaction, s, &dfl, NULL,
			      sizeof(dfl.mask)); /* not KILL, STOP */
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The workdir must be the directory the plan saw: a cwd outside the root is an escape. */
static void enter_workdir(const struct forge_child *c)
{
	struct stat here;

	if (chdir(c->plan->workdir) < 0 || stat(".", &here) < 0)
		forge_child_die(c->report, FORGE_STAGE_CHDIR, c->plan->workdir);
	for (size_t i = 0; i < c->plan->n_mounts; i++) {
		const struct forge_mount *m = &c->plan->mounts[i];
		if (m->type == FORGE_MOUNT_RW &&
		    (m->dev != here.st_dev || m->ino != here.st_ino)) {
			errno = ESTALE;
			forge_child_die(c->report, FORGE_STAGE_CHDIR, c->plan->workdir);
		}
	}
}

_Noreturn void forge_child_exec(const struct forge_child *c)
{
	const struct forge_plan *p = c->plan;
	const char *tried = p->argv.v[0];
	int error = ENOENT;

	(void)setsid(); /* cannot fail in a fresh child */
	(void)prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
	enter_workdir(c);
	connect_stdio(c);
	if (p->landlock_abi > 0)
		forge_child_landlock(p, c->report);
	forge_child_limit_files(c);
	reset_signals();
	install_filter(c);
	for (size_t i = 0; i < p->exec_paths.n; i++) {
		execve(p->exec_paths.v[i], p->argv.v, p->env.v);
		/* As execvp: keep looking, but remember a file that was there. */
		if (errno == ENOENT || errno == ENOTDIR)
			continue;
		tried = p->exec_paths.v[i];
		error = errno;
		if (errno != EACCES)
			break;
	}
	errno = error;
	forge_child_die(c->report, FORGE_STAGE_EXEC, tried);
}
