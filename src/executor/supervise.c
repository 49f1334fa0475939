/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor: one ppoll over descriptors and the nearest deadline. No limit is enforced by
 * sampling: every wake-up is an event, a moment at which a limit could be reached, or the next
 * point of the chart of what the run uses (state/samples.h).
 */
#include "executor/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "executor/pump.h"
#include "executor/stdin.h"
#include "sandbox/disk.h"
#include "sandbox/kernel_memory.h"
#include "sandbox/socket_count.h"
#include "state/samples.h"
#include "state/supervisor.h"

#define NEVER UINT64_MAX
/* How long the dead may take, for as long as they make progress. */
#define DYING_USEC 5000000
/*
 * A point that took this much CPU time is followed by a pause of so many times as much: whatever the host,
 * points cost less than a thousandth of a CPU. The rest is for the wake-up around it, which is not measured.
 */
#define SAMPLE_PAUSE 1500
/* How long the sandbox may take until the command runs: then something in the kernel hangs. */
#define START_USEC 30000000
/*
 * A signal of the terminal and one of a process within this time are one request: a terminal sends ^C to forge and
 * to its caller, and the caller passes it on.
 */
#define SAME_SIGNAL_USEC 5000000

struct loop {
	const struct forge_job *job;
	const struct forge_supervision *what;
	struct forge_cgroup *cg;
	struct forge_sandbox *sb;
	struct forge_outcome *out;
	struct forge_pump pumps[2];
	struct forge_feed feed;
	const struct forge_quota *quota;
	int workdir_fd;
	struct forge_disk *disk;
	struct forge_socket_count sockets;
	bool has_listener; /* from the start on, the filter has reported to sockets */
	struct forge_kernel_memory *kernel_memory; /* NULL: not watched */
	int signals;
	uint64_t start;
	/* deadlines, monotonic microseconds */
	uint64_t wall_at, grace_at, cpu_at, disk_at, dead_at, memory_at, start_at;
	uint64_t signalled_at; /* the first signal that cancels */
	pid_t signalled_by;    /* who sent it; 0: the terminal */
	uint64_t sockets_at; /* not before this: the next answer about a socket */
	uint64_t sample_at;  /* the next point of the chart */
	struct forge_samples own_samples, *samples;
	bool has_disk;			 /* the workdir has been measured */
	uint64_t asked_usec, asked_cost; /* the last one, and what they cost lately */
	uint64_t look_at;   /* not before this: the next search for the largest process */
	uint64_t cpu_dying; /* CPU time of the run at the last look at its dying */
	struct forge_ctl_exit end; /* as init reported it */
	bool is_killed;
};

/* From here on init is about to end, and everything with it. */
static void expect_death(struct loop *l)
{
	if (l->dead_at == NEVER) {
		l->cpu_dying = forge_cgroup_cpu_usec(l->cg);
		l->dead_at = forge_now_usec() + DYING_USEC;
	}
}

static void kill_all(struct loop *l)
{
	if (l->is_killed)
		return;
	l->is_killed = true;
	l->grace_at = NEVER;
	expect_death(l);
	forge_cgroup_kill(l->cg);
	forge_sandbox_kill(l->sb);
}

