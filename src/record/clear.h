/* SPDX-License-Identifier: Apache-2.0 */
/* Ends the quarantine of a run that has changed guarded files. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "state/home.h"
#include "store/store.h"

/*
 * Records who cleared the run, when and why, and lets runs go on that waited for that. -EINVAL: the run is in no
 * quarantine.
 */
FORGE_MUST_CHECK int forge_clear_run(const struct forge_home *home,
				     struct forge_store *st, const json_t *record,
				     const char *note, struct forge_error *err);
