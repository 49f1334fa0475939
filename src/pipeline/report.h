/* SPDX-License-Identifier: Apache-2.0 */
/* One page of HTML about a pipeline: its graph, a timeline, what each task asked for and used, and advice. */
#pragma once

#include <stdio.h>

#include "pipeline/head_state.h"

/* h was evaluated; the records of its results come from the store. */
FORGE_MUST_CHECK int forge_report_write(FILE *f, struct forge_head *h,
					struct forge_error *err);
/*
 * Advice about a run, from its record: "asked for 4.00 GiB of memory, used 310.00 MiB: memory: 512M would do". Returns
 * buf; "": none.
 */
#define FORGE_ADVICE_MAX 320
const char *forge_report_advice(const json_t *record, char buf[FORGE_ADVICE_MAX]);
