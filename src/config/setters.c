/* SPDX-License-Identifier: Apache-2.0 */
/* Setters by type: check the node and store its value, or report the legal values. */
#include "config/setters.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/parse.h"
#include "base/strv.h"
#include "base/yaml.h"
#include "config/config.h"
#include "config/named.h"
#include "config/path.h"
#include "config/values.h"

/* Of enum forge_mechanism. */
const char *const forge_mechanism_names[FORGE_MECH_COUNT] = {
	[FORGE_MECH_LANDLOCK] = "landlock",
	[FORGE_MECH_LANDLOCK_SCOPE] = "landlock_scope",
	[FORGE_MECH_MEMORY] = "memory",
	[FORGE_MECH_SWAP] = "swap",
	[FORGE_MECH_CPUS] = "cpus",
	[FORGE_MECH_PIDS] = "pids",
	[FORGE_MECH_CPU_TIME] = "cpu_time",
	[FORGE_MECH_IO] = "io",
};

const char *forge_mechanism_list(unsigned missing, char buf[FORGE_MECHANISMS_MAX])
{
	size_t len = 0;

	buf[0] = '\0';
	for (unsigned i = 0; i < FORGE_MECH_COUNT; i++)
		if (missing & (1u << i))
			len += (size_t)snprintf(buf + len, FORGE_MECHANISMS_MAX - len,
						"%s%s", len ? ", " : "",
						forge_mechanism_names[i]);
	return buf;
}

const char *const forge_outputs_names[3] = {
	[FORGE_OUTPUTS_ALL] = "all",
	[FORGE_OUTPUTS_DECLARED] = "declared",
	[FORGE_OUTPUTS_NONE] = "none",
};

static const char *const cgroup_names[] = {
	[FORGE_CGROUP_AUTO] = "auto",	    [FORGE_CGROUP_V2] = "v2",
	[FORGE_CGROUP_SYSTEMD] = "systemd", [FORGE_CGROUP_V1] = "v1",
	[FORGE_CGROUP_NONE] = "none",
};

static void *field(const struct forge_loader *ld, const struct forge_schema_row *row)
{
	return (char *)ld->config + row->offset;
}

static struct forge_value value_of(const struct forge_loader *ld,
				   const struct forge_schema_row *row,
				   const struct forge_yaml *node)
{
	return (struct forge_value){ ld, node, row->path, row->type };
}

static int need_scalar(const struct forge_loader *ld, const struct forge_schema_row *row,
		       const struct forge_yaml *node, struct forge_error *err)
{
	const struct forge_value v = value_of(ld, row, node);

	return forge_value_scalar(&v, err);
}

