/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which run may start. */
#include "run/admit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/entries.h"
#include "base/parse.h"
#include "state/queue.h"

/* Runs that prepare while they wait for their share, at most. */
#define MOST_PREPARING 16

struct scan {
	struct forge_budget used;
	unsigned n, most; /* of ahead */
	char ahead[MOST_PREPARING]
		  [NAME_MAX + 1]; /* tickets before ours, the nearest first */
};

static void add_share(int dir, const char *name, struct forge_budget *used)
{
	uint64_t bytes, cpus_milli;

	if (sscanf(name, "s-%" SCNu64 "-%" SCNu64 "-", &bytes, &cpus_milli) != 2 ||
	    !forge_queue_is_alive(dir, name))
		return;
	used->memory_bytes += bytes;
	used->cpus_milli += cpus_milli;
	used->runs++;
}

static void add_ticket(struct scan *s, const char *name)
{
	unsigned at = s->n;

	while (at > 0 && strcmp(name, s->ahead[at - 1]) > 0)
		at--;
	if (at == s->most)
		return;
	s->n += s->n < s->most;
	memmove(s->ahead[at + 1], s->ahead[at], (s->n - 1 - at) * sizeof(s->ahead[0]));
	(void)snprintf(s->ahead[at], sizeof(s->ahead[at]), "%s", name);
}

/*
 * Finds the shares in use and the nearest tickets before ours, as many as most, in one pass without a list:
 * hundreds of runs may wait, and each scans. If there are as many and the owner of the farthest of them is dead, that
 * ticket has been removed by now, and the next pass finds another.
 */
static int scan_queue(int dir, const char *ours, unsigned most, struct scan *ret,
		      struct forge_error *err)
{
	/* Bounded: on a disk that is now read-only, dead tickets cannot be removed. */
	unsigned left = 1000;

	do {
		forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
		(void)forge_entries_open(&d, dir, "."); /* d keeps the error */
		ret->used = (struct forge_budget){ .runs = 0 };
		ret->n = 0;
		ret->most = most;
		for (const char *name; (name = forge_entries_next(&d));) {
			if (strncmp(name, "s-", 2) == 0)
				add_share(dir, name, &ret->used);
			else if (strncmp(name, "w-", 2) == 0 && strcmp(name, ours) < 0)
				add_ticket(ret, name);
		}
		/* An incomplete listing would hide runs. */
		if (d.error)
			return forge_fail_errno(err, -d.error, "read the queue");
	} while (ret->n == most && !forge_queue_is_alive(dir, ret->ahead[most - 1]) &&
		 --left > 0);
	return 0;
}

static void ticket_name(const struct forge_need *need, char buf[NAME_MAX + 1])
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	/* Higher priorities sort first. */
	(void)snprintf(buf, NAME_MAX + 1, "w-%010" PRId64 "-%011lld%09ld-%s",
		       (int64_t)INT32_MAX - need->priority, (long long)ts.tv_sec,
		       ts.tv_nsec, need->run_id);
}

/* Unlimited means the whole budget. */
static struct forge_need clamp(const struct forge_need *need,
			       const struct forge_budget *b)
{
	struct forge_need n = *need;

	n.memory_bytes =
		n.memory_bytes == FORGE_UNLIMITED ? b->memory_bytes : n.memory_bytes;
	n.cpus_milli = n.cpus_milli == FORGE_UNLIMITED ? b->cpus_milli : n.cpus_milli;
	return n;
}

static int check_possible(const struct forge_need *n, const struct forge_budget *b,
			  struct forge_error *err)
{
	char want[FORGE_FORMAT_MAX], have[FORGE_FORMAT_MAX];

