/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks each promise in a throw-away sandbox, with its own state directory that is removed
 * afterwards. A promise counts only if its attack was just seen to fail.
 */
#include "doctor/doctor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/helper.h"
#include "base/json.h"
#include "base/rmtree.h"
#include "base/strv.h"
#include "config-build.h"
#include "doctor/checks.h"
#include "run/run.h"

struct doctor {
	struct forge_config cfg; /* the caller's, but every mechanism may be missing */
	char top[40];		 /* throw-away directory */
	char home[48];		 /* its FORGE_HOME */
	char secret[48];
	char gift[48], fifo[56]; /* an input with a pipe in it */
	int fifo_fd;		 /* a reader, so that writing would work */
	int socket_fd;		 /* listens on the abstract socket named mark */
	char mark[32];
	char probe[PATH_MAX];
	const char *executor; /* NULL: this machine */
	unsigned missing;
	char fix[512]; /* for the first missing mechanism */
};

/* Opens an abstract socket of the host, which every process in its network could reach. */
static int listen_abstract(const char *name)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	socklen_t len =
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(sa.sun_path + 1, name, strlen(name));
	if (fd >= 0 && (bind(fd, (struct sockaddr *)&sa, len) < 0 || listen(fd, 1) < 0)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int make_top(struct doctor *d, struct forge_error *err)
{
	(void)snprintf(d->top, sizeof(d->top), "/tmp/forge-doctor-XXXXXX");
	if (!mkdtemp(d->top))
		return forge_fail_errno(err, errno, "make %s", d->top);
	(void)snprintf(d->home, sizeof(d->home), "%s/home", d->top);
	(void)snprintf(d->secret, sizeof(d->secret), "%s/secret", d->top);
	(void)snprintf(d->gift, sizeof(d->gift), "%s/gift", d->top);
	(void)snprintf(d->fifo, sizeof(d->fifo), "%s/pipe", d->gift);
	(void)snprintf(d->mark, sizeof(d->mark), "mark-%s", d->top + strlen(d->top) - 6);
	forge_auto_close int fd =
		open(d->secret, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	int rc = fd < 0 ? -errno : forge_write_all(fd, d->mark, strlen(d->mark));
	/* Readable and writable for all users: only the sandbox may stop the attacks. */
	if (rc < 0 || chmod(d->top, 0755) < 0 || mkdir(d->gift, 0755) < 0 ||
	    chmod(d->gift, 0755) < 0 || mkfifo(d->fifo, 0666) < 0 ||
	    chmod(d->fifo, 0666) < 0)
		return forge_fail_errno(err, rc < 0 ? -rc : errno, "fill %s", d->top);
	d->fifo_fd = open(d->fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	d->socket_fd = listen_abstract(d->mark);
	return setenv("FORGE_HOME", d->home, 1) < 0
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : 0;
}

static void remove_top(struct doctor *d)
{
	struct stat st;

	if (d->fifo_fd >= 0)
		close(d->fifo_fd);
	if (d->socket_fd >= 0)
		close(d->socket_fd);
	if (stat(d->top, &st) == 0)
		/* A failure only leaves files in /tmp. */
		(void)!forge_rmtree(d->top, st.st_dev, st.st_ino, NULL, NULL);
}

/*
 * In a build tree below our home, the run sees the path to the probe, so our home exists inside
 * too.
 */
static const char *hidden_home(const struct doctor *d)
{
	const char *home = getenv("HOME");

	return home && *home == '/' && strncmp(d->probe, home, strlen(home)) != 0
		       ? home
		       : "/root";
}

static const char *word(const struct doctor *d, const char *w, char pid[16])
{
	if (strcmp(w, FORGE_DOCTOR_PROBE) == 0)
		return d->probe;
	if (strcmp(w, FORGE_DOCTOR_SECRET) == 0)
		return d->secret;
	if (strcmp(w, FORGE_DOCTOR_FIFO) == 0)
		return d->fifo;
	if (strcmp(w, FORGE_DOCTOR_SOCKET) == 0)
		return d->mark;
	if (strcmp(w, FORGE_DOCTOR_MARK) == 0)
		return d->mark;
	if (strcmp(w, FORGE_DOCTOR_HOME) == 0)
		return hidden_home(d);
	if (strcmp(w, FORGE_DOCTOR_PID) != 0)
		return w;
	(void)snprintf(pid, 16, "%ld", (long)getpid());
	return pid;
}

static int run_probe(const struct doctor *d, const struct forge_doctor_row *row,
		     struct forge_run_result *ret, struct forge_error *err)
{
	char pid[16];
	char *argv[8] = { (char *)d->probe };
	struct forge_run_request req = { .limits = row->limits,
					 .network = row->network,
					 .executor = d->executor,
					 .stdout_fd = -1,
					 .stderr_fd = -1,
					 .argv = argv };
	char *inputs[] = { (char *)d->gift, NULL };
	char store[80];

	/* Throw-away runs must not appear in the user's store. */
	(void)snprintf(store, sizeof(store), "sqlite:%s/forge.db", d->home);
	req.store = store;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(row->attack) && row->attack[i]; i++) {
		argv[i + 1] = (char *)word(d, row->attack[i], pid);
		if (argv[i + 1] == d->fifo)
			req.inputs = (struct forge_strv){ inputs, 1, 0 };
	}
	if (!req.limits.wall_usec)
		req.limits.wall_usec = 20 * 1000000ULL;
	return forge_run(&d->cfg, &req, ret, err);
}

/* Reads the probe's one line of output. */
static void read_answer(const json_t *record, char *ret, size_t size)
{
	const char *path = NULL;

	ret[0] = '\0';
	if (json_unpack((json_t *)record, "{s:{s:s}}", "logs", "stdout", &path) == 0 &&
	    forge_read_at(AT_FDCWD, path, ret, size) > 0)
		ret[strcspn(ret, "\n")] = '\0';
}

static bool is_reason(const json_t *record, const char *reason)
{
	const char *s = forge_json_string(record, "reason");

	return s && strcmp(s, reason) == 0;
}

static bool is_within_share(const json_t *record, const struct forge_limits *l)
{
	double cpu = 0, wall = 0;

	(void)json_unpack((json_t *)record, "{s:{s:F, s:F}}", "usage", "cpu_seconds",
			  &cpu, "wall_seconds", &wall);
	/* At most one 100 ms period more than its share. */
	return wall > 0 && cpu > 0 && cpu <= wall * (double)l->cpus_milli / 1000 + 0.1;
}

/* Does any process on this host have that word in its command line? */
static bool is_running(const char *name)
{
	forge_auto_dir DIR *proc = opendir("/proc");

	for (struct dirent *e; proc && (e = readdir(proc));) {
		char path[300], line[256];
		if (e->d_name[0] < '1' || e->d_name[0] > '9')
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
		ssize_t n = forge_read_at(AT_FDCWD, path, line, sizeof(line));
		for (ssize_t i = 0; i < n && atol(e->d_name) != (long)getpid();
		     i += (ssize_t)strlen(line + i) + 1)
			if (strcmp(line + i, name) == 0)
				return true;
	}
	return false;
}

static bool holds(const struct forge_doctor_row *row, const struct forge_run_result *res,
		  const char *answer)
{
	switch (row->want) {
	case FORGE_WANT_HELD:
		return res->exit_status == 0 && strncmp(answer, "held:", 5) == 0;
	case FORGE_WANT_REASON:
		return is_reason(res->record, row->reason);
	case FORGE_WANT_SHARE:
		return is_within_share(res->record, &row->limits);
	case FORGE_WANT_GONE:
		return !is_running(row->attack[1]);
	}
	return false;
}

static void attack(const struct doctor *d, const struct forge_doctor_row *row,
		   struct forge_doctor_check *c)
{
	struct forge_run_result res = { 0 };
	struct forge_error err = FORGE_ERROR_INIT;
	char answer[sizeof(c->detail)];

	if (run_probe(d, row, &res, &err) < 0) {
		c->state = FORGE_DOCTOR_CANNOT;
		(void)snprintf(c->detail, sizeof(c->detail), "%s", err.msg);
		(void)snprintf(c->fix, sizeof(c->fix), "%s", err.hint);
		return;
	}
	read_answer(res.record, answer, sizeof(answer));
	if (strlen(answer) > 96) /* enough to see what was tried */
		memcpy(answer + 93, "...", 4);
	c->state = holds(row, &res, answer)	? FORGE_DOCTOR_PASS
		   : d->executor && row->is_own ? FORGE_DOCTOR_CANNOT
						: FORGE_DOCTOR_BROKEN;
	const char *notes = forge_json_string(res.record, "completion_notes");
	bool is_by_answer = row->want == FORGE_WANT_HELD && *answer;
	(void)snprintf(c->detail, sizeof(c->detail), "%s",
		       is_by_answer ? answer
		       : notes	    ? notes
				    : "no record");
	if (c->state == FORGE_DOCTOR_BROKEN)
		(void)snprintf(c->fix, sizeof(c->fix),
			       "Report this: the mechanism is there and the "
			       "attack succeeded");
	json_decref(res.record);
}

/* Learns from one run what this host lacks. If no cgroup works, goes on without one. */
static int learn_missing(struct doctor *d, struct forge_error *err)
{
	/* The host's network needs one mechanism more than no network. */
	const struct forge_doctor_row row = { .attack = { "identity" },
					      .network = d->executor ? NULL : "host" };

	for (int tries = 0; tries < 2; tries++) {
		struct forge_run_result res = { 0 };
		int rc = run_probe(d, &row, &res, err);
		if (rc < 0)
			return rc;
		const char *status = forge_json_string(res.record, "status");
		const char *notes = forge_json_string(res.record, "completion_notes");
		bool has_run = status && strcmp(status, "rejected") != 0 &&
			       res.exit_status != 125;
		if (!has_run)
			(void)snprintf(d->fix, sizeof(d->fix), "%s", notes ? notes : "");
		json_t *list = NULL;
		(void)json_unpack(res.record, "{s:{s:o}}", "isolation", "missing", &list);
		for (unsigned i = 0; i < FORGE_MECH_COUNT; i++) {
			size_t k;
			json_t *name;
			json_array_foreach (list, k, name)
				if (strcmp(json_string_value(name),
					   forge_mechanism_names[i]) == 0)
					d->missing |= 1u << i;
		}
		json_decref(res.record);
		if (has_run || tries == 1 || d->cfg.cgroup == FORGE_CGROUP_NONE)
			return has_run ? 0 : forge_fail(err, EOPNOTSUPP, "%s", d->fix);
		d->cfg.cgroup = FORGE_CGROUP_NONE;
	}
	return 0;
}

static const char *fix_for(const struct doctor *d, unsigned lacking)
{
	if (lacking & (1u << FORGE_MECH_LANDLOCK))
		return "Boot with landlock in lsm= (CONFIG_SECURITY_LANDLOCK, Linux 5.13 "
		       "or newer)";
	if (lacking & (1u << FORGE_MECH_LANDLOCK_SCOPE))
		return "Linux 6.12 or newer has Landlock scopes; until then runs with "
		       "--network host "
		       "are refused, all others are not concerned";
	return *d->fix ? d->fix
		       : "As root, forge setup; or mount or delegate the cgroup "
			 "controller "
			 "(docs/HOSTS.md)";
}

static void check(const struct doctor *d, const struct forge_doctor_row *row,
		  struct forge_doctor_check *c)
{
	unsigned lacking = row->needs & d->missing;

	*c = (struct forge_doctor_check){ .promise = row->promise, .about = row->about };
	(void)snprintf(c->mechanism, sizeof(c->mechanism), "%s", row->mechanism);
	if (!lacking) {
		attack(d, row, c);
		return;
	}
	c->state = FORGE_DOCTOR_CANNOT;
	(void)snprintf(c->detail, sizeof(c->detail), "not available here to this user");
	/* The refusal says what is wrong; root can fix it with one command. */
	const char *fix = fix_for(d, lacking);
	bool is_ours = lacking & FORGE_MECH_ALL_CGROUP && geteuid() != 0 &&
		       !strstr(fix, "forge setup");
	(void)snprintf(c->fix, sizeof(c->fix), "%s%s",
		       is_ours ? "As root: forge setup --user NAME. " : "", fix);
}

static int check_all(struct doctor *d, struct forge_doctor_report *ret,
		     struct forge_error *err)
{
	int rc = learn_missing(d, err);
	size_t n = 0;

	if (rc < 0)
		return rc;
	while (forge_doctor_rows[n].promise)
		n++;
	ret->checks = calloc(n, sizeof(*ret->checks));
	if (!ret->checks)
		return forge_fail(err, ENOMEM, "out of memory");
	ret->n = n;
	ret->level = "full";
	for (size_t i = 0; i < n; i++) {
		check(d, &forge_doctor_rows[i], &ret->checks[i]);
		if (ret->checks[i].state == FORGE_DOCTOR_PASS)
			continue;
		bool is_expected = d->executor && forge_doctor_rows[i].is_own;
		if (!is_expected)
			ret->level = "partial";
		else if (strcmp(ret->level, "full") == 0)
			ret->level = "container";
	}
	return 0;
}

int forge_doctor(const struct forge_config *cfg, const char *executor,
		 struct forge_doctor_report *ret, struct forge_error *err)
{
	struct doctor d = { .cfg = *cfg, .fifo_fd = -1, .socket_fd = -1 }; /* borrowed */
	forge_auto_free char *before =
		getenv("FORGE_HOME") ? strdup(getenv("FORGE_HOME")) : NULL;

	d.executor = executor;
	/* On this machine it is found out what is missing. Elsewhere a run without its limits is refused. */
	if (!executor)
		d.cfg.allow_missing = ~0u;
	int rc = forge_helper_find("forge-probe", "../probe", d.probe, err);
	if (rc == 0)
		rc = make_top(&d, err);
	if (rc == 0)
		rc = check_all(&d, ret, err);
	if (*d.top)
		remove_top(&d);
	if (before)
		(void)setenv("FORGE_HOME", before, 1);
	else
		(void)unsetenv("FORGE_HOME");
	return rc;
}

void forge_doctor_report_done(struct forge_doctor_report *r)
{
	free(r->checks);
	r->checks = NULL;
	r->n = 0;
}
