/* SPDX-License-Identifier: Apache-2.0 */
/* Inside: the last steps of the command's own process, from fork to execve. */
#include "sandbox/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"

static void connect_stdio(const struct forge_child *c)
{
	for (int i = 0; i < 3; i++)
		if (dup2(c->stdio[i], i) < 0)
			forge_child_die(c->report, FORGE_STAGE_STDIO, "dup2");
	/* All other descriptors, the report pipe too, close at execve. */
	if (sys_close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		forge_child_die(c->report, FORGE_STAGE_STDIO, "close_range");
}

static void reset_signals(void)
{
	/*
	 * The kernel's own struct: libc's sigaction() would leave out the two signals that libc
	 * uses itself.
	 */
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

/*
 * The workdir must be the directory that the plan saw: a cwd outside the root would be an
 * escape.
 */
static void enter_workdir(const struct forge_child *c)
{
	struct stat here;

	if (chdir(c->plan->workdir) < 0 || stat(".", &here) < 0)
		forge_child_die(c->report, FORGE_STAGE_CHDIR, c->plan->workdir);
	for (size_t i = 0; i < c->plan->n_mounts; i++) {
		const struct forge_mount *m = &c->plan->mounts[i];
		if (m->type == FORGE_MOUNT_RW &&
		    strcmp(m->target, c->plan->workdir) == 0 &&
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
		forge_child_landlock_plan(p, c->report);
	forge_child_limit_files(c);
	reset_signals();
	forge_child_filter(&(struct forge_child_filter){
		.own_network = p->own_network,
		.may_allocate = p->may_allocate,
		.sockets = p->limits.sockets,
		.notes_sockets = p->notes_sockets,
		.control = c->control,
		.report = c->report,
	});
	for (size_t i = 0; i < p->exec_paths.n; i++) {
		execve(p->exec_paths.v[i], p->argv.v, p->env.v);
		/*
		 * As execvp does: try the next path, but remember the error of a file that
		 * exists.
		 */
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
