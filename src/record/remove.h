/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing runs that their user no longer wants: record, events, logs, a kept workdir, post-processes,
 * and the outputs that no other run has. Each thing removed is a line in gc.jsonl.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/strv.h"
#include "state/home.h"
#include "store/store.h"

/* What was given back by all calls with one of these. */
struct forge_removal {
	struct forge_strv digests; /* of the removed runs' outputs */
	uint64_t objects, bytes;   /* that are gone */
	bool is_left; /* objects stay for forge gc: others collect, or a record cannot be read */
};

/*
 * One run that is over, by its full id, whose record was found. outputs_only: only what it left; the
 * record stays, with the digests. -EBUSY: it is not over. Crashing on the way leaves the run to be
 * removed again.
 */
FORGE_MUST_CHECK int forge_remove_run(const struct forge_home *home,
				      struct forge_store *st, const json_t *record,
				      bool outputs_only, struct forge_removal *r,
				      struct forge_error *err);
/* Then, once: the objects that nobody points to any more. */
FORGE_MUST_CHECK int forge_remove_objects(const struct forge_home *home,
					  struct forge_store *st, struct forge_removal *r,
					  struct forge_error *err);
void forge_removal_done(struct forge_removal *r);
