/* SPDX-License-Identifier: Apache-2.0 */
/* A child with three pipes and a deadline. */
#include "executor/slurm/client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/strv.h"

extern char **environ;

/* A controller that is down or busy lets its clients wait for 10 s, and some sites have set more. */
#define LIMIT_MSEC 45000
/*
 * So long a submission goes on after it was asked to stop: one that is killed may have made a job, and its
 * answer is usually a few milliseconds away.
 */
#define SUBMIT_MORE_USEC (2 * 1000000ull)
/* What a command prints beyond this is dropped: a line for each of 100,000 jobs has room. */
#define OUTPUT_MAX (16u << 20)

void forge_client_done(struct forge_client *c)
{
	free(c->out);
	free(c->err);
	*c = (struct forge_client){ 0 };
}

static bool is_of_slurm(const char *pair)
{
	static const char *const prefixes[] = { "SLURM_", "SBATCH_", "SQUEUE_",
						"SCANCEL_", "SINFO_" };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(prefixes); i++)
		if (strncmp(pair, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

/* All that sbatch needs. A job has the same environment, and Slurm keeps it on disk. */
static bool is_for_job(const char *pair)
{
	static const char *const names[] = { "PATH",	"HOME", "USER",
					     "LOGNAME", "LANG", "LD_LIBRARY_PATH" };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(names); i++) {
		size_t len = strlen(names[i]);
		if (strncmp(pair, names[i], len) == 0 && pair[len] == '=')
			return true;
	}
	return false;
}

static int make_environment(const char *conf, bool is_job, struct forge_strv *ret)
{
	const char *ours = getenv("SLURM_CONF");
	int rc = 0;

	for (char **e = environ; *e && rc == 0; e++)
		if (is_job ? is_for_job(*e) : !is_of_slurm(*e))
			rc = forge_strv_add(ret, *e);
	conf = conf ? conf : ours;
	forge_auto_free char *pair =
		conf && rc == 0 ? forge_asprintf("SLURM_CONF=%s", conf) : NULL;
	if (conf && rc == 0)
		rc = pair ? forge_strv_add(ret, pair) : -ENOMEM;
	return rc;
}

/* A stream of the child. */
struct stream {
	int fd;
	char *text;
	size_t len, room;
};

static int take(struct stream *s)
{
	if (s->room - s->len < 4096) {
		size_t room = s->room ? 2 * s->room : 8192;
		char *grown = realloc(s->text, room);
		if (!grown)
			return -ENOMEM;
		s->text = grown;
		s->room = room;
	}
	ssize_t n = read(s->fd, s->text + s->len, s->room - s->len - 1);
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (n <= 0) {
		close(s->fd);
		s->fd = -1;
		return 0;
	}
	if (s->len + (size_t)n < OUTPUT_MAX)
		s->len += (size_t)n;
	s->text[s->len] = '\0';
	return 0;
}

/* 0: both streams have ended. */
static int read_both(struct stream s[2], const struct forge_client_call *call)
{
	unsigned limit = call->limit_msec ? call->limit_msec : LIMIT_MSEC;
	uint64_t end = forge_now_usec() + limit * 1000ull;
	int stop_fd = call->stop_fd, late = -ETIMEDOUT;

	while (s[0].fd >= 0 || s[1].fd >= 0) {
		struct pollfd p[3] = { { .fd = s[0].fd, .events = POLLIN },
				       { .fd = s[1].fd, .events = POLLIN },
				       { .fd = stop_fd, .events = POLLIN } };
		uint64_t now = forge_now_usec();
		if (now >= end)
			return late;
		int n = poll(p, 3, (int)((end - now) / 1000) + 1);
		for (int i = 0; i < 2 && n > 0; i++) {
			int rc = p[i].revents ? take(&s[i]) : 0;
			if (rc < 0)
				return rc;
		}
		if (n > 0 && p[2].revents) {
			uint64_t stop = now + (call->input ? SUBMIT_MORE_USEC : 0);
			end = stop < end ? stop : end;
			late = -ECANCELED;
			stop_fd = -1;
		}
	}
	return 0;
}

/* In a process group of its own: ^C on the terminal is for us, and must not end an sbatch half way. */
static int spawn(char *const *argv, char *const *env, const int fds[3], pid_t *ret)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	for (int i = 0; i < 3; i++)
		posix_spawn_file_actions_adddup2(&files, fds[i], i);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setpgroup(&attr, 0);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
						POSIX_SPAWN_SETPGROUP);
	int rc = -posix_spawnp(ret, argv[0], &files, &attr, argv, env);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return rc;
}

static int wait_for(pid_t pid, bool is_late, int *ret_status)
{
	/* Its whole process group: the command may be a script of the site's around the real one. */
	if (is_late)
		(void)kill(-pid, SIGKILL);
	while (waitpid(pid, ret_status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

static int explain(int rc, const struct forge_client_call *call, struct forge_error *err)
{
	const char *name = call->argv[0];

	switch (rc) {
	case -ENOENT:
		return forge_hint(err,
				  forge_fail(err, ENOENT, "%s is not installed", name),
				  "The commands of Slurm must be in PATH");
	case -ETIMEDOUT:
		return forge_fail(err, ETIMEDOUT, "%s did not answer in %u s", name,
				  (call->limit_msec ? call->limit_msec : LIMIT_MSEC) /
					  1000);
	case -ECANCELED:
		return forge_fail(err, ECANCELED, "%s was interrupted", name);
	default:
		return forge_fail_errno(err, -rc, "run %s", name);
	}
}

int forge_client_run(const struct forge_client_call *call, struct forge_client *ret,
		     struct forge_error *err)
{
	forge_auto_strv struct forge_strv env = { 0 };
	int in[2] = { -1, -1 }, out[2] = { -1, -1 }, errs[2] = { -1, -1 };
	struct stream s[2] = { { .fd = -1 }, { .fd = -1 } };
	pid_t pid;
	int rc = make_environment(call->conf, call->input != NULL, &env);

	/* The commands would try for a minute. */
	if (rc == 0 && call->conf && access(call->conf, R_OK) < 0)
		return forge_fail_errno(err, errno, "read %s", call->conf);
	if (rc == 0 && (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 ||
			pipe2(errs, O_CLOEXEC) < 0))
		rc = -errno;
	/* At most PIPE_BUF bytes: a pipe takes them without a reader. */
	if (rc == 0 && call->input)
		rc = forge_write_all(in[1], call->input, strlen(call->input));
	if (rc == 0)
		rc = spawn(call->argv, env.v, (const int[]){ in[0], out[1], errs[1] },
			   &pid);
	s[0].fd = forge_take_fd(out[0]);
	s[1].fd = forge_take_fd(errs[0]);
	int *const ends[] = { &in[0], &in[1], &out[1], &errs[1] };
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(ends); i++)
		if (*ends[i] >= 0)
			close(*ends[i]);
	if (rc == 0) {
		rc = read_both(s, call);
		int waited = wait_for(pid, rc < 0, &ret->status);
		rc = rc < 0 ? rc : waited;
	}
	for (int i = 0; i < 2; i++)
		if (s[i].fd >= 0)
			close(s[i].fd);
	ret->out = s[0].text ? s[0].text : strdup("");
	ret->err = s[1].text ? s[1].text : strdup("");
	if (rc == 0 && (!ret->out || !ret->err))
		rc = -ENOMEM;
	return rc < 0 ? explain(rc, call, err) : 0;
}
