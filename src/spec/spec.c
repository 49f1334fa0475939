/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a request and the configuration into one spec. */
#include "spec/spec.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/glob.h"
#include "base/json.h"
#include "config/budget.h"

void forge_spec_done(struct forge_spec *s)
{
	free(s->analysis_id);
	free(s->workdir);
	forge_strv_done(&s->argv);
	forge_strv_done(&s->env);
	forge_strv_done(&s->inputs);
	forge_strv_done(&s->aliases);
	forge_strv_done(&s->links);
	forge_strv_done(&s->read_only);
	forge_strv_done(&s->view);
	forge_strv_done(&s->tools);
	forge_strv_done(&s->warnings);
	free(s->root);
	free(s->header_runtime);
	free(s->header_profile);
	json_decref(s->runtime_json);
	forge_runtime_close(&s->runtime);
	forge_catalog_close(&s->catalog);
	forge_strv_done(&s->outputs);
	free(s->notebook);
	free(s->checkpoint);
	forge_analysis_done(&s->wishes);
	forge_strv_done(&s->wishes_real);
	free(s->copy_to);
	free(s->not_given);
	forge_strv_done(&s->input_names);
	forge_strv_done(&s->post_process);
}

static int resolve_ids(struct forge_spec *s, const struct forge_run_request *req,
		       struct forge_error *err)
{
	if (req->again)
		memcpy(s->run_id, req->again->run_id, sizeof(s->run_id));
	else if (req->run_id)
		(void)snprintf(s->run_id, sizeof(s->run_id), "%s", req->run_id);
	else if (forge_make_run_id(s->run_id) < 0)
		return forge_fail(err, EIO, "no random numbers");
	if (req->analysis_id) {
		int rc = forge_parse_id(req->analysis_id, err);
		if (rc < 0)
			return forge_wrap(err, rc, "--id");
	}
	s->analysis_id = strdup(req->analysis_id ? req->analysis_id : s->run_id);
	return s->analysis_id ? 0 : forge_fail(err, ENOMEM, "out of memory");
}

/* The template was checked when the configuration was read. */
static int expand_workdir(struct forge_spec *s, const char *template,
			  struct forge_error *err)
{
	char buf[PATH_MAX];
	size_t len = 0;

	for (const char *p = template; *p;) {
		const char *word = NULL;
		size_t skip = 1;
		if (strncmp(p, "{id}", 4) == 0) {
			word = s->analysis_id;
			skip = 4;
		} else if (strncmp(p, "{run_id}", 8) == 0) {
			word = s->run_id;
			skip = 8;
		}
		size_t n = word ? strlen(word) : 1;
		if (len + n >= sizeof(buf))
			return forge_fail(err, ENAMETOOLONG,
					  "workdir: the path is too long");
		memcpy(buf + len, word ? word : p, n);
		len += n;
		p += skip;
	}
	while (len > 1 && buf[len - 1] == '/')
		len--;
	buf[len] = '\0';
	s->workdir = strdup(buf);
	if (!s->workdir)
		return forge_fail(err, ENOMEM, "out of memory");
	/* Some file has this name: use the other name from the start. */
	struct stat st;
	return lstat(buf, &st) == 0 ? forge_spec_rename_workdir(s, err) : 0;
}

int forge_spec_rename_workdir(struct forge_spec *s, struct forge_error *err)
{
	char *path = s->has_other_workdir
			     ? NULL
			     : forge_asprintf("%s-%s", s->workdir, s->run_id);

	if (s->has_other_workdir)
		return forge_fail(err, EEXIST, "workdir %s exists", s->workdir);
	if (!path)
		return forge_fail(err, ENOMEM, "out of memory");
	s->has_other_workdir = true;
	free(s->workdir);
	s->workdir = path;
	return 0;
}

/* Refuses values that no sandbox or kernel accepts, before they are used. */
static int check_possible(struct forge_spec *s, const struct forge_run_request *req,
			  struct forge_error *err)
{
	struct forge_limits *l = &s->limits;
	struct rlimit files;

