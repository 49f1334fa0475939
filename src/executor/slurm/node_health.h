/* SPDX-License-Identifier: Apache-2.0 */
/* The health of a node around a job: as run/health.c does it on this machine. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "health/check.h"
#include "state/home.h"

/* What a node needs of the layers above. */
struct forge_node_hooks {
	struct forge_check_env (*check_env)(const struct forge_config *cfg,
					    const struct forge_home *home,
					    const char *store);
	int (*start_watcher)(const struct forge_home *home, struct forge_error *err);
};

struct forge_guard;

/* All pointers but the last two are borrowed. */
struct forge_node_health {
	const struct forge_node_hooks *hooks;
	const struct forge_config *config;
	const struct forge_home *home;
	const char *run_id, *workdir;
	struct forge_guard *guard;
	json_t *json; /* {pre, post} for the record */
};

/* -EHOSTDOWN: a check failed, and the job must not start. */
FORGE_MUST_CHECK int forge_node_health_before(struct forge_node_health *h,
					      struct forge_error *err);
/* Observes guarded files from now on. */
FORGE_MUST_CHECK int forge_node_health_guard(struct forge_node_health *h,
					     struct forge_error *err);
/* All processes of the job are gone. */
void forge_node_health_after(struct forge_node_health *h);
void forge_node_health_done(struct forge_node_health *h);
