/* SPDX-License-Identifier: Apache-2.0 */
/* Locks read back: what has changed in a runtime since one was written. */
#pragma once

#include "runtime/runtime.h"

/*
 * Compares with a lock of `forge runtime lock`. *ret is an array of
 * {change: "added"|"removed"|"changed", name, was, is}; empty: nothing has.
 */
FORGE_MUST_CHECK int forge_lock_compare(const struct forge_runtime *rt, const char *path,
					json_t **ret, struct forge_error *err);
