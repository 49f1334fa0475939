/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside src/config only: the table of configuration keys applied to a parsed file, and
 * the built-in values it starts from.
 */
#pragma once

#include "config/loader.h"
#include "config/path.h"

#define FORGE_BUILTIN_WORKDIR	"/tmp/scidex-analysis-{id}"
#define FORGE_BUILTIN_UID_BASE	1879048192
#define FORGE_BUILTIN_UID_COUNT 65536
#define FORGE_BUILTIN_MAX_WAIT	"24h"
#define FORGE_BUILTIN_MAX_FILES 100000
#define FORGE_BUILTIN_WORKDIRS	"7d"
#define FORGE_BUILTIN_OBJECTS	"1d"
#define FORGE_BUILTIN_HEALTH	"90d"
#define FORGE_BUILTIN_REUSED	"90d"
#define FORGE_BUILTIN_SAMPLING	"2s"

/*
 * Applies every key of the file. Profiles, runtimes and executors are only stored in ld:
 * they need the caps of all files. The profiles of the file are checked against the caps
 * so far.
 */
FORGE_MUST_CHECK int forge_schema_apply(struct forge_loader *ld,
					const struct forge_yaml *root,
					struct forge_error *err);
