/* SPDX-License-Identifier: Apache-2.0 */
/* What is submitted: the options of sbatch, and the script of the job. */
#pragma once

#include "base/strv.h"
#include "executor/executor.h"
#include "executor/slurm/job_dir.h"

/* "sbatch" and its options. -ENOMEM is the only error. */
FORGE_MUST_CHECK int forge_submission_argv(const struct forge_job *job,
					   const struct forge_job_dir *dir,
					   struct forge_strv *ret);
/* A new string; NULL: out of memory. */
char *forge_submission_script(const struct forge_job *job,
			      const struct forge_job_dir *dir);
