/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration from text: built-in values, then the file by the schema. */
#include "config/config.h"

#include <errno.h>
#include <string.h>

#include "base/parse.h"
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
	    forge_parse_duration(FORGE_BUILTIN_OBJECTS, &c->keep.objects_usec, err) < 0)
		return -EINVAL; /* our own bug; a unit test reads the defaults */
	c->workdir = strdup(FORGE_BUILTIN_WORKDIR);
	if (!c->workdir)
		return forge_loader_oom(err);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(pass); i++)
		if (forge_strv_add(&c->env_pass, pass[i]) < 0)
			return forge_loader_oom(err);
	return 0;
}

int forge_config_parse(const char *text, size_t len, const char *name,
		       const char *base_dir, struct forge_config **ret,
		       struct forge_error *err)
{
	forge_auto_yaml struct forge_yaml *root = NULL;
	forge_auto_config struct forge_config *c = NULL;

	int rc = forge_yaml_parse(text, len, name, &root, err);
	if (rc < 0)
		return rc;
	c = calloc(1, sizeof(*c));
	if (!c)
		return forge_loader_oom(err);
	rc = set_builtin(c, err);
	if (rc < 0)
		return rc;
	struct forge_loader ld = { .config = c, .name = name, .base_dir = base_dir };
	rc = forge_schema_apply(&ld, root, err);
	if (rc < 0)
		return rc;
	rc = forge_profiles_apply(&ld, err);
	if (rc == 0)
		rc = forge_runtimes_apply(&ld, err);
	if (rc < 0)
		return rc;
	*ret = forge_take_ptr(c);
	return 0;
}

void forge_config_free(struct forge_config *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n_profiles; i++)
		free(c->profiles[i].name);
	free(c->profiles);
	free(c->path);
	free(c->workdir);
	free(c->store);
	forge_analysis_done(&c->analysis);
	free(c->runtime);
	for (size_t i = 0; i < c->n_runtimes; i++)
		forge_runtime_decl_done(&c->runtimes[i]);
	free(c->runtimes);
	forge_strv_done(&c->post_process);
	forge_strv_done(&c->read_only);
	forge_strv_done(&c->env_pass);
	forge_strv_done(&c->env_set);
	free(c);
}
