/* SPDX-License-Identifier: Apache-2.0 */
/* $FORGE_HOME: where runs leave their logs and records, and what is active right now. */
#pragma once

#include <sys/types.h>

#include "base/error.h"

/*
 *   runs/<run_id>/   record.json, events.jsonl, stdout, stderr; kept.json: see kept.h; samples: see samples.h; result.json: see
 *                    record/shared_result.h
 *   active/<slot>    locked by a supervisor; enough facts to repair after a crash
 *   objects/ab/...   collected outputs by their digest
 *   damaged/         marks of objects that are damaged: see damage.h
 *   queue/           shares of the budget in use, and tickets of waiting runs
 *   spare/           files of the queue, and directories around workdirs, that are not in use
 *   health/          the last result of each check of this host: see health/check.h
 *   guard/           the socket of the process that watches guarded files
 *   quarantine/      runs that have changed guarded files: see quarantine.h
 *   retries/         what the next attempt of a run needs: see retry_file.h
 *   reused/          results of other users that steps of pipelines use: see reused.h
 *   undelivered/     runs whose end the store has not heard of
 *   cache/           digests of big inputs and of runtimes, what activation scripts change
 *   runtimes/        what the last probe of each runtime found
 *   forge.db         the embedded store
 */
struct forge_home {
	char *path;
	int fd, runs_fd, active_fd;
	mode_t shared; /* 050 when its owner lets a group read it, else 0 */
};

/* Finds it, makes it (0700) when make is set. Without make, -ENOENT when there is none. */
FORGE_MUST_CHECK int forge_home_open(bool make, struct forge_home *ret,
				     struct forge_error *err);
/* Initialise with FORGE_HOME_INIT. */
void forge_home_close(struct forge_home *h);
#define FORGE_HOME_INIT ((struct forge_home){ NULL, -1, -1, -1, 0 })
#define forge_auto_home FORGE_CLEANUP(forge_home_close)
/* One of its directories, made when it is not there. The fd or -errno. */
FORGE_MUST_CHECK int forge_home_subdir(const struct forge_home *h, const char *name,
				       struct forge_error *err);
/*
 * The directory of a run; -errno, -ENOENT: there is none. The id may come from anywhere: one that is no
 * id is -EINVAL.
 */
FORGE_MUST_CHECK int forge_home_open_run(const struct forge_home *h, const char *run_id);
/*
 * Gives the group of a shared home the right to read what fd is: logs, outputs and the directories on
 * the way. Of a home that is not shared nothing changes.
 */
void forge_home_share(const struct forge_home *h, int fd);
/* The path alone; NULL when out of memory or no home is known. */
char *forge_home_path(void);
