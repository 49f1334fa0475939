/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watcher of an executor on other machines: one process of this FORGE_HOME looks at all its runs that have
 * no supervisor, with one question at a time to the cluster. When a run has something to be done about (it
 * started, it ended), a short-lived child does that. It may be killed at any moment: what it knows is in the
 * slots, and the next command starts another one.
 */
#pragma once

#include "base/error.h"

/*
 * Returns when no such run is left. on_taken is called when this process is the watcher.
 * -EWOULDBLOCK: there is one.
 */
FORGE_MUST_CHECK int forge_watch(const char *executor, void (*on_taken)(void *arg),
				 void *arg, struct forge_error *err);
