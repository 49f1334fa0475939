/* SPDX-License-Identifier: Apache-2.0 */
/* Signals that end a run: SIGINT, SIGTERM and SIGHUP, read from descriptors. */
#pragma once

#include <signal.h>

/* The signal state of the caller. */
struct forge_signals {
	sigset_t mask;
	struct sigaction ignored[5];
};

/* Blocks the signals; *ret_before is for forge_signals_release(). */
void forge_signals_catch(struct forge_signals *ret_before);
/* Restores that state. Drops pending signals: the verdict has answered them. */
void forge_signals_release(const struct forge_signals *before);
/* A new descriptor that is readable while a signal is pending, or -1. */
int forge_signals_fd(void);
