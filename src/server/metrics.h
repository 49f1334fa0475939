/* SPDX-License-Identifier: Apache-2.0 */
/* What forge does on this host and in its store, as metrics for Prometheus. See docs/METRICS.md. */
#pragma once

#include <stdio.h>

#include "base/error.h"
#include "config/config.h"
#include "server/metrics_text.h"
#include "state/home.h"
#include "store/store.h"

const char *forge_metrics_media_type(enum forge_metrics_format format);

/*
 * Writes all metrics to out, which may be a memory stream. st is NULL when the store cannot be reached: the metrics
 * say so, as they do of any part that cannot be read. Changes nothing but how the store keeps its totals. The only
 * errors are -ENOMEM and that of out.
 */
FORGE_MUST_CHECK int forge_metrics_print(struct forge_store *st,
					 const struct forge_home *home,
					 const struct forge_config *cfg,
					 enum forge_metrics_format format, FILE *out,
					 struct forge_error *err);
