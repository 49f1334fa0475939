/* SPDX-License-Identifier: Apache-2.0 */
/* Collected outputs as plain files again. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "state/home.h"

struct forge_export {
	const char *to; /* a directory; made if it is not there, with those above it */
	bool replaces;	/* files that are there already */
	int stop_fd;	/* readable: give up with -ECANCELED; -1: none */
};

/*
 * Copies the outputs of a record into a directory, under their own names, checked against their digests.
 * All are copied and checked before the first gets its name; a directory that was not there appears with
 * all of them. Without replaces nothing is copied when one of the names is taken (-EEXIST). No link is
 * followed below the directory. The number of files, or negative.
 */
FORGE_MUST_CHECK int forge_export_outputs(const struct forge_home *home,
					  const json_t *record,
					  const struct forge_export *how,
					  struct forge_error *err);
/* One of several runs whose outputs are copied at once. */
struct forge_export_run {
	const struct forge_home *home; /* that has its files */
	const json_t *record;
	const char *below; /* name of a directory for them, in the one of forge_export */
};
/*
 * The same for several runs, all or none of them together. *ret_unread (may be NULL) is the run of which an
 * output could not be read, n where it was something else that failed.
 */
FORGE_MUST_CHECK int forge_export_runs(const struct forge_export_run *runs, size_t n,
				       const struct forge_export *how, size_t *ret_unread,
				       struct forge_error *err);
/* Whether an output of this name could be put there: 0, or -EEXIST and the like. Looks, makes nothing. */
FORGE_MUST_CHECK int forge_export_check(const char *to, const char *path, bool replaces,
					struct forge_error *err);
