/* SPDX-License-Identifier: Apache-2.0 */
/* The head of a pipeline in another process, as far as its events tell: what is shown of one can be shown of the other. */
#pragma once

#include "pipeline/head_state.h"

struct forge_replay {
	struct forge_head
		h; /* h.g is NULL until the plan is known. It is no head that could be opened, run or closed */
	struct forge_graph g;
	struct forge_pipeline p;
	json_t *plan;	 /* has the texts of the names */
	json_t *numbers; /* of the tasks, by their names */
};
#define FORGE_REPLAY_INIT ((struct forge_replay){ .plan = NULL })

void forge_replay_event(struct forge_replay *r, const json_t *event);
void forge_replay_done(struct forge_replay *r);
