/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collecting what a run left in its workdir. The tree may be hostile: nothing is followed, nothing
 * special is opened, sizes are believed before they are read.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strv.h"
#include "state/objects.h"

struct forge_collect_spec {
	int workdir_fd;
	bool takes_all; /* every regular file, hidden ones and __pycache__ aside; no patterns */
	const struct forge_strv *patterns;
	const char *always; /* this path too, if it is there; NULL: none */
	bool must_match;    /* a pattern that matches nothing is a problem */
	const struct forge_strv
		*links; /* forge's own: "path below", "target", ...; left out */
	uint64_t max_bytes, max_files;
	uint64_t max_holes; /* bytes that are on no disk, and take as long to read */
	int stop_fd;	    /* readable: what is stored by then is all; -1: none */
	bool may_link;	    /* nobody needs the files in the workdir any more */
	bool is_partial;    /* the run was ended before its time */
};

struct forge_collected {
	json_t *outputs; /* [{path, size, sha256, stored_as, partial?}], sorted */
	json_t *skipped; /* [{path, why}]: matched, and cannot be collected */
	json_t *undeclared; /* [{path, size}]: the first thousand files that no pattern matched */
	uint64_t n_undeclared;
	uint64_t n_aside; /* of them hidden, or in __pycache__ */
	uint64_t n_links; /* symbolic links that were to be collected */
	char *example; /* the name of one of the undeclared, or of the links; NULL: none */
	bool is_stopped; /* by stop_fd: outputs are what was stored before, all partial */
	bool is_missing; /* the problem is a pattern that nothing matches, and no other */
	bool is_too_much;  /* the problem is a bound, and nothing was taken */
	char problem[384]; /* "": every declared output is stored and on disk */
};

/* Negative only when out of memory; everything else is a problem to be told. */
FORGE_MUST_CHECK int forge_collect(const struct forge_collect_spec *spec,
				   struct forge_objects *objects,
				   struct forge_collected *ret, struct forge_error *err);
void forge_collected_done(struct forge_collected *c);
