/* SPDX-License-Identifier: Apache-2.0 */
/* Locks between processes, by flock(2): the kernel releases them when the holder ends. */
#pragma once

#include "base/error.h"

enum forge_lock_kind { FORGE_LOCK_SHARED, FORGE_LOCK_EXCLUSIVE };

#define FORGE_LOCK_NO_WAIT	0
#define FORGE_LOCK_WAIT_FOREVER (-1)

/*
 * Locks an open file. Waits for at most wait_msec, then fails with -EWOULDBLOCK. Fails with
 * -ECANCELED when stop_fd (-1: none) becomes readable. Returns 0 or -errno.
 */
FORGE_MUST_CHECK int forge_lock_fd(int fd, enum forge_lock_kind kind, int wait_msec,
				   int stop_fd);
/*
 * Opens the file name in dirfd for reading, creates it (0600) if necessary, and locks it as
 * forge_lock_fd() does. Returns the descriptor or -errno; closing it releases the lock.
 */
FORGE_MUST_CHECK int forge_lock_file(int dirfd, const char *name,
				     enum forge_lock_kind kind, int wait_msec,
				     int stop_fd);
