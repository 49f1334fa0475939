/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One file per living run in $FORGE_HOME/active, locked by its supervisor. When the lock is
 * free the supervisor is dead, and the file says what it may have left behind. It is written
 * before anything is made: first as an intention, then with the workdir's identity.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "base/strv.h"
#include "run/home.h"
#include "run/workdir.h"

struct forge_active {
	int fd;        /* holds the lock, -1 when there is none */
	int dir_fd;    /* borrowed from the home */
	char name[32];
	json_t *facts;
};
#define FORGE_ACTIVE_INIT ((struct forge_active){ .fd = -1, .dir_fd = -1 })

/* Makes and locks the file with the intention to make workdir and cgroups. */
FORGE_MUST_CHECK int forge_active_open(const struct forge_home *home, const char *run_id,
				       const char *workdir, bool keep, struct forge_active *ret,
				       struct forge_error *err);
/* Now the workdir exists, and this is what the record would say of a run that got lost. */
FORGE_MUST_CHECK int forge_active_note(struct forge_active *a, const struct forge_workdir *w,
				       json_t *record, struct forge_error *err);
/* The run is over and everything is cleaned: removes the file. */
void forge_active_close(struct forge_active *a);
