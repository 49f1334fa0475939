/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/config only: the section "executors". */
#pragma once

#include "config/config.h"
#include "config/loader.h"

/* Adds the executors in ld->executors; existing names stay unchanged. */
FORGE_MUST_CHECK int forge_executors_apply(struct forge_loader *ld,
					   struct forge_error *err);
/* Adds the executors that need no configuration: local, docker and podman. */
FORGE_MUST_CHECK int forge_config_add_usual_executors(struct forge_config *c,
						      struct forge_error *err);
void forge_config_free_executors(struct forge_config *c);
/* Calls visit for every key of an executor, for the manual. */
void forge_executors_each_key(void (*visit)(const struct forge_config_key *key,
					    void *arg),
			      void *arg);
