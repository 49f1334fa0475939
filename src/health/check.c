/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out checks: a process for each, all at the same time, each with its time-out. */
#include "health/check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/parse.h"
#include "base/sys.h"
#include "health/cache.h"

#define ANSWER_MAX (64u << 10)
#define BEGINS	   " " /* which JSON may begin with */
/* How long to wait for a killed check, which may hang on a dead file server. */
#define REAP_MSEC 200

bool forge_check_is_due(const struct forge_check_decl *d, enum forge_phase phase)
{
	if (strcmp(d->kind, "files") == 0)
		return false;
	return phase == FORGE_PHASE_DEMAND || strcmp(d->when, "both") == 0 ||
	       strcmp(d->when, forge_phase_names[phase]) == 0;
}

/* ---- in the process of a check ---- */

/* Descriptors of the process of a check. */
enum { ANSWER_FD = 3, DIR_FD = 4 };

/*
 * The process keeps none of the caller's descriptors: a check that cannot be killed must not hold the lock of
 * a slot. It dies with the caller, which alone would read its answer.
 */
static void begin_child(pid_t parent, int answer_fd, int *dir)
{
	sigset_t none;

	(void)prctl(PR_SET_NAME, "forge-check"); /* for ps(1) */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	(void)signal(SIGINT, SIG_DFL);
	(void)signal(SIGTERM, SIG_DFL);
	(void)signal(SIGHUP, SIG_DFL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int from = fcntl(answer_fd, F_DUPFD_CLOEXEC, DIR_FD + 1);
	int home = *dir < 0 ? -1 : fcntl(*dir, F_DUPFD_CLOEXEC, DIR_FD + 1);
	if (null < 0 || from < 0)
		_exit(1);
	for (int fd = 0; fd < ANSWER_FD; fd++)
		(void)dup2(null, fd);
	(void)dup3(from, ANSWER_FD, O_CLOEXEC);
	if (home >= 0)
		(void)dup3(home, DIR_FD, O_CLOEXEC);
	(void)sys_close_range(home >= 0 ? DIR_FD + 1 : DIR_FD, ~0u, 0);
	*dir = home >= 0 ? DIR_FD : -1;
}

static void answer(const struct forge_check_result *r)
{
	forge_auto_json json_t *j = json_pack(
		"{s:b, s:b, s:o, s:I, s:s, s:O?}", "ok", r->report.is_ok, "reused",
		r->is_reused, "text", forge_json_text(r->report.text), "age",
		(json_int_t)r->age_usec, "time", r->time, "numbers", r->report.numbers);
	forge_auto_free char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;

	if (text)
		(void)!forge_write_all(ANSWER_FD, text, strlen(text)); /* torn: no JSON */
}

/*
 * With every, the processes of several runs take turns by a lock: one carries out the check, the others wait and
 * use its result, unless it ended before they began to wait. The first byte of the answer says that the check itself begins: its time-out
 * counts from then on.
 */
static void be_check(const struct forge_check_env *env, int dir, bool may_reuse,
		     struct forge_check_result *r)
{
	const struct forge_check_kind *kind = forge_check_kind_find(r->decl->kind);
	uint64_t since = forge_check_clock();
	char lock_name[96];
	forge_auto_close int lock = -1;

	(void)snprintf(lock_name, sizeof(lock_name), "%.80s.lock", r->decl->name);
	if (may_reuse && r->decl->every_usec && dir >= 0) {
		struct forge_check_result other;
		lock = forge_lock_file(dir, lock_name, FORGE_LOCK_EXCLUSIVE,
				       FORGE_LOCK_WAIT_FOREVER, -1);
		if (forge_check_recall(dir, r->decl, since, &other) == 1) {
			answer(&other);
			_exit(0);
		}
	}
	(void)!forge_write_all(ANSWER_FD, BEGINS, 1);
	uint64_t begin = forge_now_usec();
	forge_check_say(&r->report, false, "the check said nothing");
	if (kind)
		kind->check(env, r->decl, &r->report);
	else
		forge_check_say(&r->report, false, "this forge was built without kind %s",
				r->decl->kind);
	r->duration_usec = r->age_usec = forge_now_usec() - begin;
	forge_check_remember(dir, r);
	answer(r);
	_exit(0);
}

/* ---- in the caller ---- */

/* A check that is being carried out. */
struct pending {
	struct forge_check_result *result;
	pid_t pid;
	int fd; /* -1: it is over */
	uint64_t begin, deadline;
	uint64_t allowed_usec; /* from its begin on */
	bool has_begun;
	char *text;
	size_t len;
};

static void kill_and_reap(pid_t pid)
{
	forge_auto_close int pidfd = sys_pidfd_open(pid, 0);
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	(void)kill(pid, SIGKILL); /* it has answered, or it hangs */
	if (pidfd >= 0)
		(void)poll(&p, 1, REAP_MSEC); /* after that, a zombie */
	(void)waitpid(pid, NULL, WNOHANG);
}

/* A check that cannot be started has failed; its severity says what follows. */
static void fail_start(struct pending *p, int error)
{
	forge_check_say(&p->result->report, false, "the check could not be started: %s",
			strerror(error));
}

static void start(const struct forge_check_env *env, int dir, bool may_reuse,
		  struct pending *p)
{
	const struct forge_check_kind *kind =
		forge_check_kind_find(p->result->decl->kind);
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0) {
		fail_start(p, errno);
		return;
	}
	pid_t self = getpid(), pid = fork();
	if (pid == 0) {
		begin_child(self, fds[1], &dir);
		be_check(env, dir, may_reuse, p->result);
	}
	if (pid < 0) {
		fail_start(p, errno);
		close(fds[0]);
	} else {
		p->fd = fds[0];
	}
	close(fds[1]);
	p->pid = pid;
	p->begin = forge_now_usec();
	p->allowed_usec = p->result->decl->timeout_usec + (kind ? kind->grace_usec : 0);
	/* At first it may have to wait for the check of another run. */
	p->deadline = p->begin + 2 * p->allowed_usec;
}

