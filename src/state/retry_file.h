/* SPDX-License-Identifier: Apache-2.0 */
/*
 * $FORGE_HOME/retries/<run_id>: everything that the attempt after this run needs, should no process of this
 * run be left to start it. The file exists for as long as there may be such an attempt:
 *
 *   made      by the supervisor of the run, before the run is in the store or on the terminal; it holds the lock
 *   removed   when the run has a verdict that is not retried; when forge kill asks the run to end; or when
 *             the next attempt is recorded
 *
 * The record of the run decides (retried_by); the lock on this file decides which process starts the attempt: the
 * supervisor goes on with the lock it has, and when it was killed, repair takes the lock.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/error.h"
#include "state/home.h"

struct forge_retry_file {
	int dir_fd, fd; /* fd holds the lock; -1: no file */
	char run_id[FORGE_RUN_ID_MAX];
	json_t *content;
};
#define FORGE_RETRY_FILE_INIT ((struct forge_retry_file){ .dir_fd = -1, .fd = -1 })

/* Writes the file, durably and with its lock held. Takes content. */
FORGE_MUST_CHECK int forge_retry_file_make(const struct forge_home *home,
					   const char *run_id, json_t *content,
					   struct forge_retry_file *ret,
					   struct forge_error *err);
/*
 * Locks the file of a run and reads it. -EWOULDBLOCK: another process has had the lock for wait_msec; -ENOENT: there is no
 * such file; -EPERM: another user wrote it, whose request must not be carried out with our rights.
 */
FORGE_MUST_CHECK int forge_retry_file_claim(const struct forge_home *home,
					    const char *run_id, int wait_msec,
					    struct forge_retry_file *ret);
/* Reads it without the lock. -ENOENT, -EPERM: as above. */
FORGE_MUST_CHECK int forge_retry_file_read(const struct forge_home *home,
					   const char *run_id, json_t **ret);
/* Whether the file is still there: forge kill may have removed it. */
bool forge_retry_file_is_there(const struct forge_retry_file *f);
/* Removes the file and releases the lock. Accepts FORGE_RETRY_FILE_INIT, as the next one does. */
void forge_retry_file_remove(struct forge_retry_file *f);
void forge_retry_file_release(struct forge_retry_file *f);
/* Removes the file of a run, whether or not a process holds its lock: the run must not be retried. */
void forge_retry_file_forbid(const struct forge_home *home, const char *run_id);
