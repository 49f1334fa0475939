/* SPDX-License-Identifier: Apache-2.0 */
/* Post-processing a run that is over, again. */
#pragma once

#include "run/postprocess.h"
#include "store/store.h"

/*
 * With command (a line for sh), or the one the record has, or the configured one. The store and the
 * run's record.json get the result; the store must not be open in this process meanwhile (SQLite does
 * not survive a fork). A failure leaves the records of an earlier success alone.
 * -ESRCH: the run is not of this home.
 */
FORGE_MUST_CHECK int forge_post_process_again(const struct forge_config *cfg,
					      const struct forge_home *home,
					      const char *url, const json_t *record,
					      const char *command, json_t **ret_result,
					      struct forge_error *err);
