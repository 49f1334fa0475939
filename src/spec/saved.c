/* SPDX-License-Identifier: Apache-2.0 */
/* Specs as JSON and back. */
#include "spec/saved.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"

/* Numbers as text: a limit can be larger than an integer of JSON. */
json_t *forge_saved_limits(const struct forge_limits *l)
{
	json_t *j = json_object();
	char text[24];

	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		(void)snprintf(text, sizeof(text), "%" PRIu64,
			       forge_limit_value(l, &forge_limit_rows[i]));
		json_object_set_new(j, forge_limit_rows[i].key, json_string(text));
	}
	return j;
}

void forge_saved_restore_limits(const json_t *j, struct forge_limits *ret)
{
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *row = &forge_limit_rows[i];
		const char *text = forge_json_string(j, row->key);
		if (text)
			*forge_limit_slot(ret, row) = strtoull(text, NULL, 10);
		else /* a limit that the version which saved it did not have */
			(void)!forge_limit_set(ret, row, row->builtin, NULL);
	}
}

static int restore_name(const json_t *saved, const char *key, char **ret)
{
	const char *text = forge_json_string(saved, key);

	*ret = text ? forge_json_name_decode(text) : NULL;
	return text && !*ret ? -EINVAL : 0;
}

static void set_name(json_t *j, const char *key, const char *name)
{
	if (name)
		json_object_set_new(j, key, forge_json_name(name));
}

json_t *forge_saved_json(const struct forge_spec *s, const struct forge_run_request *req,
			 const struct forge_config *cfg)
{
	forge_auto_free char *cwd = getcwd(NULL, 0);
	json_t *j =
		json_pack("{s:s, s:s, s:s, s:b, s:i, s:b, s:b, s:b, s:i}", "run_id",
			  s->run_id, "executor", s->executor->name, "profile", s->profile,
			  "own_network", s->own_network, "collects", (int)s->collects,
			  "has_outputs", s->has_outputs, "copy_replaces",
			  req->copy_replaces, "keep", req->keep, "priority", s->priority);

	if (!j)
		return NULL;
	set_name(j, "analysis_id", s->analysis_id);
	set_name(j, "workdir", s->workdir);
	set_name(j, "notebook", s->notebook);
	set_name(j, "checkpoint", s->checkpoint);
	set_name(j, "copy_to", s->copy_to);
	set_name(j, "cwd", cwd);
	set_name(j, "config", cfg->path);
	json_object_set_new(j, "limits", forge_saved_limits(&s->limits));
	json_object_set_new(j, "outputs", forge_json_names(&s->outputs));
	json_object_set_new(j, "post_process", forge_json_names(&s->post_process));
	json_object_set_new(j, "argv", forge_json_names(&s->argv));
	json_object_set_new(j, "inputs", forge_json_names(&s->inputs));
	json_object_set_new(j, "input_names", forge_json_names(&s->input_names));
	json_object_set_new(j, "links", forge_json_names(&s->links));
	return j;
}

static int restore(const json_t *saved, struct forge_spec *s)
{
	int rc = restore_name(saved, "analysis_id", &s->analysis_id);

	if (rc == 0)
		rc = restore_name(saved, "workdir", &s->workdir);
	if (rc == 0)
		rc = restore_name(saved, "notebook", &s->notebook);
	if (rc == 0)
		rc = restore_name(saved, "checkpoint", &s->checkpoint);
	if (rc == 0)
		rc = restore_name(saved, "copy_to", &s->copy_to);
	if (rc == 0)
		rc = forge_json_names_decode(saved, "outputs", &s->outputs);
	if (rc == 0)
		rc = forge_json_names_decode(saved, "post_process", &s->post_process);
	if (rc == 0)
		rc = forge_json_names_decode(saved, "argv", &s->argv);
	if (rc == 0)
		rc = forge_json_names_decode(saved, "inputs", &s->inputs);
	if (rc == 0)
		rc = forge_json_names_decode(saved, "input_names", &s->input_names);
	return rc < 0 ? rc : forge_json_names_decode(saved, "links", &s->links);
}

int forge_saved_restore(const json_t *saved, const struct forge_config *cfg,
			struct forge_spec *ret_spec, struct forge_run_request *ret_req,
			struct forge_error *err)
{
	const char *run_id = forge_json_string_or(saved, "run_id", "");
	const struct forge_profile *profile;
	struct forge_spec *s = ret_spec;

	*ret_req = (struct forge_run_request){ .stdout_fd = -1, .stderr_fd = -1 };
	if (!forge_run_id_is_valid(run_id))
		return forge_fail(err, EINVAL, "the slot has no run id");
	(void)snprintf(s->run_id, sizeof(s->run_id), "%s", run_id);
	int rc = restore(saved, s);
	if (rc < 0 || !s->workdir || !s->analysis_id || !s->argv.n)
		return forge_fail(err, rc < 0 ? -rc : EINVAL,
				  "the slot of run %s is damaged", run_id);
	/* One that is configured no more: the slot has what is needed of it. */
	if (forge_config_executor(cfg, forge_json_string_or(saved, "executor", ""),
				  &s->executor, NULL) < 0) {
		rc = forge_config_executor(cfg, "local", &s->executor, err);
		if (rc < 0)
			return rc;
	}
	/* Only its name is needed, and that of another profile does no harm. */
	if (forge_config_profile(cfg, forge_json_string(saved, "profile"), &profile,
				 NULL) == 0 ||
	    forge_config_profile(cfg, NULL, &profile, NULL) == 0)
		s->profile = profile->name;
	forge_saved_restore_limits(json_object_get(saved, "limits"), &s->limits);
	s->own_network = json_is_true(json_object_get(saved, "own_network"));
	s->has_outputs = json_is_true(json_object_get(saved, "has_outputs"));
	s->collects = (enum forge_outputs)json_integer_value(
		json_object_get(saved, "collects"));
	s->priority = (int)json_integer_value(json_object_get(saved, "priority"));
	ret_req->argv = s->argv.v;
	ret_req->copy_replaces = json_is_true(json_object_get(saved, "copy_replaces"));
	ret_req->keep = json_is_true(json_object_get(saved, "keep"));
	return 0;
}
