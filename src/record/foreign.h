/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of a run that another FORGE_HOME has, another user's perhaps. A store that others write says
 * where that is: it is opened without following a link, believed only if it belongs to whom the record
 * names, and nothing is ever written or removed there.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "state/home.h"

/* Whether the record says that its files lie in another FORGE_HOME than ours. */
bool forge_foreign_is(const struct forge_home *ours, const json_t *record);
/* Where they lie, as the record says; NULL: it does not say. */
const char *forge_foreign_home(const json_t *record);
/*
 * Opens that FORGE_HOME to read from. what ("logs", "outputs") is for the message, which names the owner
 * and the place. -EREMOTE: it is on another host; -EACCES: not readable to us.
 */
FORGE_MUST_CHECK int forge_foreign_open(const json_t *record, const char *what,
					struct forge_home *ret, struct forge_error *err);
/* Opens "stdout" or "stderr" of the run in a home that was opened so. The fd or -errno. */
FORGE_MUST_CHECK int forge_foreign_open_log(const struct forge_home *theirs,
					    const json_t *record, const char *name);
/* Sets err for something there that failed with code (positive). Returns -code. */
int forge_foreign_fail(const json_t *record, const char *what, int code,
		       struct forge_error *err);
