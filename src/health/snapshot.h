/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of guarded files: what statx() says of each, read by several threads. Two snapshots are compared,
 * or one is searched for what has changed since a moment.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/error.h"
#include "health/change.h"
#include "health/guard_set.h"

/* What is compared of one file. */
struct forge_seen_file {
	size_t name; /* where it begins in the names of its directory */
	uint32_t mode, uid, gid, nlink;
	uint64_t dev, ino, size;
	int64_t modified, changed, born; /* nanoseconds; born 0: not known */
	char *digest;			 /* of the content, NULL: not hashed */
};

struct forge_seen_dir {
	char *path;
	char *names; /* each ends with NUL */
	size_t names_len, names_cap;
	struct forge_seen_file *files; /* sorted by name */
	size_t n, cap;
	int64_t changed, born; /* of the directory, nanoseconds; 0: not known */
	int error;	       /* why not all of it was read; 0: all was */
	bool is_whole;	       /* everything in it is guarded */
};

struct forge_snapshot {
	struct forge_seen_dir **dirs; /* sorted by path */
	size_t n, cap;
	uint64_t n_files; /* guarded ones */
};

/* Paths that do not exist have no files, and are no error. */
FORGE_MUST_CHECK int forge_snapshot_take(const struct forge_guard_set *set,
					 struct forge_snapshot *ret,
					 struct forge_error *err);
void forge_snapshot_done(struct forge_snapshot *s);
#define forge_auto_snapshot FORGE_CLEANUP(forge_snapshot_done) /* initialise to {0} */

/* Adds what differs, by this author. */
void forge_snapshot_compare(const struct forge_snapshot *before,
			    const struct forge_snapshot *after, enum forge_author by,
			    struct forge_changes *c);
/*
 * Adds what has changed at or after this time by the clock of the files (CLOCK_REALTIME_COARSE). Of what was
 * deleted only the directory is known. It need not be guarded itself, as that of the pattern DIR/x*; then what
 * came or went in it need not have been guarded, either.
 */
void forge_snapshot_since(const struct forge_snapshot *s,
			  const struct forge_guard_set *set, const struct timespec *since,
			  enum forge_author by, struct forge_changes *c);
/* The path of a guarded file with this inode, or NULL. For files that have several names. The caller frees it. */
char *forge_snapshot_find(const struct forge_snapshot *s, uint64_t dev, uint64_t ino);
