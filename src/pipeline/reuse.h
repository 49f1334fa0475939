/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results of other users of the store: of runs in the FORGE_HOMEs that pipeline.reuse_from names. A row of the store only
 * says which run it may be; what counts is the result that its FORGE_HOME has of it. Its outputs are copied into ours,
 * checked against their digests, and a file in reused/ points to them.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "state/home.h"

struct forge_head;

/* A FORGE_HOME of another user. */
struct forge_reuse_home {
	struct forge_home home;
	uid_t owner;
};

/* Opens those of the configuration. One that cannot be used is reported as an event, and results in it are not found. */
FORGE_MUST_CHECK int forge_reuse_open(struct forge_head *h, struct forge_error *err);
void forge_reuse_close(struct forge_head *h);
/*
 * Looks for a result with the key of the task. 1: it is there, and ours now; if the head can run nothing (is_dry), its
 * files may still be elsewhere. 0: there is none that can be used; why of the task may say what was wrong with one.
 */
FORGE_MUST_CHECK int forge_reuse_find(struct forge_head *h, unsigned task,
				      struct forge_error *err);
/*
 * Copies what forge_reuse_find() left elsewhere, except for temporary outputs, and gives the result as a record has it,
 * with "outputs".
 */
FORGE_MUST_CHECK int forge_reuse_take(struct forge_head *h, unsigned task,
				      json_t **ret_result, struct forge_error *err);
