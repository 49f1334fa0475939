/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of a run of which only the directory is left. A power cut may take the record of a run that was never confirmed:
 * the name of record.json is on the disk and its content is not, while the logs are; there is no slot, and the store
 * does not know the run. Its logs are kept, and it is recorded as lost, with what is known.
 */
#pragma once

#include <jansson.h>

#include "state/home.h"

/* A record without a verdict, for forge_close_lost(). NULL: out of memory. */
json_t *forge_record_of_remains(const struct forge_home *home, const char *run_id);
