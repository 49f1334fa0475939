/* SPDX-License-Identifier: Apache-2.0 */
/* The runtimes of a configuration file, and of the files in runtimes.d. */
#include <errno.h>
#include <string.h>

#include "config/schema.h"
#include "config/setters.h"

#define FIELD(f) offsetof(struct forge_runtime_decl, f)

/* Rows of one runtime; the setters are those of plain values, into the declaration. */
enum value { TEXT, LIST, PAIRS, LIMITS };
static const struct {
	const char *key;
	enum value type;
	size_t offset;
	const char *type_name, *help;
} rows[] = {
	{ "kind", TEXT, FIELD(kind), "conda, venv, system, r, prefix or rootfs",
	  "What it is" },
	{ "prefix", TEXT, FIELD(prefix), "path, for conda also a name",
	  "Where it is; relative paths are below this file's directory" },
	{ "description", TEXT, FIELD(description), "text", "For people" },
	{ "commands", LIST, FIELD(commands), "list of programs",
	  "Programs it has; the probe finds each, kind system has no others" },
	{ "python", LIST, FIELD(python), "list of modules",
	  "Python modules that the probe imports" },
	{ "R", LIST, FIELD(r), "list of packages", "R packages that the probe loads" },
	{ "smoke", TEXT, FIELD(smoke), "a line for sh",
	  "A test of its own that the probe runs; it must exit 0" },
	{ "needs", LIST, FIELD(needs), "list of Debian packages",
	  "What has to be installed for it; told where the host lacks it" },
	{ "libraries", LIST, FIELD(libraries), "list of paths",
	  "Kind r: directories of R packages, the first first" },
	{ "env", PAIRS, FIELD(env), "map of names to values",
	  "Variables that runs in it get" },
	{ "limits", LIMITS, 0, "map of limits",
	  "Limits in place of the profile's; those above host.max are clamped to it" },
};

void forge_runtime_decl_done(struct forge_runtime_decl *d)
{
	free(d->name);
	free(d->kind);
	free(d->prefix);
	free(d->description);
	free(d->smoke);
	free(d->file);
	free(d->clamped);
	forge_strv_done(&d->needs);
	forge_strv_done(&d->commands);
	forge_strv_done(&d->python);
	forge_strv_done(&d->r);
	forge_strv_done(&d->libraries);
	forge_strv_done(&d->env);
	*d = (struct forge_runtime_decl){ .name = NULL };
}

static int need(const struct forge_loader *ld, const struct forge_yaml *node,
		enum forge_yaml_type type, const char *path, const char *what,
		struct forge_error *err)
{
	return node->type == type
		       ? 0
		       : forge_loader_fail(ld, node, path, err, "must be %s", what);
}

static int set_list(const struct forge_loader *ld, const struct forge_yaml *node,
		    const char *path, struct forge_strv *ret, struct forge_error *err)
{
	int rc = need(ld, node, FORGE_YAML_LIST, path, "a list, like [a, b]", err);

	for (const struct forge_yaml *n = node->child; rc == 0 && n; n = n->next) {
		rc = need(ld, n, FORGE_YAML_SCALAR, path, "a list of plain values", err);
		if (rc == 0 && !*n->scalar)
			rc = forge_loader_fail(ld, n, path, err,
					       "a value must not be empty");
		if (rc == 0 && forge_strv_add(ret, n->scalar) < 0)
			rc = forge_loader_oom(err);
	}
	return rc;
}

static int set_pairs(const struct forge_loader *ld, const struct forge_yaml *node,
		     const char *path, struct forge_strv *ret, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	int rc = need(ld, node, FORGE_YAML_MAP, path, "a map, like NAME: value", err);

	for (const struct forge_yaml *n = node->child; rc == 0 && n; n = n->next) {
		if (forge_parse_env_name(n->key, strlen(n->key), &why) < 0)
			return forge_fail_at(err, ld->name, n->key_line, n->key_column,
					     "%s: %s", path, why.msg);
		rc = need(ld, n, FORGE_YAML_SCALAR, path, "a map of plain values", err);
		if (rc == 0 && forge_strv_setenv(ret, n->key, n->scalar) < 0)
			rc = forge_loader_oom(err);
	}
	return rc;
}

