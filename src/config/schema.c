/* SPDX-License-Identifier: Apache-2.0 */
/* The table of configuration keys, and its application to a file. */
#include "config/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/yaml.h"
#include "config/config.h"
#include "config/executors.h"
#include "config/health_key.h"
#include "config/named.h"
#include "config/profiles.h"
#include "config/runtimes.h"
#include "config/setters.h"

#define FIELD(f)   offsetof(struct forge_config, f)
#define STRING(x)  STRING_(x)
#define STRING_(x) #x

/* Rows are in the order of a well-kept file; a section is the part before a dot. */
static const struct forge_schema_row rows[] = {
	{ .path = "version",
	  .type = "1",
	  .builtin = "1",
	  .set = forge_set_version,
	  .help = "Version of this file's format" },
	{ .path = "workdir",
	  .type = "path with {id} or {run_id}",
	  .set = forge_set_workdir,
	  .builtin = FORGE_BUILTIN_WORKDIR,
	  .help = "Working directory of a run; made for it and removed after it" },
	{ .path = "read_only",
	  .type = "list of paths",
	  .builtin = "[]",
	  .set = forge_set_read_only,
	  .help = "Directories every run can read, which must exist; relative ones are "
		  "below "
		  "this file's" },
	{ .path = "runtime",
	  .type = "name of a runtime, or path",
	  .builtin = "none",
	  .set = forge_set_runtime,
	  .offset = FIELD(runtime),
	  .help = "What analyses run in that name no runtime" },
	{ .path = "runtimes", .set = forge_set_runtimes },
	{ .path = "executor",
	  .type = "name of an executor",
	  .builtin = "local",
	  .set = forge_set_text,
	  .offset = FIELD(executor),
	  .help = "Where analyses run that name no executor" },
	{ .path = "executors", .set = forge_set_executors },
	{ .path = "analysis",
	  .type = "map with runtime, profile, limits, inputs, outputs, network, env",
	  .builtin = "nothing is said",
	  .set = forge_set_analysis,
	  .help = "How the scripts in this file's directory are run" },
	{ .path = "store",
	  .type = "URL",
	  .builtin = "SQLite in FORGE_HOME",
	  .set = forge_set_text,
	  .offset = FIELD(store),
	  .help = "Where records are kept: sqlite:/path or "
		  "postgresql://user@host/database" },
	{ .path = "profiles",
	  .limits_below = "profiles.NAME",
	  .set = forge_set_profiles },
	{ .path = "host.max", .limits_below = "host.max", .set = forge_set_caps },
	{ .path = "host.allow_unlimited",
	  .type = "true or false",
	  .builtin = "false",
	  .set = forge_set_bool,
	  .offset = FIELD(allow_unlimited),
	  .cap = FORGE_CAP_FLAG,
	  .help = "Whether a run may ask for unlimited" },
	{ .path = "host.scripts_network",
	  .type = "true or false",
	  .builtin = "false",
	  .set = forge_set_scripts_network,
	  .offset = FIELD(scripts_network),
	  .cap = FORGE_CAP_FLAG,
	  .help = "Whether a script, or the forge.yaml beside it, may ask for the host's "
		  "network" },
	{ .path = "host.budget.memory",
	  .type = "size",
	  .builtin = "80 % of the host's",
	  .set = forge_set_size,
	  .offset = FIELD(budget_bytes),
	  .cap = FORGE_CAP_NUMBER,
	  .help = "Memory that all running analyses may have together" },
	{ .path = "host.budget.cpus",
	  .type = "number of CPUs",
	  .builtin = "80 % of the host's, rounded up",
	  .set = forge_set_cpus,
	  .offset = FIELD(budget_cpus_milli),
	  .cap = FORGE_CAP_NUMBER,
	  .help = "CPUs that all running analyses may have together" },
	{ .path = "host.budget.runs",
	  .type = "whole number",
	  .builtin = "as many as fit",
	  .set = forge_set_count,
	  .offset = FIELD(budget_runs),
	  .cap = FORGE_CAP_NUMBER,
	  .help = "How many analyses may run at once" },
	{ .path = "queue.max_wait",
	  .type = "duration",
	  .builtin = FORGE_BUILTIN_MAX_WAIT,
	  .set = forge_set_duration,
	  .offset = FIELD(queue_usec),
	  .help = "After how long a run that is still queued is cancelled" },
	{ .path = "outputs.default",
	  .type = "all, declared or none",
	  .builtin = "all",
	  .set = forge_set_outputs_default,
	  .help = "What is collected without -o: every file, those in outputs/, or "
		  "none" },
	{ .path = "outputs.max_size",
	  .type = "size",
	  .builtin = "the disk limit",
	  .set = forge_set_size,
	  .offset = FIELD(outputs_max_bytes),
	  .help = "Most that is collected from one run" },
	{ .path = "outputs.max_files",
	  .type = "whole number",
	  .builtin = STRING(FORGE_BUILTIN_MAX_FILES),
	  .set = forge_set_count,
	  .offset = FIELD(outputs_max_files),
	  .help = "Most files that are collected from one run" },
	{ .path = "post_process",
	  .type = "command: a list of words, or one line for sh",
	  .builtin = "none",
	  .set = forge_set_command,
	  .offset = FIELD(post_process),
	  .help = "Runs in a sandbox of its own after each success; its JSON lines are "
		  "kept" },
	{ .path = "retry",
	  .type = "map of reasons to {times, factor, max}",
	  .builtin = "{}",
	  .set = forge_set_retry,
	  .help = "Which runs are tried again, how often, and with how much more of "
		  "the limit that they met" },
	{ .path = "pipeline.reuse_from",
	  .type = "list of absolute paths",
	  .builtin = "[]",
	  .set = forge_set_reuse_from,
	  .help = "FORGE_HOMEs of other users of the store whose results steps of "
		  "pipelines may reuse; not in a project's file" },
	{ .path = "sampling.interval",
	  .type = "duration from 100ms, or off",
	  .builtin = FORGE_BUILTIN_SAMPLING,
	  .set = forge_set_sampling,
	  .offset = FIELD(sample_usec),
	  .help = "How often what a run uses is measured for `forge show --chart`; "
		  "more often in its first seconds, less often in a long run" },
	{ .path = "health", .set = forge_set_health },
	{ .path = "guard.paths",
	  .type = "list of paths and patterns",
	  .builtin = "[]",
	  .set = forge_set_guard_paths,
	  .help = "Files that no run may change; those of all configuration files "
		  "together" },
	{ .path = "guard.exclude",
	  .type = "list of paths and patterns",
	  .builtin = "[]",
	  .set = forge_set_guard_paths,
	  .help = "What of guard.paths may change" },
	{ .path = "guard.mode",
	  .type = "auto, watch, snapshot or off",
	  .builtin = "auto",
	  .set = forge_set_guard_mode,
	  .help = "How changes are found: by watching (root), or by comparing before and "
		  "after" },
	{ .path = "guard.unattributed",
	  .type = "auto, corrupted or warn",
	  .builtin = "auto",
	  .set = forge_set_unattributed,
	  .help = "What a change means that cannot be attributed; auto: corrupted if the "
		  "run was alone" },
	{ .path = "guard.hold",
	  .type = "true or false",
	  .builtin = "false",
	  .set = forge_set_guard_hold,
	  .help = "Whether runs wait after one that is corrupted, until `forge health "
		  "clear`" },
	{ .path = "retention.logs",
	  .type = "duration",
	  .builtin = "for ever",
	  .set = forge_set_age,
	  .offset = FIELD(keep.logs_usec),
	  .help = "How long `forge gc` keeps logs; records stay" },
	{ .path = "retention.logs_size",
	  .type = "size",
	  .builtin = "no limit",
	  .set = forge_set_bytes,
	  .offset = FIELD(keep.logs_bytes),
	  .help = "How much `forge gc` keeps of all logs together, the newest" },
	{ .path = "retention.workdirs",
	  .type = "duration",
	  .builtin = FORGE_BUILTIN_WORKDIRS,
	  .set = forge_set_age,
	  .offset = FIELD(keep.workdirs_usec),
	  .help = "How long `forge gc` leaves workdirs that were kept" },
	{ .path = "retention.objects",
	  .type = "duration",
	  .builtin = FORGE_BUILTIN_OBJECTS,
	  .set = forge_set_age,
	  .offset = FIELD(keep.objects_usec),
	  .help = "How long `forge gc` keeps output files that no record points to" },
	{ .path = "retention.health",
	  .type = "duration",
	  .builtin = FORGE_BUILTIN_HEALTH,
	  .set = forge_set_age,
	  .offset = FIELD(keep.health_usec),
	  .help = "How long `forge gc` keeps results of checks in the store" },
	{ .path = "retention.reused",
	  .type = "duration",
	  .builtin = FORGE_BUILTIN_REUSED,
	  .set = forge_set_age,
	  .offset = FIELD(keep.reused_usec),
	  .help = "How long `forge gc` keeps results of other users that no pipeline has "
		  "used again" },
	{ .path = "sandbox.allow_missing",
	  .type = "list of mechanisms",
	  .builtin = "[]",
	  .set = forge_set_allow_missing,
	  .offset = FIELD(allow_missing),
	  .cap = FORGE_CAP_BITS,
	  .help = "What this host may lack without runs being refused" },
	{ .path = "sandbox.cgroup",
	  .type = "auto, v2, systemd, v1 or none",
	  .builtin = "auto",
	  .set = forge_set_cgroup,
	  .help = "How control groups are made" },
	{ .path = "sandbox.tmp_size",
	  .type = "size",
	  .builtin = "half the memory limit",
	  .set = forge_set_size,
	  .offset = FIELD(tmp_bytes),
	  .help = "Size of a run's private /tmp" },
	{ .path = "sandbox.shm_size",
	  .type = "size",
	  .builtin = "the memory limit",
	  .set = forge_set_size,
	  .offset = FIELD(shm_bytes),
	  .help = "Size of a run's private /dev/shm" },
	{ .path = "sandbox.uid_base",
	  .type = "user id",
	  .builtin = STRING(FORGE_BUILTIN_UID_BASE),
	  .set = forge_set_uid,
	  .offset = FIELD(uid_base),
	  .min = 65536,
	  .help = "First of the user ids that runs started by root get" },
	{ .path = "sandbox.uid_count",
	  .type = "whole number",
	  .builtin = STRING(FORGE_BUILTIN_UID_COUNT),
	  .set = forge_set_uid,
	  .offset = FIELD(uid_count),
	  .min = 1,
	  .help = "How many such user ids there are" },
	{ .path = "env.pass",
	  .type = "list of names, a final * is a prefix",
	  .builtin = "[LANG, LANGUAGE, LC_*, TZ]",
	  .set = forge_set_env_pass,
	  .help = "Variables runs inherit from the caller; replaces the built-in list" },
	{ .path = "env.set",
	  .type = "map of names to values",
	  .builtin = "{}",
	  .set = forge_set_env_set,
	  .help = "Variables every run gets" },
};

