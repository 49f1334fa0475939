/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a request to JSON and back. */
#include "spec/asked.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/strv.h"

/* A larger file is a program, of which the record has only the digest as an input. */
#define SCRIPT_MAX (1u << 20)

bool forge_asked_is_secret(const char *name, size_t len)
{
	static const char *const parts[] = { "PWD",   "_PAT",	"DSN",	  "KEY",
					     "TOKEN", "SECRET", "PASS",	  "CREDENTIAL",
					     "AUTH",  "COOKIE", "PRIVATE" };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(parts); i++)
		for (size_t at = 0; at + strlen(parts[i]) <= len; at++)
			if (strncasecmp(name + at, parts[i], strlen(parts[i])) == 0)
				return true;
	return false;
}

/* "://user:password@host", in any variable. */
static bool has_password(const char *value)
{
	const char *at = strstr(value, "://");
	size_t len = at ? strcspn(at + 3, "/ ") : 0;

	return at && memchr(at + 3, '@', len) && memchr(at + 3, ':', len);
}

bool forge_asked_is_withheld(const char *var)
{
	size_t len = strcspn(var, "=");

	return forge_asked_is_secret(var, len) || has_password(var + len);
}

static json_t *env_json(const struct forge_strv *env)
{
	json_t *list = json_array();

	forge_strv_foreach (var, env) {
		size_t len = strcspn(var, "=");
		if (forge_asked_is_withheld(var))
			json_array_append_new(list, json_stringn(var, len));
		else
			json_array_append_new(list, forge_json_text(var));
	}
	return list;
}

/* The limits of the command line, with the names that the record uses for limits. */
static json_t *limits_json(const struct forge_limits *given)
{
	json_t *j = json_object();

	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *row = &forge_limit_rows[i];
		uint64_t value = forge_limit_value(given, row);
		if (value)
			json_object_set_new(j, row->name,
					    value == FORGE_UNLIMITED
						    ? json_string("unlimited")
						    : json_integer((json_int_t)value));
	}
	return j;
}

static json_t *words_json(char *const *words)
{
	json_t *list = json_array();

	for (; words && *words; words++)
		json_array_append_new(list, forge_json_text(*words));
	return list;
}

/* The input that the first word of the command became; "" if it is not one. */
static const char *script_of(const struct forge_spec *s,
			     const struct forge_run_request *req)
{
	forge_auto_free char *real = req->argv[0] ? realpath(req->argv[0], NULL) : NULL;

	forge_strv_foreach (path, &s->inputs)
		if (real && strcmp(path, real) == 0)
			return path;
	return NULL;
}

json_t *forge_asked_json(const struct forge_spec *s, const struct forge_run_request *req)
{
	forge_auto_free char *cwd = getcwd(NULL, 0);
	const char *script = script_of(s, req);
	json_t *j = json_object();

	json_object_set_new(j, "command", words_json(req->argv));
	json_object_set_new(j, "cwd", cwd ? forge_json_text(cwd) : json_null());
	json_object_set_new(j, "inputs", forge_json_texts(&req->inputs));
	if (req->input_roots.n)
		json_object_set_new(j, "input_below",
				    forge_json_texts(&req->input_roots));
	json_object_set_new(j, "outputs",
			    s->has_outputs
				    ? forge_json_texts(&req->outputs)
				    : json_string(forge_outputs_names[s->collects]));
	json_object_set_new(j, "env", env_json(&req->env));
	if (req->env_file)
		json_object_set_new(j, "env_file", forge_json_text(req->env_file));
	if (req->runtime)
		json_object_set_new(j, "runtime", forge_json_text(req->runtime));
	if (req->executor)
		json_object_set_new(j, "executor", forge_json_text(req->executor));
	if (req->profile)
		json_object_set_new(j, "profile", forge_json_text(req->profile));
	if (req->analysis_id)
		json_object_set_new(j, "id", forge_json_text(req->analysis_id));
	if (req->post_process)
		json_object_set_new(j, "post_process",
				    forge_json_text(req->post_process));
	if (req->parameters.n)
		json_object_set_new(j, "parameters", forge_json_texts(&req->parameters));
	if (req->network)
		json_object_set_new(j, "network", json_string(req->network));
	if (req->retry.n)
		json_object_set_new(j, "retry", forge_json_texts(&req->retry));
	json_object_set_new(j, "limits", limits_json(&req->limits));
	if (script)
		json_object_set_new(j, "script",
				    json_pack("{s:o}", "path", forge_json_text(script)));
	return j;
}

const char *forge_asked_script(const json_t *record)
{
	return json_string_value(json_object_get(
		json_object_get(json_object_get(record, "asked"), "script"), "sha256"));
}

static const char *digest_of_input(const json_t *record, const char *path)
{
	size_t i;
	const json_t *f;

	json_array_foreach (json_object_get(record, "inputs"), i, f) {
		const char *p = forge_json_string(f, "path");
		if (p && path && strcmp(p, path) == 0)
			return forge_json_string(f, "sha256");
	}
	return NULL;
}

