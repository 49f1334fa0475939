/* SPDX-License-Identifier: Apache-2.0 */
/* How a run ended, for the caller. */
#pragma once

#include <jansson.h>

struct forge_run_result {
	json_t *record;	       /* owned by the caller: json_decref() */
	int exit_status;       /* of `forge run`, see forge-run(1) */
	char existing_run[27]; /* set, and no record: this run has the idempotency key */
};
