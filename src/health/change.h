/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of guarded files: collected, counted, and described for the record. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"
#include "health/guard_set.h"

/* What happened to a file. The words in the record are forge_change_words. */
enum forge_change_kind {
	FORGE_CHANGE_CREATED,
	FORGE_CHANGE_DELETED,
	FORGE_CHANGE_RENAMED,
	FORGE_CHANGE_MODIFIED,	 /* its content */
	FORGE_CHANGE_ATTRIBUTES, /* mode, owner, links, extended attributes */
	FORGE_CHANGE_OPENED,	 /* for writing; whether it was written is not known */
	FORGE_CHANGE_ENTRIES,	 /* of a directory: something in it came or went */
	FORGE_CHANGE_UNREAD,	 /* it cannot be looked at */
	FORGE_CHANGE_COUNT,
};
extern const char *const forge_change_words[FORGE_CHANGE_COUNT];

/* The author of a change: a process of the run, another process, or one that is not known. */
enum forge_author {
	FORGE_AUTHOR_RUN,
	FORGE_AUTHOR_OTHER,
	FORGE_AUTHOR_UNKNOWN,
	FORGE_AUTHOR_COUNT,
};
extern const char *const forge_author_words[FORGE_AUTHOR_COUNT];

/*
 * Each path once for each author. Only the first FORGE_CHANGES_MAX are kept with their names; all are counted,
 * as exactly as the memory of FORGE_CHANGES_SEEN paths allows.
 */
#define FORGE_CHANGES_MAX  100
#define FORGE_CHANGES_SEEN 65536
struct forge_changes {
	json_t *files;			  /* an array of {path, what, by, process?} */
	json_t *seen[FORGE_AUTHOR_COUNT]; /* paths as keys */
	size_t n[FORGE_AUTHOR_COUNT];
	/* Borrowed, may be NULL: of many changes at least one is named that makes a run corrupted. */
	const struct forge_guard_set *set;
	bool has_severe[FORGE_AUTHOR_COUNT];
};
FORGE_MUST_CHECK int forge_changes_init(struct forge_changes *c);
void forge_changes_done(struct forge_changes *c);
#define forge_auto_changes FORGE_CLEANUP(forge_changes_done) /* initialise to {0} */

/* Adds a change. process: what did it, for people; NULL: not known. */
void forge_changes_add(struct forge_changes *c, const char *path,
		       enum forge_change_kind what, enum forge_author by,
		       const char *process);
/* Has this author changed the path? */
bool forge_changes_has(const struct forge_changes *c, const char *path,
		       enum forge_author by);
/* {by_run, by_others, unattributed, files} as a new object; and adds such an object to c. */
json_t *forge_changes_json(const struct forge_changes *c);
void forge_changes_merge(struct forge_changes *c, const json_t *other);
/* The same for unattributed changes; those of paths that c attributes are left out. NULL: none. */
void forge_changes_add_unknown(struct forge_changes *c, const json_t *other);
