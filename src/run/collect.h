/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects the outputs of a run from its workdir. The tree may be hostile: no link is
 * followed, no special file is opened, and sizes are checked before anything is read.
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
	/* Every regular file but hidden ones and __pycache__; no patterns. */
	bool takes_all;
	const struct forge_strv *patterns;
	const char *always; /* also this path, if it exists; NULL: none */
	/* The checkpoint directory of a step, NULL: none. Collected with takes_checkpoint, otherwise not counted as undeclared. */
	const char *checkpoint;
	bool takes_checkpoint;
	bool must_match;    /* a pattern that matches nothing is a problem */
	const struct forge_strv
		*links; /* made by forge: "path below", "target", ...; left out */
	uint64_t max_bytes, max_files;
	uint64_t max_holes; /* bytes that are not on disk but take time to read */
	int stop_fd;	    /* readable: stop, and keep what is stored; -1: none */
	bool may_link;	    /* the files in the workdir are not needed any more */
	bool is_partial;    /* the run was ended early */
};

struct forge_collected {
	json_t *outputs;    /* [{path, size, sha256, stored_as, partial?}], sorted */
	json_t *skipped;    /* [{path, why}]: matched, but cannot be collected */
	json_t *undeclared; /* [{path, size}]: the first 1000 that no pattern matched */
	uint64_t n_undeclared;
	uint64_t n_aside; /* of them hidden, or in __pycache__ */
	uint64_t n_links; /* symbolic links that were to be collected */
	char *example; /* the name of an undeclared file or of such a link; NULL: none */
	bool is_stopped; /* by stop_fd: outputs has what was stored before, all partial */
	bool is_missing; /* the only problem is a pattern that matches nothing */
	bool is_too_much;  /* the problem is an exceeded bound; nothing was stored */
	char problem[384]; /* "": every declared output is stored and on disk */
};

/* Negative only when out of memory; other failures are in ret->problem. */
FORGE_MUST_CHECK int forge_collect(const struct forge_collect_spec *spec,
				   struct forge_objects *objects,
				   struct forge_collected *ret, struct forge_error *err);
void forge_collected_done(struct forge_collected *c);
