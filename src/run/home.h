/* SPDX-License-Identifier: Apache-2.0 */
/* $FORGE_HOME: where runs leave their logs and records, and what is active right now. */
#pragma once

#include "base/error.h"

/*
 *   runs/<run_id>/   record.json, events.jsonl, stdout, stderr
 *   active/<slot>    locked by a supervisor; enough facts to repair after a crash
 */
struct forge_home {
	char *path;
	int runs_fd, active_fd;
};

/* Finds it, makes it (0700) when make is set. Without make, -ENOENT when there is none. */
FORGE_MUST_CHECK int forge_home_open(bool make, struct forge_home *ret,
				     struct forge_error *err);
/* Initialise with FORGE_HOME_INIT. */
void forge_home_close(struct forge_home *h);
#define FORGE_HOME_INIT ((struct forge_home){ NULL, -1, -1 })
#define forge_auto_home FORGE_CLEANUP(forge_home_close)
/* The path alone; NULL when out of memory or no home is known. */
char *forge_home_path(void);
