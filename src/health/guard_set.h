/* SPDX-License-Identifier: Apache-2.0 */
/* Which files are guarded: paths and patterns, and what of them is excluded. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/strv.h"
#include "config/health.h"

struct forge_guard_set {
	struct forge_strv patterns; /* absolute */
	struct forge_strv exclude;  /* absolute */
	struct forge_strv tops; /* where guarded files are: no top lies in another one */
	bool is_hashed;
};
void forge_guard_set_done(struct forge_guard_set *s);
#define forge_auto_guard_set FORGE_CLEANUP(forge_guard_set_done) /* initialise to {0} */

/*
 * From the checks of kind files. forge_home is excluded: what forge itself changes is no damage. Empty (no
 * patterns): nothing is guarded.
 */
FORGE_MUST_CHECK int forge_guard_set_make(const struct forge_health_config *h,
					  const char *forge_home,
					  struct forge_guard_set *ret,
					  struct forge_error *err);
/* The same set for another process, and back. -EINVAL: that is none. */
json_t *forge_guard_set_json(const struct forge_guard_set *s);
FORGE_MUST_CHECK int forge_guard_set_parse(const json_t *j, struct forge_guard_set *ret);

/* Is the file with this absolute path guarded? */
bool forge_guard_has(const struct forge_guard_set *s, const char *path);
/* Is this directory one in which guarded files may be? */
bool forge_guard_may_contain(const struct forge_guard_set *s, const char *dir);
/* Is the path a top, or a directory above one? Then guarded files go where it goes. */
bool forge_guard_is_above(const struct forge_guard_set *s, const char *path);
