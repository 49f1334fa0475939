/* SPDX-License-Identifier: Apache-2.0 */
/* Repeats the post-process of a finished run. */
#pragma once

#include "run/postprocess.h"
#include "store/store.h"

/*
 * Uses command (a line for sh), else the command in the record, else the configured one.
 * The store and the run's record.json get the result. The store must not be open in this
 * process meanwhile (SQLite does not survive a fork). A failure leaves the records of an
 * earlier success unchanged. -ESRCH: the run belongs to another FORGE_HOME.
 */
FORGE_MUST_CHECK int forge_post_process_again(const struct forge_config *cfg,
					      const struct forge_home *home,
					      const char *url, const json_t *record,
					      const char *command, json_t **ret_result,
					      struct forge_error *err);
