/* SPDX-License-Identifier: Apache-2.0 */
/* Copies collected outputs back to plain files. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "state/home.h"

struct forge_export {
	const char *to; /* a directory; made with its parents if it does not exist */
	bool replaces;	/* replaces existing files */
	int stop_fd;	/* readable: stop with -ECANCELED; -1: none */
};

/*
 * Copies the outputs of a record into a directory, under their own names, and checks
 * their digests. All are copied and checked before the first gets its name; a directory
 * that did not exist appears with all of them. Without replaces nothing is copied when
 * one of the names exists (-EEXIST). No link is followed below the directory. Returns the
 * number of files, or a negative error.
 */
FORGE_MUST_CHECK int forge_export_outputs(const struct forge_home *home,
					  const json_t *record,
					  const struct forge_export *how,
					  struct forge_error *err);
/* One of several runs whose outputs are copied at once. */
struct forge_export_run {
	const struct forge_home *home; /* has the objects of the run */
	const json_t *record;
	const char *below; /* directory for them below forge_export.to; NULL: none */
};
/*
 * The same for several runs: the outputs of all of them are copied, or none. *ret_unread
 * (may be NULL) is the index of the run whose output could not be copied, n for other
 * failures.
 */
FORGE_MUST_CHECK int forge_export_runs(const struct forge_export_run *runs, size_t n,
				       const struct forge_export *how, size_t *ret_unread,
				       struct forge_error *err);
/* Whether an output of this name could be copied there: 0, or -EEXIST and the like. */
FORGE_MUST_CHECK int forge_export_check(const char *to, const char *path, bool replaces,
					struct forge_error *err);
