/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step of a pipeline left, for other users of the store: runs/<run_id>/result.json of a FORGE_HOME whose owner
 * shares it with a group. {"run_id", "analysis_id", "user", "host", "key", "ended_at", "outputs"}: no command and no environment,
 * unlike record.json, which stays private. A row of the store proves nothing, because every user of the store can write it;
 * this file does, in a FORGE_HOME that the reader has chosen to trust.
 */
#pragma once

#include <jansson.h>
#include <sys/types.h>

#include "base/error.h"
#include "state/home.h"

#define FORGE_RESULT_FILE "result.json"

/*
 * To be called when the verdict is in record.json. run_dir: of the run. Does nothing if this FORGE_HOME is private, for a run
 * that is no successful step, and when the file is there. A failure costs only the reuse by others: 0 or -errno.
 */
int forge_shared_result_write(const struct forge_home *home, int run_dir,
			      const json_t *record);

/*
 * Opens the FORGE_HOME of another user. Only root, this user and its owner may be able to change what is in it: they
 * own every directory on the way, and nobody else may write there. There may be no links in the path.
 */
FORGE_MUST_CHECK int forge_shared_home_open(const char *path, struct forge_home *ret,
					    uid_t *ret_owner, struct forge_error *err);
/* The result of a run there. -ENOENT: there is none; -EPERM: it is not its owner's alone. */
FORGE_MUST_CHECK int forge_shared_result_load(const struct forge_home *theirs,
					      uid_t owner, const char *run_id,
					      json_t **ret);
