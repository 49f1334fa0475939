/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/config only: the section "runtimes" of a file, and the files in runtimes.d. */
#pragma once

#include <stddef.h>

#include "config/config.h"
#include "config/loader.h"

/* Adds the runtimes in ld->runtimes. */
FORGE_MUST_CHECK int forge_runtimes_apply(struct forge_loader *ld,
					  struct forge_error *err);
/* Adds the runtimes of a file of runtimes.d; existing names stay unchanged. */
FORGE_MUST_CHECK int forge_config_add_runtimes(struct forge_config *c, const char *text,
					       size_t len, const char *name,
					       const char *base_dir,
					       struct forge_error *err);
/* Calls visit for every key of a runtime, for the manual. */
void forge_runtimes_each_key(void (*visit)(const struct forge_config_key *key, void *arg),
			     void *arg);
