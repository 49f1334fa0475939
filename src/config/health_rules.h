/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/config only: which values the keys of a check may have, beyond their types. */
#pragma once

#include "base/error.h"
#include "config/loader.h"

/*
 * Fails at the first value that a check of this kind cannot use. node is the map of the check, whose types are
 * right already. A message never contains a URL, which may hold a password.
 */
FORGE_MUST_CHECK int forge_health_check_values(const struct forge_loader *ld,
					       const struct forge_yaml *node,
					       const char *path, const char *kind,
					       struct forge_error *err);