static int set_text(const struct forge_loader *ld, const struct forge_yaml *node,
		    const char *path, char **ret, struct forge_error *err)
{
	int rc = need(ld, node, FORGE_YAML_SCALAR, path, "one value", err);

	if (rc < 0)
		return rc;
	free(*ret);
	*ret = strdup(node->scalar);
	return *ret ? 0 : forge_loader_oom(err);
}

/* Clamps one limit; 1: it was, and note says so. */
static int clamp(const struct forge_config *c, const struct forge_limit_row *row,
		 struct forge_limits *limits, char *note, size_t size)
{
	char text[FORGE_FORMAT_MAX];
	struct forge_limits one = { 0 };
	uint64_t cap = forge_limit_value(&c->caps, row),
		 *slot = forge_limit_slot(limits, row);

	if (cap != 0 && *slot > cap) {
		*slot = cap;
		(void)snprintf(note, size, "%s clamped to %s (host.max)", row->name,
			       forge_limit_format(text, row, cap));
		return 1;
	}
	*forge_limit_slot(&one, row) = *slot;
	if (forge_limits_check(&one, &c->caps, c->allow_unlimited, NULL) == 0)
		return 0;
	*slot = 0;
	(void)snprintf(note, size, "%s is the profile's (host.allow_unlimited is false)",
		       row->name);
	return 1;
}

/*
 * What exceeds the host's caps gives way and says so: a runtime that nobody uses must not stop every
 * command.
 */
static int set_limits(const struct forge_loader *ld, const struct forge_yaml *node,
		      const char *path, struct forge_runtime_decl *d,
		      struct forge_error *err)
{
	char note[160], all[1024] = "";
	size_t len = 0;
	int rc = forge_schema_limits(ld, path, node, &d->limits, err);

	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS && rc == 0; i++)
		if (clamp(ld->config, &forge_limit_rows[i], &d->limits, note,
			  sizeof(note)) &&
		    len < sizeof(all))
			len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%s",
						len ? ", " : "", note);
	if (rc < 0 || !len)
		return rc;
	d->clamped = strdup(all);
	return d->clamped ? 0 : forge_loader_oom(err);
}

static int set_key(const struct forge_loader *ld, const struct forge_yaml *node,
		   const char *prefix, struct forge_runtime_decl *d,
		   struct forge_error *err)
{
	const char *words[FORGE_ARRAY_SIZE(rows)];
	char path[160], text[FORGE_UNKNOWN_MAX];

	(void)snprintf(path, sizeof(path), "%s.%.32s", prefix, node->key);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(rows); i++) {
		void *slot = (char *)d + rows[i].offset;
		words[i] = rows[i].key;
		if (strcmp(rows[i].key, node->key) != 0)
			continue;
		switch (rows[i].type) {
		case TEXT:
			return set_text(ld, node, path, slot, err);
		case LIST:
			return set_list(ld, node, path, slot, err);
		case PAIRS:
			return set_pairs(ld, node, path, slot, err);
		case LIMITS:
			return set_limits(ld, node, path, d, err);
		}
	}
	return forge_fail_at(err, ld->name, node->key_line, node->key_column, "%s: %s",
			     prefix,
			     forge_describe_unknown(text, "unknown key", node->key, words,
						    FORGE_ARRAY_SIZE(rows)));
}

/*
 * Paths in a file are below its directory; a word without a slash may be conda's name. "~" and "$NAME"
 * at the beginning are left to who opens it.
 */
static int absolute(const struct forge_loader *ld, char **path, bool may_be_name,
		    struct forge_error *err)
{
	if (!*path || (may_be_name && !strchr(*path, '/')) ||
	    strncmp(*path, "~/", 2) == 0 || **path == '$')
		return 0;
	char *full = forge_path_absolute(ld->base_dir, *path);
	if (!full)
		return forge_loader_oom(err);
	free(*path);
	*path = full;
	return 0;
}

