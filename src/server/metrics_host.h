/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of this host and this FORGE_HOME: budget, queue, what crashed runs left. */
#pragma once

#include "config/config.h"
#include "server/metrics_text.h"
#include "state/home.h"

/* Writes them, without those of a part that cannot be read. Returns 0, or the -errno of the last such part. */
FORGE_MUST_CHECK int forge_metrics_of_host(const struct forge_metrics_page *p,
					   const struct forge_home *home,
					   const struct forge_config *cfg,
					   struct forge_error *err);