/* When path begins with the components of prefix: the one after them, *ret_len long. */
static const char *component_below(const char *path, const char *prefix, size_t *ret_len)
{
	size_t n = strlen(prefix);

	if (n > 0) {
		if (strncmp(path, prefix, n) != 0 || path[n] != '.')
			return NULL;
		path += n + 1;
	}
	*ret_len = strcspn(path, ".");
	return path;
}

/* The keys that may stand in a section, cut out of the table's paths. */
#define WORDS_MAX FORGE_ARRAY_SIZE(rows) /* no section can have more */
#define WORD_SIZE 32
static size_t keys_below(const char *prefix, char words[WORDS_MAX][WORD_SIZE])
{
	size_t n = 0, len;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(rows); i++) {
		const char *word = component_below(rows[i].path, prefix, &len);
		if (!word)
			continue;
		/* Keys of one section stand together. */
		if (n > 0 && strlen(words[n - 1]) == len &&
		    memcmp(words[n - 1], word, len) == 0)
			continue;
		(void)snprintf(words[n++], WORD_SIZE, "%.*s", (int)len, word);
	}
	return n;
}

static int unknown_schema_key(const struct forge_loader *ld,
			      const struct forge_yaml *node, const char *prefix,
			      struct forge_error *err)
{
	char words[WORDS_MAX][WORD_SIZE];
	const char *list[WORDS_MAX];
	size_t n = keys_below(prefix, words);

