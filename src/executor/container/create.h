/* SPDX-License-Identifier: Apache-2.0 */
/* What a container is created with: everything that a sandbox of our own would have. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "executor/executor.h"

struct forge_create {
	const struct forge_job *job;
	const char *image;   /* its id: what was inspected is what runs */
	const json_t *volumes; /* the image's: an object whose keys are paths; NULL: none */
	const char *workdir; /* of the host */
	const char *control; /* the directory of the socket, of the host */
	const char *shim;    /* the program, of the host */
	uid_t uid;
	gid_t gid;
	bool keeps_ids; /* rootless Podman: the user inside is the user outside */
	bool joins_paths; /* Podman: paths of mounts become fields of CSV */
	bool has_path;	/* the image's own PATH is used */
};

/* The body of a create call. NULL: out of memory, or a path that is not UTF-8; err says which. */
json_t *forge_create_body(const struct forge_create *c, struct forge_error *err);
