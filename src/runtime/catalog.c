/* SPDX-License-Identifier: Apache-2.0 */
/* Finds runtimes by name. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/near.h"
#include "config/schema.h"
#include "runtime/conda.h"
#include "runtime/conda_config.h"
#include "runtime/runtime.h"

static const struct forge_runtime_kind *const kinds[] = {
	&forge_kind_conda, &forge_kind_venv,   &forge_kind_system,
	&forge_kind_r,	   &forge_kind_prefix, &forge_kind_rootfs,
	&forge_kind_image,
};

static const struct forge_runtime_kind *find_kind(const char *name)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(kinds); i++)
		if (strcmp(kinds[i]->name, name) == 0)
			return kinds[i];
	return NULL;
}

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct forge_runtime_decl *)a)->name,
		      ((const struct forge_runtime_decl *)b)->name);
}

/* Declared, discovered, shipped: the lower rank wins. */
static int rank(const struct forge_runtime_decl *d)
{
	return d->is_shipped ? 2 : d->line == 0 ? 1 : 0;
}

/* Within one rank, the runtime that was found earlier comes first. */
static int compare_pointers(const void *a, const void *b)
{
	const struct forge_runtime_decl *x = *(const struct forge_runtime_decl *const *)a,
					*y = *(const struct forge_runtime_decl *const *)b;
	int rc = compare(x, y);

	if (rc == 0)
		rc = rank(x) - rank(y);
	return rc ? rc : (x > y) - (x < y);
}

static int add_discovered(struct forge_catalog *c, const char *name, const char *prefix)
{
	struct forge_runtime_decl *d = &c->discovered[c->n_discovered++];

	d->name = strdup(name);
	d->kind = strdup("conda");
	d->prefix = strdup(prefix);
	d->file = strdup("found by conda's own lists");
	return d->name && d->kind && d->prefix && d->file ? 0 : -ENOMEM;
}

/*
 * Sorts all runtimes by name. Of several with one name the lowest rank stays or, within a rank,
 * the one found first.
 */
static int sort(struct forge_catalog *c)
{
	size_t declared = c->cfg->n_runtimes, found = declared + c->n_discovered,
	       all = found + c->shipped->n_runtimes, n = 0;

	c->sorted = calloc(all + 1, sizeof(struct forge_runtime_decl *));
	if (!c->sorted)
		return -ENOMEM;
	for (size_t i = 0; i < all; i++)
		c->sorted[i] = i < declared ? &c->cfg->runtimes[i]
			       : i < found  ? &c->discovered[i - declared]
					    : &c->shipped->runtimes[i - found];
	qsort(c->sorted, all, sizeof(struct forge_runtime_decl *), compare_pointers);
	for (size_t i = 0; i < all; i++)
		if (n == 0 || compare(c->sorted[n - 1], c->sorted[i]) != 0)
			c->sorted[n++] = c->sorted[i];
	c->n_sorted = n;
	return 0;
}

/* Is this name of a directory, which any user may have chosen, safe to print and to store? */
static bool is_printable(const char *name)
{
	json_t *text = json_string(name); /* NULL: not UTF-8 */
	bool ok = text && strlen(name) <= 64 && *name && !forge_runtime_is_path(name);

	json_decref(text);
	for (const char *p = name; *p; p++)
		ok = ok && (unsigned char)*p >= ' ' && *p != 0x7f;
	return ok;
}

/* An environment without a name can still be given by its path. */
static int discover(struct forge_catalog *c, struct forge_error *err)
{
	forge_auto_strv struct forge_strv pairs = { 0 };
	int rc = forge_conda_discover(&pairs, err);

	if (rc < 0)
		return rc;
	c->discovered = calloc(pairs.n / 2 + 1, sizeof(*c->discovered));
	rc = c->discovered ? 0 : -ENOMEM;
	for (size_t i = 0; i + 1 < pairs.n && rc == 0; i += 2)
		if (is_printable(pairs.v[i]))
			rc = add_discovered(c, pairs.v[i], pairs.v[i + 1]);
	if (rc == 0)
		rc = sort(c);
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}

