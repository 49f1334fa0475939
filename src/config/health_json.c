/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and guards as JSON, for a node of a cluster. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "config/health_key.h"
#include "config/named.h"

static json_t *value_json(const struct forge_named_row *row, const void *field)
{
	const struct forge_amount *amount = field;

	switch (row->type) {
	case FORGE_NAMED_LIST:
		return forge_json_names(field);
	case FORGE_NAMED_BOOL:
		return json_boolean(*(const bool *)field);
	case FORGE_NAMED_DURATION:
	case FORGE_NAMED_COUNT:
		return json_integer((json_int_t) * (const uint64_t *)field);
	case FORGE_NAMED_AMOUNT:
		return json_pack("[I, i]", (json_int_t)amount->absolute,
				 (int)amount->milli);
	case FORGE_NAMED_TEXT:
	case FORGE_NAMED_WORD:
	case FORGE_NAMED_ONE_OF:
	case FORGE_NAMED_PAIRS:
	case FORGE_NAMED_LIMITS:
	case FORGE_NAMED_SIZE:
	case FORGE_NAMED_NODE:
		break;
	}
	return *(char *const *)field ? forge_json_name(*(char *const *)field)
				     : json_null();
}

static int restore_value(const struct forge_named_row *row, const json_t *decl,
			 void *field)
{
	const json_t *j = json_object_get(decl, row->key);
	struct forge_amount *amount = field;

	switch (row->type) {
	case FORGE_NAMED_LIST:
		return forge_json_names_decode(decl, row->key, field);
	case FORGE_NAMED_BOOL:
		*(bool *)field = json_is_true(j);
		return 0;
	case FORGE_NAMED_DURATION:
	case FORGE_NAMED_COUNT:
		*(uint64_t *)field = (uint64_t)json_integer_value(j);
		return 0;
	case FORGE_NAMED_AMOUNT:
		amount->absolute = (uint64_t)json_integer_value(json_array_get(j, 0));
		amount->milli = (unsigned)json_integer_value(json_array_get(j, 1));
		return 0;
	case FORGE_NAMED_TEXT:
	case FORGE_NAMED_WORD:
	case FORGE_NAMED_ONE_OF:
	case FORGE_NAMED_PAIRS:
	case FORGE_NAMED_LIMITS:
	case FORGE_NAMED_SIZE:
	case FORGE_NAMED_NODE:
		break;
	}
	if (!json_is_string(j))
		return 0;
	*(char **)field = forge_json_name_decode(json_string_value(j));
	return *(char **)field ? 0 : -EINVAL;
}

json_t *forge_health_json(const struct forge_health_config *h)
{
	size_t n;
	const struct forge_named_row *rows = forge_health_rows(&n);
	json_t *checks = json_array();

	for (size_t i = 0; i < h->n_checks; i++) {
		json_t *one = json_pack("{s:s}", "name", h->checks[i].name);
		for (size_t k = 0; k < n; k++)
			json_object_set_new(
				one, rows[k].key,
				value_json(&rows[k],
					   (const char *)&h->checks[i] + rows[k].offset));
		json_array_append_new(checks, one);
	}
	return json_pack("{s:o, s:i, s:i}", "checks", checks, "mode", (int)h->mode,
			 "unattributed", (int)h->unattributed);
}

int forge_health_restore(const json_t *j, struct forge_health_config *ret)
{
	size_t n, i;
	const struct forge_named_row *rows = forge_health_rows(&n);
	const json_t *list = json_object_get(j, "checks"), *one;
	int rc = 0;

	*ret = (struct forge_health_config){
		.checks = calloc(json_array_size(list) + 1, sizeof(*ret->checks)),
		.mode = (enum forge_guard_mode)json_integer_value(
			json_object_get(j, "mode")),
		.unattributed = (enum forge_unattributed)json_integer_value(
			json_object_get(j, "unattributed")),
	};
	if (!ret->checks)
		return -ENOMEM;
	json_array_foreach (list, i, one) {
		struct forge_check_decl *d = &ret->checks[ret->n_checks++];
		d->name = strdup(forge_json_string_or(one, "name", ""));
		for (size_t k = 0; k < n && rc == 0; k++)
			rc = restore_value(&rows[k], one, (char *)d + rows[k].offset);
		if (rc == 0 &&
		    (!d->name || !d->kind || !d->when || !d->severity || !d->if_failed))
			rc = -EINVAL;
	}
	return rc;
}
