/* SPDX-License-Identifier: Apache-2.0 */
/* Collected files by content: $FORGE_HOME/objects/ab/cdef..., each there once. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/sha256.h"
#include "state/home.h"

struct forge_objects {
	int fd;		     /* objects/ */
	int lock_fd;	     /* shared: nothing is swept while it is held */
	int home_fd;	     /* FORGE_HOME, for the marks of damaged objects */
	int stop_fd;	     /* readable: stop; -1: none */
	dev_t dev;	     /* of its file system */
	mode_t shared;	     /* as of its home */
	uint8_t touched[32]; /* directories that got a name, a bit each */
};
#define FORGE_OBJECTS_INIT                                                               \
	((struct forge_objects){ .fd = -1, .lock_fd = -1, .home_fd = -1, .stop_fd = -1 })

/*
 * stop_fd (-1: none) is borrowed until forge_objects_close(): as soon as it is readable this and
 * forge_objects_put() fail with -ECANCELED, whatever they wait for or read.
 */
FORGE_MUST_CHECK int forge_objects_open(const struct forge_home *home, int stop_fd,
					struct forge_objects *ret,
					struct forge_error *err);
void forge_objects_close(struct forge_objects *o);

struct forge_object {
	char digest[FORGE_DIGEST_MAX];
	uint64_t size;
};

/*
 * Publishes the file that fd (read-only, regular, without a writer) is: hashed, on disk, then
 * named by its digest. With may_link the file itself becomes the object where that is possible
 * (it is then ours and read-only, and no process has it open for writing); otherwise, and across file systems, it
 * is copied. An object that is marked as damaged is replaced, and its mark removed. Threads may
 * call this at once. sync: wait for the disk for this one file.
 */
FORGE_MUST_CHECK int forge_objects_put(struct forge_objects *o, int fd, bool may_link,
				       bool sync, struct forge_object *ret);
/* Waits until all names made so far are on disk; all: the files' content as well. */
FORGE_MUST_CHECK int forge_objects_sync(struct forge_objects *o, bool all);
/* "objects/ab/cdef..." of "sha256:abcdef...": the path below FORGE_HOME. Returns buf. */
#define FORGE_STORED_MAX 96
/*
 * An object to be handed on, opened and checked against its digest, which may come from anywhere:
 * -EINVAL: that is none, -EUCLEAN: the content is another.
 */
FORGE_MUST_CHECK int forge_objects_get(const struct forge_home *home, const char *digest);
/* The same without reading it, for those who know from *ret that they have checked this very file before. */
FORGE_MUST_CHECK int forge_objects_open_unchecked(const struct forge_home *home,
						  const char *digest, struct stat *ret);
/* Whether it has that form, and so is safe in a path. NULL has not. */
bool forge_objects_is_digest(const char *digest);
const char *forge_objects_path(char buf[FORGE_STORED_MAX], const char *digest);
