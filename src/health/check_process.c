/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of processes and of units: kinds process and systemd. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/proc.h"
#include "health/kinds.h"

/* What /proc says of one process. */
struct process {
	char comm[64];
	char state; /* as in ps(1); Z and X: it has ended */
};

/* "12 (a name) S 1 ...": the name may contain anything, also parentheses. -ENOENT: there is none. */
static int look_at(const char *pid, struct process *ret)
{
	char path[64], text[512];

	(void)snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	ssize_t n = forge_read_at(AT_FDCWD, path, text, sizeof(text));
	if (n < 0)
		return n == -ESRCH ? -ENOENT : (int)n;
	const char *open = strchr(text, '('), *close = strrchr(text, ')');
	if (!open || !close || close < open || close[1] != ' ')
		return -EPROTO;
	(void)snprintf(ret->comm, sizeof(ret->comm), "%.*s", (int)(close - open - 1),
		       open + 1);
	ret->state = close[2];
	return 0;
}

static bool has_ended(const struct process *p)
{
	return p->state == 'Z' || p->state == 'X';
}

/* The kernel keeps 15 characters of a name; argv[0] has all of it. */
static bool has_name(const char *pid, const struct process *p, const char *name)
{
	char path[64], argv0[4096];

	if (strcmp(p->comm, name) == 0)
		return true;
	(void)snprintf(path, sizeof(path), "/proc/%.20s/cmdline", pid);
	if (forge_read_at(AT_FDCWD, path, argv0, sizeof(argv0)) <= 0)
		return false;
	const char *slash = strrchr(argv0, '/');
	return strcmp(slash ? slash + 1 : argv0, name) == 0;
}

/* ---- by name ---- */

static void find_name(const char *name, struct forge_check_report *ret)
{
	forge_auto_dir DIR *dir = opendir("/proc");
	long first = 0, zombie = 0, n = 0;

	for (const struct dirent *e; dir && (e = readdir(dir));) {
		struct process p;
		long pid = isdigit((unsigned char)*e->d_name)
				   ? strtol(e->d_name, NULL, 10)
				   : 0;
		if (!pid || pid == getpid() || pid == getppid() ||
		    look_at(e->d_name, &p) < 0 || !has_name(e->d_name, &p, name))
			continue;
		if (has_ended(&p)) {
			zombie = pid;
			continue;
		}
		n++;
		first = first ? first : pid;
	}
	ret->numbers = json_pack("{s:I}", "processes", (json_int_t)n);
	if (n)
		json_object_set_new(ret->numbers, "pid", json_integer(first));
	if (n == 1)
		forge_check_say(ret, true, "%s runs as process %ld", name, first);
	else if (n > 1)
		forge_check_say(ret, true, "%s runs as process %ld and %ld more", name,
				first, n - 1);
	else if (zombie)
		forge_check_say(ret, false,
				"%s has ended: process %ld is a zombie, which its parent "
				"has not waited for",
				name, zombie);
	else
		/* Mounted with hidepid, /proc shows a user its own processes. */
		forge_check_say(ret, false, "no process %s%s", name,
				access("/proc/1", F_OK) == 0
					? ""
					: " among those that this user may see");
}

/* ---- by pid file ---- */

/* Did the process start after the file was written, so that it may be another one with the same number? */
static bool is_younger(long pid, const struct stat *file)
{
	uint64_t ticks = forge_proc_start_time((pid_t)pid);
	struct timespec real, boot;

	(void)clock_gettime(CLOCK_REALTIME, &real);
	(void)clock_gettime(CLOCK_BOOTTIME, &boot);
	int64_t age = boot.tv_sec - (int64_t)(ticks / (uint64_t)sysconf(_SC_CLK_TCK));
	return ticks && real.tv_sec - age > file->st_mtim.tv_sec + 2;
}

static void report_pid(const char *path, long pid, const struct stat *file,
		       struct forge_check_report *ret)
{
	struct process p = { .state = 'R' };
	char text[24];

	(void)snprintf(text, sizeof(text), "%ld", pid);
	int rc = look_at(text, &p);
	/* Another user's process may be hidden; its number is still in use. */
	bool is_hidden = rc < 0 && kill((pid_t)pid, 0) < 0 && errno == EPERM;
	if (rc < 0 && !is_hidden) {
		forge_check_say(ret, false, "process %ld of %s does not exist", pid,
				path);
		return;
	}
	ret->numbers = json_pack("{s:I}", "pid", (json_int_t)pid);
	if (is_hidden) {
		forge_check_say(
			ret, true,
			"process %ld of %s exists; this user may not see its name", pid,
			path);
		return;
	}
	json_object_set_new(ret->numbers, "name", forge_json_text(p.comm));
	if (has_ended(&p))
		forge_check_say(ret, false,
				"process %ld (%s) of %s has ended: it is a zombie, which "
				"its parent has not waited for",
				pid, p.comm, path);
	else
		forge_check_say(
			ret, true, "process %ld (%s) of %s runs%s", pid, p.comm, path,
			is_younger(pid, file) ? ", but is younger than that file" : "");
}