	if (l->memory_bytes < (1 << 20))
		return forge_fail(err, EINVAL, "--memory: the least is 1M");
	if (l->open_files < 32)
		return forge_fail(err, EINVAL, "--open-files: the least is 32");
	if (l->pids != FORGE_UNLIMITED && l->pids > 4194304)
		return forge_fail(err, EINVAL, "--pids: the most is 4194304");
	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_max == RLIM_INFINITY ||
	    l->open_files <= files.rlim_max)
		return 0;
	/* At most the hard limit of forge. A default is lowered, a request refused. */
	if (req->limits.open_files && req->limits.open_files != FORGE_UNLIMITED)
		return forge_fail(err, EINVAL,
				  "--open-files: this host's hard limit is %llu",
				  (unsigned long long)files.rlim_max);
	l->open_files = files.rlim_max;
	return 0;
}

/* Lowers defaults to the budget of a small host. A larger request is refused later. */
static void fit_budget(struct forge_spec *s, const struct forge_config *cfg,
		       const struct forge_run_request *req)
{
	struct forge_budget b;

	forge_budget_of(cfg, &b);
	if (!req->limits.memory_bytes && s->limits.memory_bytes > b.memory_bytes)
		s->limits.memory_bytes = b.memory_bytes;
	if (!req->limits.cpus_milli && s->limits.cpus_milli > b.cpus_milli)
		s->limits.cpus_milli = b.cpus_milli;
}

/* Later values win; their origin is for --explain-limits. */
static void overlay(struct forge_spec *s, const struct forge_limits *over,
		    const char *from)
{
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++)
		if (forge_limit_value(over, &forge_limit_rows[i]))
			s->limit_from[i] = from;
	forge_limits_overlay(&s->limits, over);
}

static int resolve_limits(struct forge_spec *s, const struct forge_config *cfg,
			  const struct forge_run_request *req, struct forge_error *err)
{
	const struct forge_profile *profile;
	const char *name = req->profile	       ? req->profile
			   : s->header_profile ? s->header_profile
			   : req->argv && forge_spec_is_notebook(req->argv[0])
				   ? "notebook"
				   : NULL;
	int rc = forge_config_profile(cfg, name, &profile, err);

	if (rc < 0)
		return rc;
	s->profile = profile->name;
	overlay(s, &profile->limits, "profile");
	if (s->has_runtime)
		overlay(s, &s->runtime.decl->limits, "runtime");
	overlay(s, &s->beside_limits, "forge.yaml");
	overlay(s, &s->header_limits, "script");
	overlay(s, &req->limits, "command line");
	if (req->again)
		overlay(s, &req->again->limits, "attempt before");
	rc = forge_limits_check(&s->limits, &cfg->caps, cfg->allow_unlimited, err);
	if (rc == 0)
		fit_budget(s, cfg, req);
	return rc < 0 ? rc : check_possible(s, req, err);
}

static bool is_image(const struct forge_spec *s)
{
	return s->has_runtime && s->runtime.decl->image;
}

/* A runtime that is an image needs an executor with containers. */
static int resolve_executor(struct forge_spec *s, const struct forge_config *cfg,
			    const struct forge_run_request *req, struct forge_error *err)
{
	const char *of_runtime = s->has_runtime ? s->runtime.decl->executor : NULL;
	const char *name = req->executor		     ? req->executor
			   : of_runtime			     ? of_runtime
			   : cfg->executor && !req->is_probe ? cfg->executor
			   : is_image(s)		     ? "docker"
							     : "local";
	int rc = forge_config_executor(cfg, name, &s->executor, err);

	if (rc < 0)
		return forge_wrap(err, rc, "%s",
				  req->executor ? "--executor" : "executor");
	/* A post-process reads outputs that only this machine has. */
	if (req->parent_run && strcmp(s->executor->kind, "slurm") == 0)
		return forge_config_executor(cfg, "local", &s->executor, err);
	if (is_image(s) && strcmp(s->executor->kind, "container") != 0)
		return forge_hint(
			err,
			forge_fail(err, EINVAL,
				   "runtime %s is an image, and executor %s runs no "
				   "containers",
				   s->runtime.decl->name, name),
			"Use --executor docker or podman");
	return 0;
}

