/* SPDX-License-Identifier: Apache-2.0 */
/* Collected outputs as plain files again. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "run/home.h"

/*
 * Copies the outputs of a record into directory to, under their own names, and checks each against
 * its digest. Nothing that exists is overwritten, no link is followed. The number of files.
 */
FORGE_MUST_CHECK int forge_export_outputs(const struct forge_home *home,
					  const json_t *record, const char *to,
					  struct forge_error *err);
