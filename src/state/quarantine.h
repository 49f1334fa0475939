/* SPDX-License-Identifier: Apache-2.0 */
/* FORGE_HOME/quarantine/: an empty file for each run that has changed guarded files, until a person clears it. */
#pragma once

#include "base/clock.h"
#include "base/error.h"
#include "state/home.h"

/* Safe on disk when this returns. */
FORGE_MUST_CHECK int forge_quarantine_add(const struct forge_home *home,
					  const char *run_id, struct forge_error *err);
/* 0: it was there, 1: it was not. */
FORGE_MUST_CHECK int forge_quarantine_remove(const struct forge_home *home,
					     const char *run_id, struct forge_error *err);
/* How many runs are in quarantine. */
FORGE_MUST_CHECK int forge_quarantine_count(const struct forge_home *home, uint64_t *ret,
					    struct forge_error *err);
/* The oldest run in quarantine. 1: ret is set; 0: there is none. An error is not absence. */
FORGE_MUST_CHECK int forge_quarantine_first(const struct forge_home *home,
					    char ret[FORGE_RUN_ID_MAX],
					    struct forge_error *err);
