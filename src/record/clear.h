/* SPDX-License-Identifier: Apache-2.0 */
/* Ends the quarantine of a run that has changed guarded files. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "state/home.h"
#include "store/store.h"

/* -EPERM: the run is in quarantine, and what it made is not to be used. */
FORGE_MUST_CHECK int forge_check_quarantine(const json_t *record,
					    struct forge_error *err);
/*
 * Records who cleared the run, when and why, and lets runs go on that waited for that. Can be repeated. -EINVAL: the
 * run is in no quarantine. record: NULL when nothing but the mark is left of the run.
 */
FORGE_MUST_CHECK int forge_clear_run(const struct forge_home *home,
				     struct forge_store *st, const char *run_id,
				     const json_t *record, const char *note,
				     struct forge_error *err);
