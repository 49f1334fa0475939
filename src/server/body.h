/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a request that starts a run, as words of a command line. Pure; every word that is not known is refused. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "base/strv.h"

/* {command, runtime, limits, ...} -> submit --json ... -- COMMAND...; -EINVAL, with the key in err. */
FORGE_MUST_CHECK int forge_body_submit(const json_t *body, struct forge_strv *ret,
				       struct forge_error *err);
/* {limits, ...} -> rerun --detach --json ... RUN */
FORGE_MUST_CHECK int forge_body_again(const char *command, const char *run_id,
				      const json_t *body, struct forge_strv *ret,
				      struct forge_error *err);
/* Refuses every key but this one; NULL: every key. */
FORGE_MUST_CHECK int forge_body_only(const json_t *body, const char *only,
				     struct forge_error *err);
