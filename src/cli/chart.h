/* SPDX-License-Identifier: Apache-2.0 */
/* Draws what a run used over time: memory, CPU and processes. */
#pragma once

#include <jansson.h>
#include <stdio.h>

/*
 * samples is as forge_samples_read() returns it, with at least one point. Limits and exact peaks come from the
 * record. The chart is as wide as the terminal, or 80 columns.
 */
void forge_chart_print(FILE *f, const json_t *record, const json_t *samples);
