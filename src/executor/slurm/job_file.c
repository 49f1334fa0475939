/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads job.json. */
#include "executor/slurm/job_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "config-build.h"
#include "spec/saved.h"

/* What the local executor needs of a configuration. */
static json_t *config_json(const struct forge_config *c)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:i, s:I, s:I}", "uid_base",
			 (json_int_t)c->uid_base, "uid_count", (json_int_t)c->uid_count,
			 "tmp_bytes", (json_int_t)c->tmp_bytes, "shm_bytes",
			 (json_int_t)c->shm_bytes, "cgroup", (int)c->cgroup,
			 "allow_missing", (json_int_t)c->allow_missing, "sample_usec",
			 (json_int_t)c->sample_usec);
}

static void restore_config(const json_t *j, struct forge_config *c)
{
	c->uid_base = (uint32_t)json_integer_value(json_object_get(j, "uid_base"));
	c->uid_count = (uint32_t)json_integer_value(json_object_get(j, "uid_count"));
	c->tmp_bytes = (uint64_t)json_integer_value(json_object_get(j, "tmp_bytes"));
	c->shm_bytes = (uint64_t)json_integer_value(json_object_get(j, "shm_bytes"));
	c->cgroup = (enum forge_cgroup_choice)json_integer_value(
		json_object_get(j, "cgroup"));
	c->allow_missing =
		(unsigned)json_integer_value(json_object_get(j, "allow_missing"));
	c->sample_usec = (uint64_t)json_integer_value(json_object_get(j, "sample_usec"));
}

static json_t *words_json(char *const *words)
{
	json_t *list = json_array();

	for (; *words; words++)
		json_array_append_new(list, forge_json_name(*words));
	return list;
}

json_t *forge_job_file(const struct forge_job *job, const char *place)
{
	/* A root that is not there is left out. */
	json_t *root = job->root ? forge_json_name(job->root) : NULL;

	json_t *j = json_pack(
		"{s:s, s:s, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
		"s:o*, s:o, s:o}",
		"forge_version", FORGE_VERSION, "run_id", job->run_id, "own_network",
		job->own_network, "has_stdin", job->pass_stdin, "limits",
		forge_saved_limits(job->limits), "config", config_json(job->config),
		"argv", words_json(job->argv), "env", forge_json_names(job->env),
		"read_only", forge_json_names(job->read_only), "aliases",
		forge_json_names(job->aliases), "tools", forge_json_names(job->tools),
		"links", forge_json_names(job->links), "root", root, "workdir",
		forge_json_name(job->workdir), "place", forge_json_name(place));

	if (j && job->is_checked)
		json_object_set_new(j, "health", forge_health_json(&job->config->health));
	return j;
}

static int read_lists(const json_t *file, struct forge_job_read *r)
{
	const struct {
		const char *key;
		struct forge_strv *list;
	} lists[] = { { "argv", &r->argv },	      { "env", &r->env },
		      { "read_only", &r->read_only }, { "aliases", &r->aliases },
		      { "tools", &r->tools },	      { "links", &r->links } };
	int rc = 0;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(lists) && rc == 0; i++)
		rc = forge_json_names_decode(file, lists[i].key, lists[i].list);
	return rc;
}

static int read_name(const json_t *file, const char *key, char **ret)
{
	const char *text = forge_json_string(file, key);

	*ret = text ? forge_json_name_decode(text) : NULL;
	return text && !*ret ? -EINVAL : 0;
}

int forge_job_file_read(const json_t *file, struct forge_job_read *ret,
			struct forge_error *err)
{
	struct forge_job_read *r = ret;
	const char *version = forge_json_string_or(file, "forge_version", "?");

	if (strcmp(version, FORGE_VERSION) != 0)
		return forge_hint(
			err,
			forge_fail(
				err, EPROTO,
				"the node has forge %s, and the run is one of forge %s",
				FORGE_VERSION, version),
			"Set executors.NAME.forge to the path of the same version");
	int rc = read_lists(file, r);
	if (rc == 0)
		rc = read_name(file, "root", &r->root);
	if (rc == 0)
		rc = read_name(file, "workdir", &r->workdir);
	if (rc == 0)
		rc = read_name(file, "place", &r->place);
	if (rc < 0 || !r->argv.n || !r->workdir || !r->place)
		return forge_fail(err, EBADMSG, "job.json is damaged");
	rc = forge_config_parse("", 0, "defaults", "/", &r->config, err);
	if (rc < 0)
		return rc;
	restore_config(json_object_get(file, "config"), r->config);
	forge_saved_restore_limits(json_object_get(file, "limits"), &r->limits);
	if (json_object_get(file, "health")) {
		forge_health_done(&r->config->health);
		if (forge_health_restore(json_object_get(file, "health"),
					 &r->config->health) < 0)
			return forge_fail(err, EBADMSG, "job.json is damaged: health");
	}
	r->job = (struct forge_job){
		.run_id = forge_json_string_or(file, "run_id", ""),
		.argv = r->argv.v,
		.env = &r->env,
		.read_only = &r->read_only,
		.aliases = &r->aliases,
		.tools = &r->tools,
		.links = &r->links,
		.root = r->root,
		.workdir = r->workdir,
		.place = r->place,
		.own_network = json_is_true(json_object_get(file, "own_network")),
		.pass_stdin = json_is_true(json_object_get(file, "has_stdin")),
		.is_checked = json_object_get(file, "health") != NULL,
		.limits = &r->limits,
		.config = r->config,
		.live_fd = { -1, -1 },
	};
	return forge_config_executor(r->config, "local", &r->job.executor, err);
}

void forge_job_read_done(struct forge_job_read *r)
{
	struct forge_strv *const lists[] = { &r->argv,	  &r->env,   &r->read_only,
					     &r->aliases, &r->tools, &r->links };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(lists); i++)
		forge_strv_done(lists[i]);
	free(r->root);
	free(r->workdir);
	free(r->place);
	forge_config_free(r->config);
	*r = (struct forge_job_read){ .root = NULL };
}
