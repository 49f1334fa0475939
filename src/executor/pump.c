/* SPDX-License-Identifier: Apache-2.0 */
/* Log capture. Without a live reader the bytes never enter user space (splice). */
#include "executor/pump.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
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

/* The log took n bytes, or failed: end, error, or nothing there. */
static void account(struct forge_pump *p, ssize_t n)
{
	if (n > 0) {
		p->seen += (uint64_t)n;
		p->logged += (uint64_t)n;
	} else if (n == 0) {
		p->src = -1;
	}
}

/* Keeps the pipe moving after the log is full, or the payload could not even end. */
static void discard(struct forge_pump *p)
{
	ssize_t n = read(p->src, p->buf, PIECE);

	if (n > 0) {
		p->seen += (uint64_t)n;
		p->is_truncated = true;
	} else if (n == 0) {
		p->src = -1;
	}
}

static void read_and_copy(struct forge_pump *p)
{
	uint64_t want = room(p) < PIECE ? room(p) : PIECE;
	ssize_t n = read(p->src, p->buf, (size_t)want);

	account(p, n);
	if (n <= 0)
		return;
	int rc = p->log_error ? 0 : forge_write_all(p->log, p->buf, (size_t)n);
	if (rc < 0)
		p->log_error = -rc;
	p->buf_len = (unsigned)n;
	p->buf_pos = 0;
	if (p->live_is_file)
		forge_pump_flush(p);
}

void forge_pump_read(struct forge_pump *p)
{
	if (p->src < 0)
		return;
	if (room(p) == 0) {
		discard(p);
		return;
	}
	if (p->live >= 0 || p->log_error) {
		read_and_copy(p);
		if (p->live < 0)
			p->buf_pos = p->buf_len;
		return;
	}
	uint64_t want = room(p) < (1 << 20) ? room(p) : 1 << 20;
	ssize_t n = splice(p->src, NULL, p->log, NULL, (size_t)want, SPLICE_F_NONBLOCK);
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		p->log_error = errno; /* a full disk must not stop the run's limits */
	else if (n >= 0)
		account(p, n);
}

void forge_pump_flush(struct forge_pump *p)
{
	/*
	 * The descriptor is shared with the caller's shell, so it must not become non-blocking.
	 * A pipe that polls writable takes PIPE_BUF without blocking; a file takes all.
	 */
	unsigned len = p->buf_len - p->buf_pos;

	if (!p->live_is_file && len > PIPE_BUF)
		len = PIPE_BUF;
	ssize_t n = write(p->live, p->buf + p->buf_pos, len);
	if (n >= 0) {
		p->buf_pos += (unsigned)n;
	} else if (errno != EINTR && errno != EAGAIN) {
		/* Nobody reads any more (EPIPE): the log goes on. */
		p->live = -1;
		p->buf_pos = p->buf_len;
	}
}

void forge_pump_done(struct forge_pump *p)
{
	free(p->buf);
	p->buf = NULL;
}
