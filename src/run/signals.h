/* SPDX-License-Identifier: Apache-2.0 */
/* What ends a run from outside: SIGINT, SIGTERM and SIGHUP, read from descriptors. */
#pragma once

#include <signal.h>

/* What the caller had. */
struct forge_signals {
	sigset_t mask;
	struct sigaction ignored[5];
};

/* From here on they wait; *ret_before is for forge_signals_release(). */
void forge_signals_catch(struct forge_signals *ret_before);
/* As it was before; what still waits is answered by the verdict and dropped. */
void forge_signals_release(const struct forge_signals *before);
/* A new descriptor that is ready while one of them waits, or -1. */
int forge_signals_fd(void);
