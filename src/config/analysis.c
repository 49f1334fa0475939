/* SPDX-License-Identifier: Apache-2.0 */
/* The section "analysis": what a forge.yaml beside a script says about running it. */
#include <errno.h>
#include <string.h>

#include "config/schema.h"
#include "config/setters.h"

static const char *const keys[] = { "runtime", "profile", "limits" };

static int set_word(const struct forge_loader *ld, const struct forge_yaml *node,
		    const char *path, char **ret, struct forge_error *err)
{
	if (node->type != FORGE_YAML_SCALAR || !*node->scalar)
		return forge_loader_fail(ld, node, path, err, "must be a name");
	free(*ret);
	*ret = strdup(node->scalar);
	return *ret ? 0 : forge_loader_oom(err);
}

static int set_key(const struct forge_loader *ld, const struct forge_yaml *node,
		   struct forge_analysis *a, struct forge_error *err)
{
	char text[FORGE_UNKNOWN_MAX];

	if (strcmp(node->key, "runtime") == 0)
		return set_word(ld, node, "analysis.runtime", &a->runtime, err);
	if (strcmp(node->key, "profile") == 0)
		return set_word(ld, node, "analysis.profile", &a->profile, err);
	if (strcmp(node->key, "limits") == 0)
		return forge_schema_limits(ld, "analysis.limits", node, &a->limits, err);
	return forge_fail_at(err, ld->name, node->key_line, node->key_column,
			     "analysis: %s",
			     forge_describe_unknown(text, "unknown key", node->key, keys,
						    FORGE_ARRAY_SIZE(keys)));
}

FORGE_SETTER(forge_set_analysis)
{
	if (node->type != FORGE_YAML_MAP)
		return forge_loader_fail(ld, node, row->path, err,
					 "must be a map with runtime, profile or limits");
	for (const struct forge_yaml *n = node->child; n; n = n->next) {
		int rc = set_key(ld, n, &ld->config->analysis, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

void forge_analysis_done(struct forge_analysis *a)
{
	free(a->runtime);
	free(a->profile);
	*a = (struct forge_analysis){ .runtime = NULL };
}
