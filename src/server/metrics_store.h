/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics that come from the store. */
#pragma once

#include "server/metrics_text.h"
#include "store/store.h"

/*
 * Writes them, without any of those that the store does not give now. Returns 0, or the -errno of the store. st may
 * be NULL.
 */
FORGE_MUST_CHECK int forge_metrics_of_store(const struct forge_metrics_page *p,
					    struct forge_store *st,
					    struct forge_error *err);
