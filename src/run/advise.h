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
/* After it, when it failed. */
void forge_advise(const struct forge_spec *s, const struct forge_run_request *req,
		  const struct forge_outcome *o, struct forge_verdict *v);