int forge_catalog_open(const struct forge_config *cfg, struct forge_catalog *ret,
		       struct forge_error *err)
{
	struct forge_catalog c = { .cfg = cfg };
	int rc = forge_config_shipped(cfg, &c.shipped, err);

	if (rc == 0)
		rc = discover(&c, err);
	if (rc < 0) {
		forge_catalog_close(&c);
		return rc;
	}
	*ret = c;
	return 0;
}

void forge_catalog_close(struct forge_catalog *c)
{
	for (size_t i = 0; i < c->n_discovered; i++)
		forge_runtime_decl_done(&c->discovered[i]);
	free(c->discovered);
	free(c->sorted);
	forge_config_free(c->shipped);
	*c = (struct forge_catalog){ .cfg = NULL };
}

void forge_catalog_each(const struct forge_catalog *c,
			void (*visit)(const struct forge_runtime_decl *decl, void *arg),
			void *arg)
{
	for (size_t i = 0; i < c->n_sorted; i++)
		visit(c->sorted[i], arg);
}

static bool is_dir(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static const struct forge_runtime_decl *find_decl(const struct forge_catalog *c,
						  const char *name)
{
	struct forge_runtime_decl key = { .name = (char *)name }, *wanted = &key;
	size_t from = 0, to = c->n_sorted;

	while (from < to) {
		size_t middle = from + (to - from) / 2;
		int rc = compare(wanted, c->sorted[middle]);
		if (rc == 0)
			return c->sorted[middle];
		if (rc < 0)
			to = middle;
		else
			from = middle + 1;
	}
	return NULL;
}

/* "unknown runtime 'dta-ml' (have: data-ml, genomics); did you mean 'data-ml'?" */
static int unknown(const struct forge_catalog *c, const char *name,
		   struct forge_error *err)
{
	const char *words[64] = { NULL };
	char list[300] = "";
	size_t len = 0, n = 0;

	for (; n < c->n_sorted && n < FORGE_ARRAY_SIZE(words); n++)
		words[n] = c->sorted[n]->name;
	const char *near = forge_near_miss(name, words, n);
	for (size_t i = 0; i < n && len < sizeof(list) - 70; i++)
		len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s",
					i ? ", " : "", words[i]);
	int rc = forge_fail(err, ENOENT, "unknown runtime '%.64s' (have: %s)%s%s%s", name,
			    n ? list : "none", near ? "; did you mean '" : "",
			    near ? near : "", near ? "'?" : "");
	if (is_dir(name))
		return forge_hint(err, rc, "write ./%s for the directory here", name);
	return forge_hint(err, rc,
			  "`forge runtime list` shows them; they are declared in "
			  "forge.yaml or runtimes.d");
}

/*
 * A ':' in the prefix would make two other directories in PATH, and the host's programs would
 * be found.
 */
static int check_prefix(const struct forge_runtime *rt, struct forge_error *err)
{
	if (!rt->prefix || rt->kind == &forge_kind_rootfs || !strchr(rt->prefix, ':'))
		return 0;
	return forge_fail(err, EINVAL, "prefix %s: PATH cannot have a ':' in a path",
			  rt->prefix);
}

bool forge_runtime_is_path(const char *word)
{
	return strchr(word, '/') || *word == '.' || *word == '~';
}

const char *forge_runtime_word(const struct forge_runtime *rt)
{
	return rt->own_decl ? rt->own_decl->prefix : rt->decl->name;
}

/* Tells the kind of a directory by its content; NULL: unknown. */
static const char *kind_of(const char *prefix)
{
	static const char *const marks[][2] = { { "conda-meta", "conda" },
						{ "pyvenv.cfg", "venv" },
						{ "bin", "prefix" } };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(marks); i++) {
		forge_auto_free char *path = forge_asprintf("%s/%s", prefix, marks[i][0]);
		if (path && access(path, F_OK) == 0)
			return marks[i][1];
	}
	return NULL;
}

