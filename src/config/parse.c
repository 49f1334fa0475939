/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a configuration from text: built-in values, then the files by the schema. */
#include "config/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "base/yaml.h"
#include "config/executors.h"
#include "config/health_key.h"
#include "config/profiles.h"
#include "config/runtimes.h"
#include "config/schema.h"

static int set_builtin(struct forge_config *c, struct forge_error *err)
{
	static const char *const pass[] = { "LANG", "LANGUAGE", "LC_*", "TZ" };

	c->uid_base = FORGE_BUILTIN_UID_BASE;
	c->uid_count = FORGE_BUILTIN_UID_COUNT;
	c->outputs_max_files = FORGE_BUILTIN_MAX_FILES;
	c->keep.logs_usec = c->keep.logs_bytes = FORGE_UNLIMITED;
	if (forge_parse_duration(FORGE_BUILTIN_MAX_WAIT, &c->queue_usec, err) < 0 ||
	    forge_parse_duration(FORGE_BUILTIN_WORKDIRS, &c->keep.workdirs_usec, err) <
		    0 ||
	    forge_parse_duration(FORGE_BUILTIN_OBJECTS, &c->keep.objects_usec, err) < 0 ||
	    forge_parse_duration(FORGE_BUILTIN_HEALTH, &c->keep.health_usec, err) < 0 ||
	    forge_parse_duration(FORGE_BUILTIN_REUSED, &c->keep.reused_usec, err) < 0 ||
	    forge_parse_duration(FORGE_BUILTIN_SAMPLING, &c->sample_usec, err) < 0)
		return -EINVAL; /* a bug in forge; a unit test reads the defaults */
	c->workdir = strdup(FORGE_BUILTIN_WORKDIR);
	if (!c->workdir)
		return forge_loader_oom(err);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(pass); i++)
		if (forge_strv_add(&c->env_pass, pass[i]) < 0)
			return forge_loader_oom(err);
	return 0;
}

/* Applies each file, the outermost first; sections that need all caps come last. */
static int apply_layers(const struct forge_config_layer *layers, size_t n,
			struct forge_loader *loaders, struct forge_yaml **roots,
			struct forge_config *c, struct forge_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++) {
		loaders[i] = (struct forge_loader){ .config = c,
						    .name = layers[i].name,
						    .base_dir = layers[i].base_dir,
						    .is_project = layers[i].is_project };
		rc = forge_yaml_parse(layers[i].text, layers[i].len, layers[i].name,
				      &roots[i], err);
		if (rc == 0)
			rc = forge_schema_apply(&loaders[i], roots[i], err);
	}
	if (rc == 0)
		rc = forge_profiles_apply(c, loaders, n, err);
	/* The first declaration of a name counts. */
	for (size_t i = n; i-- > 0 && rc == 0;)
		rc = forge_runtimes_apply(&loaders[i], err);
	for (size_t i = n; i-- > 0 && rc == 0;)
		rc = forge_executors_apply(&loaders[i], err);
	/* Here the outermost: an inner file adds checks, and changes none. */
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = forge_health_apply(&loaders[i], err);
	if (rc == 0)
		rc = forge_config_add_usual_executors(c, err);
	if (rc == 0)
		rc = forge_config_add_usual_checks(c, err);
	return rc;
}

int forge_config_parse_layers(const struct forge_config_layer *layers, size_t n,
			      struct forge_config **ret, struct forge_error *err)
{
	forge_auto_config struct forge_config *c = calloc(1, sizeof(*c));
	struct forge_loader *loaders = calloc(n + 1, sizeof(*loaders));
	struct forge_yaml **roots = calloc(n + 1, sizeof(struct forge_yaml *));
	int rc = c && loaders && roots ? set_builtin(c, err) : forge_loader_oom(err);

	if (rc == 0)
		rc = apply_layers(layers, n, loaders, roots, c, err);
	for (size_t i = 0; roots && i < n; i++)
		forge_yaml_free(roots[i]);
	free(roots);
	free(loaders);
	if (rc == 0)
		*ret = forge_take_ptr(c);
	return rc;
}

int forge_config_parse(const char *text, size_t len, const char *name,
		       const char *base_dir, struct forge_config **ret,
		       struct forge_error *err)
{
	const struct forge_config_layer layer = {
		.text = text, .len = len, .name = name, .base_dir = base_dir
	};

	return forge_config_parse_layers(&layer, 1, ret, err);
}

void forge_config_free(struct forge_config *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n_profiles; i++)
		free(c->profiles[i].name);
	free(c->profiles);
	free(c->path);
	forge_strv_done(&c->files);
	forge_strv_done(&c->held_back);
	for (size_t i = 0; i < c->n_origins; i++) {
		free(c->origins[i].key);
		free(c->origins[i].value);
		free(c->origins[i].from);
	}
	free(c->origins);
	free(c->workdir);
	free(c->store);
	forge_analysis_done(&c->analysis);
	free(c->runtime);
	for (size_t i = 0; i < c->n_runtimes; i++)
		forge_runtime_decl_done(&c->runtimes[i]);
	free(c->runtimes);
	free(c->executor);
	forge_config_free_executors(c);
	forge_config_free_health(c);
	forge_strv_done(&c->post_process);
	forge_strv_done(&c->read_only);
	forge_strv_done(&c->reuse_from);
	forge_strv_done(&c->env_pass);
	forge_strv_done(&c->env_set);
	free(c);
}
