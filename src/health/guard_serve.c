/* SPDX-License-Identifier: Apache-2.0 */
/* The process that watches guarded files: sessions of runs, and which event concerns which of them. */
#include "health/guard_serve.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/strv.h"
#include "health/ancestry.h"
#include "health/change.h"
#include "health/fan.h"
#include "health/guard_watch.h"
#include "health/owner.h"
#include "health/snapshot.h"

/* How long the process waits for another run before it ends. */
#define IDLE_USEC 2000000ull
/* A supervisor that does not finish a message is not waited for. */
#define MESSAGE_SECONDS 5
#define SESSIONS_MAX	4096
#define LINKS_MAX	4096
#define TRIES_MAX	3
/*
 * Events wait so long for others: the kernel merges those of one process and one file, and a program that
 * writes often is not delayed by a reader for each of its writes. The queue has room for more than can happen
 * in that time.
 */
#define REST_USEC 5000ull

/* A file that was changed by a name that is not guarded. It may have another one. */
struct link {
	uint64_t dev, ino;
	enum forge_author by;
	enum forge_change_kind what;
	char process[FORGE_PROCESS_MAX];
};

/* One run. */
struct session {
	int fd;
	pid_t supervisor;
	char *word, *workdir;
	struct forge_guard_set set;
	struct forge_changes changes;
	struct timespec since;
	bool has_lost;	 /* events were lost since it began */
	unsigned losses; /* of forks, before it began */
	struct link *links;
	size_t n_links;
	unsigned n_tries; /* to ignore writes in its workdir */
};

struct server {
	int listener;
	struct forge_fan *fan;
	struct forge_ancestry *ancestry;
	struct session *sessions;
	struct forge_owner *owners; /* of the same indices */
	size_t n;
	uint64_t idle_until;  /* when it ends, unless a run comes */
	uint64_t rests_until; /* until then events may wait */
};

static void session_done(struct session *s)
{
	close(s->fd);
	free(s->word);
	free(s->workdir);
	free(s->links);
	forge_guard_set_done(&s->set);
	forge_changes_done(&s->changes);
}

static void drop(struct server *v, size_t i)
{
	forge_fan_report_names(v->fan); /* its workdir may stay, and be anything then */
	session_done(&v->sessions[i]);
	v->n--;
	memmove(&v->sessions[i], &v->sessions[i + 1], (v->n - i) * sizeof(*v->sessions));
	memmove(&v->owners[i], &v->owners[i + 1], (v->n - i) * sizeof(*v->owners));
}

/* ---- events ---- */

/* Who did it is asked when the first session wants to know. */
struct asking {
	struct server *server;
	const struct forge_fan_event *event;
	int owner;
	bool is_known;
	char process[FORGE_PROCESS_MAX];
};

static int owner_of(struct asking *q)
{
	if (!q->is_known)
		q->owner = forge_owner_find(q->server->ancestry, q->server->owners,
					    q->server->n, q->event->pid, q->event->pidfd,
					    q->process);
	q->is_known = true;
	return q->owner;
}

/* As this session sees it, and who that is, for people. False: forge itself did it. */
static bool author_of(struct asking *q, size_t session, enum forge_author *ret,
		      char who[FORGE_PROCESS_MAX])
{
	int owner = owner_of(q);

	*ret = owner == (int)session	      ? FORGE_AUTHOR_RUN
	       : owner == FORGE_OWNER_UNKNOWN ? FORGE_AUTHOR_UNKNOWN
					      : FORGE_AUTHOR_OTHER;
	/* The kernel may close a file for a process that is gone. */
	if (owner == FORGE_OWNER_KERNEL && q->event->what == FORGE_FAN_CLOSE_WRITE)
		*ret = FORGE_AUTHOR_UNKNOWN;
	if (owner >= 0 && owner != (int)session)
		(void)snprintf(who, FORGE_PROCESS_MAX, "run %s",
			       q->server->sessions[owner].word + strlen("forge-"));
	else
		memcpy(who, q->process, FORGE_PROCESS_MAX);
	return owner != FORGE_OWNER_FORGE;
}

static enum forge_change_kind kind_of(unsigned what)
{
	return what & FORGE_FAN_CREATE	 ? FORGE_CHANGE_CREATED
	       : what & FORGE_FAN_DELETE ? FORGE_CHANGE_DELETED
	       : what & FORGE_FAN_RENAME ? FORGE_CHANGE_RENAMED
	       : what & FORGE_FAN_MODIFY ? FORGE_CHANGE_MODIFIED
	       : what & FORGE_FAN_ATTRIB ? FORGE_CHANGE_ATTRIBUTES
					 : FORGE_CHANGE_OPENED;
}

