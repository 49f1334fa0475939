/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of a run in another FORGE_HOME, possibly of another user. Its path comes from a
 * store that other users can write. So it is opened without following links, used only if
 * it belongs to the user in the record, and nothing is ever written or removed there.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "state/home.h"

/* Whether the record says that its files lie in another FORGE_HOME than ours. */
bool forge_foreign_is(const struct forge_home *ours, const json_t *record);
/* The path of that FORGE_HOME in the record; NULL: the record has none. */
const char *forge_foreign_home(const json_t *record);
/*
 * Opens that FORGE_HOME for reading. what ("logs", "outputs") is for the error message,
 * which names the owner and the path. -EREMOTE: it is on another host; -EACCES: this user
 * may not read it.
 */
FORGE_MUST_CHECK int forge_foreign_open(const json_t *record, const char *what,
					struct forge_home *ret, struct forge_error *err);
/* Opens "stdout" or "stderr" of the run in such a home. Returns the fd or -errno. */
FORGE_MUST_CHECK int forge_foreign_open_log(const struct forge_home *theirs,
					    const json_t *record, const char *name);
/* Sets err for an operation there that failed with code (positive). Returns -code. */
int forge_foreign_fail(const json_t *record, const char *what, int code,
		       struct forge_error *err);
