/* SPDX-License-Identifier: Apache-2.0 */
/* The section "analysis": what a forge.yaml beside a script says about running it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "base/strv.h"
#include "config/schema.h"
#include "config/setters.h"

static const char *const keys[] = { "runtime", "profile", "limits", "inputs",
				    "outputs", "network", "env" };

static int set_word(const struct forge_loader *ld, const struct forge_yaml *node,
		    const char *path, char **ret, struct forge_error *err)
{
	if (node->type != FORGE_YAML_SCALAR || !*node->scalar)
		return forge_loader_fail(ld, node, path, err, "must be a name");
	free(*ret);
	*ret = strdup(node->scalar);
	return *ret ? 0 : forge_loader_oom(err);
}

static int set_list(const struct forge_loader *ld, const struct forge_yaml *node,
		    const char *path, struct forge_strv *ret, struct forge_error *err)
{
	if (node->type != FORGE_YAML_LIST)
		return forge_loader_fail(ld, node, path, err,
					 "must be a list, like [a, b]");
	forge_strv_done(ret);
	*ret = (struct forge_strv){ 0 };
	for (const struct forge_yaml *n = node->child; n; n = n->next) {
		if (n->type != FORGE_YAML_SCALAR || !*n->scalar)
			return forge_loader_fail(ld, n, path, err,
						 "must be a list of plain values");
		if (forge_strv_add(ret, n->scalar) < 0)
			return forge_loader_oom(err);
	}
	return 0;
}

static int set_env(const struct forge_loader *ld, const struct forge_yaml *node,
		   struct forge_strv *ret, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;

	if (node->type != FORGE_YAML_MAP)
		return forge_loader_fail(ld, node, "analysis.env", err,
					 "must be a map, like NAME: value");
	for (const struct forge_yaml *n = node->child; n; n = n->next) {
		if (forge_parse_env_name(n->key, strlen(n->key), &why) < 0 ||
		    n->type != FORGE_YAML_SCALAR)
			return forge_loader_fail(ld, n, "analysis.env", err, "%s",
						 why.code ? why.msg
							  : "must be a plain value");
		if (forge_strv_setenv(ret, n->key, n->scalar) < 0)
			return forge_loader_oom(err);
	}
	return 0;
}

static int set_network(const struct forge_loader *ld, const struct forge_yaml *node,
		       struct forge_analysis *a, struct forge_error *err)
{
	int rc = set_word(ld, node, "analysis.network", &a->network, err);

	if (rc == 0 && strcmp(a->network, "none") != 0 && strcmp(a->network, "host") != 0)
		rc = forge_loader_fail(ld, node, "analysis.network", err,
				       "'%.40s' is not one of none, host", a->network);
	return rc;
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
	if (strcmp(node->key, "inputs") == 0)
		return set_list(ld, node, "analysis.inputs", &a->inputs, err);
	if (strcmp(node->key, "outputs") == 0)
		return set_list(ld, node, "analysis.outputs", &a->outputs, err);
	if (strcmp(node->key, "env") == 0)
		return set_env(ld, node, &a->env, err);
	if (strcmp(node->key, "network") == 0)
		return set_network(ld, node, a, err);
	const char *limit =
		forge_schema_limit_like(node->key, keys, FORGE_ARRAY_SIZE(keys));
	if (limit)
		return forge_hint(
			err,
			forge_fail_at(err, ld->name, node->key_line, node->key_column,
				      "analysis: unknown key '%.64s'", node->key),
			"%s is a limit: write limits: {%s: ...} in analysis", limit,
			limit);
	return forge_fail_at(err, ld->name, node->key_line, node->key_column,
			     "analysis: %s",
			     forge_describe_unknown(text, "unknown key", node->key, keys,
						    FORGE_ARRAY_SIZE(keys)));
}

FORGE_SETTER(forge_set_analysis)
{
	if (node->type != FORGE_YAML_MAP)
		return forge_loader_fail(ld, node, row->path, err,
					 "must be a map with runtime, profile, limits, "
					 "inputs, outputs, network or "
					 "env");
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
	free(a->network);
	forge_strv_done(&a->inputs);
	forge_strv_done(&a->outputs);
	forge_strv_done(&a->env);
	*a = (struct forge_analysis){ .runtime = NULL };
}
