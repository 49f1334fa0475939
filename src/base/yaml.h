/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A YAML file as a small tree whose nodes know their line and column. Deliberately less than
 * YAML: no anchors, aliases, tags or second documents; duplicate keys are errors; size, depth
 * and node count are limited, so that no file costs much work. Files of other programs may have
 * all of these; forge_yaml_parse_any() reads them, within the same limits.
 */
#pragma once

#include <stddef.h>

#include "base/cleanup.h"
#include "base/error.h"

enum forge_yaml_type { FORGE_YAML_SCALAR, FORGE_YAML_LIST, FORGE_YAML_MAP };

struct forge_yaml {
	enum forge_yaml_type type;
	unsigned line, column; /* 1-based */
	char *key;	       /* when the parent is a map */
	unsigned key_line, key_column;
	char *scalar;		  /* FORGE_YAML_SCALAR: its text, "" for null */
	struct forge_yaml *child; /* FORGE_YAML_LIST, FORGE_YAML_MAP: first child */
	struct forge_yaml *next;  /* next sibling */
};

/* Errors use name for the input. An empty document gives an empty map. */
FORGE_MUST_CHECK int forge_yaml_parse(const char *text, size_t len, const char *name,
				      struct forge_yaml **ret, struct forge_error *err);
/*
 * The same for files that are not forge's own: an alias becomes a copy of its anchor's node;
 * tags and directives are ignored. "<<" is a key like any other.
 */
FORGE_MUST_CHECK int forge_yaml_parse_any(const char *text, size_t len, const char *name,
					  struct forge_yaml **ret,
					  struct forge_error *err);
/* The same rules as forge_yaml_parse() with room for 16 MiB: a pipeline may have ten thousand steps. */
FORGE_MUST_CHECK int forge_yaml_parse_large(const char *text, size_t len,
					    const char *name, struct forge_yaml **ret,
					    struct forge_error *err);
void forge_yaml_free(struct forge_yaml *node);
FORGE_DEFINE_AUTO(yaml, struct forge_yaml *, forge_yaml_free)
#define forge_auto_yaml FORGE_CLEANUP(forge_auto_yaml_)
