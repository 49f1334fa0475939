/* SPDX-License-Identifier: Apache-2.0 */
/* Reads maps of named entries by a table of rows. */
#include "config/named.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/near.h"
#include "base/parse.h"
#include "base/strv.h"
#include "base/yaml.h"
#include "config/path.h"
#include "config/values.h"

int forge_named_unknown(const struct forge_loader *ld, const struct forge_yaml *node,
			const char *prefix, const char *const *words, size_t n,
			struct forge_error *err)
{
	char text[FORGE_UNKNOWN_MAX];

	(void)forge_describe_unknown(text, "unknown key", node->key, words, n);
	return forge_fail_at(err, ld->name, node->key_line, node->key_column, "%s%s%s",
			     prefix, *prefix ? ": " : "", text);
}

const char *forge_named_limit_like(const char *key, const char *const *words, size_t n)
{
	const char *limits[FORGE_LIMIT_COUNT_ROWS];

	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		limits[i] = forge_limit_rows[i].key;
		if (strcmp(limits[i], key) == 0 ||
		    strcmp(forge_limit_rows[i].name, key) == 0)
			return limits[i];
	}
	return forge_near_miss(key, words, n)
		       ? NULL
		       : forge_near_miss(key, limits, FORGE_LIMIT_COUNT_ROWS);
}

static const struct forge_limit_row *limit_by_key(const char *key)
{
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++)
		if (strcmp(forge_limit_rows[i].key, key) == 0)
			return &forge_limit_rows[i];
	return NULL;
}

static int unknown_limit(const struct forge_loader *ld, const struct forge_yaml *node,
			 const char *prefix, struct forge_error *err)
{
	const char *words[FORGE_LIMIT_COUNT_ROWS];

	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++)
		words[i] = forge_limit_rows[i].key;
	return forge_named_unknown(ld, node, prefix, words, FORGE_LIMIT_COUNT_ROWS, err);
}

int forge_named_limits(const struct forge_loader *ld, const char *path,
		       const struct forge_yaml *map, struct forge_limits *ret,
		       struct forge_error *err)
{
	if (map->type != FORGE_YAML_MAP)
		return forge_loader_fail(
			ld, map, path, err,
			"must be a map of limits, for example memory: 2G");
	for (const struct forge_yaml *n = map->child; n; n = n->next) {
		struct forge_error why = FORGE_ERROR_INIT;
		const struct forge_limit_row *row = limit_by_key(n->key);
		char full[160];

		if (!row)
			return unknown_limit(ld, n, path, err);
		(void)snprintf(full, sizeof(full), "%s.%s", path, row->key);
		if (n->type != FORGE_YAML_SCALAR)
			return forge_loader_fail(ld, n, full, err,
						 "must be one value, like %s",
						 row->builtin);
		if (forge_limit_set(ret, row, n->scalar, &why) < 0)
			return forge_loader_fail(ld, n, full, err, "%s", why.msg);
	}
	return 0;
}

static int need(const struct forge_value *v, enum forge_yaml_type type, const char *what,
		struct forge_error *err)
{
	return v->node->type == type ? 0
				     : forge_loader_fail(v->ld, v->node, v->path, err,
							 "must be %s", what);
}

static int set_text(const struct forge_value *v, char **ret, struct forge_error *err)
{
	int rc = need(v, FORGE_YAML_SCALAR, "one value", err);

	return rc < 0 ? rc : forge_value_copy(v, ret, err);
}

static int set_word(const struct forge_value *v, char **ret, struct forge_error *err)
{
	if (v->node->type != FORGE_YAML_SCALAR || !*v->node->scalar)
		return forge_loader_fail(v->ld, v->node, v->path, err, "must be a name");
	return forge_value_copy(v, ret, err);
}

static int set_one_of(const struct forge_value *v, const char *const *words, char **ret,
		      struct forge_error *err)
{
	char list[160] = "";
	size_t len = 0;

