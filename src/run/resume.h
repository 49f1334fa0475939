/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that have no supervisor (containers, jobs of a cluster): another process takes over. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/*
 * Becomes the supervisor of the run in this slot of FORGE_HOME, and returns when the run is over and recorded.
 * With only_looks it records what is new, and returns 1 when the run goes on: then the slot has no supervisor
 * again. on_taken is called as soon as the slot is this process's. -EWOULDBLOCK: another process has it.
 * -EALREADY: the run has its verdict, and repair does the rest.
 */
FORGE_MUST_CHECK int forge_resume(unsigned slot, bool only_looks,
				  void (*on_taken)(void *arg), void *arg,
				  struct forge_error *err);