static int no_environment(const char *path, struct forge_error *err)
{
	forge_auto_free char *pixi = forge_asprintf("%s/.pixi/envs", path);
	int rc = forge_fail(err, ENOENT,
			    "%s is no environment: it has neither conda-meta, pyvenv.cfg "
			    "nor bin/",
			    path);

	return pixi && is_dir(pixi)
		       ? forge_hint(err, rc, "Environments of pixi are in %s", pixi)
		       : rc;
}

/* Makes a declaration for a directory that was given by its path. */
static int declare_path(const char *word, struct forge_runtime_decl **ret,
			struct forge_error *err)
{
	forge_auto_free char *expanded = forge_conda_expand(word);
	forge_auto_free char *path =
		expanded ? forge_path_absolute(NULL, expanded) : NULL;

	if (!path)
		return forge_fail(err, ENOMEM, "out of memory");
	if (access(path, F_OK) < 0)
		return forge_fail_errno(err, errno, "runtime %s", path);
	const char *kind = kind_of(path);
	if (!kind)
		return no_environment(path, err);
	json_t *name = forge_json_name(path);
	struct forge_runtime_decl *d = calloc(1, sizeof(*d));
	if (d) {
		d->name = name ? strdup(json_string_value(name)) : NULL;
		d->kind = strdup(kind);
		d->file = strdup("named by its path");
		d->prefix = forge_take_ptr(path);
	}
	json_decref(name);
	*ret = d;
	return d && d->name && d->kind && d->file
		       ? 0
		       : forge_fail(err, ENOMEM, "out of memory");
}

/* Looks name up and sets rt, which the caller closes, also on failure. */
static int find(const struct forge_catalog *c, const char *name, struct forge_runtime *rt,
		struct forge_error *err)
{
	if (forge_runtime_is_path(name)) {
		int rc = declare_path(name, &rt->own_decl, err);
		rt->decl = rt->own_decl;
		return rc;
	}
	rt->decl = find_decl(c, name);
	return rt->decl ? 0 : unknown(c, name, err);
}

int forge_runtime_open(const struct forge_catalog *c, const char *name,
		       struct forge_runtime *ret, struct forge_error *err)
{
	struct forge_runtime rt = { .decl = NULL };
	int rc = find(c, name, &rt, err);

	if (rc < 0) {
		forge_runtime_close(&rt);
		return rc;
	}
	rt.kind = find_kind(rt.decl->kind);
	rc = rt.kind ? rt.kind->open(&rt, err)
		     : forge_fail(err, EINVAL,
				  "unknown kind '%s' (have: conda, venv, system, r, "
				  "prefix, "
				  "rootfs)",
				  rt.decl->kind);
	if (rc == 0)
		rc = check_prefix(&rt, err);
	if (rc < 0) {
		rc = forge_wrap(err, rc, "runtime %s", rt.decl->name);
		forge_runtime_close(&rt);
		return rc;
	}
	*ret = rt;
	return 0;
}

/*
 * Keeps links in the prefix: variables, PATH and the first lines of scripts have the path with
 * which the environment was made, which may lead through links.
 */
int forge_runtime_set_prefix(struct forge_runtime *rt, const char *path,
			     struct forge_error *err)
{
	/* src/config/runtimes.c does not put a file's directory before these. */
	bool is_short = *path == '~' || *path == '$';
	forge_auto_free char *expanded =
		is_short ? forge_conda_expand(path) : strdup(path);

	rt->prefix = expanded ? forge_path_absolute(NULL, expanded) : NULL;
	rt->real_prefix = rt->prefix ? realpath(rt->prefix, NULL) : NULL;
	return rt->real_prefix ? 0 : forge_fail_errno(err, errno, "prefix %s", path);
}

void forge_runtime_close(struct forge_runtime *rt)
{
	free(rt->prefix);
	free(rt->real_prefix);
	free(rt->root_prefix);
	if (rt->own_decl)
		forge_runtime_decl_done(rt->own_decl);
	free(rt->own_decl);
	*rt = (struct forge_runtime){ .kind = NULL };
}

