/* SPDX-License-Identifier: Apache-2.0 */
/* Opens what a run printed: "stdout" or "stderr". Never a path that a store has. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "state/home.h"

/*
 * In the run's directory of this FORGE_HOME or, when theirs is not NULL, of that one, which
 * forge_foreign_open() opened. Does not block if it is not a regular file. Returns the fd or -errno.
 */
FORGE_MUST_CHECK int forge_log_open(const struct forge_home *home,
				    const struct forge_home *theirs, const json_t *record,
				    const char *name, struct forge_error *err);
/*
 * The log of a run on a cluster, which is in a directory that it shares with the nodes until the run is over. slot: the
 * content of its slot, or NULL. -1: there is none.
 */
int forge_log_open_remote(const json_t *slot, const char *name);
