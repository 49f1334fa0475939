/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside src/config only: the table of configuration keys applied to a parsed file, and
 * the built-in values it starts from.
 */
#pragma once

#include "base/yaml.h"
#include "config/config.h"
#include "config/loader.h"
#include "config/path.h"

#define FORGE_BUILTIN_WORKDIR	"/tmp/scidex-analysis-{id}"
#define FORGE_BUILTIN_UID_BASE	1879048192
#define FORGE_BUILTIN_UID_COUNT 65536
#define FORGE_BUILTIN_MAX_WAIT	"24h"
#define FORGE_BUILTIN_MAX_FILES 100000
#define FORGE_BUILTIN_WORKDIRS	"7d"
#define FORGE_BUILTIN_OBJECTS	"1d"

/*
 * For a key that is none of these n words: the key of the limit whose name it is, as a key or as an option, or
 * nearly so and unlike the words. NULL: it is none.
 */
const char *forge_schema_limit_like(const char *key, const char *const *words, size_t n);

/* Every key of the file but the profiles, which are set aside in ld. */
FORGE_MUST_CHECK int forge_schema_apply(struct forge_loader *ld,
					const struct forge_yaml *root,
					struct forge_error *err);
/* A map of limits, "path.memory" and so on, into ret. */
FORGE_MUST_CHECK int forge_schema_limits(const struct forge_loader *ld, const char *path,
					 const struct forge_yaml *map,
					 struct forge_limits *ret,
					 struct forge_error *err);
/* The built-in profiles, then what each file says about them and about new ones. */
FORGE_MUST_CHECK int forge_profiles_apply(struct forge_config *c,
					  struct forge_loader *loaders, size_t n,
					  struct forge_error *err);
/* What this file writes about profiles is within the caps so far. */
FORGE_MUST_CHECK int forge_profiles_check(struct forge_loader *ld,
					  struct forge_error *err);
/* The runtimes that were set aside. */
FORGE_MUST_CHECK int forge_runtimes_apply(struct forge_loader *ld,
					  struct forge_error *err);
/* Those of a file of runtimes.d; names that are there already stay as they are. */
FORGE_MUST_CHECK int forge_config_add_runtimes(struct forge_config *c, const char *text,
					       size_t len, const char *name,
					       const char *base_dir,
					       struct forge_error *err);
void forge_runtimes_each_key(void (*visit)(const struct forge_config_key *key, void *arg),
			     void *arg);
