/* SPDX-License-Identifier: Apache-2.0 */
/* The process that watches guarded files. */
#pragma once

#include "base/error.h"
#include "state/home.h"

/*
 * Watches for the runs of this FORGE_HOME until no run has needed that for a while. Calls on_ready when
 * supervisors can connect. -EWOULDBLOCK: another process does it already.
 */
FORGE_MUST_CHECK int forge_guard_serve(const struct forge_home *home,
				       void (*on_ready)(void *arg), void *arg,
				       struct forge_error *err);