	if (v->node->type != FORGE_YAML_SCALAR || !*v->node->scalar)
		return set_word(v, ret, err); /* which reports the error */
	for (size_t i = 0; words[i]; i++) {
		if (strcmp(words[i], v->node->scalar) == 0)
			return set_word(v, ret, err);
		if (len < sizeof(list))
			len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s",
						i ? ", " : "", words[i]);
	}
	return forge_loader_fail(v->ld, v->node, v->path, err, "'%.40s' is not one of %s",
				 v->node->scalar, list);
}

/* A list of an inner file replaces that of an outer one. */
static int set_list(const struct forge_value *v, struct forge_strv *ret,
		    struct forge_error *err)
{
	int rc = need(v, FORGE_YAML_LIST, "a list, like [a, b]", err);

	if (rc < 0)
		return rc;
	forge_strv_done(ret);
	*ret = (struct forge_strv){ 0 };
	for (const struct forge_yaml *n = v->node->child; rc == 0 && n; n = n->next) {
		const struct forge_value one = { v->ld, n, v->path, v->type };

		rc = need(&one, FORGE_YAML_SCALAR, "a list of plain values", err);
		if (rc == 0 && !*n->scalar)
			rc = forge_loader_fail(v->ld, n, v->path, err,
					       "a value must not be empty");
		if (rc == 0 && forge_strv_add(ret, n->scalar) < 0)
			rc = forge_loader_oom(err);
	}
	return rc;
}

static int set_pairs(const struct forge_value *v, struct forge_strv *ret,
		     struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	int rc = need(v, FORGE_YAML_MAP, "a map, like NAME: value", err);

	for (const struct forge_yaml *n = v->node->child; rc == 0 && n; n = n->next) {
		const struct forge_value one = { v->ld, n, v->path, v->type };

		if (forge_parse_env_name(n->key, strlen(n->key), &why) < 0)
			return forge_fail_at(err, v->ld->name, n->key_line, n->key_column,
					     "%s: %s", v->path, why.msg);
		rc = need(&one, FORGE_YAML_SCALAR, "a map of plain values", err);
		if (rc == 0 && forge_strv_setenv(ret, n->key, n->scalar) < 0)
			rc = forge_loader_oom(err);
	}
	return rc;
}

static int set_field(const struct forge_value *v, const struct forge_named_row *row,
		     void *field, struct forge_error *err)
{
	switch (row->type) {
	case FORGE_NAMED_TEXT:
		return set_text(v, field, err);
	case FORGE_NAMED_WORD:
		return set_word(v, field, err);
	case FORGE_NAMED_ONE_OF:
		return set_one_of(v, row->words, field, err);
	case FORGE_NAMED_LIST:
		return set_list(v, field, err);
	case FORGE_NAMED_PAIRS:
		return set_pairs(v, field, err);
	case FORGE_NAMED_LIMITS:
		return forge_named_limits(v->ld, v->path, v->node, field, err);
	case FORGE_NAMED_BOOL:
		return forge_value_bool(v, field, err);
	case FORGE_NAMED_SIZE:
		return forge_value_size(v, field, err);
	case FORGE_NAMED_DURATION:
		return forge_value_number(v, forge_parse_duration, false, field, err);
	case FORGE_NAMED_AMOUNT:
		return forge_value_amount(v, field, err);
	case FORGE_NAMED_COUNT:
		return forge_value_number(v, forge_parse_count, false, field, err);
	case FORGE_NAMED_NODE:
		*(const struct forge_yaml **)field = v->node;
		return 0;
	}
	return forge_fail(err, EINVAL, "%s: no such type of row", v->path);
}

#define ROWS_MAX 32

static int unknown_row(const struct forge_loader *ld, const struct forge_yaml *node,
		       const char *path, const struct forge_named_map *map,
		       struct forge_error *err)
{
	const char *words[ROWS_MAX];
	size_t n = map->n;

	assert(n <= ROWS_MAX);
	for (size_t i = 0; i < n; i++)
		words[i] = map->rows[i].key;
	const char *limit =
		map->has_limits_hint ? forge_named_limit_like(node->key, words, n) : NULL;
	if (!limit)
		return forge_named_unknown(ld, node, path, words, n, err);
	return forge_hint(err,
			  forge_fail_at(err, ld->name, node->key_line, node->key_column,
					"%s: unknown key '%.64s'", path, node->key),
			  "%s is a limit: write limits: {%s: ...} in %s", limit, limit,
			  path);
}

