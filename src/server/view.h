/* SPDX-License-Identifier: Apache-2.0 */
/* Runs as the JSON of the HTTP interface: docs/openapi.json says what is in them. */
#pragma once

#include <jansson.h>

#include "server/shared.h"

/* RunRow: a line of a listing. record may be NULL. NULL: out of memory. */
json_t *forge_view_row(const struct forge_run_row *row, const json_t *record);
/* Live: a run that is not over, with what it uses now. slots: of forge_slot_all(). */
json_t *forge_view_live(const struct forge_server *sv, const struct forge_run_row *row,
			const json_t *record, const json_t *slots, bool wants_why);
/* "live" of one run by its record; null when it is over. */
json_t *forge_view_usage(const struct forge_server *sv, const json_t *record);
/* Why a queued run waits; null when it does not. */
json_t *forge_view_why(const struct forge_server *sv, const json_t *record);
