/* SPDX-License-Identifier: Apache-2.0 */
/* Attempts that repair starts, because the supervisor of the run before is dead. */
#pragma once

#include "base/error.h"

/*
 * Carries out the attempt after this run of FORGE_HOME, and those after that, and returns when they are over.
 * on_taken is called as soon as the attempt is this process's. -EWOULDBLOCK: another process starts it; -ENOENT:
 * there is none to start.
 */
FORGE_MUST_CHECK int forge_retry_start(const char *run_id, void (*on_taken)(void *arg),
				       void *arg, struct forge_error *err);
