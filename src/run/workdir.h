/* SPDX-License-Identifier: Apache-2.0 */
/* The run's own directory on disk: made once, never reused, removed whatever is in it. */
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "base/strv.h"

struct forge_workdir {
	const char *path; /* borrowed */
	int fd;		  /* O_RDONLY directory, -1 before it is made */
	dev_t dev;
	ino_t ino;
};

/* Refuses a path that exists and a parent directory where others could swap it. */
FORGE_MUST_CHECK int forge_workdir_make(const char *path, struct forge_workdir *ret,
					struct forge_error *err);
/* Links for relative inputs ("rel", "target" pairs), then everything to the run's user. */
FORGE_MUST_CHECK int forge_workdir_fill(struct forge_workdir *w,
					const struct forge_strv *links, uid_t uid,
					gid_t gid, struct forge_error *err);
void forge_workdir_close(struct forge_workdir *w);
