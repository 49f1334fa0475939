/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock of a task's key, so that two pipelines at once, or a new head after the first was killed, do not compute one
 * result twice. It belongs to an open file: the head takes it, looks once more for a result, and hands it to the
 * supervisor of the run, with which it ends.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "state/home.h"

/* *ret_fd holds the lock. 1: another process has it; with waits, it had it, and is done. */
FORGE_MUST_CHECK int forge_key_lock(const struct forge_home *home, const char *key,
				    bool waits, int *ret_fd, struct forge_error *err);
/* Releases it, also for processes that inherited the descriptor. */
void forge_key_unlock(int fd);
