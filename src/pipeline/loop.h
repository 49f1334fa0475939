/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/pipeline only: the values of a foreach, and files of the host by patterns. */
#pragma once

#include "pipeline/pipeline.h"

/*
 * The values of one name of foreach: those of a list, of a parameter that is a list, or, for a pattern such as
 * data/X.fq with one * in place of X, what the * stands for in each file that there is. Each value once.
 */
FORGE_MUST_CHECK int forge_loop_values(const struct forge_pipeline *p,
				       const struct forge_step_loop *loop,
				       struct forge_strv *ret, struct forge_error *err);
/* The files that match an absolute pattern with * and ?, sorted. -errno: a directory cannot be read. */
FORGE_MUST_CHECK int forge_loop_glob(const char *pattern, struct forge_strv *ret);
