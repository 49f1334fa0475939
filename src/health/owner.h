/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/health only: the run that a process belongs to, also when the process is gone. */
#pragma once

#include <sys/types.h>

#include "health/ancestry.h"

/* A run, as its processes are known. Strings are borrowed. */
struct forge_owner {
	const char *word; /* in the path of its control group: "forge-<run id>" */
	pid_t supervisor; /* forked, or is an ancestor of, all its processes; 0: not known */
	/* Of a container: process 1 in it, which is forge-shim, and an ancestor of all others; 0: none. */
	pid_t init;
};

enum {
	FORGE_OWNER_OTHER = -1,	  /* certainly none of the runs */
	FORGE_OWNER_UNKNOWN = -2, /* it is gone, and not known from where it came */
	FORGE_OWNER_FORGE = -3,	  /* a supervisor, or a helper of one */
	FORGE_OWNER_KERNEL = -4,  /* a thread of the kernel, for whom is not known */
};
/* What a process is called, for people: "git (4711)". */
#define FORGE_PROCESS_MAX 48
/* The index of the run, or one of the above. */
int forge_owner_find(struct forge_ancestry *a, const struct forge_owner *runs, size_t n,
		     pid_t pid, int pidfd, char process[FORGE_PROCESS_MAX]);
