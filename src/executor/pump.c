/* SPDX-License-Identifier: Apache-2.0 */
/* Log capture. Without a live reader the bytes never enter user space (splice). */
#include "executor/pump.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/fd.h"

#define PIECE (64 * 1024)

int forge_pump_init(struct forge_pump *p, int src, int log, int live, uint64_t limit)
{
	struct stat st;

	*p = (struct forge_pump){ .src = src, .log = log, .live = live, .limit = limit };
	p->buf = malloc(PIECE);
	if (!p->buf)
		return -ENOMEM;
	/* A log that another supervisor began counts towards the limit. */
	if (fstat(log, &st) == 0)
		p->logged = p->seen = (uint64_t)st.st_size;
	p->live_is_file = live >= 0 && fstat(live, &st) == 0 && S_ISREG(st.st_mode);
	return 0;
}

bool forge_pump_wants_src(const struct forge_pump *p)
{
	return p->src >= 0 && p->buf_pos == p->buf_len;
}

bool forge_pump_wants_live(const struct forge_pump *p)
{
	return p->buf_pos < p->buf_len;
}

static uint64_t room(const struct forge_pump *p)
{
	return p->limit > p->logged ? p->limit - p->logged : 0;
}

static void write_log(struct forge_pump *p, size_t n)
{
	int rc = p->log_error ? 0 : forge_write_all(p->log, p->buf, n);

	if (rc < 0)
		p->log_error = -rc; /* a full disk must not stop the run's limits */
}

/*
 * Always reads a whole piece, never only what there is room for: from a pipe in packet mode
 * (O_DIRECT, which the run can set) a short read would throw the rest of the packet away.
 */
static void read_and_copy(struct forge_pump *p)
{
	ssize_t n = read(p->src, p->buf, PIECE);

	if (n == 0)
		p->src = -1;
	if (n <= 0)
		return;
	size_t keep = (uint64_t)n < room(p) ? (size_t)n : (size_t)room(p);
	p->seen += (uint64_t)n;
	p->logged += keep;
	p->is_truncated = p->is_truncated || keep < (size_t)n;
	write_log(p, keep);
	p->buf_len = p->live >= 0 ? (unsigned)keep : 0;
	p->buf_pos = 0;
	if (p->live_is_file)
		forge_pump_flush(p);
}

void forge_pump_read(struct forge_pump *p)
{
	if (p->src < 0)
		return;
	if (p->live >= 0 || p->log_error || room(p) < PIECE) {
		read_and_copy(p);
		return;
	}
	uint64_t want = room(p) < (1 << 20) ? room(p) : 1 << 20;
	ssize_t n = splice(p->src, NULL, p->log, NULL, (size_t)want, SPLICE_F_NONBLOCK);
	if (n > 0) {
		p->seen += (uint64_t)n;
		p->logged += (uint64_t)n;
	} else if (n == 0) {
		p->src = -1;
	} else if (errno != EAGAIN && errno != EINTR) {
		p->log_error = errno;
	}
}

static void on_alarm(int sig)
{
	(void)sig; /* its arrival ends the write */
}

/*
 * The descriptor is the caller's: its shell shares it, so it must not become non-blocking, and
 * maybe with another writer, so that "poll says writable" promises nothing; a terminal that is
 * stopped blocks too. A blocked supervisor would enforce nothing, so a timer ends the write.
 * It repeats: the first alarm could come just before the write begins.
 */
static ssize_t write_briefly(int fd, const char *buf, size_t len)
{
	const struct sigaction sa = { .sa_handler = on_alarm }; /* no SA_RESTART */
	const struct itimerval soon = { { 0, 10000 }, { 0, 10000 } },
			       never = { { 0, 0 }, { 0, 0 } };
	struct sigaction before;
	sigset_t alarm_only, mask;

	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	(void)sigaction(SIGALRM, &sa, &before);
	(void)sigprocmask(SIG_UNBLOCK, &alarm_only, &mask);
	(void)setitimer(ITIMER_REAL, &soon, NULL);
	ssize_t n = write(fd, buf, len);
	int error = errno;
	(void)setitimer(ITIMER_REAL, &never, NULL);
	(void)sigprocmask(SIG_SETMASK, &mask, NULL);
	(void)sigaction(SIGALRM, &before, NULL);
	errno = error;
	return n;
}

void forge_pump_flush(struct forge_pump *p)
{
	const char *from = p->buf + p->buf_pos;
	size_t len = p->buf_len - p->buf_pos;
	ssize_t n = p->live_is_file ? write(p->live, from, len)
				    : write_briefly(p->live, from, len);

	if (n >= 0) {
		p->buf_pos += (unsigned)n;
	} else if (errno != EINTR && errno != EAGAIN) {
		/* The reader is gone (EPIPE): the log goes on. */
		p->live = -1;
		p->buf_pos = p->buf_len;
	}
}

void forge_pump_done(struct forge_pump *p)
{
	free(p->buf);
	p->buf = NULL;
}
