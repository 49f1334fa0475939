/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes runs that their user no longer wants: record, events, logs, a kept workdir,
 * post-processes, and the outputs that no other run has. Each removal is a line in
 * gc.jsonl.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/strv.h"
#include "state/home.h"
#include "store/store.h"

/* The sum of all calls with the same structure. */
struct forge_removal {
	struct forge_strv digests; /* of the removed runs' outputs */
	uint64_t objects, bytes;   /* removed */
	/* Objects are left to gc: another run collects, or a record cannot be read. */
	bool is_left;
};

/*
 * Removes a finished run; record must have its full id. outputs_only: removes only its
 * outputs, and the record keeps their names and digests. -EBUSY: the run is not over.
 * After a crash in the middle the run can be removed again.
 */
FORGE_MUST_CHECK int forge_remove_run(const struct forge_home *home,
				      struct forge_store *st, const json_t *record,
				      bool outputs_only, struct forge_removal *r,
				      struct forge_error *err);
/*
 * Removes those outputs of a finished run that are chosen by their paths; the record keeps their names and digests in
 * outputs_removed, as temporary ones. A run of another FORGE_HOME is left as it is.
 */
FORGE_MUST_CHECK int forge_remove_outputs(const struct forge_home *home,
					  struct forge_store *st, const char *run_id,
					  bool (*is_chosen)(void *arg, const char *path),
					  void *arg, struct forge_removal *r,
					  struct forge_error *err);
/* To be called once, afterwards: removes their objects that no other run, and no result of another user, points to. */
FORGE_MUST_CHECK int forge_remove_objects(const struct forge_home *home,
					  struct forge_store *st, struct forge_removal *r,
					  struct forge_error *err);
void forge_removal_done(struct forge_removal *r);
