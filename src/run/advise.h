/* SPDX-License-Identifier: Apache-2.0 */
/* Adds facts about likely mistakes to the verdict of a failed run. */
#pragma once

#include "base/error.h"
#include "executor/executor.h"
#include "record/judge.h"
#include "spec/spec.h"

/*
 * Before the run: looks for a word of the command that names a file here which the run
 * does not see. This may wait for a file system that does not answer; ^C still ends the
 * process then.
 */
FORGE_MUST_CHECK int forge_advise_prepare(struct forge_spec *s,
					  const struct forge_run_request *req,
					  struct forge_error *err);
/* -ENOENT, with err set: the command is a file that does not exist here. */
FORGE_MUST_CHECK int forge_advise_missing(const struct forge_spec *s,
					  const struct forge_run_request *req,
					  struct forge_error *err);
/* After a failed run; run_dir has its log. */
void forge_advise(const struct forge_spec *s, const struct forge_run_request *req,
		  const struct forge_outcome *o, int run_dir, struct forge_verdict *v);

/* ---- between the parts ---- */

/* Whether a run sees this absolute path without links: as an input, or of the system. */
bool forge_advise_is_seen(const struct forge_spec *s, const char *path);
/*
 * advise_log.c: a file of the current directory that the command did not find, by its
 * name in standard error. The caller frees it; NULL: no certain one.
 */
char *forge_advise_log(const struct forge_spec *s, int run_dir, bool *ret_is_dir);
