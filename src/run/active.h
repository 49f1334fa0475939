/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is running right now: $FORGE_HOME/active holds numbered slot files. A supervisor locks
 * a free one for as long as it lives and writes into it what it is about to make, before it
 * makes it. A slot with content whose lock is free belonged to a supervisor that was killed.
 *
 * A slot is lines of JSON objects, each with what is new; a reader takes all that are whole, and where a
 * key comes again the last. So a slot is as long as what it says, however often it is written to. Slots
 * are emptied, not removed: that is cheaper, and no lock is ever held on a file that somebody else has
 * unlinked.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "base/strv.h"
#include "run/workdir.h"
#include "state/home.h"

struct forge_active {
	int fd;	       /* holds the lock, -1 when there is none */
	unsigned slot; /* also picks the run's host uid, when root runs it */
};
#define FORGE_ACTIVE_INIT ((struct forge_active){ .fd = -1 })

/* Claims a free slot below n_slots, a low one if there is. *attempt begins with 0; going on with
 * it finds another one. */
FORGE_MUST_CHECK int forge_active_claim(const struct forge_home *home, unsigned *attempt,
					unsigned n_slots, struct forge_active *ret,
					struct forge_error *err);
/* First line: the intention to make this workdir and the run's cgroups. */
FORGE_MUST_CHECK int forge_active_intend(struct forge_active *a, const char *run_id,
					 const char *workdir, const char *store,
					 bool keep, struct forge_error *err);
/* Instead of that workdir, whose name is taken, another one. */
FORGE_MUST_CHECK int forge_active_intend_workdir(struct forge_active *a,
						 const char *workdir,
						 struct forge_error *err);
/* The workdir is to be kept after all. */
FORGE_MUST_CHECK int forge_active_intend_keep(struct forge_active *a,
					      struct forge_error *err);
/* Second line: the workdir exists. */
FORGE_MUST_CHECK int forge_active_note_workdir(struct forge_active *a,
					       const struct forge_workdir *w,
					       struct forge_error *err);
/* Third line: this is what the record of a lost run would say. */
FORGE_MUST_CHECK int forge_active_note_record(struct forge_active *a, json_t *record,
					      struct forge_error *err);
/*
 * The facts in a slot, NULL when it holds none (empty, or torn before anything was made). Negative: they
 * cannot be read, so nobody may take it for empty.
 */
FORGE_MUST_CHECK int forge_active_read(int fd, json_t **ret);
/* Empties and releases the slot: the run is over and everything is cleaned. */
void forge_active_close(struct forge_active *a);
/* Releases it as it is: the next repair tries again to clean. */
void forge_active_leave(struct forge_active *a);
