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
/* Whether an output of this name could be put there: 0, or -EEXIST and the like. Looks, makes nothing. */
FORGE_MUST_CHECK int forge_export_check(const char *to, const char *path, bool replaces,
					struct forge_error *err);
