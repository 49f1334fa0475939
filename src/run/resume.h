/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that outlived their supervisor (containers): another process takes over. */
#pragma once

#include "base/error.h"

/*
 * Becomes the supervisor of the run in this slot of FORGE_HOME, and returns when the run is over and recorded.
 * on_taken is called as soon as the slot is this process's. -EWOULDBLOCK: another process has it.
 */
FORGE_MUST_CHECK int forge_resume(unsigned slot, void (*on_taken)(void *arg), void *arg,
				  struct forge_error *err);