static int resolve_network(struct forge_spec *s, const char *network,
			   struct forge_error *err)
{
	if (network && strcmp(network, "none") != 0 && strcmp(network, "host") != 0)
		return forge_fail(err, EINVAL, "--network: '%s' is not one of none, host",
				  network);
	s->own_network = !network || strcmp(network, "none") == 0;
	return 0;
}

static int resolve_outputs(struct forge_spec *s, const struct forge_config *cfg,
			   const struct forge_run_request *req, struct forge_error *err)
{
	int rc = 0;

	s->collects = req->is_probe || req->parent_run ? FORGE_OUTPUTS_DECLARED
						       : cfg->outputs_default;
	forge_strv_foreach (pattern, &req->outputs) {
		if (strcmp(pattern, "none") == 0 && req->outputs.n > 1)
			return forge_hint(
				err,
				forge_fail(err, EINVAL,
					   "-o none stands alone: it means no outputs"),
				"A file of that name is meant by -o 'non?'");
		rc = forge_glob_check(pattern, err);
		if (rc < 0)
			return rc;
	}
	if (req->outputs.n && strcmp(req->outputs.v[0], "none") == 0) {
		s->collects = FORGE_OUTPUTS_NONE;
	} else if (req->outputs.n) {
		s->collects = FORGE_OUTPUTS_DECLARED;
		s->has_outputs = true;
		rc = forge_strv_copy(&s->outputs, &req->outputs);
	} else if (s->wishes.outputs.n == 1 &&
		   strcmp(s->wishes.outputs.v[0], "none") == 0) {
		s->collects = FORGE_OUTPUTS_NONE;
	} else if (s->wishes.outputs.n) {
		s->collects = FORGE_OUTPUTS_DECLARED;
		s->has_outputs = true;
		rc = forge_strv_copy(&s->outputs, &s->wishes.outputs);
		forge_strv_foreach (pattern, &s->outputs)
			if (rc == 0 && forge_glob_check(pattern, err) < 0)
				return -EINVAL;
	} else if (s->collects == FORGE_OUTPUTS_DECLARED) {
		rc = forge_strv_add(&s->outputs, "outputs/**");
	}
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}

static int resolve_copy(struct forge_spec *s, const struct forge_run_request *req,
			struct forge_error *err)
{
	forge_auto_free char *cwd = NULL;

	if (!req->copy_to)
		return req->copy_replaces
			       ? forge_fail(err, EINVAL, "--force belongs to --copy DIR")
			       : 0;
	if (!*req->copy_to)
		return forge_fail(err, EINVAL, "--copy: the directory has no name");
	if (s->collects == FORGE_OUTPUTS_NONE)
		return forge_fail(err, EINVAL,
				  "--copy: without outputs (-o none) there "
				  "is nothing to copy");
	if (req->idempotency_key)
		return forge_hint(
			err,
			forge_fail(err, EINVAL,
				   "--copy cannot be used with --idempotency-key: "
				   "another run may have the key"),
			"Use `forge outputs RUN --copy DIR` afterwards");
	if (*req->copy_to != '/' && !(cwd = getcwd(NULL, 0)))
		return forge_fail_errno(err, errno, "--copy: the current directory");
	s->copy_to =
		cwd ? forge_asprintf("%s/%s", cwd, req->copy_to) : strdup(req->copy_to);
	if (!s->copy_to)
		return forge_fail(err, ENOMEM, "out of memory");
	return 0;
}

