/* SPDX-License-Identifier: Apache-2.0 */
/* Executes forge and collects what it prints. */
#include "server/mcp_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sys.h"

#define SAID_MAX 16384u

/* In the child: only what exec needs, and no memory is allocated. */
static _Noreturn void become_forge(char *const *argv, int out, int err, bool only_waits)
{
	sigset_t none;
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)signal(SIGPIPE, SIG_DFL);
	/* A terminal's ^C is for the server, which then decides what to end. */
	(void)setsid();
	/* When the server is killed, nobody is left to whom the end of a run could be told. */
	if (only_waits)
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
	    dup2(err, STDERR_FILENO) < 0)
		_exit(125);
	execv("/proc/self/exe", argv);
	_exit(125);
}

/* argv[0] and the arguments. The strings stay those of the list. */
static char **vector_of(const struct forge_strv *argv)
{
	static char name[] = "forge";
	char **v = calloc(argv->n + 2, sizeof(*v));

	if (!v)
		return NULL;
	v[0] = name;
	for (size_t i = 0; i < argv->n; i++)
		v[i + 1] = argv->v[i];
	return v;
}

static int make_channel(bool is_file, int fds[2])
{
	if (!is_file)
		return pipe2(fds, O_CLOEXEC) < 0 ? -errno : 0;
	fds[1] = memfd_create("forge-mcp", MFD_CLOEXEC);
	fds[0] = fds[1] < 0 ? -1 : fcntl(fds[1], F_DUPFD_CLOEXEC, 3);
	return fds[0] < 0 ? -errno : 0;
}

int forge_mcp_child_start(const struct forge_strv *argv,
			  const struct forge_mcp_range *range, bool is_lasting,
			  struct forge_mcp_child **ret, struct forge_error *err)
{
	int out[2] = { -1, -1 }, say[2] = { -1, -1 };
	struct forge_mcp_child *c = calloc(1, sizeof(*c));
	forge_auto_free char **v = vector_of(argv);
	int rc = c && v ? make_channel(is_lasting, out) : -ENOMEM;

	if (rc == 0)
		rc = make_channel(is_lasting, say);
	pid_t pid = rc < 0 ? -1 : fork();
	if (pid == 0)
		become_forge(v, out[1], say[1], strcmp(argv->v[0], "wait") == 0);
	if (rc == 0 && pid < 0)
		rc = -errno;
	forge_auto_close int out_end = out[1], say_end = say[1];
	(void)out_end; /* closed at the end of the scope, as is the next one */
	(void)say_end;
	int pidfd = rc == 0 ? sys_pidfd_open(pid, 0) : -1;
	if (rc == 0 && pidfd < 0) {
		rc = -errno;
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
	}
	if (rc < 0) {
		free(c);
		forge_auto_close int out_start = out[0], say_start = say[0];
		(void)out_start;
		(void)say_start;
		return forge_fail_errno(err, -rc, "start forge");
	}
	(void)fcntl(pidfd, F_SETFD, FD_CLOEXEC);
	/* Not of a file: its two descriptors are one open file. */
	if (!is_lasting) {
		(void)fcntl(out[0], F_SETFL, O_NONBLOCK);
		(void)fcntl(say[0], F_SETFL, O_NONBLOCK);
	}
	*c = (struct forge_mcp_child){
		.pid = pid, .pidfd = pidfd, .out = out[0], .err = say[0], .range = *range
	};
	*ret = c;
	return 0;
}

static bool append(char **text, size_t *len, size_t *cap, const char *data, size_t n)
{
	if (*len + n + 1 > *cap) {
		size_t grown = *cap ? *cap : 4096;
		while (grown < *len + n + 1)
			grown *= 2;
		char *p = realloc(*text, grown);
		if (!p)
			return false;
		*text = p;
		*cap = grown;
	}
	memcpy(*text + *len, data, n);
	*len += n;
	(*text)[*len] = '\0';
	return true;
}

