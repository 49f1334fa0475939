/* SPDX-License-Identifier: Apache-2.0 */
/* The executors of a configuration: where runs can happen. */
#include "config/executors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/strv.h"
#include "base/yaml.h"
#include "config/named.h"
#include "config/setters.h"

/* A file system of a cluster may show a change to other nodes only after so long. */
#define LAG_USEC  (120 * 1000000ull)
#define POLL_USEC (5 * 1000000ull)

#define FIELD(f) offsetof(struct forge_executor_decl, f)

static const char *const kinds[] = { "local", "container", "slurm", NULL };

static const struct forge_named_row rows[] = {
	{ "kind", FORGE_NAMED_ONE_OF, FIELD(kind), "local, container or slurm",
	  "What it is", kinds },
	{ "socket", FORGE_NAMED_WORD, FIELD(socket), "path",
	  "Kind container: the socket of the engine (Docker, or Podman's service)",
	  NULL },
	{ "image", FORGE_NAMED_WORD, FIELD(image), "image",
	  "Kind container: what runs are in that have no runtime of kind image", NULL },
	{ "dir", FORGE_NAMED_WORD, FIELD(dir), "path",
	  "Kind slurm: a directory that all nodes have at the same path; runs work there",
	  NULL },
	{ "forge", FORGE_NAMED_WORD, FIELD(forge), "path",
	  "Kind slurm: where forge is on the nodes (default: where it is here)", NULL },
	{ "partition", FORGE_NAMED_WORD, FIELD(partition), "name",
	  "Kind slurm: the partition of the jobs", NULL },
	{ "account", FORGE_NAMED_WORD, FIELD(account), "name",
	  "Kind slurm: the account of the jobs", NULL },
	{ "options", FORGE_NAMED_LIST, FIELD(options), "list of options",
	  "Kind slurm: further options of sbatch, e.g. --qos=long", NULL },
	{ "slurm_conf", FORGE_NAMED_WORD, FIELD(slurm_conf), "path",
	  "Kind slurm: SLURM_CONF for its commands", NULL },
	{ "poll", FORGE_NAMED_DURATION, FIELD(poll_usec), "duration",
	  "Kind slurm: from one squeue to the next (default: 5s)", NULL },
	{ "max_pending", FORGE_NAMED_DURATION, FIELD(max_pending_usec), "duration",
	  "Kind slurm: a run that is pending for longer is cancelled (default: none)",
	  NULL },
	{ "max_lag", FORGE_NAMED_DURATION, FIELD(max_lag_usec), "duration",
	  "Kind slurm: until a file of a node must be visible here (default: 2min)",
	  NULL },
};

static const struct forge_named_map keys = {
	.must_be = "a map with at least kind",
	.rows = rows,
	.n = FORGE_ARRAY_SIZE(rows),
	.builtin = "none of its own",
};

static void decl_done(struct forge_executor_decl *d)
{
	free(d->name);
	forge_named_done(&keys, d);
	*d = (struct forge_executor_decl){ .name = NULL };
}

void forge_config_free_executors(struct forge_config *c)
{
	for (size_t i = 0; i < c->n_executors; i++)
		decl_done(&c->executors[i]);
	free(c->executors);
}

static struct forge_executor_decl *find(const struct forge_config *c, const char *name)
{
	for (size_t i = 0; i < c->n_executors; i++)
		if (strcmp(c->executors[i].name, name) == 0)
			return &c->executors[i];
	return NULL;
}

static struct forge_executor_decl *add(struct forge_config *c, const char *name)
{
	struct forge_executor_decl *grown =
		reallocarray(c->executors, c->n_executors + 1, sizeof(*grown));

	if (!grown)
		return NULL;
	c->executors = grown;
	struct forge_executor_decl *d = &grown[c->n_executors];
	*d = (struct forge_executor_decl){ .name = strdup(name) };
	c->n_executors += d->name != NULL;
	return d->name ? d : NULL;
}

/* "unix:///run/x.sock" is the path, too. */
static void strip_scheme(char *socket)
{
	if (socket && strncmp(socket, "unix://", 7) == 0)
		memmove(socket, socket + 7, strlen(socket + 7) + 1);
}

