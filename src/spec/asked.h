/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request of a run in its record ("asked"): enough to repeat it (forge rerun) and to
 * compare it (forge diff). Of variables that look like secrets, and of those that were
 * passed on from the caller's environment, only the names are stored.
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
/* After the run: stores the text of the script as an object that the record points to. */
void forge_asked_keep_script(json_t *record, struct forge_objects *objects);
/* The digest of that object, NULL: there is none. */
const char *forge_asked_script(const json_t *record);
/*
 * Fills the unset fields of req from the request in a record. req then points into
 * record, which must outlive it; *ret_words holds lists of pointers, to be freed with
 * free(). -ENODATA: the record comes from a forge that did not store requests.
 */
FORGE_MUST_CHECK int forge_asked_again(const json_t *record,
				       struct forge_run_request *req, char ***ret_words,
				       struct forge_error *err);
/* Whether a variable ("K=V" or "K") is a secret, by its name or by a password in its value: no file has it. */
bool forge_asked_is_withheld(const char *var);
/* Whether the value of a variable is a secret, by its name. */
bool forge_asked_is_secret(const char *name, size_t len);
