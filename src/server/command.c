/* SPDX-License-Identifier: Apache-2.0 */
/* Executes forge. */
#include "server/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "server/shared.h"

#define OUTPUT_MAX   (32 * 1024 * 1024)
#define TIMEOUT_SECS 120

extern char **environ;

void forge_command_done(struct forge_command_result *r)
{
	free(r->out);
	free(r->err);
	*r = (struct forge_command_result){ 0 };
}

static int words_of(const struct forge_server *sv, const struct forge_strv *words,
		    struct forge_strv *ret)
{
	const struct forge_server_options *o = sv->options;
	int rc = forge_strv_add(ret, "forge");

	if (rc == 0)
		rc = forge_strv_add(ret, words->v[0]);
	/* A command with verbs takes them first. */
	size_t first = 1;
	if (rc == 0 && words->n > 1 && words->v[1][0] != '-' &&
	    (strcmp(words->v[0], "runtime") == 0 ||
	     strcmp(words->v[0], "executor") == 0 || strcmp(words->v[0], "health") == 0))
		rc = forge_strv_add(ret, words->v[first++]);
	if (rc == 0 && o->store && strcmp(words->v[0], "executor") != 0)
		rc = forge_strv_addf(ret, "--store=%s", o->store);
	if (rc == 0 && o->config)
		rc = forge_strv_addf(ret, "--config=%s", o->config);
	for (size_t i = first; i < words->n && rc == 0; i++)
		rc = forge_strv_add(ret, words->v[i]);
	return rc;
}

/* A pipe whose ends are closed when a program is executed. */
static int make_pipe(int fds[2])
{
	return pipe2(fds, O_CLOEXEC) < 0 ? -errno : 0;
}

