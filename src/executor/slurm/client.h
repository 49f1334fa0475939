/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command of Slurm for a bounded time. That it fails says nothing about a job. */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

/* What the command printed, ending with NUL. Initialise to {0}. */
struct forge_client {
	int status; /* of wait(2) */
	char *out, *err;
};

/*
 * Runs argv[0] from PATH with conf as SLURM_CONF (NULL: as in our environment) and input as its standard
 * input (NULL: none, at most PIPE_BUF bytes). No other SLURM_ or SBATCH_ variable of ours gets there: one of
 * them would change what the command does. With input, which is the script of a job, hardly any variable gets
 * there: the job has all of them. 0: it has ended, see status; -ENOENT: it is not installed;
 * -ETIMEDOUT: it did not answer in time and was killed.
 */
FORGE_MUST_CHECK int forge_client_run(char *const *argv, const char *conf,
				      const char *input, struct forge_client *ret,
				      struct forge_error *err);
void forge_client_done(struct forge_client *c);
#define forge_auto_client FORGE_CLEANUP(forge_client_done)
