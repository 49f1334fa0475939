/* SPDX-License-Identifier: Apache-2.0 */
/* Spawns supervisors and watchers. */
#include "record/attendant.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/lock.h"
#include "base/strv.h"

extern char **environ;

/* With the signals of a new process: a supervisor that starts it has blocked some. */
static int spawn_plainly(pid_t *ret, char *const *argv, char *const *env)
{
	posix_spawnattr_t attr;
	sigset_t none, all;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	int rc = -posix_spawn(ret, "/proc/self/exe", NULL, &attr, argv, env);
	posix_spawnattr_destroy(&attr);
	return rc;
}

static int spawn(const struct forge_home *home, const char *command, const char *word,
		 struct forge_error *err)
{
	forge_auto_free char *at = forge_asprintf("FORGE_HOME=%s", home->path);
	forge_auto_strv struct forge_strv env = { 0 };
	char *argv[] = { (char *)"forge", (char *)command, (char *)word, NULL };
	pid_t pid;
	int rc = at ? 0 : -ENOMEM, status;

	for (char **e = environ; *e && rc == 0; e++)
		if (strncmp(*e, "FORGE_HOME=", 11) != 0)
			rc = forge_strv_add(&env, *e);
	if (rc == 0)
		rc = forge_strv_add(&env, at);
	if (rc == 0)
		rc = spawn_plainly(&pid, argv, env.v);
	if (rc < 0)
		return forge_fail_errno(err, -rc, "start forge %s %s", command, word);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return 0;
}

int forge_attendant_start(const struct forge_home *home, const char *slot,
			  struct forge_error *err)
{
	return spawn(home, "__attend", slot, err);
}

int forge_attendant_retry(const struct forge_home *home, const char *run_id,
			  struct forge_error *err)
{
	return spawn(home, "__retry", run_id, err);
}

int forge_attendant_guard(const struct forge_home *home, struct forge_error *err)
{
	return spawn(home, "__guard", "all", err);
}

/* How long a new watcher waits for those who only look whether there is one. */
#define LOCK_MSEC 300

static int lock_file(const struct forge_home *home, const char *executor,
		     enum forge_lock_kind kind, int wait_msec)
{
	forge_auto_close int dir = forge_home_subdir(home, "watchers", NULL);

	return dir < 0 ? dir : forge_lock_file(dir, executor, kind, wait_msec, -1);
}

int forge_attendant_lock(const struct forge_home *home, const char *executor)
{
	return lock_file(home, executor, FORGE_LOCK_EXCLUSIVE, LOCK_MSEC);
}

bool forge_attendant_has_watcher(const struct forge_home *home, const char *executor)
{
	int fd = lock_file(home, executor, FORGE_LOCK_SHARED, FORGE_LOCK_NO_WAIT);

	if (fd >= 0)
		close(fd);
	return fd == -EWOULDBLOCK;
}

int forge_attendant_watch(const struct forge_home *home, const char *executor,
			  struct forge_error *err)
{
	if (forge_attendant_has_watcher(home, executor))
		return 0;
	return spawn(home, "__watch", executor, err);
}