static int spawn(char **argv, int out, int errors, pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none, defaults;

	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawnattr_init(&attr);
	(void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	(void)posix_spawn_file_actions_adddup2(&actions, out, 1);
	(void)posix_spawn_file_actions_adddup2(&actions, errors, 2);
	/* Our threads block signals and ignore SIGPIPE; the program must not. */
	(void)sigemptyset(&none);
	(void)sigfillset(&defaults);
	(void)sigdelset(&defaults, SIGKILL);
	(void)sigdelset(&defaults, SIGSTOP);
	(void)posix_spawnattr_setsigmask(&attr, &none);
	(void)posix_spawnattr_setsigdefault(&attr, &defaults);
	/* ^C at the terminal of the server is not for a run that is about to be recorded. */
	(void)posix_spawnattr_setpgroup(&attr, 0);
	(void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK |
						      POSIX_SPAWN_SETSIGDEF |
						      POSIX_SPAWN_SETPGROUP);
	int code = posix_spawn(ret, "/proc/self/exe", &actions, &attr, argv, environ);
	(void)posix_spawn_file_actions_destroy(&actions);
	(void)posix_spawnattr_destroy(&attr);
	return -code;
}

/* Appends what is there. 0: the end; 1: more may come; negative: an error. */
static int take(int fd, char **text, size_t *len)
{
	if (*len > OUTPUT_MAX)
		return -E2BIG;
	char *grown = realloc(*text, *len + 65536 + 1);
	if (!grown)
		return -ENOMEM;
	*text = grown;
	ssize_t n = read(fd, grown + *len, 65536);
	if (n < 0)
		return errno == EINTR || errno == EAGAIN ? 1 : -errno;
	*len += (size_t)n;
	grown[*len] = '\0';
	return n > 0;
}

/* Reads both until both are closed. */
static int read_both(int out, int errors, uint64_t deadline,
		     struct forge_command_result *r)
{
	struct pollfd p[] = { { .fd = out, .events = POLLIN },
			      { .fd = errors, .events = POLLIN } };

	while (p[0].fd >= 0 || p[1].fd >= 0) {
		uint64_t now = forge_now_usec();
		if (now >= deadline)
			return -ETIMEDOUT;
		int n = poll(p, 2, (int)((deadline - now) / 1000) + 1);
		if (n < 0 && errno != EINTR)
			return -errno;
		for (int i = 0; i < 2 && n > 0; i++) {
			if (p[i].fd < 0 || !p[i].revents)
				continue;
			int rc = i == 0 ? take(out, &r->out, &r->out_len)
					: take(errors, &r->err, &r->err_len);
			if (rc < 0)
				return rc;
			if (rc == 0)
				p[i].fd = -1;
		}
	}
	return 0;
}

int forge_command_run(const struct forge_server *sv, const struct forge_strv *words,
		      unsigned timeout_sec, struct forge_command_result *ret,
		      struct forge_error *err)
{
	forge_auto_strv struct forge_strv argv = { 0 };
	int out[2] = { -1, -1 }, errors[2] = { -1, -1 }, status = 0;
	pid_t pid = -1;

	*ret = (struct forge_command_result){ 0 };
	int rc = words_of(sv, words, &argv);
	if (rc == 0)
		rc = make_pipe(out);
	if (rc == 0)
		rc = make_pipe(errors);
	if (rc == 0)
		rc = spawn(argv.v, out[1], errors[1], &pid);
	if (out[1] >= 0)
		close(out[1]);
	if (errors[1] >= 0)
		close(errors[1]);
	if (rc == 0) {
		rc = read_both(out[0], errors[0],
			       forge_now_usec() + (uint64_t)timeout_sec * 1000000, ret);
		if (rc < 0)
			(void)kill(-pid, SIGKILL);
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		ret->status =
			WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	}
	if (out[0] >= 0)
		close(out[0]);
	if (errors[0] >= 0)
		close(errors[0]);
	if (rc < 0) {
		forge_command_done(ret);
		return forge_fail_errno(err, -rc, "forge %s", words->v[0]);
	}
	return 0;
}

/* "forge: what is wrong" and the line behind it, if there is one. */
void forge_command_error(const struct forge_command_result *r, struct forge_error *err)
{
	const char *text = r->err ? r->err : "";
	const char *found = NULL;

	/* Warnings come before the error. */
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, "forge: ", 7) == 0 &&
		    strncmp(line, "forge: warning:", 15) != 0)
			found = line + 7;
	}
	if (!found) {
		(void)forge_fail(err, EIO, "forge ended with status %d", r->status);
		return;
	}
	const char *end = strchrnul(found, '\n');
	(void)forge_fail(err, EINVAL, "%.*s", (int)(end - found), found);
	static const char mark[] = "  hint: ";
	if (*end && strncmp(end + 1, mark, sizeof(mark) - 1) == 0) {
		const char *hint = end + sizeof(mark);
		const char *stop = strchrnul(hint, '\n');
		(void)forge_hint(err, 0, "%.*s", (int)(stop - hint), hint);
	}
}

/* One value, or a list of those that stand in lines. */
static json_t *parse(const char *text, size_t len, bool is_lines)
{
	if (!is_lines)
		return json_loadb(text, len, JSON_DECODE_ANY, NULL);
	json_t *list = json_array();
	const char *end;
	for (const char *line = text; list && (end = strchr(line, '\n')); line = end + 1)
		if (json_array_append_new(
			    list, json_loadb(line, (size_t)(end - line), 0, NULL)) < 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

bool forge_command_json(struct forge_server *sv, const struct forge_strv *words,
			bool is_lines, json_t **ret, struct forge_answer *a)
{
	struct forge_command_result r;
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = forge_command_run(sv, words, TIMEOUT_SECS, &r, &err);

	if (rc < 0) {
		forge_answer_fail(a, rc, &err);
		return false;
	}
	json_t *j = r.status == 0 ? parse(r.out ? r.out : "", r.out_len, is_lines) : NULL;
	if (!j) {
		forge_command_error(&r, &err);
		/* 1 and 125: it refused; everything else is not the client's fault. */
		bool is_refused = r.status == 125 || r.status == 1 || r.status == 2;
		forge_answer_error(a, is_refused ? 400 : 500,
				   is_refused ? "refused" : "internal", err.msg,
				   err.hint);
	}
	forge_command_done(&r);
	*ret = j;
	return j != NULL;
}
