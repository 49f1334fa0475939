/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Post-processing: a command in its own sandbox reads the collected outputs of a run and
 * prints JSON objects, one per line. forge checks them and puts them in the store; the
 * command itself has no access to the store. It is a run like any other, with parent_run
 * set and profile post_process.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "base/strv.h"
#include "config/config.h"
#include "state/home.h"

struct forge_post_spec {
	const struct forge_config *cfg;
	const struct forge_home *home;
	const char *store;    /* URL */
	const json_t *record; /* of the run: its id, inputs and outputs */
	const struct forge_strv *argv;
};

/*
 * Runs the post-process and waits. *ret_result goes into the record as "post_process":
 * {status, run_id, command, records, completion_notes}; *ret_rows has the objects, and is
 * empty unless status is "succeeded". A failure of the command is a result, not an error.
 */
FORGE_MUST_CHECK int forge_post_process(const struct forge_post_spec *spec,
					json_t **ret_result, json_t **ret_rows,
					struct forge_error *err);
/* For tests: parses lines into an array, or -EINVAL with the number of the bad line. */
FORGE_MUST_CHECK int forge_post_parse(const char *text, size_t len, json_t **ret_rows,
				      struct forge_error *err);
/* The same for a run that is being carried out; see struct forge_ready_run. */
struct forge_ready_run;
FORGE_MUST_CHECK int forge_post_process_of(const struct forge_ready_run *run,
					   const json_t *record, json_t **ret_result,
					   json_t **ret_rows, struct forge_error *err);
