/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles: built-in values, then the file's, all below the host's caps. */
#include "config/profiles.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/yaml.h"
#include "config/config.h"
#include "config/named.h"
#include "config/setters.h"

static const char *const builtin_profiles[] = { "default", "notebook", "tool",
						"post_process" };

/* Values of the built-in profiles that differ from "default". */
static const struct {
	const char *profile, *limit, *text;
} builtin_values[] = {
	{ "notebook", "memory", "2G" },	     { "notebook", "timeout", "10m" },
	{ "tool", "memory", "1G" },	     { "tool", "cpus", "1" },
	{ "tool", "timeout", "10m" },	     { "post_process", "memory", "1G" },
	{ "post_process", "timeout", "5m" },
};

static void set_builtin(struct forge_limits *l, const struct forge_limit_row *row,
			const char *text)
{
	int rc = forge_limit_set(l, row, text, NULL);

	assert(rc == 0);
	(void)rc; /* unused with NDEBUG */
}

/* "default" starts from the table, the other profiles from "default" as it is by then. */
static struct forge_limits builtin_limits(const struct forge_config *c,
					  const char *profile)
{
	struct forge_limits l = { 0 };

	if (strcmp(profile, "default") != 0)
		l = c->profiles[0].limits;
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *row = &forge_limit_rows[i];

		if (strcmp(profile, "default") == 0)
			set_builtin(&l, row, row->builtin);
		for (size_t j = 0; j < FORGE_ARRAY_SIZE(builtin_values); j++)
			if (strcmp(builtin_values[j].profile, profile) == 0 &&
			    strcmp(builtin_values[j].limit, row->name) == 0)
				set_builtin(&l, row, builtin_values[j].text);
		/*
		 * Built-in values are lowered to the caps silently: a small host.max must
		 * not make profiles illegal that the user did not write.
		 */
		uint64_t cap = forge_limit_value(&c->caps, row);
		if (cap != 0 && forge_limit_value(&l, row) > cap)
			*forge_limit_slot(&l, row) = cap;
	}
	return l;
}

/* Values in the file must be within the caps: one key at a time, to name its place. */
static int check_written(const struct forge_loader *ld, const struct forge_yaml *map,
			 const char *path, const struct forge_limits *written,
			 struct forge_error *err)
{
	for (const struct forge_yaml *n = map->child; n; n = n->next) {
		for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
			const struct forge_limit_row *row = &forge_limit_rows[i];
			struct forge_error why = FORGE_ERROR_INIT;
			struct forge_limits one = { 0 };

			if (strcmp(row->key, n->key) != 0)
				continue;
			*forge_limit_slot(&one, row) = forge_limit_value(written, row);
			if (forge_limits_check(&one, &ld->config->caps,
					       ld->config->allow_unlimited, &why) < 0)
				return forge_loader_fail(ld, n, path, err, "%s", why.msg);
		}
	}
	return 0;
}

/* Lowers limits to the caps: a lower cap of an inner file is no error. */
static void clamp(struct forge_limits *l, const struct forge_limits *caps)
{
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		uint64_t cap = forge_limit_value(caps, &forge_limit_rows[i]);
		uint64_t *value = forge_limit_slot(l, &forge_limit_rows[i]);
		if (cap != 0 && *value > cap)
			*value = cap;
	}
}

static int overlay_layer(const struct forge_loader *ld, const char *name,
			 struct forge_limits *limits, struct forge_error *err)
{
	const struct forge_yaml *map = forge_named_find(ld->profiles, name);
	struct forge_limits written = { 0 };
	char path[96], key[160];

	if (!map)
		return 0;
	(void)snprintf(path, sizeof(path), "profiles.%s", name);
	int rc = forge_named_limits(ld, path, map, &written, err);
	for (const struct forge_yaml *n = map->child; n && rc == 0; n = n->next) {
		(void)snprintf(key, sizeof(key), "%s.%s", path, n->key);
		rc = forge_loader_note(ld, key, n, err);
	}
	forge_limits_overlay(limits, &written);
	return rc;
}

static int add_profile(struct forge_config *c, const struct forge_loader *loaders,
		       size_t n, const char *name, struct forge_error *err)
{
	struct forge_limits limits = builtin_limits(c, name);
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++)
		rc = overlay_layer(&loaders[i], name, &limits, err);
	if (rc < 0)
		return rc;
	clamp(&limits, &c->caps);
	char *copy = strdup(name);
	if (!copy)
		return forge_loader_oom(err);
	c->profiles[c->n_profiles++] =
		(struct forge_profile){ .name = copy, .limits = limits };
	return 0;
}

static bool is_there(const struct forge_config *c, const char *name)
{
	for (size_t i = 0; i < c->n_profiles; i++)
		if (strcmp(c->profiles[i].name, name) == 0)
			return true;
	return false;
}

FORGE_SETTER(forge_set_profiles)
{
	if (node->type != FORGE_YAML_MAP)
		return forge_loader_fail(ld, node, row->path, err,
					 "must be a map of profile names to limits");
	ld->profiles = node;
	return 0;
}

static int check_profile(struct forge_loader *ld, const struct forge_yaml *node,
			 const char *path, void *arg, struct forge_error *err)
{
	struct forge_limits written = { 0 };
	int rc = forge_named_limits(ld, path, node, &written, err);

	(void)arg;
	return rc < 0 ? rc : check_written(ld, node, path, &written, err);
}

int forge_profiles_check(struct forge_loader *ld, struct forge_error *err)
{
	return forge_named_each(ld, ld->profiles, "profiles", check_profile, NULL, err);
}

struct layers {
	struct forge_config *config;
	struct forge_loader *loaders;
	size_t n;
};

static int add_new_profile(struct forge_loader *ld, const struct forge_yaml *node,
			   const char *path, void *arg, struct forge_error *err)
{
	const struct layers *l = arg;

	(void)ld;
	(void)path;
	return is_there(l->config, node->key)
		       ? 0
		       : add_profile(l->config, l->loaders, l->n, node->key, err);
}

int forge_profiles_apply(struct forge_config *c, struct forge_loader *loaders, size_t n,
			 struct forge_error *err)
{
	size_t most = FORGE_ARRAY_SIZE(builtin_profiles);
	struct layers layers = { c, loaders, n };
	int rc = 0;

	for (size_t i = 0; i < n; i++)
		for (const struct forge_yaml *p =
			     loaders[i].profiles ? loaders[i].profiles->child : NULL;
		     p; p = p->next)
			most++;
	c->profiles = calloc(most, sizeof(*c->profiles));
	if (!c->profiles)
		return forge_loader_oom(err);
	for (size_t i = 0; rc == 0 && i < FORGE_ARRAY_SIZE(builtin_profiles); i++)
		rc = add_profile(c, loaders, n, builtin_profiles[i], err);
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = forge_named_each(&loaders[i], loaders[i].profiles, "profiles",
				      add_new_profile, &layers, err);
	return rc;
}

int forge_config_profile(const struct forge_config *c, const char *name,
			 const struct forge_profile **ret, struct forge_error *err)
{
	const char *words[16];
	char text[FORGE_UNKNOWN_MAX];
	size_t n = 0;

	for (size_t i = 0; i < c->n_profiles; i++) {
		if (strcmp(c->profiles[i].name, name ? name : "default") == 0) {
			*ret = &c->profiles[i];
			return 0;
		}
		if (n < FORGE_ARRAY_SIZE(words))
			words[n++] = c->profiles[i].name;
	}
	return forge_fail(
		err, ENOENT, "%s",
		forge_describe_unknown(text, "unknown profile", name, words, n));
}
