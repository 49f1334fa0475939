/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was asked for, as the record keeps it in "asked": enough to ask for the same again (forge rerun)
 * and to see what was different (forge diff). Values of variables that look like secrets are not kept,
 * only their names; neither are those that were passed on from the caller's environment.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "spec/request.h"
#include "spec/spec.h"
#include "state/home.h"
#include "state/objects.h"

/* NULL: out of memory. */
json_t *forge_asked_json(const struct forge_spec *s, const struct forge_run_request *req);
/* When the run is over: the script's text becomes an object that the record points to. */
void forge_asked_keep_script(json_t *record, struct forge_objects *objects);
/* The digest of that object, NULL: there is none. */
const char *forge_asked_script(const json_t *record);
/*
 * Fills what req does not say with what a record was asked for. What req points to afterwards belongs to
 * record, which must outlive it; *ret_words holds lists of pointers, to be freed with free(). -ENODATA:
 * the record is of a forge that did not keep it.
 */
FORGE_MUST_CHECK int forge_asked_again(const json_t *record,
				       struct forge_run_request *req, char ***ret_words,
				       struct forge_error *err);
/* Whether nobody should read its value: by its name. */
bool forge_asked_is_secret(const char *name, size_t len);