static bool is_before(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec < b->tv_sec ||
	       (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/*
 * A file that was open for writing, and no write was reported: it may have been written through a mapping,
 * which only its times tell, and on tmpfs nothing. False: it was not.
 */
static bool was_written(const struct forge_fan_event *e, const struct session *s,
			enum forge_change_kind *ret)
{
	forge_auto_close int fd = forge_fan_target(e);
	struct stat st;
	struct statfs fs;

	*ret = FORGE_CHANGE_OPENED;
	if (fd < 0 || fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return true;
	if (!is_before(&st.st_ctim, &s->since)) {
		*ret = FORGE_CHANGE_MODIFIED;
		return true;
	}
	return fs.f_type == TMPFS_MAGIC;
}

static void note_change(struct asking *q, size_t i, const char *path)
{
	struct session *s = &q->server->sessions[i];
	enum forge_change_kind what = kind_of(q->event->what);
	enum forge_author by;
	char who[FORGE_PROCESS_MAX];

	if (!author_of(q, i, &by, who))
		return;
	s->changes.set = &s->set; /* sessions move in memory */
	if (what == FORGE_CHANGE_OPENED) {
		if (forge_changes_has(&s->changes, path, by) ||
		    !was_written(q->event, s, &what))
			return;
		/* The times may be due to another writer. */
		if (what == FORGE_CHANGE_MODIFIED && by == FORGE_AUTHOR_RUN &&
		    forge_changes_has(&s->changes, path, FORGE_AUTHOR_OTHER))
			by = FORGE_AUTHOR_UNKNOWN;
	}
	forge_changes_add(&s->changes, path, what, by, who);
}

/* Its guarded name is looked for at the end. */
static void note_link(struct asking *q, size_t i, const struct statx *st)
{
	struct session *s = &q->server->sessions[i];
	uint64_t dev = makedev(st->stx_dev_major, st->stx_dev_minor);
	enum forge_author by;
	char who[FORGE_PROCESS_MAX];

	for (size_t k = 0; k < s->n_links; k++)
		if (s->links[k].ino == st->stx_ino && s->links[k].dev == dev)
			return;
	if (!author_of(q, i, &by, who) || by == FORGE_AUTHOR_OTHER)
		return;
	struct link *grown =
		s->n_links < LINKS_MAX
			? reallocarray(s->links, s->n_links + 1, sizeof(*grown))
			: NULL;
	if (!grown) {
		s->has_lost = true; /* and the times of the files decide */
		return;
	}
	s->links = grown;
	struct link *one = &grown[s->n_links++];
	*one = (struct link){
		.dev = dev, .ino = st->stx_ino, .by = by, .what = kind_of(q->event->what)
	};
	if (one->what == FORGE_CHANGE_OPENED)
		one->what = FORGE_CHANGE_MODIFIED;
	memcpy(one->process, who, sizeof(who));
}

/* The run in whose workdir the file is, or NULL. */
static struct session *find_workdir(const struct server *v,
				    const struct forge_fan_event *e)
{
	for (size_t i = 0; i < v->n && e->n > 0; i++)
		if (v->sessions[i].workdir &&
		    forge_path_is_below(e->paths[0], v->sessions[i].workdir))
			return &v->sessions[i];
	return NULL;
}

/*
 * A run writes in its workdir. Its sandbox has a mount of its own for that, on which writes need not be
 * reported. The run may lead us elsewhere; so that mount must show the workdir and nothing else.
 */
static void ignore_workdir(struct server *v, struct session *s,
			   const struct forge_fan_event *e)
{
	forge_auto_free char *inner = forge_asprintf("%s/work", s->workdir);
	forge_auto_free char *path =
		forge_asprintf("/proc/%d/root%s", (int)e->pid, s->workdir);
	forge_auto_close int fd =
		path ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
	struct statx st;
	struct stat own;

	s->n_tries++;
	if (fd < 0 || !inner || lstat(inner, &own) < 0 ||
	    statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) < 0 ||
	    !(st.stx_attributes & STATX_ATTR_MOUNT_ROOT) || st.stx_ino != own.st_ino ||
	    makedev(st.stx_dev_major, st.stx_dev_minor) != own.st_dev)
		return;
	forge_fan_ignore_writes(v->fan, fd);
	s->n_tries = TRIES_MAX;
}

/* Is something guarded in this directory, or is all of it? */
static bool is_guarded_near(const struct server *v, const char *dir)
{
	for (size_t i = 0; i < v->n; i++)
		forge_strv_foreach (top, &v->sessions[i].set.tops)
			if (forge_path_is_below(top, dir) ||
			    forge_path_is_below(dir, top))
				return true;
	return false;
}

/*
 * Files that a run makes and deletes in its workdir need not be reported: a link to a file from elsewhere is seen as a
 * change of that file, and what leaves the workdir is renamed.
 */
static void ignore_names(struct server *v, const struct forge_fan_event *e)
{
	bool is_name = e->what & (FORGE_FAN_CREATE | FORGE_FAN_DELETE) &&
		       !(e->what & FORGE_FAN_DIR);
	const struct session *here = is_name ? find_workdir(v, e) : NULL;

	if (here && !is_guarded_near(v, here->workdir))
		forge_fan_ignore_names(e);
}

/* Can the file have a name that the event does not tell? Looks at it, too. */
static bool may_have_another_name(const struct forge_fan_event *e, struct statx *ret)
{
	forge_auto_close int fd = forge_fan_target(e);
	struct stat named;

	if (fd < 0 ||
	    statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, ret) < 0)
		return false;
	if (ret->stx_nlink != 1 || e->n == 0)
		return ret->stx_nlink > 0;
	/* It had another one until just now, when it is not found by this one. */
	return lstat(e->paths[0], &named) < 0 || named.st_ino != ret->stx_ino;
}

/*
 * A file that did not exist when the run began has no name that was guarded then; and names that were made
 * since are reported as such.
 */
static bool is_new(const struct session *s, const struct statx *st)
{
	const struct timespec born = { st->stx_btime.tv_sec, st->stx_btime.tv_nsec };

	return st->stx_mask & STATX_BTIME && !is_before(&born, &s->since) &&
	       s->changes.n[FORGE_AUTHOR_OTHER] == 0;
}

/* What was done to a file by a name that is not guarded. */
static void visit_unguarded(struct asking *q, const bool *is_guarded)
{
	const struct forge_fan_event *e = q->event;
	struct statx st;

	if (e->what &
	    (FORGE_FAN_DIR | FORGE_FAN_RENAME | FORGE_FAN_DELETE | FORGE_FAN_CREATE))
		return;
	/* A name in a workdir for a file from elsewhere is made with another event, which has no name. */
	struct session *here = find_workdir(q->server, e);
	if (here && here->n_tries < TRIES_MAX &&
	    e->what & (FORGE_FAN_MODIFY | FORGE_FAN_CLOSE_WRITE))
		ignore_workdir(q->server, here, e);
	if (here || !may_have_another_name(e, &st))
		return;
	for (size_t i = 0; i < q->server->n; i++)
		if (!is_guarded[i] && !is_new(&q->server->sessions[i], &st))
			note_link(q, i, &st);
}

static bool concerns(const struct session *s, const struct forge_fan_event *e,
		     const char *path)
{
	bool moves = e->what & (FORGE_FAN_RENAME | FORGE_FAN_DELETE);
	bool moves_dir = e->what & FORGE_FAN_RENAME && e->what & FORGE_FAN_DIR;

	return forge_guard_has(&s->set, path) ||
	       (moves && forge_guard_is_above(&s->set, path)) ||
	       (moves_dir && forge_guard_may_move(&s->set, path));
}

static void visit(const struct forge_fan_event *e, void *arg)
{
	struct asking q = { .server = arg, .event = e };
	bool is_guarded[SESSIONS_MAX];
	bool by_all = true, by_any = false;

	for (size_t i = 0; i < q.server->n; i++) {
		is_guarded[i] = false;
		for (size_t k = 0; k < e->n; k++)
			if (concerns(&q.server->sessions[i], e, e->paths[k])) {
				note_change(&q, i, e->paths[k]);
				is_guarded[i] = true;
			}
		by_all &= is_guarded[i];
		by_any |= is_guarded[i];
	}
	if (!by_any)
		ignore_names(q.server, e);
	if (!by_all)
		visit_unguarded(&q, is_guarded);
}

/* All events up to now. */
static void drain(struct server *v)
{
	int rc;

	while ((rc = forge_fan_read(v->fan, visit, v)) == -EOVERFLOW)
		for (size_t i = 0; i < v->n; i++)
			v->sessions[i].has_lost = true;
	for (size_t i = 0; rc < 0 && i < v->n; i++)
		v->sessions[i].has_lost = true;
}

/* ---- sessions ---- */

static void refuse(int fd, const struct forge_error *why)
{
	forge_auto_json json_t *j = json_pack("{s:s}", "error", why->msg);

	(void)!forge_guard_send(fd, j); /* it may be gone */
}

/* Where changes cannot be seen the supervisor compares. */
static json_t *watch_tops(struct server *v, const struct forge_guard_set *set)
{
	json_t *unwatched = json_array();

	forge_strv_foreach (top, &set->tops) {
		struct forge_error why = FORGE_ERROR_INIT;
		if (forge_fan_watch(v->fan, top, &why) < 0)
			json_array_append_new(unwatched, json_pack("{s:o, s:s}", "path",
								   forge_json_name(top),
								   "why", why.msg));
	}
	return unwatched;
}

static int add_session(struct server *v, int fd, const json_t *hello,
		       struct forge_error *err)
{
	struct session s = { .fd = fd };
	struct ucred peer = { 0 };
	socklen_t size = sizeof(peer);
	const char *word = forge_json_string(hello, "word");
	const char *workdir = forge_json_string(hello, "workdir");
	struct session *grown =
		v->n < SESSIONS_MAX ? reallocarray(v->sessions, v->n + 1, sizeof(*grown))
				    : NULL;
	if (grown)
		v->sessions = grown;
	struct forge_owner *owners =
		grown ? reallocarray(v->owners, v->n + 1, sizeof(*owners)) : NULL;
	if (owners)
		v->owners = owners;
	if (!owners || forge_changes_init(&s.changes) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	if (!word || strncmp(word, "forge-", 6) != 0 ||
	    forge_guard_set_parse(json_object_get(hello, "set"), &s.set) < 0) {
		forge_changes_done(&s.changes);
		return forge_fail(err, EPROTO, "that is no request of this version");
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
		s.supervisor = peer.pid;
	s.word = strdup(word);
	s.workdir = workdir ? strdup(workdir) : NULL;
	s.losses = forge_ancestry_losses(v->ancestry);
	/* The clock of the files is behind that of clock_gettime(CLOCK_REALTIME). */
	clock_gettime(CLOCK_REALTIME_COARSE, &s.since);
	v->sessions[v->n] = s;
	v->owners[v->n++] = (struct forge_owner){ .word = s.word ? s.word : "",
						  .supervisor = s.supervisor };
	/* It may guard what lies in another one's workdir. From here on that is not made quiet. */
	forge_fan_report_names(v->fan);
	return 0;
}

static void begin_session(struct server *v, int fd)
{
	struct forge_error why = FORGE_ERROR_INIT;
	struct timeval limit = { .tv_sec = MESSAGE_SECONDS };
	forge_auto_json json_t *hello = NULL;

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	/* Nothing from before its begin concerns it. */
	drain(v);
	forge_ancestry_update(v->ancestry);
	if (forge_guard_receive(fd, &hello) < 0) {
		close(fd);
		return;
	}
	if (add_session(v, fd, hello, &why) < 0) {
		refuse(fd, &why);
		close(fd);
		return;
	}
	forge_auto_json json_t *answer =
		json_pack("{s:b, s:o}", "ok", 1, "unwatched",
			  watch_tops(v, &v->sessions[v->n - 1].set));
	if (forge_guard_send(fd, answer) < 0)
		drop(v, v->n - 1);
}

static void resolve_links(struct session *s)
{
	forge_auto_snapshot struct forge_snapshot now = { 0 };

	s->changes.set = &s->set;
	if (s->n_links == 0)
		return;
	if (forge_snapshot_take(&s->set, &now, NULL) < 0) {
		s->has_lost = true;
		return;
	}
	for (size_t i = 0; i < s->n_links; i++) {
		const struct link *l = &s->links[i];
		forge_auto_free char *path = forge_snapshot_find(&now, l->dev, l->ino);
		if (path)
			forge_changes_add(&s->changes, path, l->what, l->by, l->process);
	}
}

static void end_session(struct server *v, size_t i)
{
	struct session *s = &v->sessions[i];

	drain(v);
	resolve_links(s);
	forge_auto_json json_t *answer =
		json_pack("{s:o, s:b, s:b}", "changes", forge_changes_json(&s->changes),
			  "lost", s->has_lost, "forks_lost",
			  s->losses != forge_ancestry_losses(v->ancestry));
	(void)!forge_guard_send(s->fd, answer); /* it may be gone */
}

static int note_init(struct server *v, size_t i, pid_t init)
{
	forge_auto_json json_t *answer = json_pack("{s:b}", "ok", 1);

	v->owners[i].init = init;
	return forge_guard_send(v->sessions[i].fd, answer);
}

static void serve_session(struct server *v, size_t i)
{
	forge_auto_json json_t *message = NULL;
	bool is_there = forge_guard_receive(v->sessions[i].fd, &message) == 0;
	pid_t init = (pid_t)json_integer_value(json_object_get(message, "init"));

	if (is_there && init > 1 && note_init(v, i, init) == 0)
		return;
	if (is_there && json_is_true(json_object_get(message, "end")))
		end_session(v, i);
	drop(v, i);
}

/* ---- the process ---- */

/* 1: it is over. */
static int step(struct server *v)
{
	size_t n = v->n;
	uint64_t now = forge_now_usec();

	if (n > 0)
		v->idle_until = now + IDLE_USEC;
	if (now >= v->idle_until)
		return 1;
	struct pollfd *p = calloc(n + 3, sizeof(*p));

	if (!p)
		return -ENOMEM;
	bool rests = now < v->rests_until;
	p[0] = (struct pollfd){ .fd = v->listener, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = rests ? -1 : forge_fan_fd(v->fan),
				.events = POLLIN };
	p[2] = (struct pollfd){ .fd = rests ? -1 : forge_ancestry_fd(v->ancestry),
				.events = POLLIN };
	for (size_t i = 0; i < n; i++)
		p[i + 3] = (struct pollfd){ .fd = v->sessions[i].fd, .events = POLLIN };
	uint64_t until = rests ? v->rests_until : v->idle_until;
	int got = poll(p, n + 3, n && !rests ? -1 : (int)((until - now) / 1000) + 1);
	int rc = got < 0 && errno != EINTR ? -errno : 0;
	if (got > 0 && p[2].revents)
		forge_ancestry_update(v->ancestry);
	if (got > 0 && p[1].revents)
		drain(v);
	if (got > 0 && (p[1].revents || p[2].revents))
		v->rests_until = forge_now_usec() + REST_USEC;
	/* From the end: one that ends moves those behind it. */
	for (size_t i = n; got > 0 && i-- > 0;)
		if (p[i + 3].revents)
			serve_session(v, i);
	if (got > 0 && p[0].revents) {
		int fd = accept4(v->listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			begin_session(v, fd);
	}
	free(p);
	return rc;
}

/*
 * Events are lost when they are not read for long, as on a host where all CPUs are busy. There is little to do
 * for each; so it is done before anything else. Priorities count only within a cgroup.
 */
static void hurry(void)
{
	const struct sched_param least = { .sched_priority = 1 };

	if (sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &least) < 0)
		(void)setpriority(PRIO_PROCESS, 0, -10);
}

/* Each event comes with a descriptor of its process. */
static void raise_descriptors(void)
{
	struct rlimit most;

	if (getrlimit(RLIMIT_NOFILE, &most) < 0)
		return;
	most.rlim_cur = most.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &most); /* without it, more is found by ancestry */
}

int forge_guard_serve(const struct forge_home *home, void (*on_ready)(void *arg),
		      void *arg, struct forge_error *err)
{
	struct server v = { .listener = -1, .idle_until = forge_now_usec() + IDLE_USEC };
	forge_auto_close int dir = forge_home_subdir(home, FORGE_GUARD_DIR, err);
	forge_auto_close int lock =
		dir < 0 ? -1
			: forge_lock_file(dir, FORGE_GUARD_LOCK, FORGE_LOCK_EXCLUSIVE,
					  FORGE_LOCK_NO_WAIT, -1);
	int rc = lock < 0 ? (dir < 0 ? dir : lock) : forge_fan_open(&v.fan, err);

	hurry();
	raise_descriptors();
	if (rc == 0)
		rc = forge_ancestry_open(&v.ancestry, err);
	if (rc == 0)
		rc = v.listener = forge_guard_bind(dir);
	if (rc >= 0) {
		on_ready(arg);
		rc = 0;
	}
	while (rc == 0)
		rc = step(&v);
	/* First the name: who finds it may still connect, and is refused. */
	if (v.listener >= 0) {
		(void)unlinkat(dir, FORGE_GUARD_SOCKET, 0);
		close(v.listener);
	}
	while (v.n > 0)
		drop(&v, v.n - 1);
	free(v.sessions);
	free(v.owners);
	forge_ancestry_close(v.ancestry);
	forge_fan_close(v.fan);
	return rc > 0 ? 0 : rc;
}