	for (size_t i = 0; i < n; i++)
		list[i] = words[i];
	const char *limit = *prefix ? NULL : forge_named_limit_like(node->key, list, n);
	if (!limit)
		return forge_named_unknown(ld, node, prefix, list, n, err);
	/* The file must say for which runs this limit is. */
	return forge_hint(err,
			  forge_fail_at(err, ld->name, node->key_line, node->key_column,
					"unknown key '%.64s'", node->key),
			  "%s is a limit: of every run it is profiles: {default: {%s: "
			  "...}}, of the scripts beside this file analysis: {limits: "
			  "{%s: ...}}",
			  limit, limit, limit);
}

/* The value of an outer file stays if the inner one would raise it. */
static int set_cap(struct forge_loader *ld, const struct forge_schema_row *row,
		   const struct forge_yaml *node, struct forge_error *err)
{
	char *field = (char *)ld->config + row->offset;
	bool was_set = forge_config_origin(ld->config, row->path), is_raised = false;
	uint64_t number = 0;
	unsigned bits = 0;
	bool flag = false;

	if (row->cap == FORGE_CAP_NUMBER)
		memcpy(&number, field, sizeof(number));
	else if (row->cap == FORGE_CAP_FLAG)
		memcpy(&flag, field, sizeof(flag));
	else
		memcpy(&bits, field, sizeof(bits));
	if (row->cap == FORGE_CAP_BITS)
		memset(field, 0, sizeof(bits));
	int rc = row->set(ld, row, node, err);
	if (rc < 0)
		return rc;
	if (was_set && row->cap == FORGE_CAP_NUMBER && *(uint64_t *)field > number) {
		*(uint64_t *)field = number;
		is_raised = true;
	} else if (was_set && row->cap == FORGE_CAP_FLAG && *(bool *)field && !flag) {
		*(bool *)field = false;
		is_raised = true;
	} else if (was_set && row->cap == FORGE_CAP_BITS && *(unsigned *)field & ~bits) {
		*(unsigned *)field &= bits;
		is_raised = true;
	}
	return is_raised ? forge_loader_hold_back(ld, row->path, node, err)
			 : forge_loader_note(ld, row->path, node, err);
}

