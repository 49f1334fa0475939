/* SPDX-License-Identifier: Apache-2.0 */
/* What a person who sees a run fail most likely forgot, as a sentence of its verdict. No guesses: facts. */
#pragma once

#include "base/error.h"
#include "executor/executor.h"
#include "record/judge.h"
#include "spec/spec.h"

/*
 * Before the run: a word of the command that names something here which the run does not see. Looking may
 * wait for a file system that does not answer, and ^C still ends us then.
 */
FORGE_MUST_CHECK int forge_advise_prepare(struct forge_spec *s,
					  const struct forge_run_request *req,
					  struct forge_error *err);
/* Whether the command is a file that is not here: -ENOENT, and err says so. */
FORGE_MUST_CHECK int forge_advise_missing(const struct forge_spec *s,
					  const struct forge_run_request *req,
					  struct forge_error *err);
/* After it, when it failed; run_dir has its log. */
void forge_advise(const struct forge_spec *s, const struct forge_run_request *req,
		  const struct forge_outcome *o, int run_dir, struct forge_verdict *v);

/* ---- between the parts ---- */

/* Whether a run sees this path, absolute and without links: it was given, or it is the system's. */
bool forge_advise_is_seen(const struct forge_spec *s, const char *path);
/*
 * advise_log.c: a file of the current directory, as the command named it on standard error when it did not
 * find it. The caller's; NULL: none that is certain.
 */
char *forge_advise_log(const struct forge_spec *s, int run_dir, bool *ret_is_dir);
