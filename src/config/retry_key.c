/* SPDX-License-Identifier: Apache-2.0 */
/* The key "retry" of a configuration file. */
#include <stdio.h>
#include <string.h>

#include "base/yaml.h"
#include "config/config.h"
#include "config/named.h"
#include "config/setters.h"
#include "config/values.h"

static int read_rule(const struct forge_loader *ld, const struct forge_yaml *map,
		     const char *prefix, enum forge_retry_reason reason,
		     struct forge_retry_rule *ret, struct forge_error *err)
{
	struct forge_retry_rule rule = { 0 };
	char path[160];
	bool has_times = false;

	(void)snprintf(path, sizeof(path), "%s.%s", prefix, forge_retry_names[reason]);
	if (map->type != FORGE_YAML_MAP)
		return forge_loader_fail(ld, map, path, err,
					 "must be a map with times, factor, max");
	for (const struct forge_yaml *n = map->child; n; n = n->next) {
		struct forge_error why = FORGE_ERROR_INIT;
		char at[192];
		size_t key = 0;
		while (key < FORGE_RETRY_KEYS &&
		       strcmp(forge_retry_keys[key], n->key) != 0)
			key++;
		if (key == FORGE_RETRY_KEYS)
			return forge_named_unknown(ld, n, path, forge_retry_keys, key,
						   err);
		(void)snprintf(at, sizeof(at), "%s.%s", path, n->key);
		const struct forge_value v = { ld, n, at, "one number" };
		int rc = forge_value_scalar(&v, err);
		if (rc < 0)
			return rc;
		if (forge_retry_set(&rule, reason, key, n->scalar, &why) < 0)
			return forge_loader_fail(ld, n, at, err, "%s", why.msg);
		has_times = has_times || key == 0;
	}
	if (!has_times)
		return forge_loader_fail(ld, map, path, err,
					 "does not say how often (times)");
	*ret = rule;
	return 0;
}

int forge_retry_read(const struct forge_loader *ld, const struct forge_yaml *node,
		     const char *path, struct forge_retry_policy *ret,
		     struct forge_error *err)
{
	char buf[FORGE_RETRY_REFUSAL_MAX];
	int rc = 0;

	if (node->type != FORGE_YAML_MAP)
		return forge_loader_fail(
			ld, node, path, err,
			"must be a map of reasons, as in {memory: {times: 2}}");
	for (const struct forge_yaml *n = node->child; n && rc == 0; n = n->next) {
		int reason = forge_retry_find(n->key);
		if (reason < 0)
			return forge_fail_at(err, ld->name, n->key_line, n->key_column,
					     "%s: %s", path,
					     forge_retry_refuse(buf, n->key));
		rc = read_rule(ld, n, path, (enum forge_retry_reason)reason,
			       &ret->rules[reason], err);
	}
	return rc;
}

/* A file replaces the rules of the files outside of it, reason by reason. */
FORGE_SETTER(forge_set_retry)
{
	return forge_retry_read(ld, node, row->path, &ld->config->retry, err);
}
