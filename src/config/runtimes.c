/* SPDX-License-Identifier: Apache-2.0 */
/* The runtimes of a configuration file, and of the files in runtimes.d. */
#include "config/runtimes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/parse.h"
#include "base/strv.h"
#include "base/yaml.h"
#include "config/named.h"
#include "config/setters.h"

#define FIELD(f) offsetof(struct forge_runtime_decl, f)

static const struct forge_named_row rows[] = {
	{ "kind", FORGE_NAMED_TEXT, FIELD(kind),
	  "conda, venv, system, r, prefix, rootfs or image", "What it is", NULL },
	{ "prefix", FORGE_NAMED_TEXT, FIELD(prefix), "path, for conda also a name",
	  "Where it is; relative paths are below this file's directory", NULL },
	{ "image", FORGE_NAMED_WORD, FIELD(image), "image",
	  "Kind image: its name, best with a digest (name@sha256:...)", NULL },
	{ "executor", FORGE_NAMED_WORD, FIELD(executor), "name of an executor",
	  "Where its runs happen, if the command line does not say", NULL },
	{ "description", FORGE_NAMED_TEXT, FIELD(description), "text", "For people",
	  NULL },
	{ "commands", FORGE_NAMED_LIST, FIELD(commands), "list of programs",
	  "Programs it has; the probe finds each, kind system has no others", NULL },
	{ "python", FORGE_NAMED_LIST, FIELD(python), "list of modules",
	  "Python modules that the probe imports", NULL },
	{ "R", FORGE_NAMED_LIST, FIELD(r), "list of packages",
	  "R packages that the probe loads", NULL },
	{ "smoke", FORGE_NAMED_TEXT, FIELD(smoke), "a line for sh",
	  "A test of its own that the probe runs; it must exit 0", NULL },
	{ "needs", FORGE_NAMED_LIST, FIELD(needs), "list of Debian packages",
	  "Packages to install; named where the host lacks them", NULL },
	{ "libraries", FORGE_NAMED_LIST, FIELD(libraries), "list of paths",
	  "Kind r: directories of R packages, the first first", NULL },
	{ "env", FORGE_NAMED_PAIRS, FIELD(env), "map of names to values",
	  "Variables that runs in it get", NULL },
	{ "limits", FORGE_NAMED_LIMITS, FIELD(limits), "map of limits",
	  "Limits in place of the profile's; those above host.max are clamped to it",
	  NULL },
};

static const struct forge_named_map keys = {
	.must_be = "a map with at least kind",
	.rows = rows,
	.n = FORGE_ARRAY_SIZE(rows),
	.builtin = "none of its own",
};

void forge_runtime_decl_done(struct forge_runtime_decl *d)
{
	free(d->name);
	free(d->file);
	free(d->clamped);
	forge_named_done(&keys, d);
	*d = (struct forge_runtime_decl){ .name = NULL };
}

/* Lowers one limit to the caps. 1: it was too high, and note says so. */
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
 * Lowers the limits above the host's caps and notes each of them. They are no error: a runtime that is not
 * used must not stop every command.
 */
static int clamp_limits(const struct forge_config *c, struct forge_runtime_decl *d,
			struct forge_error *err)
{
	char note[160], all[1024] = "";
	size_t len = 0;

	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++)
		if (clamp(c, &forge_limit_rows[i], &d->limits, note, sizeof(note)) &&
		    len < sizeof(all))
			len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%s",
						len ? ", " : "", note);
	if (!len)
		return 0;
	d->clamped = strdup(all);
	return d->clamped ? 0 : forge_loader_oom(err);
}

/*
 * Paths in a file are below its directory; a word without a slash may be conda's name. "~" and "$NAME"
 * at the beginning are replaced when the path is opened (src/runtime).
 */
static int absolute(const struct forge_loader *ld, char **path, bool may_be_name,
		    struct forge_error *err)
{
	if (!*path || (may_be_name && !strchr(*path, '/')) ||
	    strncmp(*path, "~/", 2) == 0 || **path == '$')
		return 0;
	return forge_named_absolute(ld, path, err);
}

/* Checks the required keys of a runtime after all are read. */
static int complete(const struct forge_loader *ld, const struct forge_yaml *node,
		    const char *path, struct forge_runtime_decl *d,
		    struct forge_error *err)
{
	int rc = clamp_limits(ld->config, d, err);

	if (rc == 0 && !d->kind)
		rc = forge_loader_fail(
			ld, node, path, err,
			"has no kind (conda, venv, system, r, prefix, rootfs or image)");
	if (rc == 0)
		rc = absolute(ld, &d->prefix, strcmp(d->kind, "conda") == 0, err);
	for (size_t i = 0; i < d->libraries.n && rc == 0; i++)
		rc = absolute(ld, &d->libraries.v[i], false, err);
	return rc;
}

static int add_runtime(struct forge_loader *ld, const struct forge_yaml *node,
		       const char *path, void *arg, struct forge_error *err)
{
	struct forge_config *c = ld->config;

	(void)arg;
	for (size_t i = 0; i < c->n_runtimes; i++)
		if (strcmp(c->runtimes[i].name, node->key) == 0)
			return 0; /* a file with precedence has it */
	struct forge_runtime_decl *grown =
		reallocarray(c->runtimes, c->n_runtimes + 1, sizeof(*grown));
	if (!grown)
		return forge_loader_oom(err);
	c->runtimes = grown;
	struct forge_runtime_decl *d = &grown[c->n_runtimes++];
	*d = (struct forge_runtime_decl){ .line = node->key_line };
	d->name = strdup(node->key);
	d->file = strdup(ld->name);
	int rc = d->name && d->file ? 0 : forge_loader_oom(err);
	if (rc == 0)
		rc = forge_named_read(ld, node, path, &keys, d, err);
	return rc < 0 ? rc : complete(ld, node, path, d, err);
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
	return forge_named_each(ld, ld->runtimes, "runtimes", add_runtime, NULL, err);
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
	static char paths[FORGE_ARRAY_SIZE(rows)][FORGE_NAMED_PATH_MAX];

	forge_named_each_key(&keys, "runtimes", paths, visit, arg);
}
