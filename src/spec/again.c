/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as JSON and back, for attempts that another process starts. */
#include "spec/again.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "spec/asked.h"
#include "spec/saved.h"

extern char **environ;

#define FIELD(f) offsetof(struct forge_run_request, f)

/* The values of a request that are one text each, and those that are lists. */
static const struct {
	const char *key;
	size_t offset;
} texts[] = {
	{ "id", FIELD(analysis_id) },	 { "profile", FIELD(profile) },
	{ "executor", FIELD(executor) }, { "runtime", FIELD(runtime) },
	{ "env_file", FIELD(env_file) }, { "copy_to", FIELD(copy_to) },
	{ "network", FIELD(network) },	 { "post_process", FIELD(post_process) },
	{ "rerun_of", FIELD(rerun_of) }, { "store", FIELD(store) },
}, lists[] = {
	{ "inputs", FIELD(inputs) },   { "parameters", FIELD(parameters) },
	{ "outputs", FIELD(outputs) }, { "retry", FIELD(retry) },
	{ "env", FIELD(env) },
};

static const char **text_at(struct forge_run_request *req, size_t i)
{
	return (const char **)((char *)req + texts[i].offset);
}

static struct forge_strv *list_at(struct forge_run_request *req, size_t i)
{
	return (struct forge_strv *)((char *)req + lists[i].offset);
}

/* ---- to JSON ---- */

static json_t *number_text(uint64_t n)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%" PRIu64, n);
	return json_string(text);
}

static json_t *chain_json(const struct forge_retry_chain *c)
{
	json_t *rules = json_object();

	for (int i = 0; i < FORGE_RETRY_COUNT; i++)
		json_object_set_new(rules, forge_retry_names[i],
				    json_pack("{s:i, s:i, s:o, s:i}", "times",
					      (int)c->policy.rules[i].times,
					      "factor_milli",
					      (int)c->policy.rules[i].factor_milli, "max",
					      number_text(c->policy.rules[i].max), "used",
					      (int)c->used[i]));
	return json_pack("{s:i, s:o}", "attempt", (int)c->attempt, "rules", rules);
}

/* The caller's variables, without secrets: the next attempt is found and made in the same way. */
static json_t *environment_json(void)
{
	json_t *list = json_array();

	for (char **e = environ; *e; e++)
		if (!forge_asked_is_withheld(*e))
			json_array_append_new(list, forge_json_name(*e));
	return list;
}

static json_t *env_json(const struct forge_strv *env)
{
	json_t *list = json_array();

	forge_strv_foreach (var, env)
		if (!forge_asked_is_withheld(var))
			json_array_append_new(list, forge_json_name(var));
	return list;
}

/* Secrets that reach the run by --env, or because the configuration passes them on. */
static const char *find_withheld(const struct forge_spec *s,
				 const struct forge_run_request *req)
{
	forge_strv_foreach (var, &req->env)
		if (forge_asked_is_withheld(var))
			return var;
	for (char **e = environ; *e; e++) {
		size_t len = strcspn(*e, "=");
		forge_auto_free char *name =
			forge_asked_is_withheld(*e) ? strndup(*e, len) : NULL;
		const char *value = name ? forge_strv_getenv(&s->env, name) : NULL;
		if (value && strcmp(value, *e + len + ((*e)[len] == '=')) == 0)
			return *e;
	}
	return NULL;
}

static void set_name(json_t *j, const char *key, const char *name)
{
	if (name)
		json_object_set_new(j, key, forge_json_name(name));
}

static json_t *request_json(const struct forge_run_request *given, const char *store)
{
	struct forge_run_request req = *given;
	struct forge_strv argv = { 0 };
	json_t *j = json_pack("{s:b, s:b, s:i}", "copy_replaces", req.copy_replaces,
			      "keep", req.keep, "priority", req.priority);

	req.store = store;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(texts); i++)
		set_name(j, texts[i].key, *text_at(&req, i));
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(lists); i++)
		json_object_set_new(j, lists[i].key,
				    lists[i].offset == FIELD(env)
					    ? env_json(&req.env)
					    : forge_json_names(list_at(&req, i)));
	for (argv.v = req.argv; argv.v && argv.v[argv.n];)
		argv.n++;
	json_object_set_new(j, "argv", forge_json_names(&argv));
	json_object_set_new(j, "limits", forge_saved_limits(&req.limits));
	return j;
}

