/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For src/config and src/pipeline: the loader of one file. It knows where values go, how errors
 * name their place, and where each value in force was written.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct forge_config;
struct forge_yaml;

/* A file being read: where values go, and how errors name their place. */
struct forge_loader {
	struct forge_config *config;
	const char *name;     /* of the file, in errors */
	const char *base_dir; /* of relative paths; NULL: the current directory */
	bool is_project;      /* see struct forge_config_layer */
	const struct forge_yaml
		*profiles; /* read last: they need host.max, which may come later */
	const struct forge_yaml *runtimes;  /* likewise */
	const struct forge_yaml *executors; /* likewise */
	const struct forge_yaml *health;    /* likewise, and guard.paths, guard.exclude */
	const struct forge_yaml *guard_paths, *guard_exclude;
	const struct forge_yaml *uids; /* the last of uid_base and uid_count, or NULL */
};

/* Fails with "path: message" at the node's value. */
int forge_loader_fail(const struct forge_loader *ld, const struct forge_yaml *node,
		      const char *path, struct forge_error *err, const char *fmt, ...)
	FORGE_PRINTF(5, 6);
/* Fails because out of memory. */
int forge_loader_oom(struct forge_error *err);

/* "<what> 'word' (have: a, b); did you mean 'a'?" into buf. Returns buf. */
#define FORGE_UNKNOWN_MAX 448
const char *forge_describe_unknown(char buf[FORGE_UNKNOWN_MAX], const char *what,
				   const char *word, const char *const *words, size_t n);

/* Records where a value in force was written. */
FORGE_MUST_CHECK int forge_loader_note(const struct forge_loader *ld, const char *key,
				       const struct forge_yaml *node,
				       struct forge_error *err);
/* Records that a value is above the cap of an outer file, which stays in force. */
FORGE_MUST_CHECK int forge_loader_hold_back(const struct forge_loader *ld,
					    const char *key,
					    const struct forge_yaml *node,
					    struct forge_error *err);
