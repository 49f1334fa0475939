/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which directory a run kept: runs/<run_id>/kept.json. gc removes what this says and nothing else. The
 * record says it too, for people; but a record can be made from a row of the store, which others
 * write, and this file is made only by the process that made the directory.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/error.h"

struct forge_kept {
	char *path;
	dev_t dev;
	ino_t ino;
};

/* dir: the run's directory, as for all of these. */
FORGE_MUST_CHECK int forge_kept_write(int dir, const char *path, dev_t dev, ino_t ino,
				      struct forge_error *err);
/* 1: read, 0: nothing is kept, negative: not known. */
FORGE_MUST_CHECK int forge_kept_read(int dir, struct forge_kept *ret,
				     struct forge_error *err);
/* It was removed. */
void forge_kept_forget(int dir);
void forge_kept_done(struct forge_kept *k);
#define forge_auto_kept FORGE_CLEANUP(forge_kept_done) /* initialise to {0} */
