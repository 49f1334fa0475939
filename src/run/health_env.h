/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of a host's health that need runs: kinds command and runtime. */
#pragma once

#include "health/check.h"

/* What checks need, with all kinds. The pointers are borrowed. */
struct forge_check_env forge_health_env(const struct forge_config *cfg,
					const struct forge_home *home, const char *store);