static int check_kind(struct forge_loader *ld, const struct forge_yaml *node,
		      const char *path, const struct forge_executor_decl *d,
		      struct forge_error *err)
{
	if (!d->kind)
		return forge_loader_fail(ld, node, path, err,
					 "has no kind (local, container or slurm)");
	if (strcmp(node->key, "local") == 0 && strcmp(d->kind, "local") != 0)
		return forge_loader_fail(ld, node, path, err,
					 "is the name of the executor on this machine");
	if (strcmp(d->kind, "slurm") == 0 && !d->dir)
		return forge_loader_fail(ld, node, path, err,
					 "has no dir (one that the nodes share)");
	return 0;
}

/* Of a file that is read before this one, the same name stays as it is. */
static int add_executor(struct forge_loader *ld, const struct forge_yaml *node,
			const char *path, void *arg, struct forge_error *err)
{
	(void)arg; /* there is none */
	if (find(ld->config, node->key))
		return 0;
	struct forge_executor_decl *d = add(ld->config, node->key);
	if (!d)
		return forge_loader_oom(err);
	int rc = forge_named_read(ld, node, path, &keys, d, err);
	if (rc == 0)
		rc = check_kind(ld, node, path, d, err);
	strip_scheme(d->socket);
	char **const paths[] = { &d->socket, &d->dir, &d->forge, &d->slurm_conf };
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(paths) && rc == 0; i++)
		rc = forge_named_absolute(ld, paths[i], err);
	return rc;
}

FORGE_SETTER(forge_set_executors)
{
	if (ld->is_project)
		return forge_loader_fail(ld, node, row->path, err,
					 "is for /etc/forge/forge.yaml, "
					 "~/.config/forge/forge.yaml or --config");
	if (node->type != FORGE_YAML_MAP)
		return forge_loader_fail(ld, node, row->path, err,
					 "must be a map of names to executors");
	ld->executors = node;
	return 0;
}

int forge_executors_apply(struct forge_loader *ld, struct forge_error *err)
{
	return forge_named_each(ld, ld->executors, "executors", add_executor, NULL, err);
}

void forge_executors_each_key(void (*visit)(const struct forge_config_key *key,
					    void *arg),
			      void *arg)
{
	static char paths[FORGE_ARRAY_SIZE(rows)][FORGE_NAMED_PATH_MAX];

	forge_named_each_key(&keys, "executors", paths, visit, arg);
}

/* Where the socket of an engine is that the configuration says nothing about. NULL: out of memory. */
static char *usual_socket(const char *name)
{
	const char *host = getenv("DOCKER_HOST"), *run = getenv("XDG_RUNTIME_DIR");

	if (strcmp(name, "docker") == 0)
		return strdup(host && strncmp(host, "unix:///", 8) == 0
				      ? host + 7
				      : "/var/run/docker.sock");
	return geteuid() != 0 && run && *run == '/'
		       ? forge_asprintf("%s/podman/podman.sock", run)
		       : strdup("/run/podman/podman.sock");
}

int forge_config_add_usual_executors(struct forge_config *c, struct forge_error *err)
{
	static const struct {
		const char *name, *kind;
	} usual[] = { { "local", "local" },
		      { "docker", "container" },
		      { "podman", "container" } };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(usual); i++) {
		struct forge_executor_decl *d = find(c, usual[i].name);
		if (!d)
			d = add(c, usual[i].name);
		if (d && !d->kind)
			d->kind = strdup(usual[i].kind);
	}
	for (size_t i = 0; i < c->n_executors; i++) {
		struct forge_executor_decl *d = &c->executors[i];
		d->poll_usec = d->poll_usec ? d->poll_usec : POLL_USEC;
		d->max_lag_usec = d->max_lag_usec ? d->max_lag_usec : LAG_USEC;
		if (d->kind && strcmp(d->kind, "container") == 0 && !d->socket)
			d->socket = usual_socket(d->name);
		if (!d->kind || (strcmp(d->kind, "container") == 0 && !d->socket))
			return forge_loader_oom(err);
	}
	return c->n_executors >= FORGE_ARRAY_SIZE(usual) ? 0 : forge_loader_oom(err);
}

int forge_config_executor(const struct forge_config *c, const char *name,
			  const struct forge_executor_decl **ret, struct forge_error *err)
{
	const char *words[16];
	char text[FORGE_UNKNOWN_MAX];
	size_t n = 0;

	*ret = find(c, name);
	if (*ret)
		return 0;
	for (size_t i = 0; i < c->n_executors && n < FORGE_ARRAY_SIZE(words); i++)
		words[n++] = c->executors[i].name;
	return forge_fail(
		err, ENOENT, "%s",
		forge_describe_unknown(text, "unknown executor", name, words, n));
}
