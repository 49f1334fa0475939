/* SPDX-License-Identifier: Apache-2.0 */
/* `forge config show`: the configuration in force, for people and as JSON, on stdout. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "config/config.h"

FORGE_MUST_CHECK int forge_config_show(const struct forge_config *cfg,
				       struct forge_error *err);
FORGE_MUST_CHECK int forge_config_show_json(const struct forge_config *cfg,
					    struct forge_error *err);
/* Prints every key, its value as written, and its origin. */
FORGE_MUST_CHECK int forge_config_show_origin(const struct forge_config *cfg,
					      bool is_json, struct forge_error *err);