bool forge_runtime_must_own(const struct forge_runtime *rt, const char *program)
{
	bool is_conda = rt->kind == &forge_kind_conda;

	if (!is_conda && rt->kind != &forge_kind_venv)
		return false;
	if (strncmp(program, "python", 6) == 0)
		return true;
	return is_conda &&
	       (strcmp(program, "R") == 0 || strcmp(program, "Rscript") == 0 ||
		strcmp(program, "julia") == 0);
}

int forge_runtime_view(const struct forge_runtime *rt, struct forge_strv *read_only,
		       char **ret_root, struct forge_error *err)
{
	int rc = rt->kind->view(rt, read_only, ret_root, err);

	return rc < 0 ? forge_wrap(err, rc, "runtime %s", rt->decl->name) : 0;
}

/*
 * Sets what every runtime gets: variables that keep the user's own packages out (a module in
 * ~/.local would be part of the run but of no digest), and the variables of its declaration.
 */
static int set_common(const struct forge_runtime *rt, struct forge_strv *env)
{
	static const char *const own[][2] = { { "PYTHONNOUSERSITE", "1" },
					      { "R_LIBS_USER", "NULL" },
					      { "R_PROFILE_USER", "NULL" },
					      { "R_ENVIRON_USER", "NULL" } };
	int rc = 0;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(own) && rc == 0; i++)
		rc = forge_strv_setenv(env, own[i][0], own[i][1]);
	forge_strv_foreach (pair, &rt->decl->env) {
		forge_auto_free char *name = strndup(pair, strcspn(pair, "="));
		if (rc == 0)
			rc = name ? forge_strv_setenv(env, name, pair + strlen(name) + 1)
				  : -ENOMEM;
	}
	return rc;
}

int forge_runtime_activate(const struct forge_runtime *rt, struct forge_strv *env,
			   struct forge_strv *scripts, struct forge_strv *warnings,
			   struct forge_error *err)
{
	int rc = rt->kind->activate(rt, env, scripts, warnings, err);

	if (rc == 0 && set_common(rt, env) < 0)
		rc = forge_fail(err, ENOMEM, "out of memory");
	return rc < 0 ? forge_wrap(err, rc, "runtime %s", rt->decl->name) : 0;
}

int forge_runtime_settle(const struct forge_runtime *rt, struct forge_strv *env,
			 struct forge_error *err)
{
	return set_common(rt, env) < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}

int forge_runtime_identify(const struct forge_runtime *rt, struct forge_packages *ret,
			   struct forge_error *err)
{
	int rc = rt->kind->identify(rt, ret, err);

	return rc < 0 ? forge_wrap(err, rc, "runtime %s", rt->decl->name) : 0;
}

/* Prints "source name version build hash", sorted: everything that the digest covers. */
static int lock_generic(const struct forge_runtime *rt, FILE *out,
			struct forge_error *err)
{
	struct forge_packages p = { .v = NULL };
	char digest[FORGE_DIGEST_MAX];
	int rc = rt->kind->identify(rt, &p, err);

	if (rc == 0) {
		fprintf(out, "# forge lock of runtime %s, kind %s\n# digest: %s\n",
			rt->decl->name, rt->kind->name,
			forge_packages_digest(&p, digest));
		for (size_t i = 0; i < p.n; i++)
			fprintf(out, "%s\t%s\t%s\t%s\t%s\n", p.v[i].source, p.v[i].name,
				p.v[i].version, p.v[i].build, p.v[i].hash);
	}
	forge_packages_done(&p);
	return rc;
}

int forge_runtime_lock(const struct forge_runtime *rt, FILE *out, struct forge_error *err)
{
	int rc = rt->kind->lock ? rt->kind->lock(rt, out, err)
				: lock_generic(rt, out, err);

	return rc < 0 ? forge_wrap(err, rc, "runtime %s", rt->decl->name) : 0;
}