static void finish(struct pending *p)
{
	struct forge_check_result *r = p->result;
	forge_auto_json json_t *j = p->text ? json_loadb(p->text, p->len, 0, NULL) : NULL;

	close(p->fd);
	p->fd = -1;
	kill_and_reap(p->pid);
	r->duration_usec = forge_now_usec() - p->begin;
	if (!json_is_object(j)) {
		forge_check_say(&r->report, false, "the check ended without a result");
		return;
	}
	(void)snprintf(r->report.text, sizeof(r->report.text), "%s",
		       forge_json_string_or(j, "text", ""));
	(void)snprintf(r->time, sizeof(r->time), "%s",
		       forge_json_string_or(j, "time", r->time));
	r->report.is_ok = json_is_true(json_object_get(j, "ok"));
	r->is_reused = json_is_true(json_object_get(j, "reused"));
	r->age_usec = (uint64_t)json_integer_value(json_object_get(j, "age"));
	r->report.numbers = json_incref(json_object_get(j, "numbers"));
}

/* Others need not wait for the same: the time-out is a result like any other. */
static void give_up(struct pending *p, int dir)
{
	char limit[FORGE_FORMAT_MAX];
	struct forge_check_result *r = p->result;

	free(p->text);
	p->text = NULL;
	finish(p);
	forge_check_say(&r->report, false, "no answer within %s",
			forge_format_duration(limit, r->decl->timeout_usec));
	r->age_usec = r->duration_usec;
	forge_check_remember(dir, r);
}

/* 0: more may come. 1: that was all. */
static int read_answer(struct pending *p)
{
	char *grown = p->len < ANSWER_MAX ? realloc(p->text, p->len + 4096) : NULL;

	if (!grown)
		return 1;
	p->text = grown;
	ssize_t n = read(p->fd, p->text + p->len, 4096);
	if (n < 0 && errno == EINTR)
		return 0;
	if (n <= 0)
		return 1;
	if (!p->has_begun)
		p->deadline = forge_now_usec() + p->allowed_usec;
	p->has_begun = true;
	p->len += (size_t)n;
	return 0;
}

