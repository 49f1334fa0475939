/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A container engine behind its Unix socket: the Docker Engine API, which Podman's service speaks too. One
 * call at a time; every call has a time-out. A call that fails says nothing about a container: only
 * -ENOENT means that the engine does not have it.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/cleanup.h"
#include "base/error.h"

struct forge_engine {
	char *socket;  /* path */
	void *curl;    /* a connection that is used again; NULL: closed */
	char name[96]; /* "Docker 20.10.24", for people and the record */
	bool is_podman, is_rootless;
};

/* Connects and asks for the name of the engine. Initialise with {0}; close in any case. */
FORGE_MUST_CHECK int forge_engine_open(const char *socket, struct forge_engine *ret,
				       struct forge_error *err);
void forge_engine_close(struct forge_engine *e);
#define forge_auto_engine FORGE_CLEANUP(forge_engine_close)

/* An image by name, digest or id. -ENOENT: the engine does not have it; err says how to get it. */
FORGE_MUST_CHECK int forge_engine_image(struct forge_engine *e, const char *image,
					json_t **ret, struct forge_error *err);
FORGE_MUST_CHECK int forge_engine_create(struct forge_engine *e, const char *name,
					 const json_t *body, struct forge_error *err);
FORGE_MUST_CHECK int forge_engine_start(struct forge_engine *e, const char *name,
					struct forge_error *err);
FORGE_MUST_CHECK int forge_engine_inspect(struct forge_engine *e, const char *name,
					  json_t **ret, struct forge_error *err);
/* Kills and removes it. 0 also when there is none. */
FORGE_MUST_CHECK int forge_engine_remove(struct forge_engine *e, const char *name,
					 struct forge_error *err);