static uint64_t own_cpu_usec(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* Takes a point of what the run uses. That fails where its file cannot be written: the run goes on without. */
static void take_sample(struct loop *l, uint64_t now)
{
	uint64_t start = own_cpu_usec();
	struct forge_cgroup_now used;

	forge_cgroup_now(l->cg, &used);
	const struct forge_sample point = {
		.usec = now - l->start,
		.memory_bytes = used.memory_bytes,
		.cpu_usec = used.cpu_usec,
		.pids = used.pids,
		.disk_bytes = l->has_disk ? forge_disk_usage(l->disk)->bytes : UINT64_MAX,
	};
	int rc = forge_samples_add(l->samples, &point);
	if (rc < 0) {
		l->sample_at = NEVER;
		l->job->on_event(l->job->arg, "samples_failed", strerror(-rc));
		return;
	}
	uint64_t pause = forge_samples_pause_usec(l->samples, now - l->start),
		 rest = (own_cpu_usec() - start) * SAMPLE_PAUSE;
	/* The first one made the file, which is not repeated. */
	rest = l->samples->n > 1 ? rest : 0;
	l->sample_at = now + (pause > rest ? pause : rest);
}

static void check_sample(struct loop *l, uint64_t now)
{
	/* Only forge's own code runs inside so far. */
	if (!l->out->has_started)
		l->sample_at = now + FORGE_SAMPLES_FIRST_USEC;
	else
		take_sample(l, now);
}

static void on_report(struct loop *l)
{
	struct forge_child_report r;
	int rc = forge_sandbox_read_report(l->sb, &r);

	if (rc == -EAGAIN)
		return;
	if (rc == 1) {
		l->out->is_exec_failure = r.stage == FORGE_STAGE_EXEC;
		forge_sandbox_explain(&r, &l->out->start_error);
	} else if (!l->out->start_error.code) {
		l->out->has_started = true;
		/* Before this moment only forge's own code ran inside. */
		l->memory_at = l->kernel_memory ? forge_now_usec() + 5000 : NEVER;
		l->job->on_event(l->job->arg, "started", NULL);
	}
	if (rc == 0) {
		close(l->sb->report);
		l->sb->report = -1;
	}
}

/* The first cause wins: what happens afterwards is a consequence of stopping. */
static void stop(struct loop *l, enum forge_stop why, const char *event, bool politely)
{
	/* It may run already although this loop has not looked. */
	if (!l->out->has_started && l->sb->report >= 0)
		on_report(l);
	if (l->out->stop == FORGE_STOP_NONE) {
		l->out->stop = why;
		/* The chart shows what the run used when it was stopped. */
		if (l->sample_at != NEVER && l->samples->n > 0)
			take_sample(l, forge_now_usec());
		l->job->on_event(l->job->arg, event, NULL);
	}
	/* Before the command runs, no process could handle SIGTERM, and init may not read its socket. */
	if (!politely || !l->out->has_started) {
		kill_all(l);
	} else if (!l->is_killed && l->grace_at == NEVER) {
		forge_sandbox_signal(l->sb, SIGTERM);
		forge_sandbox_signal(l->sb,
				     SIGCONT); /* the stopped must wake up to die */
		l->grace_at = forge_now_usec() + l->job->limits->grace_usec;
	}
}

static uint64_t after(uint64_t start, uint64_t delta)
{
	return delta == FORGE_UNLIMITED || start + delta < start ? NEVER : start + delta;
}

/*
 * The tree can use at most n_cpus seconds a second, so the budget cannot run out before
 * that much time has passed. Looking again then converges on the moment.
 */
static void plan_cpu_check(struct loop *l, uint64_t now)
{
	uint64_t limit = l->job->limits->cpu_usec;

	if (limit == FORGE_UNLIMITED) {
		l->cpu_at = NEVER;
		return;
	}
	uint64_t used = forge_cgroup_cpu_usec(l->cg);
	if (used != UINT64_MAX && used >= limit) {
		l->cpu_at = NEVER;
		stop(l, FORGE_STOP_CPU, "cpu_time_limit", true);
		return;
	}
	uint64_t left = used == UINT64_MAX ? limit : limit - used;
	uint64_t wait = left / (l->what->n_cpus ? l->what->n_cpus : 1);
	l->cpu_at = now + (wait < 2000 ? 2000 : wait);
}

static void check_disk(struct loop *l, uint64_t now)
{
	switch (forge_disk_step(l->disk, 4000)) {
	case FORGE_DISK_MORE:
		l->disk_at = now; /* go on after looking at the other events */
		break;
	case FORGE_DISK_DONE:
		l->has_disk = true;
		l->disk_at = now + forge_disk_pause_usec(l->disk);
		break;
	case FORGE_DISK_OVER:
		l->disk_at = NEVER;
		stop(l, FORGE_STOP_DISK, "disk_limit", false);
		break;
	}
}

static void check_start(struct loop *l)
{
	l->start_at = NEVER;
	if (l->out->has_started || l->out->start_error.code || l->is_killed)
		return;
	(void)forge_hint(
		&l->out->start_error,
		forge_fail(&l->out->start_error, ETIMEDOUT,
			   "the sandbox could not be built in %d s",
			   START_USEC / 1000000),
		"Something in this host's kernel hangs: look at dmesg, and at the "
		"processes in state D");
	l->job->on_event(l->job->arg, "start_timeout", NULL);
	kill_all(l);
}

static void check_kernel_memory(struct loop *l, uint64_t now)
{
	uint64_t taken;

	l->memory_at = forge_kernel_memory_step(l->kernel_memory, now, &taken);
	if (!taken)
		return;
	l->out->kernel_memory_bytes = taken;
	stop(l, FORGE_STOP_MEMORY, "kernel_memory_limit", false);
}

/*
 * Not even SIGKILL ends a process that waits for a file system whose server does not answer
 * (FUSE, NFS), and init waits for all. It will never run again, so the run is over; what it
 * holds is left for repair. Freeing much memory takes its time too, but uses CPU time.
 */
static void check_dying(struct loop *l, uint64_t now)
{
	uint64_t used = forge_cgroup_cpu_usec(l->cg);

	if (used != UINT64_MAX && used - l->cpu_dying > DYING_USEC / 100) {
		l->cpu_dying = used;
		l->dead_at = now + DYING_USEC;
		return;
	}
	l->out->is_stuck = true;
	forge_sandbox_kill(l->sb);
	forge_sandbox_abandon(l->sb);
}

static void check_deadlines(struct loop *l)
{
	uint64_t now = forge_now_usec();

	if (now >= l->dead_at)
		check_dying(l, now);

	if (now >= l->start_at)
		check_start(l);
	if (now >= l->wall_at) {
		l->wall_at = NEVER;
		stop(l, FORGE_STOP_WALL, "wall_time_limit", true);
	}
	if (now >= l->grace_at) {
		l->job->on_event(l->job->arg, "grace_over", NULL);
		kill_all(l);
	}
	if (now >= l->cpu_at)
		plan_cpu_check(l, now);
	if (now >= l->disk_at && !l->is_killed)
		check_disk(l, now);
	if (now >= l->memory_at && !l->is_killed)
		check_kernel_memory(l, now);
	if (now >= l->sample_at && !l->is_killed)
		check_sample(l, now);
}

static struct timespec until_next(const struct loop *l)
{
	uint64_t at = l->wall_at, now = forge_now_usec();

	at = l->grace_at < at ? l->grace_at : at;
	at = l->start_at < at ? l->start_at : at;
	at = l->dead_at < at ? l->dead_at : at;
	at = l->cpu_at < at ? l->cpu_at : at;
	at = l->disk_at < at && !l->is_killed ? l->disk_at : at;
	at = l->memory_at < at && !l->is_killed ? l->memory_at : at;
	at = l->sample_at < at && !l->is_killed ? l->sample_at : at;
	at = l->sockets_at < at && l->sockets_at > now ? l->sockets_at : at;
	at = l->look_at < at && l->look_at > now ? l->look_at : at;
	if (at == NEVER)
		return (struct timespec){ .tv_sec = 3600 };
	uint64_t left = at > now ? at - now : 0;
	return (struct timespec){ .tv_sec = (time_t)(left / 1000000),
				  .tv_nsec = (long)(left % 1000000) * 1000 };
}

static void on_signal(struct loop *l)
{
	struct signalfd_siginfo si;

	while (read(l->signals, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		pid_t by = si.ssi_code == SI_KERNEL ? 0 : (pid_t)si.ssi_pid;
		bool is_passed_on = (by == 0) != (l->signalled_by == 0) &&
				    forge_now_usec() - l->signalled_at < SAME_SIGNAL_USEC;
		bool again = l->signalled_at && !is_passed_on;
		if (!l->signalled_at) {
			l->signalled_at = forge_now_usec();
			l->signalled_by = by;
		}
		l->out->is_interrupted = true;
		bool now = si.ssi_code == SI_QUEUE && si.ssi_int == FORGE_SIGNAL_NOW;
		stop(l, FORGE_STOP_CANCEL, "cancelled", !again && !now);
	}
}

/* A message, and the descriptor that came with it or -1. */
static ssize_t receive(int control, void *data, size_t size, int *ret_fd)
{
	char room[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { .iov_base = data, .iov_len = size };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = sizeof(room) };
	ssize_t n = recvmsg(control, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	const struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m);

	*ret_fd = -1;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	return n;
}

static void on_control(struct loop *l)
{
	struct forge_ctl_exit msg;
	int fd;
	ssize_t n = receive(l->sb->control, &msg, sizeof(msg), &fd);

	if (fd >= 0 && l->sockets.listener < 0 && l->what->notes_sockets &&
	    !l->what->own_network)
		forge_socket_count_note(&l->sockets, fd, l->sb->pid);
	else if (fd >= 0 && l->sockets.listener < 0)
		forge_socket_count_open(&l->sockets, fd, l->sb->pid,
					l->job->limits->sockets);
	else if (fd >= 0)
		close(fd);
	l->has_listener |= l->sockets.listener >= 0;
	if (n == (ssize_t)sizeof(msg)) {
		l->end = msg;
		l->out->has_status = true;
		l->out->wait_status = msg.status;
		forge_cgroup_release_io(l->cg); /* for those that end with it */
		expect_death(l);
	} else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		close(l->sb->control);
		l->sb->control = -1;
	}
}

static void on_oom(struct loop *l)
{
	uint64_t n;

	(void)!read(l->cg->oom_fd, &n, sizeof(n)); /* only its arrival matters */
	/* A group around it ran out. If that kills a process of the run, the run ends by itself. */
	if (!forge_cgroup_is_own_oom(l->cg))
		return;
	stop(l, FORGE_STOP_MEMORY, "memory_limit", false);
}

/*
 * At its limit a run may live for long, by dropping cached files; then this comes all the
 * time. A look is worth a twentieth of a CPU at most.
 */
static void on_pressure(struct loop *l)
{
	struct forge_largest found;
	uint64_t start = forge_now_usec();

	if (forge_cgroup_look(l->cg, l->sb->pid, &found)) {
		memcpy(l->out->largest_name, found.name, sizeof(found.name));
		l->out->largest_bytes = found.bytes;
	}
	if (l->cg->must_kill_rest && forge_cgroup_oom_kills(l->cg) > 0 &&
	    forge_cgroup_is_own_oom(l->cg))
		stop(l, FORGE_STOP_MEMORY, "memory_limit", false);
	uint64_t pause = (forge_now_usec() - start) * 20;
	l->look_at = start + (pause < 50000 ? 50000 : pause);
}

/* An answer is work that no limit of the run counts: a run that asks all the time waits for them. */
static void on_socket(struct loop *l, short revents)
{
	uint64_t start = forge_now_usec();

	forge_socket_count_serve(&l->sockets, revents);
	uint64_t cost = forge_now_usec() - start;
	/* Those of a moment ago count less and less; a few hundred at once are nothing. */
	uint64_t quiet = start - l->asked_usec;
	l->asked_cost = quiet > 100000
				? cost
				: l->asked_cost - l->asked_cost * quiet / 100000 + cost;
	l->asked_usec = start;
	if (l->asked_cost > 20000)
		l->sockets_at = start + 3 * cost;
}

enum {
	P_SIGNALS,
	P_PIDFD,
	P_CONTROL,
	P_REPORT,
	P_OOM,
	P_PRESSURE,
	P_OUT,
	P_ERR,
	P_LIVE_OUT,
	P_LIVE_ERR,
	P_FEED_SRC,
	P_FEED_DST,
	P_SOCKETS,
	P_COUNT
};

/* A negative fd is one that poll skips. */
static void fill(struct loop *l, struct pollfd *p)
{
	for (int i = 0; i < P_COUNT; i++)
		p[i] = (struct pollfd){ .fd = -1, .events = POLLIN };
	p[P_SIGNALS].fd = l->signals;
	p[P_PIDFD].fd = l->sb->pidfd;
	p[P_CONTROL].fd = l->sb->control;
	p[P_REPORT].fd = l->sb->report;
	p[P_OOM].fd = l->is_killed ? -1 : l->cg->oom_fd;
	p[P_PRESSURE].fd =
		l->is_killed || forge_now_usec() < l->look_at ? -1 : l->cg->pressure_fd;
	p[P_PRESSURE].events = l->cg->pressure_poll;
	for (int i = 0; i < 2; i++) {
		if (forge_pump_wants_src(&l->pumps[i]))
			p[P_OUT + i].fd = l->pumps[i].src;
		if (forge_pump_wants_live(&l->pumps[i]))
			p[P_LIVE_OUT + i].fd = l->pumps[i].live;
		p[P_LIVE_OUT + i].events = POLLOUT;
	}
	p[P_FEED_SRC].fd = forge_feed_src(&l->feed);
	p[P_FEED_DST].fd = forge_feed_dst(&l->feed);
	p[P_FEED_DST].events = POLLOUT;
	p[P_SOCKETS].fd = l->sockets.is_over || forge_now_usec() < l->sockets_at
				  ? -1
				  : l->sockets.listener;
}

static void pump(struct loop *l, int i)
{
	struct forge_pump *p = &l->pumps[i];

	forge_pump_read(p);
	if (p->is_truncated && l->out->stop == FORGE_STOP_NONE)
		stop(l, FORGE_STOP_OUTPUT, i ? "stderr_limit" : "stdout_limit", false);
}

static void handle(struct loop *l, const struct pollfd *p)
{
	if (p[P_SIGNALS].revents)
		on_signal(l);
	if (p[P_CONTROL].revents)
		on_control(l);
	if (p[P_REPORT].revents)
		on_report(l);
	if (p[P_OOM].revents)
		on_oom(l);
	if (p[P_PRESSURE].revents && !l->is_killed)
		on_pressure(l);
	for (int i = 0; i < 2; i++) {
		if (p[P_LIVE_OUT + i].revents)
			forge_pump_flush(&l->pumps[i]);
		if (p[P_OUT + i].revents)
			pump(l, i);
	}
	if (p[P_FEED_SRC].revents || p[P_FEED_DST].revents)
		forge_feed_step(&l->feed);
	if (p[P_SOCKETS].revents)
		on_socket(l, p[P_SOCKETS].revents);
}

/*
 * Init is dead or alone, so all writers are dead: what the pipes still hold is all there will be. The live
 * reader gets a second for it, not for ever.
 */
static void drain(struct loop *l)
{
	uint64_t until = forge_now_usec() + 1000000;

	for (int i = 0; i < 2; i++) {
		struct forge_pump *p = &l->pumps[i];
		for (;;) {
			while (forge_pump_wants_live(p) && forge_now_usec() < until) {
				struct pollfd live = { .fd = p->live, .events = POLLOUT };
				if (poll(&live, 1, 20) > 0)
					forge_pump_flush(p);
			}
			p->buf_pos = p->buf_len;
			uint64_t before = p->seen;
			pump(l, i);
			if (p->src < 0 || p->seen == before)
				break;
		}
	}
}

static void collect_usage(struct loop *l)
{
	struct forge_outcome *o = l->out;
	struct forge_cgroup_usage u;

	forge_cgroup_usage(l->cg, &u);
	o->wall_usec = forge_now_usec() - l->start;
	o->cpu_usec = u.cpu_usec;
	o->memory_peak_bytes = u.memory_peak_bytes;
	o->pids_peak = u.pids_peak;
	o->oom_kills = u.oom_kills;
	o->oom_elsewhere = u.oom_elsewhere;
	o->pids_refused = u.pids_refused;
	o->sockets_refused = l->sockets.refused;
	o->sockets_made = l->sockets.notes_only ? l->sockets.noted : UINT64_MAX;
	o->unix_sockets_made = l->has_listener && l->what->notes_sockets
				       ? l->sockets.noted_unix
				       : UINT64_MAX;
	o->network_tries = l->end.network_tries;
	o->tmp_files = l->end.tmp_files;
	if (l->end.is_shim)
		o->landlock_abi = l->end.landlock_abi;
	o->tmp_bytes = l->end.tmp_bytes;
	/* Without an io controller: what the kernel counted for all that init reaped. */
	o->io_read_bytes =
		u.io_read_bytes != UINT64_MAX ? u.io_read_bytes : l->end.blocks_in * 512;
	o->io_write_bytes = u.io_write_bytes != UINT64_MAX ? u.io_write_bytes
							   : l->end.blocks_out * 512;
	while (forge_disk_step(l->disk, 100000) == FORGE_DISK_MORE)
		;
	o->disk_peak_bytes = forge_disk_usage(l->disk)->peak_bytes;
	o->inodes_peak = forge_disk_usage(l->disk)->peak_inodes;
	o->is_too_deep = forge_disk_usage(l->disk)->is_too_deep;
	for (int i = 0; i < 2; i++) {
		o->stream_bytes[i] = l->pumps[i].seen;
		o->is_truncated[i] = l->pumps[i].is_truncated;
		if (l->pumps[i].log_error)
			l->job->on_event(l->job->arg, "log_failed",
					 strerror(l->pumps[i].log_error));
	}
}

static int run_loop(struct loop *l, struct forge_error *err)
{
	for (;;) {
		struct pollfd fds[P_COUNT];
		fill(l, fds);
		struct timespec ts = until_next(l);
		int n = ppoll(fds, P_COUNT, &ts, NULL);
		if (n < 0 && errno != EINTR)
			return forge_fail_errno(err, errno, "wait for the run");
		if (n > 0) {
			handle(l, fds);
			/* Not waiting for init's own end saves the time that the kernel needs for it. */
			if (fds[P_PIDFD].revents || l->end.is_alone)
				break;
		}
		check_deadlines(l);
		if (l->out->is_stuck)
			break;
	}
	/* Ended by init's own clock, because we were stopped: it is the same limit. */
	if (l->out->stop == FORGE_STOP_NONE && !l->out->has_status &&
	    l->wall_at != NEVER && forge_now_usec() >= l->wall_at)
		l->out->stop = FORGE_STOP_WALL;
	if (l->out->stop == FORGE_STOP_NONE && l->end.is_shim == FORGE_SHIM_LATE)
		l->out->stop = FORGE_STOP_WALL;
	/* Init may have spoken just before it died. */
	if (l->sb->control >= 0)
		on_control(l);
	for (int i = 0; i < 2 && l->sb->report >= 0; i++)
		on_report(l);
	return 0;
}

static uint64_t cpu_usec(void *arg)
{
	return forge_cgroup_cpu_usec(arg);
}

static uint64_t shmem_bytes(void *arg)
{
	return forge_cgroup_shmem_bytes(arg);
}

static int init_loop(struct loop *l, struct forge_error *err)
{
	const struct forge_limits *lim = l->job->limits;
	int src[2] = { l->sb->out, l->sb->err };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	l->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (l->signals < 0)
		return forge_fail_errno(err, errno, "signalfd");
	for (int i = 0; i < 2; i++)
		if (forge_pump_init(&l->pumps[i], src[i], l->job->log_fd[i],
				    l->job->live_fd[i], lim->output_bytes) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
	forge_feed_init(&l->feed, l->sb->in >= 0 ? STDIN_FILENO : -1, &l->sb->in);
	struct forge_disk_tasks tasks = {
		.cgroup = l->cg->v2_fd >= 0 ? l->cg->v2_fd : l->cg->pids_fd,
		.init = l->sb->pid,
	};
	const struct forge_disk_spec disk = {
		.dir_fd = l->workdir_fd,
		.workdir = l->what->workdir,
		.quota = l->quota,
		.tasks = tasks,
		.max_bytes = lim->disk_bytes,
		.max_inodes = lim->inodes,
		.cpu_usec = cpu_usec,
		.shmem_bytes = shmem_bytes,
		.arg = l->cg,
	};
	if (forge_disk_new(&disk, &l->disk) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	if (l->what->watches_kernel_memory &&
	    forge_kernel_memory_new(l->cg, l->sb->pid, &l->kernel_memory) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	l->memory_at = NEVER;
	l->wall_at = after(l->start, lim->wall_usec);
	/* From now: this may be another supervisor of a run that started long ago. */
	l->start_at = forge_now_usec() + START_USEC;
	l->grace_at = l->dead_at = NEVER;
	l->disk_at = l->start + forge_disk_pause_usec(l->disk);
	l->sample_at =
		l->samples->interval_usec ? l->start + FORGE_SAMPLES_FIRST_USEC : NEVER;
	l->cpu_at = NEVER;
	plan_cpu_check(l, l->start);
	return 0;
}

int forge_supervise(const struct forge_supervision *what, struct forge_outcome *ret,
		    struct forge_error *err)
{
	struct loop l = { .job = what->job,
			  .what = what,
			  .cg = what->cg,
			  .quota = what->quota,
			  .workdir_fd = what->workdir_fd,
			  .sb = what->sb,
			  .out = ret,
			  .sockets = FORGE_SOCKET_COUNT_INIT,
			  .signals = -1,
			  .sample_at = NEVER,
			  .start = what->sb->start_usec };
	forge_samples_init(&l.own_samples, what->job->home, what->job->run_id,
			   what->job->config->sample_usec);
	l.samples = what->job->samples ? what->job->samples : &l.own_samples;
	int rc = init_loop(&l, err);

	if (rc == 0)
		rc = run_loop(&l, err);
	if (rc == 0) {
		if (!l.end.is_alone)
			forge_sandbox_reap(what->sb);
		drain(&l);
		collect_usage(&l);
	}
	if (l.signals >= 0)
		close(l.signals);
	forge_socket_count_close(&l.sockets, what->job->home->fd);
	forge_kernel_memory_free(l.kernel_memory);
	forge_pump_done(&l.pumps[0]);
	forge_pump_done(&l.pumps[1]);
	forge_disk_free(l.disk);
	forge_samples_done(&l.own_samples);
	return rc;
}
