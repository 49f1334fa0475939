/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes from a store is data, never a path to open, link or remove: a team's database is written by
 * others too. This is the only place where a row of the store becomes a record of ours.
 */
#pragma once

#include <jansson.h>

#include "state/home.h"

/* Set in a record that has nothing of ours but the verdict of a row; see post_process_again.c. */
#define FORGE_RESTORED "restored_from_store"

/*
 * The record of run_id for our own directory: with ours (NULL: there is none) only the verdict is the
 * row's, and everything that is acted upon stays as it was written here. Without, the row's facts are
 * copied as they are, and what names a file is made anew from our FORGE_HOME, the id and the digests, or
 * left out. A new reference; NULL: out of memory.
 */
json_t *forge_record_adopt(const struct forge_home *home, const char *run_id,
			   const json_t *row, const json_t *ours);
/* {stdout, stderr, events}: where the files of a run of this FORGE_HOME are. */
json_t *forge_record_logs(const struct forge_home *home, const char *run_id);
