/* SPDX-License-Identifier: Apache-2.0 */
/* Makes command lines of requests. */
#include "server/body.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"

#define WORDS_MAX 10000

enum kind { TEXT, NUMBER, LIST, ENVIRONMENT, LIMITS, FLAG, COMMAND };

struct key {
	const char *name, *option;
	enum kind kind;
	bool is_for_again; /* rerun and resume have it too */
};

static const struct key keys[] = {
	{ "command", NULL, COMMAND, false },
	{ "runtime", "runtime", TEXT, true },
	{ "profile", "profile", TEXT, true },
	{ "executor", "executor", TEXT, true },
	{ "network", "network", TEXT, true },
	{ "id", "id", TEXT, true },
	{ "key", "idempotency-key", TEXT, false },
	{ "priority", "priority", NUMBER, true },
	{ "inputs", "input", LIST, true },
	{ "outputs", "output", LIST, true },
	{ "retry", "retry", LIST, true },
	{ "env", "env", ENVIRONMENT, true },
	{ "limits", NULL, LIMITS, true },
	{ "keep", "keep", FLAG, false },
};

/* The keys of "limits", and the options of the same name. */
static const struct {
	const char *name, *option;
} limits[] = {
	{ "memory", "memory" },
	{ "cpus", "cpus" },
	{ "pids", "pids" },
	{ "timeout", "timeout" },
	{ "cpu_time", "cpu-time" },
	{ "disk", "disk" },
	{ "inodes", "inodes" },
	{ "output_limit", "output-limit" },
	{ "open_files", "open-files" },
	{ "sockets", "sockets" },
	{ "io_rate", "io-rate" },
	{ "grace", "grace" },
};

/* "--option=text": no text can be taken for another option. Arguments hold no NUL. */
static int add_text(struct forge_strv *words, const char *name, const char *option,
		    const json_t *value, struct forge_error *err)
{
	const char *text = json_string_value(value);

	if (!text)
		return forge_fail(err, EINVAL, "%s: a text is needed", name);
	if (strlen(text) != json_string_length(value))
		return forge_fail(err, EINVAL, "%s: a text without NUL is needed", name);
	int rc = forge_strv_addf(words, "--%s=%s", option, text);
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}

static int add_list(struct forge_strv *words, const struct key *k, const json_t *value,
		    struct forge_error *err)
{
	size_t i;
	json_t *item;
	int rc = 0;

	if (!json_is_array(value) || json_array_size(value) > WORDS_MAX)
		return forge_fail(err, EINVAL, "%s: a list of texts is needed", k->name);
	json_array_foreach (value, i, item) {
		/* A relative path would mean one of the server's directory. */
		if (rc == 0 && strcmp(k->name, "inputs") == 0 &&
		    json_string_value(item) && *json_string_value(item) != '/')
			rc = forge_fail(err, EINVAL,
					"inputs: '%.64s' is no absolute path",
					json_string_value(item));
		if (rc == 0)
			rc = add_text(words, k->name, k->option, item, err);
	}
	return rc;
}

static int add_environment(struct forge_strv *words, const json_t *value,
			   struct forge_error *err)
{
	const char *name;
	json_t *item;
	int rc = 0;

	if (!json_is_object(value) || json_object_size(value) > WORDS_MAX)
		return forge_fail(err, EINVAL, "env: an object of texts is needed");
	json_object_foreach((json_t *)value, name, item)
	{
		const char *text = json_string_value(item);
		/* A name alone would pass on a variable of the server. */
		if (rc == 0 && (!text || strlen(text) != json_string_length(item)))
			rc = forge_fail(err, EINVAL, "env.%.64s: a text is needed", name);
		if (rc == 0)
			rc = forge_parse_env_name(name, strlen(name), err);
		if (rc == 0 && forge_strv_addf(words, "--env=%s=%s", name, text) < 0)
			rc = forge_fail(err, ENOMEM, "out of memory");
	}
	return rc;
}

static int add_limit(struct forge_strv *words, const char *name, const json_t *item,
		     struct forge_error *err)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(limits); i++) {
		if (strcmp(limits[i].name, name) != 0)
			continue;
		if (!json_is_integer(item))
			return add_text(words, name, limits[i].option, item, err);
		return forge_strv_addf(words, "--%s=%lld", limits[i].option,
				       (long long)json_integer_value(item)) < 0
			       ? forge_fail(err, ENOMEM, "out of memory")
			       : 0;
	}
	return forge_hint(err,
			  forge_fail(err, EINVAL, "limits: there is no '%.64s'", name),
			  "They are memory, cpus, pids, timeout, cpu_time, disk, inodes, "
			  "output_limit, open_files, sockets, io_rate and grace");
}

static int add_limits(struct forge_strv *words, const json_t *value,
		      struct forge_error *err)
{
	const char *name;
	json_t *item;
	int rc = 0;

