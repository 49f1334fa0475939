/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the objects of this FORGE_HOME against their digests, and names the runs that point to
 * those that are damaged or missing. It holds no lock while it reads: what it finds missing is
 * looked at again, with the records, under the lock that gc and rm need to remove objects.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "state/check.h"
#include "state/home.h"
#include "store/store.h"

struct forge_verify {
	const struct forge_home *home;
	const char *url; /* of the store; NULL: only the records in home are read */
	const json_t
		*records; /* of the runs whose objects are checked; NULL: all objects */
	void (*progress)(const struct forge_check_progress *p); /* may be NULL */
};

/*
 * *ret is
 *   { "checked": N, "bytes": N,
 *     "damaged": [{sha256, problem, found?, not_marked?, runs: [{run_id, analysis_id, path}]}],
 *     "missing": [...], "not_checked": [{sha256?, run_id?, problem}], "good_again": [sha256] }
 * Damage is no error: -errno means that the check could not be made.
 */
FORGE_MUST_CHECK int forge_verify(const struct forge_verify *how, json_t **ret,
				  struct forge_error *err);
/* Sets "damaged" of each output in the record whose object is marked in this FORGE_HOME. */
void forge_verify_note(const struct forge_home *home, json_t *record);
