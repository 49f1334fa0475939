/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of the queue, in $FORGE_HOME/queue. Each is locked by the supervisor that made it, so the kernel
 * knows which of them belong to living runs.
 *
 *   s-<memory>-<cpus>-<run id>      a share of the host's budget that is in use
 *   w-<priority>-<time>-<run id>    a ticket of a run that waits; names sort in the order of service
 *
 * What the numbers mean is decided in src/run/admit.c.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "state/home.h"

enum forge_queue_file { FORGE_QUEUE_SHARE, FORGE_QUEUE_TICKET };

/*
 * Locks the queue: whatever is decided about it is decided with this lock held. The descriptor or -errno. It
 * is read-only, so closing it is no event for the runs that watch the queue.
 */
FORGE_MUST_CHECK int forge_queue_lock(const struct forge_home *home,
				      struct forge_error *err);
/* Whether the supervisor of this file lives. A file that cannot be opened counts as locked. */
bool forge_queue_is_locked(int dir, const char *name);
/* The same, and removes the file of a dead supervisor. */
bool forge_queue_is_alive(int dir, const char *name);
/*
 * Makes and locks a file. The queue must be locked: no other process ever sees the file without its lock.
 * Returns the descriptor or -errno.
 */
FORGE_MUST_CHECK int forge_queue_make(int dir, const char *name, unsigned slot,
				      enum forge_queue_file kind,
				      struct forge_error *err);
/* Takes the file out of the queue and keeps it for the next run in this slot. */
void forge_queue_put_back(int dir, const char *name, unsigned slot,
			  enum forge_queue_file kind);
/* Calls remove for each file that a dead supervisor left, and removes the file if that returns true. */
FORGE_MUST_CHECK int forge_queue_sweep(const struct forge_home *home,
				       bool (*remove)(void *arg, const char *name),
				       void *arg, struct forge_error *err);
