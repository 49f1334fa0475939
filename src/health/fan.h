/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside src/health only: changes on whole file systems, as fanotify(7) reports them, with the paths of what
 * was changed. Needs root and Linux 5.17.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct forge_fan;

/* -EPERM: not root. -EINVAL, -ENOSYS: the kernel cannot do that. */
FORGE_MUST_CHECK int forge_fan_open(struct forge_fan **ret, struct forge_error *err);
void forge_fan_close(struct forge_fan *f);
/* Readable when there are events. */
int forge_fan_fd(const struct forge_fan *f);

/*
 * Watches the file system of this path and those mounted below it; a path that does not exist is watched in
 * the nearest directory that does. -EOPNOTSUPP: changes on that file system cannot be seen, or not all of
 * them; err says why.
 */
FORGE_MUST_CHECK int forge_fan_watch(struct forge_fan *f, const char *path,
				     struct forge_error *err);

enum forge_fan_what {
	FORGE_FAN_CREATE = 1,
	FORGE_FAN_DELETE = 2,
	FORGE_FAN_RENAME = 4,
	FORGE_FAN_MODIFY = 8,
	FORGE_FAN_ATTRIB = 16,
	FORGE_FAN_CLOSE_WRITE = 32,
	FORGE_FAN_DIR = 64, /* it is a directory */
};

/*
 * One event. A file may have several paths: a file system may be mounted in several places, and what is
 * renamed has an old and a new one. Strings are valid during the call.
 */
#define FORGE_FAN_PATHS 16
struct forge_fan_event {
	unsigned what; /* enum forge_fan_what */
	pid_t pid;     /* that did it; 0: not in this pid namespace */
	int pidfd;     /* of it, negative: it is gone */
	const char *paths[FORGE_FAN_PATHS];
	size_t n; /* 0: the event has no name */
	struct forge_fan *fan;
	const void *target; /* for forge_fan_target() */
	const void *dir;    /* for forge_fan_ignore_names() */
};
/* A descriptor (O_PATH) of the file itself; -errno, -ESTALE: it is gone. */
FORGE_MUST_CHECK int forge_fan_target(const struct forge_fan_event *e);

/*
 * No writes to files through the mount of this directory are reported any more: of a run that writes much in
 * its workdir. What happens to names and attributes still is.
 */
void forge_fan_ignore_writes(struct forge_fan *f, int dir);

/*
 * Files that are made or deleted in the directory of this event are not reported any more, until any directory is renamed:
 * this one may be elsewhere then. Those in directories below it, directories, and what is renamed still are. The
 * kernel may forget that when it needs memory, and does when the directory is deleted; where it cannot do that, all
 * are reported.
 */
void forge_fan_ignore_names(const struct forge_fan_event *e);
/* They are reported again, in all directories. */
void forge_fan_report_names(struct forge_fan *f);

/*
 * Reads what is there now. Returns 0 when nothing is left. -EOVERFLOW: events were lost; call it again.
 */
FORGE_MUST_CHECK int forge_fan_read(struct forge_fan *f,
				    void (*visit)(const struct forge_fan_event *e,
						  void *arg),
				    void *arg);
