/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of a host's health. Each kind of check is a row of a table (kinds.c). forge_checks_run() starts a
 * process for each check, so that one that hangs costs its time-out and nothing else, and keeps the results
 * in FORGE_HOME, where other runs find those that are young enough.
 */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"
#include "health/result.h"
#include "state/home.h"

/* What a check may need besides its declaration. All pointers are borrowed. */
struct forge_check_env {
	const struct forge_config *cfg;
	/* In the process of a check its path is valid, and none of its descriptors. */
	const struct forge_home *home;
	/*
	 * Kinds command and runtime need runs, which this layer cannot make. NULL: such a check fails and
	 * says so. Called in the process of the check.
	 */
	void (*run_command)(const struct forge_check_env *env,
			    const struct forge_check_decl *d,
			    struct forge_check_report *ret);
	void (*probe_runtime)(const struct forge_check_env *env,
			      const struct forge_check_decl *d,
			      struct forge_check_report *ret);
	const char *store; /* URL, for these two */
};

/*
 * One kind. check() runs in a process of its own, which is killed after the check's time-out: it may block.
 * It must call forge_check_say(), and must not print a secret of the declaration.
 */
struct forge_check_kind {
	const char *name;
	void (*check)(const struct forge_check_env *env, const struct forge_check_decl *d,
		      struct forge_check_report *ret);
	/* check() keeps to the time-out itself, and needs so much more to clean up. */
	uint64_t grace_usec;
};
/* NULL: no such kind was built in. */
const struct forge_check_kind *forge_check_kind_find(const char *name);

/* The directory that workdirs are made in by this template, or the nearest one above it that exists. */
void forge_workdirs_place(const char *workdirs, char buf[PATH_MAX]);

/* Does the check belong to this phase? Those of kind files never do: guard.h has them. */
bool forge_check_is_due(const struct forge_check_decl *d, enum forge_phase phase);

/*
 * Carries out all checks of a phase at the same time, or, with name, this one. Returns 0 whatever they found.
 * On demand, no earlier result is used. stop_fd: -ECANCELED when it becomes readable; -1: none.
 */
FORGE_MUST_CHECK int forge_checks_run(const struct forge_check_env *env,
				      enum forge_phase phase, const char *name,
				      int stop_fd, struct forge_check_results *ret,
				      struct forge_error *err);
