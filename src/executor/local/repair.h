/* SPDX-License-Identifier: Apache-2.0 */
/* What a local run left whose supervisor is dead, and what a living one uses; see executor.h. */
#pragma once

#include "executor/executor.h"

FORGE_MUST_CHECK int forge_local_repair(const struct forge_repair *r,
					struct forge_error *err);
void forge_local_usage(const json_t *slot, struct forge_usage_now *ret);