#define AT_ONCE_MAX 64

/* Waits for the next answer or time-out. 1: all are over. */
static int step(struct pending *pending, size_t n, int dir, int stop_fd)
{
	struct pollfd fds[AT_ONCE_MAX + 1] = { { .fd = stop_fd, .events = POLLIN } };
	struct pending *waits[AT_ONCE_MAX];
	uint64_t now = forge_now_usec(), next = UINT64_MAX;
	size_t n_open = 0;

	for (size_t i = 0; i < n; i++) {
		struct pending *p = &pending[i];
		if (p->fd >= 0 && p->deadline <= now)
			give_up(p, dir);
		if (p->fd < 0)
			continue;
		waits[n_open++] = p;
		fds[n_open] = (struct pollfd){ .fd = p->fd, .events = POLLIN };
		next = p->deadline < next ? p->deadline : next;
	}
	if (n_open == 0)
		return 1;
	if (poll(fds, n_open + 1, (int)((next - now) / 1000) + 1) < 0 && errno != EINTR)
		return -errno;
	if (fds[0].revents)
		return -ECANCELED;
	for (size_t i = 0; i < n_open; i++)
		if (fds[i + 1].revents && read_answer(waits[i]) == 1)
			finish(waits[i]);
	return 0;
}

static int carry_out(const struct forge_check_env *env, int dir, bool may_reuse,
		     struct forge_check_result **due, size_t n, int stop_fd,
		     struct forge_error *err)
{
	struct pending pending[AT_ONCE_MAX];
	int rc = 0;

	for (size_t i = 0; i < n; i++)
		pending[i] = (struct pending){ .result = due[i], .fd = -1 };
	for (size_t i = 0; i < n; i++)
		start(env, dir, may_reuse, &pending[i]);
	while (rc == 0)
		rc = step(pending, n, dir, stop_fd);
	for (size_t i = 0; i < n; i++) {
		if (pending[i].fd >= 0)
			finish(&pending[i]);
		free(pending[i].text);
	}
	if (rc == 1)
		return 0;
	return rc == -ECANCELED || (err && err->code)
		       ? rc
		       : forge_fail_errno(err, -rc, "wait for checks");
}

int forge_checks_run(const struct forge_check_env *env, enum forge_phase phase,
		     const char *name, int stop_fd, struct forge_check_results *ret,
		     struct forge_error *err)
{
	const struct forge_health_config *h = &env->cfg->health;
	struct forge_check_result *due[AT_ONCE_MAX];
	bool may_reuse = phase != FORGE_PHASE_DEMAND;
	forge_auto_check_results struct forge_check_results r = { 0 };
	forge_auto_close int dir = forge_home_subdir(env->home, "health", NULL);
	size_t n = 0;
	int rc = 0;

	r.v = calloc(h->n_checks + 1, sizeof(*r.v));
	if (!r.v)
		return forge_fail(err, ENOMEM, "out of memory");
	for (size_t i = 0; i < h->n_checks && rc == 0; i++) {
		const struct forge_check_decl *d = &h->checks[i];
		if (!forge_check_is_due(d, phase) || (name && strcmp(name, d->name) != 0))
			continue;
		struct forge_check_result *one = &r.v[r.n++];
		*one = (struct forge_check_result){ .decl = d };
		(void)forge_format_now(one->time);
		if (may_reuse && forge_check_recall(dir, d, UINT64_MAX, one) == 1)
			continue;
		due[n++] = one;
		if (n == AT_ONCE_MAX) {
			rc = carry_out(env, dir, may_reuse, due, n, stop_fd, err);
			n = 0;
		}
	}
	if (rc == 0 && n)
		rc = carry_out(env, dir, may_reuse, due, n, stop_fd, err);
	if (rc == 0) {
		*ret = r;
		r = (struct forge_check_results){ 0 };
	}
	return rc;
}
