/* SPDX-License-Identifier: Apache-2.0 */
/* The section "analysis": settings of a forge.yaml for the scripts beside it. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/strv.h"
#include "config/config.h"
#include "config/named.h"
#include "config/setters.h"

#define FIELD(f) offsetof(struct forge_analysis, f)

static const char *const networks[] = { "none", "host", NULL };

/* The manual shows the section as one key of the schema, so these rows have no texts for it. */
static const struct forge_named_row rows[] = {
	{ .key = "runtime", .type = FORGE_NAMED_WORD, .offset = FIELD(runtime) },
	{ .key = "profile", .type = FORGE_NAMED_WORD, .offset = FIELD(profile) },
	{ .key = "limits", .type = FORGE_NAMED_LIMITS, .offset = FIELD(limits) },
	{ .key = "inputs", .type = FORGE_NAMED_LIST, .offset = FIELD(inputs) },
	{ .key = "outputs", .type = FORGE_NAMED_LIST, .offset = FIELD(outputs) },
	{ .key = "network",
	  .type = FORGE_NAMED_ONE_OF,
	  .offset = FIELD(network),
	  .words = networks },
	{ .key = "env", .type = FORGE_NAMED_PAIRS, .offset = FIELD(env) },
};

static const struct forge_named_map keys = {
	.must_be = "a map with runtime, profile, limits, inputs, outputs, network or env",
	.rows = rows,
	.n = FORGE_ARRAY_SIZE(rows),
	.has_limits_hint = true,
};

FORGE_SETTER(forge_set_analysis)
{
	return forge_named_read(ld, node, row->path, &keys, &ld->config->analysis, err);
}

void forge_analysis_done(struct forge_analysis *a)
{
	free(a->runtime);
	free(a->profile);
	free(a->network);
	forge_strv_done(&a->inputs);
	forge_strv_done(&a->outputs);
	forge_strv_done(&a->env);
	*a = (struct forge_analysis){ .runtime = NULL };
}