static int resolve_post_process(struct forge_spec *s, const struct forge_config *cfg,
				const struct forge_run_request *req,
				struct forge_error *err)
{
	int rc = 0;

	if (req->parent_run) /* a post-process has none itself */
		return 0;
	if (req->post_process) {
		rc = forge_strv_add(&s->post_process, "/bin/sh");
		if (rc == 0)
			rc = forge_strv_add(&s->post_process, "-c");
		if (rc == 0)
			rc = forge_strv_add(&s->post_process, req->post_process);
	} else {
		rc = forge_strv_copy(&s->post_process, &cfg->post_process);
	}
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}

static int resolve_key(struct forge_spec *s, const struct forge_run_request *req,
		       struct forge_error *err)
{
	const char *key = req->idempotency_key;

	s->priority = req->priority;
	s->parent_run = req->again ? req->again->previous : req->parent_run;
	s->is_probe = req->is_probe;
	s->idempotency_key = key;
	s->asked_env = &req->env;
	s->input_roots = &req->input_roots;
	if (!key)
		return 0;
	for (const char *p = key; *p; p++)
		if (*p < '!' || *p > '~')
			return forge_fail(
				err, EINVAL,
				"--idempotency-key: printable ASCII without blanks");
	return *key && strlen(key) <= 200
		       ? 0
		       : forge_fail(err, EINVAL,
				    "--idempotency-key: 1 to 200 characters");
}

/* The rules of the configuration, then those of the command line; a later attempt has the first one's. */
static int resolve_retry(struct forge_spec *s, const struct forge_config *cfg,
			 const struct forge_run_request *req, struct forge_error *err)
{
	int rc = 0;

	s->retry = (struct forge_retry_chain){ .attempt = 1 };
	if (req->again)
		s->retry = req->again->chain;
	if (req->again || req->is_probe || req->parent_run)
		return 0;
	s->retry.policy = cfg->retry;
	forge_strv_foreach (text, &req->retry)
		if (rc == 0)
			rc = forge_retry_parse(text, &s->retry.policy, err);
	return rc < 0 ? forge_wrap(err, rc, "--retry") : 0;
}

/* A missing root is an error here: the analysis might not report it by name. */
static int add_roots(struct forge_spec *s, const struct forge_config *cfg,
		     struct forge_error *err)
{
	int rc = forge_strv_copy(&s->read_only, &s->inputs);

	for (size_t i = 0; i < cfg->read_only.n && rc == 0; i++) {
		const char *path = cfg->read_only.v[i];
		char *real = realpath(path, NULL);
		if (!real)
			return forge_hint(
				err, forge_fail_errno(err, errno, "read_only: %s", path),
				"Make it, or take it out of %s",
				cfg->path ? cfg->path : "forge.yaml");
		rc = forge_strv_take(&s->read_only, real);
	}
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}

/* For a post-process: links the outputs to the paths that the run gave them. */
static int add_parent(struct forge_spec *s, const struct forge_run_request *req)
{
	int rc = 0;

	if (!req->parent_outputs)
		return 0;
	rc = forge_spec_link_entries(s, req->parent_outputs);
	for (size_t i = 0; i < req->links.n && rc == 0; i++)
		rc = forge_strv_add(&s->links, req->links.v[i]);
	return rc < 0 ? rc : forge_strv_add(&s->read_only, req->parent_outputs);
}

/* For a step of a pipeline: its inputs, and the name of its checkpoint. */
static int add_step(struct forge_spec *s, const struct forge_run_request *req)
{
	int rc = 0;

	if (req->checkpoint && !(s->checkpoint = strdup(req->checkpoint)))
		return -ENOMEM;
	if (!req->staged)
		return 0;
	rc = forge_strv_add(&s->links, "inputs");
	if (rc == 0)
		rc = forge_strv_add(&s->links, req->staged);
	return rc < 0 ? rc : forge_strv_add(&s->read_only, req->staged);
}