/* Keeps what the range has of the next bytes. */
static void keep(struct forge_mcp_child *c, const char *data, size_t n)
{
	uint64_t at = c->total, length = c->range.length;

	c->total += n;
	if (c->range.from_end) {
		if (!append(&c->text, &c->len, &c->cap, data, n))
			c->is_broken = true;
		/* Seldom, so that not every read moves all of it. */
		if (c->len > 2 * length + 65536) {
			memmove(c->text, c->text + c->len - length, length + 1);
			c->len = length;
		}
		return;
	}
	uint64_t end = c->range.offset + length;
	if (at + n <= c->range.offset || at >= end)
		return;
	size_t from = at < c->range.offset ? (size_t)(c->range.offset - at) : 0;
	size_t to = at + n > end ? (size_t)(end - at) : n;
	if (!append(&c->text, &c->len, &c->cap, data + from, to - from))
		c->is_broken = true;
}

static void say(struct forge_mcp_child *c, const char *data, size_t n)
{
	size_t room = SAID_MAX - c->said_len;

	if (!c->said)
		c->said = calloc(1, SAID_MAX + 1);
	if (!c->said)
		return;
	n = n < room ? n : room;
	memcpy(c->said + c->said_len, data, n);
	c->said_len += n;
}

/* Reads at most so often at once, so that other requests get their turn. */
#define READS_MAX 16

/* True: there is nothing more for now. */
static bool drain(struct forge_mcp_child *c, int *fd, bool is_out, int most)
{
	char buf[65536];

	for (int i = 0; *fd >= 0 && (most == 0 || i < most); i++) {
		ssize_t n = read(*fd, buf, sizeof(buf));
		if (n > 0) {
			if (is_out)
				keep(c, buf, (size_t)n);
			else
				say(c, buf, (size_t)n);
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return true;
		close(*fd);
		*fd = -1;
	}
	return *fd < 0;
}

static void finish(struct forge_mcp_child *c)
{
	(void)drain(c, &c->out, true, 0);
	(void)drain(c, &c->err, false, 0);
	if (c->range.from_end && c->len > c->range.length) {
		size_t length = (size_t)c->range.length;
		memmove(c->text, c->text + c->len - length, length + 1);
		c->len = length;
	}
	c->is_over = true;
}

void forge_mcp_child_look(struct forge_mcp_child *c)
{
	siginfo_t info = { 0 };
	struct stat st;
	bool is_file = c->out >= 0 && fstat(c->out, &st) == 0 && S_ISREG(st.st_mode);

	if (c->is_over)
		return;
	if (!is_file) {
		(void)drain(c, &c->out, true, READS_MAX);
		(void)drain(c, &c->err, false, READS_MAX);
	}
	if (waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
		return;
	c->status = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
	c->pid = -1;
	if (is_file) {
		(void)lseek(c->out, 0, SEEK_SET);
		(void)lseek(c->err, 0, SEEK_SET);
	}
	finish(c);
}

void forge_mcp_child_signal(struct forge_mcp_child *c, int sig)
{
	if (c && c->pid > 0)
		(void)sys_pidfd_send_signal(c->pidfd, sig, NULL);
}

void forge_mcp_child_free(struct forge_mcp_child *c, bool may_go_on)
{
	if (!c)
		return;
	if (c->pid > 0 && !may_go_on) {
		(void)sys_pidfd_send_signal(c->pidfd, SIGKILL, NULL);
		(void)waitpid(c->pid, NULL, 0);
	}
	for (size_t i = 0; i < 3; i++) {
		int fd = i == 0 ? c->out : i == 1 ? c->err : c->pidfd;
		if (fd >= 0)
			close(fd);
	}
	free(c->text);
	free(c->said);
	free(c);
}

char *forge_mcp_child_problem(const struct forge_mcp_child *c)
{
	char *text = NULL;
	size_t size = 0;
	bool is_skipped = false;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	for (const char *line = c->said; line && *line;) {
		size_t len = strcspn(line, "\n");
		bool is_hint = strncmp(line, "  hint: ", 8) == 0;
		bool is_own = strncmp(line, "forge: ", 7) == 0;
		if (!is_hint)
			is_skipped = strncmp(line, "usage: ", 7) == 0 ||
				     strncmp(line, "forge: warning: ", 16) == 0;
		size_t cut = is_own ? 7 : is_hint ? 2 : 0;
		if (!is_skipped)
			fprintf(f, "%s%.*s", ftell(f) > 0 ? "\n" : "", (int)(len - cut),
				line + cut);
		line += len + (line[len] == '\n');
	}
	if (fflush(f) == 0 && size == 0)
		fprintf(f, "forge ended with status %d and said nothing", c->status);
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	return text;
}