	if (!json_is_object(value))
		return forge_fail(err, EINVAL, "limits: an object is needed");
	json_object_foreach((json_t *)value, name, item) rc =
		rc < 0 ? rc : add_limit(words, name, item, err);
	return rc;
}

static int add_key(struct forge_strv *words, const struct key *k, const json_t *value,
		   struct forge_error *err)
{
	switch (k->kind) {
	case TEXT:
		return add_text(words, k->name, k->option, value, err);
	case NUMBER:
		if (!json_is_integer(value))
			return forge_fail(err, EINVAL, "%s: a whole number is needed",
					  k->name);
		return forge_strv_addf(words, "--%s=%lld", k->option,
				       (long long)json_integer_value(value)) < 0
			       ? forge_fail(err, ENOMEM, "out of memory")
			       : 0;
	case LIST:
		return add_list(words, k, value, err);
	case ENVIRONMENT:
		return add_environment(words, value, err);
	case LIMITS:
		return add_limits(words, value, err);
	case FLAG:
		if (!json_is_boolean(value))
			return forge_fail(err, EINVAL, "%s: true or false is needed",
					  k->name);
		return json_is_true(value) &&
				       forge_strv_addf(words, "--%s", k->option) < 0
			       ? forge_fail(err, ENOMEM, "out of memory")
			       : 0;
	case COMMAND: /* comes last, behind the options */
		break;
	}
	return 0;
}

static int unknown_key(const char *name, bool is_again, struct forge_error *err)
{
	char list[256];
	size_t n = 0;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(keys) && n < sizeof(list); i++)
		if (keys[i].is_for_again || !is_again)
			n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s",
					      n ? ", " : "", keys[i].name);
	return forge_fail(err, EINVAL, "there is no key '%.64s' (have: %s)", name, list);
}

static int add_keys(struct forge_strv *words, const json_t *body, bool is_again,
		    struct forge_error *err)
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)body, name, value)
	{
		const struct key *k = NULL;
		for (size_t i = 0; i < FORGE_ARRAY_SIZE(keys) && !k; i++)
			if (strcmp(keys[i].name, name) == 0 &&
			    (keys[i].is_for_again || !is_again))
				k = &keys[i];
		if (!k)
			return unknown_key(name, is_again, err);
		if (json_is_null(value))
			continue; /* as if it was not there */
		int rc = add_key(words, k, value, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int add_words(struct forge_strv *words, const json_t *command,
		     struct forge_error *err)
{
	size_t i;
	json_t *word;

	json_array_foreach (command, i, word) {
		const char *text = json_string_value(word);
		if (!text || strlen(text) != json_string_length(word))
			return forge_fail(err, EINVAL,
					  "command: word %zu is no text without NUL",
					  i + 1);
		if (forge_strv_add(words, text) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
	}
	return 0;
}

int forge_body_submit(const json_t *body, struct forge_strv *ret, struct forge_error *err)
{
	const json_t *command = json_object_get(body, "command");
	bool is_text = json_is_string(command);

	if ((!is_text && !json_is_array(command)) ||
	    (is_text &&
	     strlen(json_string_value(command)) != json_string_length(command)) ||
	    (is_text ? json_string_length(command) : json_array_size(command)) == 0 ||
	    json_array_size(command) > WORDS_MAX)
		return forge_fail(
			err, EINVAL,
			"command: a list of words, or a text for a shell, is needed");
	int rc = forge_strv_add(ret, "submit");
	if (rc == 0)
		rc = forge_strv_add(ret, "--json");
	if (rc == 0)
		rc = add_keys(ret, body, false, err);
	if (rc == 0)
		rc = forge_strv_add(ret, "--");
	if (rc == 0 && is_text) {
		rc = forge_strv_add(ret, "/bin/sh");
		rc = rc < 0 ? rc : forge_strv_add(ret, "-c");
		return rc < 0 ? rc : forge_strv_add(ret, json_string_value(command));
	}
	return rc < 0 ? rc : add_words(ret, command, err);
}

int forge_body_again(const char *command, const char *run_id, const json_t *body,
		     struct forge_strv *ret, struct forge_error *err)
{
	int rc = forge_strv_add(ret, command);

	if (rc == 0)
		rc = forge_strv_add(ret, "--detach");
	if (rc == 0)
		rc = forge_strv_add(ret, "--json");
	if (rc == 0)
		rc = add_keys(ret, body, true, err);
	return rc < 0 ? rc : forge_strv_add(ret, run_id);
}

int forge_body_only(const json_t *body, const char *only, struct forge_error *err)
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)body, name, value)
	{
		if (!only)
			return forge_fail(err, EINVAL,
					  "there is no key '%.64s': the body is {}",
					  name);
		if (strcmp(name, only) != 0)
			return forge_fail(err, EINVAL,
					  "there is no key '%.64s' (have: %s)", name,
					  only);
	}
	return 0;
}
