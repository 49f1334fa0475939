/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/config only: one function per type of configuration value. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "config/loader.h"

/* One key of the schema. */
struct forge_schema_row {
	const char *path;
	const char *type, *builtin, *help;
	const char *
		limits_below; /* this key holds limits, listed below this name; or NULL */
	/* Checks the value and stores it; node may be of any type. */
	int (*set)(struct forge_loader *ld, const struct forge_schema_row *row,
		   const struct forge_yaml *node, struct forge_error *err);
	size_t offset; /* of the value in struct forge_config, where set needs it */
	uint64_t min;  /* where set needs it */
	/* A cap: an inner file cannot raise the value of an outer one. */
	enum { FORGE_NO_CAP, FORGE_CAP_NUMBER, FORGE_CAP_FLAG, FORGE_CAP_BITS } cap;
};

/* Declares and defines them: all are of the type of forge_schema_row.set. */
#define FORGE_SETTER(name)                                                               \
	int name(struct forge_loader *ld, const struct forge_schema_row *row,            \
		 const struct forge_yaml *node, struct forge_error *err)

FORGE_SETTER(forge_set_version);
FORGE_SETTER(forge_set_workdir);
FORGE_SETTER(forge_set_read_only);
FORGE_SETTER(forge_set_reuse_from);
FORGE_SETTER(forge_set_profiles);
FORGE_SETTER(forge_set_caps);
FORGE_SETTER(forge_set_bool);
FORGE_SETTER(forge_set_allow_missing);
FORGE_SETTER(forge_set_cgroup);
FORGE_SETTER(forge_set_outputs_default);
FORGE_SETTER(forge_set_size);
FORGE_SETTER(forge_set_uid);
FORGE_SETTER(forge_set_text);
FORGE_SETTER(forge_set_runtime);
FORGE_SETTER(forge_set_count);
FORGE_SETTER(forge_set_cpus);
FORGE_SETTER(forge_set_duration);
FORGE_SETTER(forge_set_command);
FORGE_SETTER(forge_set_runtimes);
FORGE_SETTER(forge_set_executors);
FORGE_SETTER(forge_set_analysis);
FORGE_SETTER(forge_set_scripts_network);
FORGE_SETTER(forge_set_retry);
FORGE_SETTER(forge_set_health);
FORGE_SETTER(forge_set_sampling);
FORGE_SETTER(forge_set_guard_paths);
FORGE_SETTER(forge_set_guard_mode);
FORGE_SETTER(forge_set_unattributed);
FORGE_SETTER(forge_set_guard_hold);
/* The next two also take "unlimited". */
FORGE_SETTER(forge_set_age);
FORGE_SETTER(forge_set_bytes);
FORGE_SETTER(forge_set_env_pass);
FORGE_SETTER(forge_set_env_set);

/* Checks uid_base and uid_count together; errors name the place of the last one. */
FORGE_MUST_CHECK int forge_check_uids(const struct forge_loader *ld,
				      struct forge_error *err);
