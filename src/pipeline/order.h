/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/pipeline only: which steps a step reads from, and the order that follows. */
#pragma once

#include "pipeline/pipeline.h"

/* The step whose outputs a path of an input names: "align/aln.bam", "align". -1: it is a file. */
int forge_step_of(const struct forge_pipeline *p, const char *path);
/* Indices of all steps, each after those that it reads from. An error names steps that wait for each other. */
FORGE_MUST_CHECK int forge_order_steps(const struct forge_pipeline *p,
				       unsigned *ret_order, struct forge_error *err);