	if (n->memory_bytes > b->memory_bytes)
		return forge_hint(
			err,
			forge_fail(err, E2BIG,
				   "memory %s is more than all analyses on this host may "
				   "have together, %s",
				   forge_format_size(want, n->memory_bytes),
				   forge_format_size(have, b->memory_bytes)),
			"Ask for less, or raise host.budget.memory");
	if (n->cpus_milli > b->cpus_milli)
		return forge_hint(err,
				  forge_fail(err, E2BIG,
					     "%s CPUs are more than all analyses on this "
					     "host may have "
					     "together, %s",
					     forge_format_cpus(want, n->cpus_milli),
					     forge_format_cpus(have, b->cpus_milli)),
				  "Ask for fewer, or raise host.budget.cpus");
	return 0;
}

static bool fits(const struct forge_need *n, const struct forge_budget *b,
		 const struct forge_budget *used)
{
	return used->memory_bytes + n->memory_bytes <= b->memory_bytes &&
	       used->cpus_milli + n->cpus_milli <= b->cpus_milli && used->runs < b->runs;
}

static int take_share(int dir, const struct forge_need *n, struct forge_share *ret,
		      struct forge_error *err)
{
	forge_auto_close int own = fcntl(dir, F_DUPFD_CLOEXEC, 0);

	if (own < 0)
		return forge_fail_errno(err, errno, "open the queue");
	(void)snprintf(ret->name, sizeof(ret->name), "s-%" PRIu64 "-%" PRIu64 "-%s",
		       n->memory_bytes, n->cpus_milli, n->run_id);
	int fd = forge_queue_make(dir, ret->name, n->slot, FORGE_QUEUE_SHARE, err);
	if (fd < 0)
		return fd;
	ret->fd = fd;
	ret->slot = n->slot;
	ret->dir_fd = forge_take_fd(own);
	return 0;
}

struct forge_need forge_admit_need(const struct forge_config *cfg,
				   const struct forge_spec *spec, unsigned slot)
{
	struct forge_need n = { .memory_bytes = spec->limits.memory_bytes,
				.cpus_milli = spec->limits.cpus_milli,
				.priority = spec->priority,
				.run_id = spec->run_id,
				.slot = slot };
	const struct forge_profile *p;

	if (spec->post_process.n &&
	    forge_config_profile(cfg, "post_process", &p, NULL) == 0) {
		n.memory_bytes = p->limits.memory_bytes > n.memory_bytes
					 ? p->limits.memory_bytes
					 : n.memory_bytes;
		n.cpus_milli = p->limits.cpus_milli > n.cpus_milli ? p->limits.cpus_milli
								   : n.cpus_milli;
	}
	return n;
}

int forge_admit_check(const struct forge_config *cfg, const struct forge_need *need,
		      struct forge_error *err)
{
	struct forge_budget b;

	forge_budget_of(cfg, &b);
	struct forge_need n = clamp(need, &b);
	return check_possible(&n, &b, err);
}

int forge_admit_try(const struct forge_home *home, const struct forge_config *cfg,
		    const struct forge_need *need, struct forge_share *ret,
		    struct forge_error *err)
{
	char ticket[NAME_MAX + 1];
	struct forge_budget budget;
	struct scan scan;

	forge_budget_of(cfg, &budget);
	struct forge_need n = clamp(need, &budget);
	int rc = check_possible(&n, &budget, err);
	if (rc < 0)
		return rc;
	forge_auto_close int lock = forge_queue_lock(home, err);
	forge_auto_close int dir =
		lock < 0 ? lock : forge_home_subdir(home, "queue", err);
	if (dir < 0)
		return dir;
	ticket_name(need, ticket);
	rc = scan_queue(dir, ticket, 1, &scan, err);
	if (rc < 0)
		return rc;
	if (scan.n > 0 || !fits(&n, &budget, &scan.used))
		return 1;
	return take_share(dir, &n, ret, err);
}

int forge_admit_hold(const struct forge_home *home, const struct forge_config *cfg,
		     const struct forge_need *need, struct forge_share *ret,
		     struct forge_error *err)
{
	struct forge_budget budget;