static int set_value(struct forge_loader *ld, const struct forge_schema_row *row,
		     const struct forge_yaml *node, struct forge_error *err)
{
	if (row->cap != FORGE_NO_CAP)
		return set_cap(ld, row, node, err);
	int rc = row->set(ld, row, node, err);
	return rc < 0 || row->limits_below ? rc
					   : forge_loader_note(ld, row->path, node, err);
}

static int apply_section(struct forge_loader *ld, const struct forge_yaml *map,
			 const char *prefix, struct forge_error *err);

static int apply_key(struct forge_loader *ld, const struct forge_yaml *node,
		     const char *prefix, struct forge_error *err)
{
	char path[96];
	size_t len;

	/* A truncated path is longer than any key, so it is unknown. */
	(void)snprintf(path, sizeof(path), "%s%s%s", prefix, *prefix ? "." : "",
		       node->key);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(rows) && !strchr(node->key, '.'); i++) {
		if (strcmp(rows[i].path, path) == 0)
			return set_value(ld, &rows[i], node, err);
		if (component_below(rows[i].path, path, &len))
			return apply_section(ld, node, path, err);
	}
	return unknown_schema_key(ld, node, prefix, err);
}

/* The recursion depth is that of the table, not of the file. */
static int apply_section(struct forge_loader *ld, const struct forge_yaml *map,
			 const char *prefix, struct forge_error *err)
{
	if (map->type != FORGE_YAML_MAP)
		return forge_loader_fail(ld, map, *prefix ? prefix : "configuration", err,
					 "must be a map of keys to values");
	for (const struct forge_yaml *n = map->child; n; n = n->next) {
		int rc = apply_key(ld, n, prefix, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int forge_schema_apply(struct forge_loader *ld, const struct forge_yaml *root,
		       struct forge_error *err)
{
	int rc = apply_section(ld, root, "", err);

	if (rc == 0)
		rc = forge_check_uids(ld, err);
	return rc < 0 ? rc : forge_profiles_check(ld, err);
}

static const char *limit_type_name(enum forge_limit_type type)
{
	switch (type) {
	case FORGE_LIMIT_SIZE:
		return "size";
	case FORGE_LIMIT_DURATION:
		return "duration";
	case FORGE_LIMIT_COUNT:
		return "whole number";
	case FORGE_LIMIT_CPUS:
		return "number of CPUs";
	}
	return "";
}

/* Callers may keep the paths, so these live as long as the table. */
struct limit_paths {
	char text[FORGE_LIMIT_COUNT_ROWS][40];
};

static void each_limit(const struct forge_schema_row *row, struct limit_paths *paths,
		       void (*visit)(const struct forge_config_key *key, void *arg),
		       void *arg)
{
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *limit = &forge_limit_rows[i];
		const char *builtin =
			row->set == forge_set_caps ? "no cap" : limit->builtin;

		(void)snprintf(paths->text[i], sizeof(paths->text[i]), "%s.%s",
			       row->limits_below, limit->key);
		visit(&(struct forge_config_key){ .path = paths->text[i],
						  .type = limit_type_name(limit->type),
						  .builtin = builtin,
						  .help = limit->help },
		      arg);
	}
}

void forge_config_each_key(void (*visit)(const struct forge_config_key *key, void *arg),
			   void *arg)
{
	static struct limit_paths paths[FORGE_ARRAY_SIZE(rows)];

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(rows); i++) {
		const struct forge_schema_row *row = &rows[i];

		if (row->limits_below) {
			each_limit(row, &paths[i], visit, arg);
			continue;
		}
		if (row->set == forge_set_runtimes) {
			forge_runtimes_each_key(visit, arg);
			continue;
		}
		if (row->set == forge_set_executors) {
			forge_executors_each_key(visit, arg);
			continue;
		}
		if (row->set == forge_set_health) {
			forge_health_each_key(visit, arg);
			continue;
		}
		visit(&(struct forge_config_key){ .path = row->path,
						  .type = row->type,
						  .builtin = row->builtin,
						  .help = row->help },
		      arg);
	}
}
