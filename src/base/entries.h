/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads directories. readdir() returns NULL both at the end and on an error, and a listing that
 * an error cut short must not pass for a whole one. This reader keeps the error:
 *
 *	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
 *	int rc = forge_entries_open(&d, dirfd, "name");
 *	for (const char *name; (name = forge_entries_next(&d));)
 *		...
 *	rc = d.error;      -errno of the open or of a read, 0: all entries were seen
 */
#pragma once

#include <dirent.h>

#include "base/cleanup.h"
#include "base/error.h"

struct forge_entries {
	DIR *dir;
	int error; /* -errno, 0: none so far */
};
#define FORGE_ENTRIES_INIT ((struct forge_entries){ .dir = NULL })

/*
 * Opens name in dirfd (AT_FDCWD for a path) without following a link at its end. Returns
 * d->error.
 */
int forge_entries_open(struct forge_entries *d, int dirfd, const char *name);
/*
 * The same for a path whose links are followed: for a user's own directory, not one that a run
 * made.
 */
int forge_entries_follow(struct forge_entries *d, const char *path);
/* The same for an open directory. d owns its descriptor from then on, also on failure. */
int forge_entries_take(struct forge_entries *d, int fd);
/*
 * The next name except "." and "..", valid until the next call; NULL: the end, or an error in
 * d->error.
 */
const char *forge_entries_next(struct forge_entries *d);
/* Starts again from the beginning. */
void forge_entries_rewind(struct forge_entries *d);
/* The descriptor of the directory, which d owns; -1 when it could not be opened. */
int forge_entries_fd(const struct forge_entries *d);
void forge_entries_done(struct forge_entries *d);
#define forge_auto_entries FORGE_CLEANUP(forge_entries_done)