static void read_pid_file(const char *path, struct forge_check_report *ret)
{
	char text[64] = "", *end = text;
	struct stat st;
	forge_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || fstat(fd, &st) < 0) {
		forge_check_say(ret, false, "%s: %s", path, strerror(errno));
		return;
	}
	ssize_t n = S_ISREG(st.st_mode) ? read(fd, text, sizeof(text) - 1) : 0;
	long pid = n > 0 ? strtol(text, &end, 10) : 0;
	if (end == text || pid <= 0 || pid > INT32_MAX ||
	    (*end && !isspace((unsigned char)*end)))
		forge_check_say(ret, false,
				"%s does not begin with the number of a process", path);
	else
		report_pid(path, pid, &st, ret);
}

FORGE_CHECK(forge_check_process)
{
	(void)env; /* nothing of it is needed */
	if (strchr(d->process, '/'))
		read_pid_file(d->process, ret);
	else
		find_name(d->process, ret);
}

/* ---- systemd ---- */

/* In the child. Nothing of the environment reaches systemctl, which may page, colour or ask another bus. */
static void be_systemctl(const char *unit, int fd)
{
	static const char *const places[] = { "/usr/bin/systemctl", "/bin/systemctl" };
	static const char what[] = "--property=LoadState,ActiveState,SubState";
	char *argv[] = { (char *)"systemctl",
			 (char *)"--no-pager",
			 (char *)"show",
			 (char *)what,
			 (char *)"--",
			 (char *)unit,
			 NULL };
	char *envp[] = { (char *)"LC_ALL=C", NULL };

	(void)prctl(PR_SET_PDEATHSIG,
		    SIGKILL); /* a check that takes too long is killed */
	(void)dup2(fd, STDOUT_FILENO);
	(void)dup2(fd, STDERR_FILENO);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(places); i++)
		(void)execve(places[i], argv, envp);
	(void)dprintf(fd, "systemctl: %s\n", strerror(errno));
	_exit(127);
}

/* Its exit status, or -1. What it printed is in text. */
static int ask_systemctl(const char *unit, char *text, size_t size)
{
	int fds[2], status = 0;
	size_t len = 0;

	text[0] = '\0';
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	pid_t pid = fork();
	if (pid == 0)
		be_systemctl(unit, fds[1]);
	close(fds[1]);
	for (ssize_t n; pid > 0 && len < size - 1 &&
			(n = read(fds[0], text + len, size - 1 - len)) > 0;)
		len += (size_t)n;
	text[len] = '\0';
	close(fds[0]);
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status)
		       ? WEXITSTATUS(status)
		       : -1;
}

/* The value in a line "key=value", or "". Returns buf. */
static const char *value_of(const char *text, const char *key, char buf[32])
{
	size_t n = strlen(key);

	buf[0] = '\0';
	for (const char *p = text; p; p = strchr(p, '\n')) {
		p += *p == '\n';
		if (strncmp(p, key, n) == 0 && p[n] == '=') {
			(void)snprintf(buf, 32, "%.*s", (int)strcspn(p + n + 1, "\n"),
				       p + n + 1);
			break;
		}
	}
	return buf;
}

FORGE_CHECK(forge_check_systemd)
{
	char text[1024], load[32], active[32], sub[32];

	(void)env;				       /* nothing of it is needed */
	if (access("/run/systemd/system", F_OK) < 0) { /* as sd_booted(3) */
		forge_check_say(ret, false, "%s: this host was not started by systemd",
				d->unit);
		return;
	}
	int status = ask_systemctl(d->unit, text, sizeof(text));
	(void)value_of(text, "LoadState", load);
	(void)value_of(text, "ActiveState", active);
	(void)value_of(text, "SubState", sub);
	if (status != 0 || !*active) {
		text[strcspn(text, "\n")] = '\0';
		forge_check_say(ret, false, "%s: %s", d->unit,
				*text ? text : "systemctl failed");
		return;
	}
	ret->numbers = json_pack("{s:o, s:o}", "active", forge_json_text(active), "sub",
				 forge_json_text(sub));
	if (strcmp(load, "not-found") == 0)
		forge_check_say(ret, false, "%s: systemd has no such unit", d->unit);
	else
		/* A unit that reloads its configuration works on. */
		forge_check_say(ret,
				strcmp(active, "active") == 0 ||
					strcmp(active, "reloading") == 0,
				"%s is %s (%s)", d->unit, active, sub);
}
