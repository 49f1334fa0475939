/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves one output stream of a run from its pipe to its log, up to a limit, and a copy to a
 * live reader, which may be slow, gone, or share its descriptor with other processes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct forge_pump {
	int src;	   /* non-blocking pipe, -1 after its end */
	int log;	   /* plain file */
	int live;	   /* -1: no live reader */
	bool live_is_file; /* always writable, poll would not help */
	uint64_t limit;	   /* bytes the log may hold */
	uint64_t logged, seen;
	bool is_truncated;
	int log_error; /* errno of a failed write to the log, 0 */
	char *buf;     /* waiting for the live reader */
	unsigned buf_len, buf_pos;
};

int forge_pump_init(struct forge_pump *p, int src, int log, int live, uint64_t limit);
/* Wants poll to look at src (not while the live reader still has to take the last piece). */
bool forge_pump_wants_src(const struct forge_pump *p);
bool forge_pump_wants_live(const struct forge_pump *p);
/* src is readable or hung up: moves one piece. */
void forge_pump_read(struct forge_pump *p);
/* live is writable: hands over what waits. */
void forge_pump_flush(struct forge_pump *p);
void forge_pump_done(struct forge_pump *p);
