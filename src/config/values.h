/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For src/config and src/pipeline: single values of a configuration file, read by their type. The keys of the schema
 * and the rows of named maps share these readers, so a size is read and refused in the same way everywhere.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/health.h"
#include "config/loader.h"

/* A value and its name in errors. All pointers are borrowed. */
struct forge_value {
	const struct forge_loader *ld;
	const struct forge_yaml *node;
	const char *path; /* "sandbox.tmp_size" */
	const char *type; /* the legal values: "size" */
};

typedef int forge_number_parser(const char *s, uint64_t *ret, struct forge_error *err);

/* The node is one value, neither a list nor a map. */
FORGE_MUST_CHECK int forge_value_scalar(const struct forge_value *v,
					struct forge_error *err);
/* The index of the scalar in words, or an error with the words that are legal. */
FORGE_MUST_CHECK int forge_value_choose(const struct forge_value *v,
					const char *const *words, size_t n,
					struct forge_error *err);
FORGE_MUST_CHECK int forge_value_bool(const struct forge_value *v, bool *ret,
				      struct forge_error *err);
/* A size in bytes; "unlimited" is refused. */
FORGE_MUST_CHECK int forge_value_size(const struct forge_value *v, uint64_t *ret,
				      struct forge_error *err);
FORGE_MUST_CHECK int forge_value_number(const struct forge_value *v,
					forge_number_parser *parse, bool may_be_unlimited,
					uint64_t *ret, struct forge_error *err);
/* A size, or a part like 5%. */
FORGE_MUST_CHECK int forge_value_amount(const struct forge_value *v,
					struct forge_amount *ret,
					struct forge_error *err);
/* A copy of the scalar in place of *slot, which is freed. The node must be a scalar. */
FORGE_MUST_CHECK int forge_value_copy(const struct forge_value *v, char **slot,
				      struct forge_error *err);
