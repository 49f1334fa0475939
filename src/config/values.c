/* SPDX-License-Identifier: Apache-2.0 */
/* Readers by type: check the node and convert its value, or report the legal values. */
#include "config/values.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/parse.h"
#include "base/yaml.h"

int forge_value_scalar(const struct forge_value *v, struct forge_error *err)
{
	if (v->node->type == FORGE_YAML_SCALAR)
		return 0;
	return forge_loader_fail(
		v->ld, v->node, v->path, err, "must be one value, not a %s (%s)",
		v->node->type == FORGE_YAML_MAP ? "map" : "list", v->type);
}

int forge_value_choose(const struct forge_value *v, const char *const *words, size_t n,
		       struct forge_error *err)
{
	char text[FORGE_UNKNOWN_MAX];

	for (size_t i = 0; i < n; i++)
		if (strcmp(words[i], v->node->scalar) == 0)
			return (int)i;
	return forge_loader_fail(
		v->ld, v->node, v->path, err, "%s",
		forge_describe_unknown(text, "unknown value", v->node->scalar, words, n));
}

int forge_value_bool(const struct forge_value *v, bool *ret, struct forge_error *err)
{
	static const char *const words[] = { "false", "true" };
	int rc = forge_value_scalar(v, err);

	if (rc == 0)
		rc = forge_value_choose(v, words, FORGE_ARRAY_SIZE(words), err);
	if (rc < 0)
		return rc;
	*ret = rc == 1;
	return 0;
}

static int parse_number(const struct forge_value *v, forge_number_parser *parse,
			uint64_t *ret, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	int rc = forge_value_scalar(v, err);

	if (rc < 0)
		return rc;
	if (parse(v->node->scalar, ret, &why) < 0)
		return forge_loader_fail(v->ld, v->node, v->path, err, "%s", why.msg);
	return 0;
}

int forge_value_size(const struct forge_value *v, uint64_t *ret, struct forge_error *err)
{
	uint64_t bytes;
	int rc = parse_number(v, forge_parse_size, &bytes, err);

	if (rc < 0)
		return rc;
	/* The size is of memory: without a bound it would circumvent the memory limit. */
	if (bytes == FORGE_UNLIMITED)
		return forge_loader_fail(
			v->ld, v->node, v->path, err,
			"'unlimited' is never allowed here (write 512M or 2G)");
	*ret = bytes;
	return 0;
}

int forge_value_number(const struct forge_value *v, forge_number_parser *parse,
		       bool may_be_unlimited, uint64_t *ret, struct forge_error *err)
{
	uint64_t n;
	int rc = parse_number(v, parse, &n, err);

	if (rc < 0)
		return rc;
	if (n == FORGE_UNLIMITED && !may_be_unlimited)
		return forge_loader_fail(
			v->ld, v->node, v->path, err,
			"'unlimited' is not possible here (leave the key out)");
	*ret = n;
	return 0;
}

/* Tenths of a percent, so 0.5% is possible. */
static int parse_part(const struct forge_value *v, unsigned *ret, struct forge_error *err)
{
	char number[16];
	size_t n = strlen(v->node->scalar) - 1;
	uint64_t milli = 0;

	if (n < sizeof(number)) {
		memcpy(number, v->node->scalar, n);
		number[n] = '\0';
		/* Thousandths of one are tenths of a percent of a hundred. */
		if (forge_parse_cpus(number, &milli, NULL) == 0 && milli <= 100000 &&
		    milli >= 100) {
			*ret = (unsigned)(milli / 100);
			return 0;
		}
	}
	return forge_loader_fail(v->ld, v->node, v->path, err,
				 "'%.40s' is no part (write 5%% or 0.5%%)",
				 v->node->scalar);
}

int forge_value_amount(const struct forge_value *v, struct forge_amount *ret,
		       struct forge_error *err)
{
	struct forge_amount a = { 0 };
	int rc = forge_value_scalar(v, err);

	if (rc < 0)
		return rc;
	size_t n = strlen(v->node->scalar);
	rc = n && v->node->scalar[n - 1] == '%' ? parse_part(v, &a.milli, err)
						: forge_value_size(v, &a.absolute, err);
	if (rc == 0)
		*ret = a;
	return rc;
}

int forge_value_copy(const struct forge_value *v, char **slot, struct forge_error *err)
{
	char *copy = strdup(v->node->scalar);

	if (!copy)
		return forge_loader_oom(err);
	free(*slot);
	*slot = copy;
	return 0;
}
