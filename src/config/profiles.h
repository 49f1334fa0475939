/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/config only: the section "profiles" of all files, as profiles of a configuration. */
#pragma once

#include <stddef.h>

#include "config/loader.h"

/* Makes the built-in profiles, then applies the profiles of each file. */
FORGE_MUST_CHECK int forge_profiles_apply(struct forge_config *c,
					  struct forge_loader *loaders, size_t n,
					  struct forge_error *err);
/* Checks that the profiles of this file are within the caps so far. */
FORGE_MUST_CHECK int forge_profiles_check(struct forge_loader *ld,
					  struct forge_error *err);
