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

struct forge_client_call {
	char *const *argv;
	const char *conf; /* SLURM_CONF, NULL: as in our environment */
	const char *
		input; /* the script of a job on standard input, NULL: none; at most PIPE_BUF bytes */
	int stop_fd; /* readable: the command is killed; a submission a moment later. -1: none */
	unsigned limit_msec; /* the command is killed after that time; 0: the usual one */
};

/*
 * Runs argv[0] from PATH. Of our SLURM_ and SBATCH_ variables only SLURM_CONF gets there: any other would change
 * what the command does. With input, hardly any variable gets there: the job has all of them. 0: the command has
 * ended, see status; -ENOENT: it is not installed; -ETIMEDOUT: it did not answer in time and was killed;
 * -ECANCELED: it was killed because of stop_fd.
 */
FORGE_MUST_CHECK int forge_client_run(const struct forge_client_call *call,
				      struct forge_client *ret, struct forge_error *err);
void forge_client_done(struct forge_client *c);
#define forge_auto_client FORGE_CLEANUP(forge_client_done)
