/* SPDX-License-Identifier: Apache-2.0 */
/* Copies standard input piece by piece; see stdin.h. */
#include "executor/stdin.h"

#include <errno.h>
#include <unistd.h>

void forge_feed_init(struct forge_feed *f, int src, int *dst)
{
	f->src = src;
	f->dst = dst;
	f->len = f->pos = 0;
}

int forge_feed_src(const struct forge_feed *f)
{
	return f->pos == f->len && *f->dst >= 0 ? f->src : -1;
}

int forge_feed_dst(const struct forge_feed *f)
{
	/* While nothing waits we do not want POLLOUT, which would be always. */
	return f->pos < f->len ? *f->dst : -1;
}

static void finish(struct forge_feed *f)
{
	if (*f->dst >= 0)
		close(*f->dst);
	*f->dst = -1;
	f->src = -1;
	f->len = f->pos = 0;
}

void forge_feed_step(struct forge_feed *f)
{
	if (f->pos == f->len) {
		ssize_t n = read(f->src, f->buf, sizeof(f->buf));
		if (n <= 0) {
			if (n == 0 || (errno != EINTR && errno != EAGAIN))
				finish(f);
			return;
		}
		f->len = (unsigned)n;
		f->pos = 0;
	}
	ssize_t n = write(*f->dst, f->buf + f->pos, f->len - f->pos);
	if (n >= 0)
		f->pos += (unsigned)n;
	else if (errno != EAGAIN && errno != EINTR)
		finish(f); /* the command closed its end */
}