json_t *forge_again_json(const struct forge_spec *s, const struct forge_run_request *req,
			 const struct forge_config *cfg, const char *store)
{
	forge_auto_free char *cwd = getcwd(NULL, 0);
	const char *secret = find_withheld(s, req);
	json_t *j = json_pack(
		"{s:s, s:o, s:o, s:o, s:o}", "run_id", s->run_id, "chain",
		chain_json(&s->retry), "limits", forge_saved_limits(&s->limits),
		"request", request_json(req, store), "environment", environment_json());

	if (!j)
		return NULL;
	if (secret)
		json_object_set_new(j, "withheld",
				    json_stringn(secret, strcspn(secret, "=")));
	set_name(j, "cwd", cwd);
	set_name(j, "config", cfg->path);
	return j;
}

/* ---- and back ---- */

const char *forge_again_withheld(const json_t *content)
{
	return forge_json_string(content, "withheld");
}

static unsigned unsigned_of(const json_t *j, const char *key)
{
	return (unsigned)json_integer_value(json_object_get(j, key));
}

void forge_again_restore_chain(const json_t *content, struct forge_retry_chain *ret,
			       struct forge_limits *ret_limits)
{
	const json_t *chain = json_object_get(content, "chain");

	*ret = (struct forge_retry_chain){ .attempt = unsigned_of(chain, "attempt") };
	for (int i = 0; i < FORGE_RETRY_COUNT; i++) {
		const json_t *rule = json_object_get(json_object_get(chain, "rules"),
						     forge_retry_names[i]);
		ret->policy.rules[i] = (struct forge_retry_rule){
			.times = unsigned_of(rule, "times"),
			.factor_milli = unsigned_of(rule, "factor_milli"),
			.max = strtoull(forge_json_string_or(rule, "max", "0"), NULL, 10),
		};
		ret->used[i] = unsigned_of(rule, "used");
	}
	*ret_limits = (struct forge_limits){ 0 };
	forge_saved_restore_limits(json_object_get(content, "limits"), ret_limits);
}

int forge_again_restore_environment(const json_t *content)
{
	forge_auto_strv struct forge_strv env = { 0 };
	const char *home = getenv("FORGE_HOME");
	forge_auto_free char *here = home ? strdup(home) : NULL;
	int rc = forge_json_names_decode(content, "environment", &env);

	if (rc == 0 && (clearenv() != 0 || (home && !here)))
		rc = -ENOMEM;
	forge_strv_foreach (var, &env) {
		char *equals = strchr(var, '=');
		if (rc < 0 || !equals)
			continue;
		*equals = '\0';
		rc = setenv(var, equals + 1, 1) < 0 ? -errno : 0;
	}
	if (rc == 0 && here && setenv("FORGE_HOME", here, 1) < 0)
		rc = -errno;
	return rc;
}

/* One text, which then belongs to r. */
static int restore_text(const json_t *j, const char *key, struct forge_again_request *r,
			const char **ret)
{
	const char *text = forge_json_string(j, key);
	char *name = text ? forge_json_name_decode(text) : NULL;
	int rc = !text ? 0 : name ? forge_strv_take(&r->texts, name) : -EINVAL;

	if (rc == 0)
		*ret = name;
	return rc;
}

int forge_again_restore(const json_t *content, struct forge_again_request *ret,
			struct forge_error *err)
{
	const json_t *j = json_object_get(content, "request");
	const char *cwd = NULL, *config = NULL;
	struct forge_run_request *req = &ret->req;
	int rc = 0;

	*ret = (struct forge_again_request){ .req.stdout_fd = -1, .req.stderr_fd = -1 };
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(texts) && rc == 0; i++)
		rc = restore_text(j, texts[i].key, ret, text_at(req, i));
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(lists) && rc == 0; i++)
		rc = forge_json_names_decode(j, lists[i].key, list_at(req, i));
	if (rc == 0)
		rc = forge_json_names_decode(j, "argv", &ret->argv);
	if (rc == 0)
		rc = restore_text(content, "cwd", ret, &cwd);
	if (rc == 0)
		rc = restore_text(content, "config", ret, &config);
	if (rc < 0 || ret->argv.n == 0)
		return forge_fail(err, rc < 0 ? -rc : EINVAL,
				  "the request in retries/ is damaged");
	forge_saved_restore_limits(json_object_get(j, "limits"), &req->limits);
	req->argv = ret->argv.v;
	req->copy_replaces = json_is_true(json_object_get(j, "copy_replaces"));
	req->keep = json_is_true(json_object_get(j, "keep"));
	req->priority = (int)json_integer_value(json_object_get(j, "priority"));
	ret->cwd = (char *)cwd;	      /* NOLINT: owned by texts */
	ret->config = (char *)config; /* NOLINT: owned by texts */
	return 0;
}

void forge_again_done(struct forge_again_request *r)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(lists); i++)
		forge_strv_done(list_at(&r->req, i));
	forge_strv_done(&r->argv);
	forge_strv_done(&r->texts);
}