static int add_runtime(struct forge_loader *ld, const struct forge_yaml *node,
		       struct forge_error *err)
{
	struct forge_config *c = ld->config;
	struct forge_error why = FORGE_ERROR_INIT;
	char prefix[96];

	if (forge_parse_id(node->key, &why) < 0)
		return forge_fail_at(err, ld->name, node->key_line, node->key_column,
				     "runtimes: %s", why.msg);
	(void)snprintf(prefix, sizeof(prefix), "runtimes.%s", node->key);
	for (size_t i = 0; i < c->n_runtimes; i++)
		if (strcmp(c->runtimes[i].name, node->key) == 0)
			return 0; /* of a file that goes first */
	int rc = need(ld, node, FORGE_YAML_MAP, prefix, "a map with at least kind", err);
	if (rc < 0)
		return rc;
	struct forge_runtime_decl *grown =
		reallocarray(c->runtimes, c->n_runtimes + 1, sizeof(*grown));
	if (!grown)
		return forge_loader_oom(err);
	c->runtimes = grown;
	struct forge_runtime_decl *d = &grown[c->n_runtimes++];
	*d = (struct forge_runtime_decl){ .line = node->key_line };
	d->name = strdup(node->key);
	d->file = strdup(ld->name);
	rc = d->name && d->file ? 0 : forge_loader_oom(err);
	for (const struct forge_yaml *n = node->child; n && rc == 0; n = n->next)
		rc = set_key(ld, n, prefix, d, err);
	if (rc == 0 && !d->kind)
		rc = forge_loader_fail(
			ld, node, prefix, err,
			"has no kind (conda, venv, system, r, prefix or rootfs)");
	if (rc == 0)
		rc = absolute(ld, &d->prefix, strcmp(d->kind, "conda") == 0, err);
	for (size_t i = 0; i < d->libraries.n && rc == 0; i++)
		rc = absolute(ld, &d->libraries.v[i], false, err);
	return rc;
}

FORGE_SETTER(forge_set_runtimes)
{
	if (node->type != FORGE_YAML_MAP)
		return forge_loader_fail(ld, node, row->path, err,
					 "must be a map of names to runtimes");
	ld->runtimes = node;
	return 0;
}

int forge_runtimes_apply(struct forge_loader *ld, struct forge_error *err)
{
	int rc = 0;

	for (const struct forge_yaml *n = ld->runtimes ? ld->runtimes->child : NULL;
	     n && rc == 0; n = n->next)
		rc = add_runtime(ld, n, err);
	return rc;
}

int forge_config_add_runtimes(struct forge_config *c, const char *text, size_t len,
			      const char *name, const char *base_dir,
			      struct forge_error *err)
{
	forge_auto_yaml struct forge_yaml *root = NULL;
	struct forge_loader ld = { .config = c, .name = name, .base_dir = base_dir };
	int rc = forge_yaml_parse(text, len, name, &root, err);

	if (rc < 0)
		return rc;
	if (root->type != FORGE_YAML_MAP || !root->child || root->child->next ||
	    strcmp(root->child->key, "runtimes") != 0)
		return forge_fail_at(err, name, root->line, root->column,
				     "a file in runtimes.d has one key, runtimes");
	const struct forge_schema_row row = { .path = "runtimes" };
	rc = forge_set_runtimes(&ld, &row, root->child, err);
	return rc < 0 ? rc : forge_runtimes_apply(&ld, err);
}

void forge_runtimes_each_key(void (*visit)(const struct forge_config_key *key, void *arg),
			     void *arg)
{
	static char paths[FORGE_ARRAY_SIZE(rows)][40];

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(rows); i++) {
		(void)snprintf(paths[i], sizeof(paths[i]), "runtimes.NAME.%s",
			       rows[i].key);
		visit(&(struct forge_config_key){ .path = paths[i],
						  .type = rows[i].type_name,
						  .builtin = "none of its own",
						  .help = rows[i].help },
		      arg);
	}
}
