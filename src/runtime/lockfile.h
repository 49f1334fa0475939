/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a runtime with a lock that was written earlier. */
#pragma once

#include "runtime/runtime.h"

/*
 * Compares with a lock of `forge runtime lock`. *ret is an array of {change:
 * "added"|"removed"|"changed", name, was, is}; empty: nothing has changed.
 */
FORGE_MUST_CHECK int forge_lock_compare(const struct forge_runtime *rt, const char *path,
					json_t **ret, struct forge_error *err);