/* Stores the script only if its digest is still that of the run. */
void forge_asked_keep_script(json_t *record, struct forge_objects *objects)
{
	json_t *script = json_object_get(json_object_get(record, "asked"), "script");
	const char *path = forge_json_string(script, "path");
	const char *ran = digest_of_input(record, path);
	struct forge_object o;
	struct stat st;

	if (!path || !ran)
		return;
	forge_auto_close int fd =
		forge_open_nolink(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    st.st_size > SCRIPT_MAX)
		return;
	if (forge_objects_put(objects, fd, false, false, &o) == 0 &&
	    strcmp(o.digest, ran) == 0)
		json_object_set_new(script, "sha256", json_string(o.digest));
}

/* ---- from a record to a request ---- */

/* The values of the record come first, then those that were given now. */
static int put_before(const json_t *list, struct forge_strv *v)
{
	forge_auto_strv struct forge_strv both = { 0 };
	size_t i;
	const json_t *word;
	int rc = 0;

	json_array_foreach (list, i, word)
		if (rc == 0 && json_string_value(word))
			rc = forge_strv_add(&both, json_string_value(word));
	forge_strv_foreach (given, v)
		if (rc == 0)
			rc = forge_strv_add(&both, given);
	if (rc < 0)
		return rc;
	struct forge_strv old = *v;
	*v = both;
	both = old;
	return 0;
}

static void put_limits(const json_t *limits, struct forge_limits *given)
{
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *row = &forge_limit_rows[i];
		const json_t *value = json_object_get(limits, row->name);
		if (value && !forge_limit_value(given, row))
			*forge_limit_slot(given, row) =
				json_is_integer(value)
					? (uint64_t)json_integer_value(value)
					: FORGE_UNLIMITED;
	}
}

/* A variable whose value was not stored must be in the environment now. */
static int check_env(const struct forge_strv *env, struct forge_error *err)
{
	forge_strv_foreach (var, env)
		if (!strchr(var, '=') && !getenv(var))
			return forge_hint(err,
					  forge_fail(err, ENOENT,
						     "the value of %s was not kept with "
						     "the run",
						     var),
					  "Give it again: --env %s=..., or set it in the "
					  "environment",
					  var);
	return 0;
}

/* Whether env has this name, with a value or to be passed on. */
static bool is_given(const struct forge_strv *env, const char *var)
{
	size_t len = strcspn(var, "=");

	forge_strv_foreach (given, env)
		if (strncmp(given, var, len) == 0 && (given[len] == '=' || !given[len]))
			return true;
	return false;
}

static int put_env(const json_t *list, struct forge_strv *env)
{
	json_t *rest = json_array();
	size_t i;
	json_t *var;

	json_array_foreach (list, i, var)
		if (json_string_value(var) && !is_given(env, json_string_value(var)))
			json_array_append(rest, var);
	int rc = rest ? put_before(rest, env) : -ENOMEM;
	json_decref(rest);
	return rc;
}

int forge_asked_again(const json_t *record, struct forge_run_request *req,
		      char ***ret_words, struct forge_error *err)
{
	const json_t *asked = json_object_get(record, "asked"), *word;
	const json_t *command = json_object_get(asked, "command");
	const json_t *outputs = json_object_get(asked, "outputs");
	size_t i, n = json_array_size(command);

	if (n == 0)
		return forge_fail(err, ENODATA,
				  "run %s does not say what it was asked for",
				  forge_json_string(record, "run_id"));
	char **words = calloc(n + 1, sizeof(char *));
	if (!words)
		return forge_fail(err, ENOMEM, "out of memory");
	*ret_words = words;
	json_array_foreach (command, i, word)
		words[i] = (char *)json_string_value(word); /* NOLINT: never written */
	req->argv = words;
	req->runtime = req->runtime ? req->runtime : forge_json_string(asked, "runtime");
	req->executor =
		req->executor ? req->executor : forge_json_string(asked, "executor");
	req->profile = req->profile ? req->profile : forge_json_string(asked, "profile");
	req->analysis_id =
		req->analysis_id ? req->analysis_id : forge_json_string(asked, "id");
	req->network = req->network ? req->network : forge_json_string(asked, "network");
	req->env_file =
		req->env_file ? req->env_file : forge_json_string(asked, "env_file");
	req->post_process = req->post_process ? req->post_process
					      : forge_json_string(asked, "post_process");
	put_limits(json_object_get(asked, "limits"), &req->limits);
	int rc = put_before(json_object_get(asked, "inputs"), &req->inputs);
	if (rc == 0)
		rc = put_env(json_object_get(asked, "env"), &req->env);
	if (rc == 0 && !req->input_roots.n)
		rc = put_before(json_object_get(asked, "input_below"), &req->input_roots);
	if (rc == 0 && !req->parameters.n)
		rc = put_before(json_object_get(asked, "parameters"), &req->parameters);
	if (rc == 0 && !req->retry.n)
		rc = put_before(json_object_get(asked, "retry"), &req->retry);
	if (rc == 0 && !req->outputs.n && json_is_array(outputs))
		rc = put_before(outputs, &req->outputs);
	else if (rc == 0 && !req->outputs.n && json_is_string(outputs) &&
		 strcmp(json_string_value(outputs), "none") == 0)
		rc = forge_strv_add(&req->outputs, "none");
	if (rc < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	return check_env(&req->env, err);
}
