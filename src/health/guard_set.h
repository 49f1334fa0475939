/* SPDX-License-Identifier: Apache-2.0 */
/* Which files are guarded: paths and patterns, and what of them is excluded. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/strv.h"
#include "config/health.h"

/* Of one check. Absolute patterns; what one check excludes, another one may guard. */
struct forge_guard_part {
	struct forge_strv patterns, exclude;
	bool is_severe; /* a run that changes these files is corrupted */
};

struct forge_guard_set {
	struct forge_guard_part *parts;
	size_t n;
	struct forge_strv
		own; /* what forge changes, excluded from all; the first is FORGE_HOME */
	struct forge_strv tops; /* where guarded files are: no top lies in another one */
	bool is_hashed;
};
void forge_guard_set_done(struct forge_guard_set *s);
#define forge_auto_guard_set FORGE_CLEANUP(forge_guard_set_done) /* initialise to {0} */

/* What forge itself changes is no damage. Borrowed. */
struct forge_guard_own {
	const char *home;     /* FORGE_HOME */
	const char *workdirs; /* the template of workdirs; NULL: not known */
	const char *workdir;  /* of the run; NULL: not known */
};

/*
 * From the checks of kind files. Empty (n is 0): nothing is guarded. Links in paths are resolved: the set
 * has the places that they lead to, because changes are reported there, and each link itself.
 */
FORGE_MUST_CHECK int forge_guard_set_make(const struct forge_health_config *h,
					  const struct forge_guard_own *own,
					  struct forge_guard_set *ret,
					  struct forge_error *err);
/* The same set for another process, and back. -EINVAL: that is none. */
json_t *forge_guard_set_json(const struct forge_guard_set *s);
FORGE_MUST_CHECK int forge_guard_set_parse(const json_t *j, struct forge_guard_set *ret);

/* Is the file with this absolute path guarded? */
bool forge_guard_has(const struct forge_guard_set *s, const char *path);
/* Is everything in this directory guarded, and all below it? */
bool forge_guard_has_all(const struct forge_guard_set *s, const char *dir);
/* Is a change of this file, which is guarded, a corruption? */
bool forge_guard_is_severe(const struct forge_guard_set *s, const char *path);
/* Is this directory one in which guarded files may be, so that they go where it goes? */
bool forge_guard_may_move(const struct forge_guard_set *s, const char *dir);
/* Does forge make and remove workdirs in this directory while runs are there? */
bool forge_guard_is_worked_in(const struct forge_guard_set *s, const char *dir);
/* Is the path a top, or above one? */
bool forge_guard_is_above(const struct forge_guard_set *s, const char *path);
/* Can the pattern match a path below this directory? */
bool forge_pattern_reaches(const char *pattern, const char *dir);