int forge_named_read(const struct forge_loader *ld, const struct forge_yaml *node,
		     const char *path, const struct forge_named_map *map, void *ret,
		     struct forge_error *err)
{
	const struct forge_value whole = { ld, node, path, NULL };
	int rc = need(&whole, FORGE_YAML_MAP, map->must_be, err);

	for (const struct forge_yaml *n = node->child; rc == 0 && n; n = n->next) {
		const struct forge_named_row *row = map->rows, *end = row + map->n;
		char full[160];

		while (row < end && strcmp(row->key, n->key) != 0)
			row++;
		if (row == end)
			return unknown_row(ld, n, path, map, err);
		(void)snprintf(full, sizeof(full), "%s.%s", path, row->key);
		const struct forge_value v = { ld, n, full, row->type_name };
		rc = set_field(&v, row, (char *)ret + row->offset, err);
	}
	return rc;
}

int forge_named_each(struct forge_loader *ld, const struct forge_yaml *section,
		     const char *name, forge_named_visitor *visit, void *arg,
		     struct forge_error *err)
{
	int rc = 0;

	for (const struct forge_yaml *n = section ? section->child : NULL; n && rc == 0;
	     n = n->next) {
		struct forge_error why = FORGE_ERROR_INIT;
		char path[96];

		if (forge_parse_id(n->key, &why) < 0)
			return forge_fail_at(err, ld->name, n->key_line, n->key_column,
					     "%s: %s", name, why.msg);
		(void)snprintf(path, sizeof(path), "%s.%s", name, n->key);
		rc = visit(ld, n, path, arg, err);
	}
	return rc;
}

const struct forge_yaml *forge_named_find(const struct forge_yaml *section,
					  const char *name)
{
	const struct forge_yaml *n = section ? section->child : NULL;

	while (n && strcmp(n->key, name) != 0)
		n = n->next;
	return n;
}

void forge_named_done(const struct forge_named_map *map, void *s)
{
	for (size_t i = 0; i < map->n; i++) {
		void *field = (char *)s + map->rows[i].offset;
		switch (map->rows[i].type) {
		case FORGE_NAMED_TEXT:
		case FORGE_NAMED_WORD:
		case FORGE_NAMED_ONE_OF:
			free(*(char **)field);
			*(char **)field = NULL;
			break;
		case FORGE_NAMED_LIST:
		case FORGE_NAMED_PAIRS:
			forge_strv_done(field);
			break;
		case FORGE_NAMED_LIMITS:
		case FORGE_NAMED_BOOL:
		case FORGE_NAMED_SIZE:
		case FORGE_NAMED_DURATION:
		case FORGE_NAMED_COUNT:
		case FORGE_NAMED_AMOUNT:
		case FORGE_NAMED_NODE:
			break; /* nothing on the heap */
		}
	}
}

int forge_named_absolute(const struct forge_loader *ld, char **path,
			 struct forge_error *err)
{
	char *full = *path ? forge_path_absolute(ld->base_dir, *path) : NULL;

	if (!*path)
		return 0;
	if (!full)
		return forge_loader_oom(err);
	free(*path);
	*path = full;
	return 0;
}

void forge_named_each_key(const struct forge_named_map *map, const char *section,
			  char (*paths)[FORGE_NAMED_PATH_MAX],
			  void (*visit)(const struct forge_config_key *key, void *arg),
			  void *arg)
{
	for (size_t i = 0; i < map->n; i++) {
		const struct forge_named_row *row = &map->rows[i];

		(void)snprintf(paths[i], FORGE_NAMED_PATH_MAX, "%s.NAME.%s", section,
			       row->key);
		visit(&(struct forge_config_key){ .path = paths[i],
						  .type = row->type_name,
						  .builtin = map->builtin,
						  .help = row->help },
		      arg);
	}
}
