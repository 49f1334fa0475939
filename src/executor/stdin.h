/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeds the caller's standard input to the command through a pipe (--stdin). The caller's
 * descriptor itself never goes inside: it could be a terminal, or a file to reopen.
 */
#pragma once

struct forge_feed {
	int src; /* caller's, blocking, -1: nothing to feed */
	int *dst; /* our end of the command's pipe, non-blocking; closed and -1 at the end */
	char buf[4096];
	unsigned len, pos;
};

void forge_feed_init(struct forge_feed *f, int src, int *dst);
/* What to poll; -1 for nothing. */
int forge_feed_src(const struct forge_feed *f);
int forge_feed_dst(const struct forge_feed *f);
void forge_feed_step(struct forge_feed *f);
