/* SPDX-License-Identifier: Apache-2.0 */
/* The graph of a pipeline as text, Mermaid or SVG: its steps, and which read from which. */
#pragma once

#include <stdio.h>

#include "base/error.h"
#include "pipeline/graph.h"

/* One line a step, in the order in which they can run. */
void forge_draw_text(FILE *f, const struct forge_graph *g);
void forge_draw_mermaid(FILE *f, const struct forge_graph *g);
/* state: a word for the class of each step, from forge_task_state_names; NULL: none. */
FORGE_MUST_CHECK int forge_draw_svg(FILE *f, const struct forge_graph *g,
				    const char *const *states, struct forge_error *err);