/* The node must be a list of scalars, which the caller checks. */
static int need_list(const struct forge_loader *ld, const struct forge_schema_row *row,
		     const struct forge_yaml *node, struct forge_error *err)
{
	if (node->type != FORGE_YAML_LIST)
		return forge_loader_fail(ld, node, row->path, err,
					 "must be a list, like [a, b] (%s)", row->type);
	for (const struct forge_yaml *n = node->child; n; n = n->next) {
		int rc = need_scalar(ld, row, n, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* The index of the node's word, or an error with the legal words. */
static int choose(const struct forge_loader *ld, const struct forge_schema_row *row,
		  const struct forge_yaml *node, const char *const *words, size_t n,
		  struct forge_error *err)
{
	const struct forge_value v = value_of(ld, row, node);

	return forge_value_choose(&v, words, n, err);
}

FORGE_SETTER(forge_set_version)
{
	int rc = need_scalar(ld, row, node, err);

	if (rc < 0)
		return rc;
	if (strcmp(node->scalar, "1") != 0)
		return forge_loader_fail(
			ld, node, row->path, err,
			"'%.40s' is not a version this forge reads (write 1)",
			node->scalar);
	return 0;
}

FORGE_SETTER(forge_set_bool)
{
	const struct forge_value v = value_of(ld, row, node);

	return forge_value_bool(&v, field(ld, row), err);
}

/* A project contains the scripts, so its file must not extend their rights. */
FORGE_SETTER(forge_set_scripts_network)
{
	if (ld->is_project)
		return forge_loader_fail(ld, node, row->path, err,
					 "is for /etc/forge/forge.yaml, "
					 "~/.config/forge/forge.yaml or --config");
	return forge_set_bool(ld, row, node, err);
}

FORGE_SETTER(forge_set_size)
{
	const struct forge_value v = value_of(ld, row, node);

	return forge_value_size(&v, field(ld, row), err);
}

static int set_number(const struct forge_loader *ld, const struct forge_schema_row *row,
		      const struct forge_yaml *node, forge_number_parser *parse,
		      bool may_be_unlimited, struct forge_error *err)
{
	const struct forge_value v = value_of(ld, row, node);

	return forge_value_number(&v, parse, may_be_unlimited, field(ld, row), err);
}

FORGE_SETTER(forge_set_count)
{
	return set_number(ld, row, node, forge_parse_count, false, err);
}

FORGE_SETTER(forge_set_cpus)
{
	return set_number(ld, row, node, forge_parse_cpus, false, err);
}

FORGE_SETTER(forge_set_duration)
{
	return set_number(ld, row, node, forge_parse_duration, false, err);
}

#define SAMPLING_MIN_USEC 100000
#define SAMPLING_MAX_USEC 3600000000ull
FORGE_SETTER(forge_set_sampling)
{
	const struct forge_value v = value_of(ld, row, node);
	uint64_t *usec = field(ld, row), was = *usec;

	if (forge_value_scalar(&v, NULL) == 0 && strcmp(node->scalar, "off") == 0) {
		*usec = 0;
		return 0;
	}
	int rc = set_number(ld, row, node, forge_parse_duration, false, err);
	if (rc < 0 || (*usec >= SAMPLING_MIN_USEC && *usec <= SAMPLING_MAX_USEC))
		return rc;
	*usec = was;
	return forge_loader_fail(ld, node, row->path, err,
				 "must be from 100ms to 1h, or off");
}

FORGE_SETTER(forge_set_age)
{
	return set_number(ld, row, node, forge_parse_duration, true, err);
}

FORGE_SETTER(forge_set_bytes)
{
	return set_number(ld, row, node, forge_parse_size, true, err);
}

FORGE_SETTER(forge_set_text)
{
	const struct forge_value v = value_of(ld, row, node);
	int rc = forge_value_scalar(&v, err);

	return rc < 0 ? rc : forge_value_copy(&v, field(ld, row), err);
}

/* A name, or a path relative to the directory of the file. */
FORGE_SETTER(forge_set_runtime)
{
	int rc = forge_set_text(ld, row, node, err);
	char **slot = field(ld, row);

	if (rc < 0 || strchr("/~", **slot) || (!strchr(*slot, '/') && **slot != '.'))
		return rc;
	char *path = forge_path_absolute(ld->base_dir, *slot);
	if (!path)
		return forge_loader_oom(err);
	free(*slot);
	*slot = path;
	return 0;
}

/* A scalar is a shell command line; a list is used as it is. */
FORGE_SETTER(forge_set_command)
{
	struct forge_strv *argv = field(ld, row);
	int rc;

	forge_strv_done(argv);
	*argv = (struct forge_strv){ 0 };
	if (node->type == FORGE_YAML_SCALAR) {
		rc = forge_strv_add(argv, "/bin/sh");
		if (rc == 0)
			rc = forge_strv_add(argv, "-c");
		if (rc == 0)
			rc = forge_strv_add(argv, node->scalar);
		return rc < 0 ? forge_loader_oom(err) : 0;
	}
	rc = need_list(ld, row, node, err);
	for (const struct forge_yaml *n = node->child; rc >= 0 && n; n = n->next)
		if (forge_strv_add(argv, n->scalar) < 0)
			return forge_loader_oom(err);
	if (rc == 0 && argv->n == 0)
		return forge_loader_fail(ld, node, row->path, err,
					 "a command must have at least one word");
	return rc;
}

FORGE_SETTER(forge_set_uid)
{
	struct forge_error why = FORGE_ERROR_INIT;
	uint64_t n;
	int rc = need_scalar(ld, row, node, err);

	if (rc < 0)
		return rc;
	if (forge_parse_count(node->scalar, &n, &why) < 0 && why.code != ERANGE)
		return forge_loader_fail(ld, node, row->path, err, "%s", why.msg);
	if (why.code == ERANGE || n < row->min || n > INT32_MAX)
		return forge_loader_fail(ld, node, row->path, err,
					 "'%.40s' is out of range (write %" PRIu64
					 " to %d)",
					 node->scalar, row->min, INT32_MAX);
	*(uint32_t *)field(ld, row) = (uint32_t)n;
	ld->uids = node;
	return 0;
}

int forge_check_uids(const struct forge_loader *ld, struct forge_error *err)
{
	uint64_t last = (uint64_t)ld->config->uid_base + ld->config->uid_count - 1;

	/* Some file systems and tools still keep uids in a signed 32-bit number. */
	if (!ld->uids || last <= INT32_MAX)
		return 0;
	return forge_loader_fail(ld, ld->uids, "sandbox.uid_base", err,
				 "with uid_count the last user id would be %" PRIu64
				 " (at most %d)",
				 last, INT32_MAX);
}

FORGE_SETTER(forge_set_cgroup)
{
	int rc = need_scalar(ld, row, node, err);

	if (rc < 0)
		return rc;
	rc = choose(ld, row, node, cgroup_names, FORGE_ARRAY_SIZE(cgroup_names), err);
	if (rc < 0)
		return rc;
	ld->config->cgroup = (enum forge_cgroup_choice)rc;
	return 0;
}

FORGE_SETTER(forge_set_outputs_default)
{
	int rc = need_scalar(ld, row, node, err);

	if (rc < 0)
		return rc;
	rc = choose(ld, row, node, forge_outputs_names,
		    FORGE_ARRAY_SIZE(forge_outputs_names), err);
	if (rc < 0)
		return rc;
	ld->config->outputs_default = (enum forge_outputs)rc;
	return 0;
}

FORGE_SETTER(forge_set_allow_missing)
{
	int rc = need_list(ld, row, node, err);

	for (const struct forge_yaml *n = node->child; rc >= 0 && n; n = n->next) {
		rc = choose(ld, row, n, forge_mechanism_names, FORGE_MECH_COUNT, err);
		if (rc >= 0)
			ld->config->allow_missing |= 1u << rc;
	}
	return rc < 0 ? rc : 0;
}

/* The error in a workdir template, or NULL. */
static const char *template_problem(const char *s)
{
	bool has_id = false;

	if (*s != '/')
		return "must be absolute";
	for (const char *p = s; *p; p++) {
		if (*p == '/' && strncmp(p, "/..", 3) == 0 && (p[3] == '/' || !p[3]))
			return "must not contain '..'";
		if (*p == '}')
			return "has a '}' without its '{'";
		if (*p != '{')
			continue;
		size_t n = strncmp(p, "{id}", 4) == 0	    ? 4
			   : strncmp(p, "{run_id}", 8) == 0 ? 8
							    : 0;
		if (n == 0)
			return "has an unknown {name} (have: {id}, {run_id})";
		has_id = true;
		p += n - 1;
	}
	return has_id ? NULL
		      : "must contain {id} or {run_id}, or two runs would share it";
}

FORGE_SETTER(forge_set_workdir)
{
	int rc = need_scalar(ld, row, node, err);

	if (rc < 0)
		return rc;
	const char *problem = template_problem(node->scalar);
	if (problem)
		return forge_loader_fail(ld, node, row->path, err,
					 "'%.120s' %s (write %s)", node->scalar, problem,
					 row->builtin);
	char *path = forge_path_absolute("/", node->scalar);
	if (!path)
		return forge_loader_oom(err);
	free(ld->config->workdir);
	ld->config->workdir = path;
	return 0;
}

static bool has_string(const struct forge_strv *sv, const char *wanted)
{
	forge_strv_foreach (s, sv)
		if (strcmp(s, wanted) == 0)
			return true;
	return false;
}

static int add_root(struct forge_loader *ld, const struct forge_schema_row *row,
		    const struct forge_yaml *node, struct forge_error *err)
{
	if (*node->scalar == '\0')
		return forge_loader_fail(ld, node, row->path, err,
					 "a path must not be empty");
	if (node->scalar[0] == '~')
		return forge_loader_fail(
			ld, node, row->path, err,
			"'%.120s': '~' has no meaning here (write the whole path, "
			"or ./~ for a file of that name)",
			node->scalar);
	forge_auto_free char *path = forge_path_absolute(ld->base_dir, node->scalar);
	if (!path && errno == ENOMEM)
		return forge_loader_oom(err);
	if (!path)
		return forge_fail_errno(err, errno, "find the current directory");
	/* It has homes, sockets and other runs, which the sandbox must hide. */
	if (strcmp(path, "/") == 0)
		return forge_loader_fail(
			ld, node, row->path, err,
			"'%.120s' is the whole file system (name the directories "
			"that runs may read)",
			node->scalar);
	if (has_string(&ld->config->read_only, path))
		return 0;
	if (forge_strv_take(&ld->config->read_only, forge_take_ptr(path)) < 0)
		return forge_loader_oom(err);
	return 0;
}

FORGE_SETTER(forge_set_read_only)
{
	int rc = need_list(ld, row, node, err);

	for (const struct forge_yaml *n = node->child; rc >= 0 && n; n = n->next)
		rc = add_root(ld, row, n, err);
	return rc;
}

/* A project contains the pipelines, and must not bring their results with it. */
FORGE_SETTER(forge_set_reuse_from)
{
	struct forge_strv *list = &ld->config->reuse_from;
	int rc = need_list(ld, row, node, err);

	if (rc == 0 && ld->is_project)
		return forge_loader_fail(ld, node, row->path, err,
					 "is for /etc/forge/forge.yaml, "
					 "~/.config/forge/forge.yaml or --config");
	forge_strv_done(list);
	for (const struct forge_yaml *n = node->child; rc >= 0 && n; n = n->next) {
		size_t len = strlen(n->scalar);
		while (len > 1 && n->scalar[len - 1] == '/')
			len--;
		if (n->scalar[0] != '/' || len == 1)
			return forge_loader_fail(ld, n, row->path, err,
						 "'%.120s' is no absolute path of a "
						 "FORGE_HOME",
						 n->scalar);
		if (forge_strv_take(list, strndup(n->scalar, len)) < 0)
			return forge_loader_oom(err);
	}
	return rc;
}

FORGE_SETTER(forge_set_caps)
{
	struct forge_limits *caps = &ld->config->caps, given = { 0 };
	int rc = forge_named_limits(ld, row->path, node, &given, err);

	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS && rc == 0; i++) {
		const struct forge_limit_row *limit = &forge_limit_rows[i];
		const struct forge_yaml *written = forge_named_find(node, limit->key);
		uint64_t value = forge_limit_value(&given, limit);
		uint64_t *cap = forge_limit_slot(caps, limit);
		char key[64];

		if (!written)
			continue;
		(void)snprintf(key, sizeof(key), "host.max.%s", limit->key);
		/* "max: unlimited" explicitly means no cap. */
		if (*cap != 0 && value > *cap) {
			rc = forge_loader_hold_back(ld, key, written, err);
			continue;
		}
		*cap = value == FORGE_UNLIMITED ? 0 : value;
		rc = forge_loader_note(ld, key, written, err);
	}
	return rc;
}

/* Names that begin with FORGE_ are reserved: forge sets them in a run. */
static int check_env_name(const struct forge_loader *ld,
			  const struct forge_schema_row *row,
			  const struct forge_yaml *node, const char *name, size_t len,
			  struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;

	if (forge_parse_env_name(name, len, &why) < 0)
		return forge_loader_fail(ld, node, row->path, err, "%s", why.msg);
	if (strncmp(name, "FORGE_", 6) == 0)
		return forge_loader_fail(
			ld, node, row->path, err,
			"'%.64s': names that begin with FORGE_ are reserved", name);
	return 0;
}

static int add_env_pass(struct forge_strv *list, const struct forge_loader *ld,
			const struct forge_schema_row *row, const struct forge_yaml *node,
			struct forge_error *err)
{
	size_t len = strlen(node->scalar);

	if (len > 1 && node->scalar[len - 1] == '*')
		len--;
	int rc = check_env_name(ld, row, node, node->scalar, len, err);
	if (rc < 0)
		return rc;
	return forge_strv_add(list, node->scalar) < 0 ? forge_loader_oom(err) : 0;
}

FORGE_SETTER(forge_set_env_pass)
{
	forge_auto_strv struct forge_strv list = { 0 };
	int rc = need_list(ld, row, node, err);

	for (const struct forge_yaml *n = node->child; rc >= 0 && n; n = n->next)
		rc = add_env_pass(&list, ld, row, n, err);
	if (rc < 0)
		return rc;
	struct forge_strv old = ld->config->env_pass;
	ld->config->env_pass = list;
	list = old;
	return 0;
}

FORGE_SETTER(forge_set_env_set)
{
	if (node->type != FORGE_YAML_MAP)
		return forge_loader_fail(ld, node, row->path, err,
					 "must be a map, like NAME: value (%s)",
					 row->type);
	for (const struct forge_yaml *n = node->child; n; n = n->next) {
		const struct forge_yaml key = { .line = n->key_line,
						.column = n->key_column };
		int rc = check_env_name(ld, row, &key, n->key, strlen(n->key), err);
		if (rc < 0)
			return rc;
		rc = need_scalar(ld, row, n, err);
		if (rc < 0)
			return rc;
		if (forge_strv_setenv(&ld->config->env_set, n->key, n->scalar) < 0)
			return forge_loader_oom(err);
	}
	return 0;
}