int forge_spec_resolve(const struct forge_config *cfg,
		       const struct forge_run_request *req, struct forge_spec *ret,
		       struct forge_error *err)
{
	int rc = resolve_ids(ret, req, err);

	if (rc == 0)
		rc = expand_workdir(ret, cfg->workdir, err);
	if (rc == 0)
		rc = forge_spec_header(ret, cfg, req, err);
	if (rc == 0)
		rc = forge_spec_runtime(ret, cfg, req, err);
	if (rc == 0)
		rc = resolve_executor(ret, cfg, req, err);
	if (rc == 0)
		rc = resolve_limits(ret, cfg, req, err);
	if (rc == 0)
		rc = resolve_network(
			ret, req->network ? req->network : ret->wishes.network, err);
	if (rc == 0)
		rc = resolve_key(ret, req, err);
	if (rc == 0)
		rc = resolve_retry(ret, cfg, req, err);
	if (rc == 0)
		rc = resolve_outputs(ret, cfg, req, err);
	if (rc == 0)
		rc = resolve_copy(ret, req, err);
	if (rc == 0)
		rc = resolve_post_process(ret, cfg, req, err);
	for (size_t i = 0; i < req->inputs.n && rc == 0; i++)
		rc = forge_spec_add_input(ret, req->inputs.v[i], err);
	for (size_t i = 0; i < ret->wishes.inputs.n && rc == 0; i++)
		rc = forge_spec_add_wish(ret, ret->wishes_real.v[i],
					 ret->wishes.inputs.v[i], err);
	if (rc == 0)
		rc = forge_spec_command(ret, req->argv, &req->parameters, err);
	if (rc == 0)
		rc = add_roots(ret, cfg, err);
	if (rc == 0) {
		rc = add_parent(ret, req);
		if (rc < 0)
			rc = forge_fail_errno(err, -rc, "the outputs of %s",
					      req->parent_run);
	}
	if (rc == 0 && add_step(ret, req) < 0)
		rc = forge_fail(err, ENOMEM, "out of memory");
	forge_strv_foreach (path, &ret->view)
		if (rc == 0 && forge_strv_add(&ret->read_only, path) < 0)
			rc = forge_fail(err, ENOMEM, "out of memory");
	return rc;
}

int forge_spec_explain_limits(const struct forge_config *cfg,
			      const struct forge_run_request *req, json_t **ret,
			      struct forge_error *err)
{
	struct forge_spec s = { .profile = NULL };
	char text[FORGE_FORMAT_MAX];
	int rc = forge_spec_resolve(cfg, req, &s, err);

	if (rc == 0)
		*ret = json_array();
	for (size_t i = 0; rc == 0 && i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *row = &forge_limit_rows[i];
		const char *from = s.limit_from[i] ? s.limit_from[i] : "built-in";
		const char *name = strcmp(from, "profile") == 0	  ? s.profile
				   : strcmp(from, "runtime") == 0 ? s.runtime.decl->name
				   : strcmp(from, "script") == 0  ? req->argv[0]
				   : strcmp(from, "forge.yaml") == 0 ? "beside the script"
								     : "";
		char key[160];
		(void)snprintf(key, sizeof(key), "profiles.%s.%s",
			       s.profile ? s.profile : "", row->key);
		const struct forge_origin *o = forge_config_origin(cfg, key);
		if (strcmp(from, "profile") == 0 && o)
			(void)snprintf(key, sizeof(key), "%s (%s)", s.profile, o->from);
		json_array_append_new(
			*ret,
			json_pack("{s:s, s:s, s:o, s:s, s:s}", "limit", row->key, "value",
				  forge_limit_format(text, row,
						     forge_limit_value(&s.limits, row)),
				  "number",
				  forge_json_number(forge_limit_value(&s.limits, row)),
				  "from", from, "name",
				  strcmp(from, "profile") == 0 && o ? key : name));
	}
	forge_spec_done(&s);
	return rc;
}
