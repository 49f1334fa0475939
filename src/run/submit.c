/* SPDX-License-Identifier: Apache-2.0 */
/* Forks the supervisor, which reports the run's id or an error through a pipe. */
#include "run/submit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/sys.h"

struct message {
	int rc;
	struct forge_submitted submitted;
	struct forge_error error;
};

struct supervisor {
	int pipe; /* -1 once it has reported */
	struct forge_error warning;
	struct forge_run_request req;
};

static void report(struct supervisor *s, const struct message *m)
{
	if (s->pipe < 0)
		return;
	(void)!forge_write_all(s->pipe, m, sizeof(*m)); /* the caller may have exited */
	close(s->pipe);
	s->pipe = -1;
}

static void on_recorded(void *arg, const char *run_id)
{
	struct supervisor *s = arg;
	struct message m = { .submitted.warning = s->warning };

	(void)snprintf(m.submitted.run_id, sizeof(m.submitted.run_id), "%s", run_id);
	report(s, &m);
}

static void on_warning(void *arg, const struct forge_error *warning)
{
	struct supervisor *s = arg;

	if (!s->warning.code)
		s->warning = *warning;
}

/* Releases everything of the caller: its terminal and its pipes. */
static void detach(struct supervisor *s)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)setsid();
	for (int fd = 0; fd < 3 && null >= 0; fd++)
		(void)dup2(null, fd);
	if (s->pipe != 3) {
		(void)dup3(s->pipe, 3, O_CLOEXEC);
		s->pipe = 3;
	}
	(void)sys_close_range(4, ~0u, 0);
	/* A hang-up comes from the terminal, which is detached. */
	(void)signal(SIGHUP, SIG_IGN);
}

static void supervise(struct supervisor *s, const struct forge_config *cfg)
{
	struct forge_run_result result = { 0 };
	struct message m = { 0 };

	detach(s);
	s->req.wait_durable = true;
	s->req.on_recorded = on_recorded;
	s->req.on_warning = on_warning;
	s->req.on_note = NULL;
	s->req.stdout_fd = s->req.stderr_fd = -1;
	s->req.arg = s;
	m.rc = forge_run(cfg, &s->req, &result, &m.error);
	if (m.rc == 0 && result.existing_run[0]) {
		m.submitted.is_existing = true;
		memcpy(m.submitted.run_id, result.existing_run,
		       sizeof(m.submitted.run_id));
	} else if (m.rc == 0) {
		/* The run was rejected before on_recorded(). That is a run too. */
		const char *id = forge_json_string(result.record, "run_id");
		(void)snprintf(m.submitted.run_id, sizeof(m.submitted.run_id), "%s", id);
	}
	report(s, &m);
	_exit(result.exit_status);
}

int forge_submit(const struct forge_config *cfg, const struct forge_run_request *req,
		 struct forge_submitted *ret, struct forge_error *err)
{
	struct supervisor s = { .req = *req };
	struct message m;
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return forge_fail_errno(err, errno, "pipe");
	pid_t pid = fork();
	if (pid == 0) {
		s.pipe = fds[1];
		supervise(&s, cfg);
	}
	close(fds[1]);
	forge_auto_close int in = fds[0];
	if (pid < 0)
		return forge_fail_errno(err, errno, "fork");
	size_t have = 0;
	while (have < sizeof(m)) {
		ssize_t n = read(in, (char *)&m + have, sizeof(m) - have);
		if (n == 0 || (n < 0 && errno != EINTR))
			return forge_fail(
				err, EPIPE,
				"the supervisor died before the run was recorded");
		have += n > 0 ? (size_t)n : 0;
	}
	if (m.rc < 0) {
		if (err)
			*err = m.error;
		return m.rc;
	}
	*ret = m.submitted;
	return 0;
}