	forge_budget_of(cfg, &budget);
	struct forge_need n = clamp(need, &budget);
	forge_auto_close int lock = forge_queue_lock(home, err);
	forge_auto_close int dir =
		lock < 0 ? lock : forge_home_subdir(home, "queue", err);
	return dir < 0 ? dir : take_share(dir, &n, ret, err);
}

/* A share that is given back leaves the directory; a holder that dies closes a file in it. */
static int watch_shares(const struct forge_ticket *t)
{
	char path[PATH_MAX];
	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

	(void)snprintf(path, sizeof(path), "%s/queue", t->home->path);
	if (fd >= 0 &&
	    inotify_add_watch(fd, path, IN_MOVED_FROM | IN_DELETE | IN_CLOSE_WRITE) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static bool watches_shares(const struct forge_ticket *t)
{
	return strcmp(t->watched, ".") == 0;
}

/* Changes before the watch was set are not reported: the caller must scan once more. */
static int set_watch(struct forge_ticket *t, const char *name)
{
	bool is_ticket = strcmp(name, ".") != 0;

	if (t->watch >= 0)
		close(t->watch);
	t->watch = is_ticket ? openat(t->dir_fd, name,
				      O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW)
			     : -1;
	if (!is_ticket && t->shares < 0)
		t->shares = watch_shares(t);
	int fd = is_ticket ? t->watch : t->shares;
	(void)snprintf(t->watched, sizeof(t->watched), "%s", fd < 0 ? "" : name);
	return fd;
}

/* Without a watch (too many inotify instances) the queue is polled. */
#define BLIND_USEC 100000
#define MOST_USEC  60000000

/* Waits for a change of the watched file, or for a timeout. 0: scan again. */
static int sleep_until(struct forge_ticket *t, int signal_fd, struct forge_error *err)
{
	struct pollfd p[] = { { .fd = watches_shares(t) ? t->shares : t->watch,
				.events = POLLIN },
			      { .fd = signal_fd, .events = POLLIN } };
	uint64_t now = forge_now_usec();
	uint64_t most = p[0].fd < 0 || t->was_woken ? BLIND_USEC : MOST_USEC;
	uint64_t left = t->deadline > now ? t->deadline - now : 0;
	char events[4096];

	left = left > most ? most : left;
	struct timespec ts = { .tv_sec = (time_t)(left / 1000000),
			       .tv_nsec = (long)(left % 1000000) * 1000 };
	int n = ppoll(p, 2, &ts, NULL);
	if (n < 0 && errno != EINTR)
		return forge_fail_errno(err, errno, "wait for room");
	if (n > 0 && p[1].revents)
		return forge_fail(err, ECANCELED, "cancelled while queued");
	if (n == 0 && forge_now_usec() >= t->deadline)
		return forge_fail(err, ETIMEDOUT, "no room within queue.max_wait");
	if (!watches_shares(t)) {
		if (n > 0)
			t->watched[0] =
				'\0'; /* the fifo stays readable for all readers */
		return 0;
	}
	/* A dead holder's file is closed before its lock is released: scan again soon. */
	t->was_woken = n > 0;
	while (read(t->shares, events, sizeof(events)) > 0)
		; /* the events themselves do not matter */
	return 0;
}

/* One sandbox is set up at a time for two CPUs: the others are for the commands. */
static unsigned preparing(const struct forge_budget *b)
{
	uint64_t n = b->cpus_milli / 2000;

	return n < 1 ? 1 : n > MOST_PREPARING ? MOST_PREPARING : (unsigned)n;
}

/*
 * Scans the queue under its lock. 0: our ticket is one of those that prepare or, with ret, it is the first and the
 * share is taken; 1: wait; 2: scan again.
 */
static int look(struct forge_ticket *t, struct forge_share *ret, struct forge_error *err)
{
	struct scan scan;
	forge_auto_close int lock = forge_queue_lock(t->home, err);

	if (lock < 0)
		return lock;
	int rc = scan_queue(t->dir_fd, t->name, ret ? 1 : preparing(&t->budget), &scan,
			    err);
	if (rc < 0)
		return rc;
	bool is_turn = scan.n < scan.most;
	if (is_turn && !ret)
		return 0;
	if (is_turn && fits(&t->need, &t->budget, &scan.used))
		return take_share(t->dir_fd, &t->need, ret, err);
	const char *target = is_turn ? "." : scan.ahead[scan.most - 1];
	if (strcmp(target, t->watched) == 0)
		return 1;
	return set_watch(t, target) < 0 ? 1 : 2;
}

static int wait_for(struct forge_ticket *t, int signal_fd, struct forge_share *ret,
		    struct forge_error *err)
{
	int rc = 2;

	while (rc > 0) {
		rc = look(t, ret, err);
		if (rc == 1) {
			rc = sleep_until(t, signal_fd, err);
			rc = rc < 0 ? rc : 2;
		}
	}
	return rc;
}

static int queue_up(struct forge_ticket *t, struct forge_error *err)
{
	forge_auto_close int lock = forge_queue_lock(t->home, err);

	if (lock < 0)
		return lock;
	ticket_name(&t->need, t->name);
	t->fd = forge_queue_make(t->dir_fd, t->name, t->need.slot, FORGE_QUEUE_TICKET,
				 err);
	return t->fd < 0 ? t->fd : 0;
}

int forge_admit_queue(const struct forge_home *home, const struct forge_config *cfg,
		      const struct forge_need *need, int signal_fd,
		      struct forge_ticket *ret, struct forge_error *err)
{
	*ret = FORGE_TICKET_INIT;
	ret->home = home;
	ret->deadline = forge_now_usec() + cfg->queue_usec;
	forge_budget_of(cfg, &ret->budget);
	ret->need = clamp(need, &ret->budget);
	ret->dir_fd = forge_home_subdir(home, "queue", err);
	if (ret->dir_fd < 0)
		return ret->dir_fd;
	int rc = queue_up(ret, err);
	return rc < 0 ? rc : wait_for(ret, signal_fd, NULL, err);
}

int forge_admit_take(struct forge_ticket *t, int signal_fd, struct forge_share *ret,
		     struct forge_error *err)
{
	return wait_for(t, signal_fd, ret, err);
}

static void *close_fd(void *arg)
{
	close((int)(intptr_t)arg);
	return NULL;
}

/*
 * An inotify instance takes the kernel 10 ms to close, and the run has its share already. There are few of them for
 * a user, so it is not kept either.
 */
static void close_meanwhile(int fd)
{
	pthread_attr_t attr;
	pthread_t thread;
	bool is_begun = false;

	if (pthread_attr_init(&attr) == 0) {
		is_begun = pthread_attr_setstacksize(&attr, 64 << 10) == 0 &&
			   pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED) ==
				   0 &&
			   pthread_create(&thread, &attr, close_fd,
					  (void *)(intptr_t)fd) == 0;
		(void)pthread_attr_destroy(&attr); /* never fails */
	}
	if (!is_begun)
		close(fd);
}

void forge_admit_leave(struct forge_ticket *t)
{
	if (t->fd >= 0) {
		forge_queue_put_back(t->dir_fd, t->name, t->need.slot,
				     FORGE_QUEUE_TICKET);
		/*
		 * Wakes the waiting run now: the init of our sandbox has the fifo open
		 * too, until it executes the command.
		 */
		(void)!write(t->fd, "", 1); /* on failure it wakes later */
		close(t->fd);
	}
	if (t->watch >= 0)
		close(t->watch);
	if (t->shares >= 0)
		close_meanwhile(t->shares);
	if (t->dir_fd >= 0)
		close(t->dir_fd);
	*t = FORGE_TICKET_INIT;
}

void forge_admit_release(struct forge_share *s)
{
	if (s->fd >= 0) {
		forge_queue_put_back(s->dir_fd, s->name, s->slot, FORGE_QUEUE_SHARE);
		close(s->fd);
		close(s->dir_fd);
	}
	*s = FORGE_SHARE_INIT;
}

/* The time in the name of a ticket, see ticket_name(). */
static uint64_t waited_usec(const char *name)
{
	unsigned long long seconds, nsec;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (sscanf(name, "w-%*10[0-9]-%11llu%9llu-", &seconds, &nsec) != 2)
		return 0;
	int64_t usec = ((int64_t)now.tv_sec - (int64_t)seconds) * 1000000 +
		       ((int64_t)now.tv_nsec - (int64_t)nsec) / 1000;
	return usec > 0 ? (uint64_t)usec : 0;
}

/* Adds what is in use and what waits; without: the ticket of this run does not count. */
static int look_at_queue(const struct forge_home *home, const char *without,
			 struct forge_load *l)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	(void)forge_entries_open(&d, home->fd, "queue"); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));) {
		uint64_t bytes, cpus_milli;
		int dir = forge_entries_fd(&d);
		if (strncmp(name, "w-", 2) == 0 && (!without || !strstr(name, without)) &&
		    forge_queue_is_locked(dir, name)) {
			uint64_t usec = waited_usec(name);
			l->queued++;
			l->oldest_wait_usec =
				usec > l->oldest_wait_usec ? usec : l->oldest_wait_usec;
		}
		if (sscanf(name, "s-%" SCNu64 "-%" SCNu64 "-", &bytes, &cpus_milli) ==
			    2 &&
		    forge_queue_is_locked(dir, name)) {
			l->used.memory_bytes += bytes;
			l->used.cpus_milli += cpus_milli;
			l->used.runs++;
		}
	}
	/* Before the first run there is no queue. */
	return d.error == -ENOENT ? 0 : d.error;
}

