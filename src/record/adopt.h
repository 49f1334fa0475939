/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data from a store never names a path to open, link or remove: other users can write a
 * team's database. This is the only place where a row of the store becomes a record in
 * this FORGE_HOME.
 */
#pragma once

#include <jansson.h>

#include "state/home.h"

/* Set in a record that was made from a row alone; see postprocess_again.c. */
#define FORGE_RESTORED "restored_from_store"

/*
 * The record of run_id for this FORGE_HOME. With ours (NULL: there is no record here),
 * only the verdict and the outputs come from the row; all other values stay as they were
 * written here. Without, the facts of the row are copied, and values that name a file are
 * made from FORGE_HOME, the id and the digests, or left out. Returns a new reference;
 * NULL: out of memory.
 */
json_t *forge_record_adopt(const struct forge_home *home, const char *run_id,
			   const json_t *row, const json_t *ours);
/* {stdout, stderr, events}: the paths of these files of a run in this FORGE_HOME. */
json_t *forge_record_logs(const struct forge_home *home, const char *run_id);
