/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/config only: the sections "health" and "guard". */
#pragma once

#include "config/config.h"
#include "config/loader.h"

struct forge_named_row;

/* Adds the checks in ld->health; existing names, of outer files, stay unchanged. */
FORGE_MUST_CHECK int forge_health_apply(struct forge_loader *ld, struct forge_error *err);
/* Adds the checks that need no configuration, and the defaults of all others. */
FORGE_MUST_CHECK int forge_config_add_usual_checks(struct forge_config *c,
						   struct forge_error *err);
void forge_config_free_health(struct forge_config *c);
/* The rows of a check's keys, by which its fields are known. */
const struct forge_named_row *forge_health_rows(size_t *ret_n);
/* Calls visit for every key of a check, for the manual. */
void forge_health_each_key(void (*visit)(const struct forge_config_key *key, void *arg),
			   void *arg);
