/* SPDX-License-Identifier: Apache-2.0 */
/* Names to runtimes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/near.h"
#include "runtime/conda.h"
#include "runtime/runtime.h"

static const struct forge_runtime_kind *const kinds[] = {
	&forge_kind_conda, &forge_kind_venv,   &forge_kind_system,
	&forge_kind_r,	   &forge_kind_prefix, &forge_kind_rootfs,
};

static const struct forge_runtime_kind *find_kind(const char *name)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(kinds); i++)
		if (strcmp(kinds[i]->name, name) == 0)
			return kinds[i];
	return NULL;
}

static int add_discovered(struct forge_catalog *c, const char *name, const char *prefix)
{
	struct forge_runtime_decl *grown =
		reallocarray(c->discovered, c->n_discovered + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	c->discovered = grown;
	struct forge_runtime_decl *d = &grown[c->n_discovered++];
	*d = (struct forge_runtime_decl){ .line = 0 };
	d->name = strdup(name);
	d->kind = strdup("conda");
	d->prefix = strdup(prefix);
	d->file = strdup("found by conda's own lists");
	return d->name && d->kind && d->prefix && d->file ? 0 : -ENOMEM;
}

static bool is_declared(const struct forge_catalog *c, const char *name)
{
	for (size_t i = 0; i < c->cfg->n_runtimes; i++)
		if (strcmp(c->cfg->runtimes[i].name, name) == 0)
			return true;
	for (size_t i = 0; i < c->n_discovered; i++)
		if (strcmp(c->discovered[i].name, name) == 0)
			return true;
	return false;
}

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct forge_runtime_decl *)a)->name,
		      ((const struct forge_runtime_decl *)b)->name);
}

/* An environment without a name can be declared; a name that is no id cannot be typed. */
static int discover(struct forge_catalog *c, struct forge_error *err)
{
	forge_auto_strv struct forge_strv pairs = { 0 };
	int rc = forge_conda_discover(&pairs, err);

	for (size_t i = 0; i + 1 < pairs.n && rc == 0; i += 2) {
		const char *name = pairs.v[i];
		if (!*name || forge_parse_id(name, NULL) < 0 || is_declared(c, name))
			continue;
		if (add_discovered(c, name, pairs.v[i + 1]) < 0)
			rc = forge_fail(err, ENOMEM, "out of memory");
	}
	if (c->n_discovered)
		qsort(c->discovered, c->n_discovered, sizeof(*c->discovered), compare);
	return rc;
}

int forge_catalog_open(const struct forge_config *cfg, struct forge_catalog *ret,
		       struct forge_error *err)
{
	struct forge_catalog c = { .cfg = cfg };
	int rc = discover(&c, err);

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
	*c = (struct forge_catalog){ .cfg = NULL };
}

void forge_catalog_each(const struct forge_catalog *c,
			void (*visit)(const struct forge_runtime_decl *decl, void *arg),
			void *arg)
{
	size_t n = c->cfg->n_runtimes + c->n_discovered;
	const struct forge_runtime_decl *last = NULL;

	/* The next greater name each time: there are few, and no memory is needed. */
	for (size_t k = 0; k < n; k++) {
		const struct forge_runtime_decl *best = NULL;
		for (size_t i = 0; i < n; i++) {
			const struct forge_runtime_decl *d =
				i < c->cfg->n_runtimes
					? &c->cfg->runtimes[i]
					: &c->discovered[i - c->cfg->n_runtimes];
			if ((!last || compare(d, last) > 0) &&
			    (!best || compare(d, best) < 0))
				best = d;
		}
		if (!best)
			return;
		visit(best, arg);
		last = best;
	}
}

struct search {
	const char *name;
	const struct forge_runtime_decl *found;
	const char *words[64];
	size_t n;
};

static void look(const struct forge_runtime_decl *d, void *arg)
{
	struct search *s = arg;

	if (strcmp(d->name, s->name) == 0)
		s->found = d;
	if (s->n < FORGE_ARRAY_SIZE(s->words))
		s->words[s->n++] = d->name;
}

/* "unknown runtime 'dta-ml' (have: data-ml, genomics); did you mean 'data-ml'?" */
static int unknown(const struct search *s, struct forge_error *err)
{
	const char *near = forge_near_miss(s->name, s->words, s->n);
	char list[300] = "";
	size_t len = 0;

	for (size_t i = 0; i < s->n && len < sizeof(list) - 70; i++)
		len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s",
					i ? ", " : "", s->words[i]);
	int rc = forge_fail(err, ENOENT, "unknown runtime '%.64s' (have: %s)%s%s%s",
			    s->name, s->n ? list : "none", near ? "; did you mean '" : "",
			    near ? near : "", near ? "'?" : "");
	return forge_hint(err, rc,
			  "`forge runtime list` shows them; they are declared in "
			  "forge.yaml or runtimes.d");
}

int forge_runtime_open(const struct forge_catalog *c, const char *name,
		       struct forge_runtime *ret, struct forge_error *err)
{
	struct search s = { .name = name };

	forge_catalog_each(c, look, &s);
	if (!s.found)
		return unknown(&s, err);
	struct forge_runtime rt = { .decl = s.found, .kind = find_kind(s.found->kind) };
	int rc = rt.kind ? rt.kind->open(&rt, err)
			 : forge_fail(err, EINVAL,
				      "unknown kind '%s' (have: conda, venv, system, r, "
				      "prefix, "
				      "rootfs)",
				      s.found->kind);
	if (rc < 0) {
		forge_runtime_close(&rt);
		return forge_wrap(err, rc, "runtime %s", name);
	}
	*ret = rt;
	return 0;
}

void forge_runtime_close(struct forge_runtime *rt)
{
	free(rt->prefix);
	free(rt->root_prefix);
	*rt = (struct forge_runtime){ .kind = NULL };
}

int forge_runtime_view(const struct forge_runtime *rt, struct forge_strv *read_only,
		       char **ret_root, struct forge_error *err)
{
	int rc = rt->kind->view(rt, read_only, ret_root, err);

	return rc < 0 ? forge_wrap(err, rc, "runtime %s", rt->decl->name) : 0;
}

/*
 * What every runtime gets besides: the user's own packages stay out (a module in ~/.local would be
 * part of the run and of no digest), and the variables of its declaration.
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
			   struct forge_strv *scripts, struct forge_error *err)
{
	int rc = rt->kind->activate(rt, env, scripts, err);

	if (rc == 0 && set_common(rt, env) < 0)
		rc = forge_fail(err, ENOMEM, "out of memory");
	return rc < 0 ? forge_wrap(err, rc, "runtime %s", rt->decl->name) : 0;
}

int forge_runtime_identify(const struct forge_runtime *rt, struct forge_packages *ret,
			   struct forge_error *err)
{
	int rc = rt->kind->identify(rt, ret, err);

	return rc < 0 ? forge_wrap(err, rc, "runtime %s", rt->decl->name) : 0;
}

/* "source name version build hash", sorted: everything that the digest is over. */
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
