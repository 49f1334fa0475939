/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/health only: processes that look at guarded files, so that the supervisor need not wait for a disk. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#include "base/error.h"
#include "health/guard_set.h"

struct forge_guard_child {
	pid_t pid; /* 0: none */
	int in, out;
};
#define FORGE_GUARD_CHILD_INIT ((struct forge_guard_child){ .in = -1, .out = -1 })

/*
 * Looks at the tops of what is configured, in a process that may hang in the place of this one: a system call on
 * a dead file server cannot be interrupted. -EHOSTDOWN: they do not answer. Costs nothing where no file system
 * of a server is mounted.
 */
FORGE_MUST_CHECK int forge_guard_child_reach(const struct forge_health_config *h,
					     const struct forge_guard_own *own,
					     int stop_fd, struct forge_error *err);
/* Takes a snapshot, and waits for forge_guard_child_compare(). Returns when the snapshot is taken. */
FORGE_MUST_CHECK int forge_guard_child_snapshot(const struct forge_guard_set *set,
						int stop_fd,
						struct forge_guard_child *ret,
						struct forge_error *err);
/* What has changed since the snapshot: as forge_changes_json(), by an unknown author. */
FORGE_MUST_CHECK int forge_guard_child_compare(struct forge_guard_child *c, int stop_fd,
					       json_t **ret, struct forge_error *err);
/* A dead file server must not hold a verdict for ever. */
#define FORGE_GUARD_WAIT_USEC (600 * 1000000ull)
/* The same from the times of the files alone. since NULL: only how many files there are, {guarded}. */
FORGE_MUST_CHECK int forge_guard_child_since(const struct forge_guard_set *set,
					     const struct timespec *since, int stop_fd,
					     uint64_t wait_usec, json_t **ret,
					     struct forge_error *err);
void forge_guard_child_end(struct forge_guard_child *c);