const char *forge_admit_why(const struct forge_home *home, const struct forge_config *cfg,
			    const struct forge_need *need, char buf[FORGE_WHY_MAX])
{
	char want[FORGE_FORMAT_MAX], used_text[FORGE_FORMAT_MAX], all[FORGE_FORMAT_MAX];
	struct forge_load l = { .queued = 0 };

	forge_budget_of(cfg, &l.budget);
	const struct forge_budget b = l.budget;
	struct forge_need n = clamp(need, &b);
	(void)look_at_queue(home, n.run_id, &l); /* what could be read */
	const struct forge_budget used = l.used;
	if (used.cpus_milli + n.cpus_milli > b.cpus_milli)
		(void)snprintf(buf, FORGE_WHY_MAX, "waits for %s CPU%s: %s of %s in use",
			       forge_format_cpus(want, n.cpus_milli),
			       n.cpus_milli == 1000 ? "" : "s",
			       forge_format_cpus(used_text, used.cpus_milli),
			       forge_format_cpus(all, b.cpus_milli));
	else if (used.memory_bytes + n.memory_bytes > b.memory_bytes)
		(void)snprintf(buf, FORGE_WHY_MAX, "waits for %s: %s of %s in use",
			       forge_format_size(want, n.memory_bytes),
			       forge_format_size(used_text, used.memory_bytes),
			       forge_format_size(all, b.memory_bytes));
	else if (used.runs >= b.runs)
		(void)snprintf(buf, FORGE_WHY_MAX,
			       "waits: %" PRIu64 " of %" PRIu64 " runs at once",
			       used.runs, b.runs);
	else
		(void)snprintf(buf, FORGE_WHY_MAX,
			       "waits for its turn, with %" PRIu64 " others", l.queued);
	return buf;
}

int forge_admit_load(const struct forge_home *home, const struct forge_config *cfg,
		     struct forge_load *ret, struct forge_error *err)
{
	struct forge_load l = { .queued = 0 };

	forge_budget_of(cfg, &l.budget);
	int rc = look_at_queue(home, NULL, &l);
	if (rc < 0)
		return forge_fail_errno(err, -rc, "read the queue");
	*ret = l;
	return 0;
}
