/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a pipeline file as rows: parse.c reads by them, and the JSON Schema is made from them. */
#include <jansson.h>
#include <string.h>

#include "config/limits.h"
#include "config/named.h"
#include "config/retry.h"
#include "pipeline/pipeline.h"

static const char *const networks[] = { "none", "host", NULL };
static const char *const shells[] = { "bash", "sh", NULL };

#define TOP(f) offsetof(struct forge_pipeline, f)
static const struct forge_named_row top_rows[] = {
	{ "name", FORGE_NAMED_WORD, TOP(name), "name", "Its name in listings", NULL },
	{ "description", FORGE_NAMED_TEXT, TOP(description), "text", "What it computes",
	  NULL },
	{ "runtime", FORGE_NAMED_WORD, TOP(runtime), "name",
	  "The runtime of steps that name none", NULL },
	{ "executor", FORGE_NAMED_WORD, TOP(executor), "name",
	  "The executor of steps that name none", NULL },
	{ "params", FORGE_NAMED_NODE, TOP(params_node), "map of values",
	  "Parameters and their values, which -p NAME=VALUE replaces", NULL },
	{ "steps", FORGE_NAMED_NODE, TOP(steps_node), "map of steps", "The steps", NULL },
	{ "entries", FORGE_NAMED_NODE, TOP(entries_node), "map of steps",
	  "Names for steps at which --entry NAME starts", NULL },
};
const struct forge_named_map forge_pipeline_rows = {
	.must_be = "a map with at least steps",
	.rows = top_rows,
	.n = FORGE_ARRAY_SIZE(top_rows),
};

#define STEP(f) offsetof(struct forge_step, f)
static const struct forge_named_row step_rows[] = {
	{ "description", FORGE_NAMED_TEXT, STEP(description), "text", "What it computes",
	  NULL },
	{ "runtime", FORGE_NAMED_WORD, STEP(runtime), "name", "The runtime it runs in",
	  NULL },
	{ "executor", FORGE_NAMED_WORD, STEP(executor), "name", "Where it runs", NULL },
	{ "inputs", FORGE_NAMED_NODE, STEP(inputs_node), "map of files",
	  "NAME: a file, STEP/PATTERN, or a list of these; $NAME is its path in the run",
	  NULL },
	{ "run", FORGE_NAMED_WORD, STEP(run), "text",
	  "The command, for bash -euo pipefail", NULL },
	{ "shell", FORGE_NAMED_ONE_OF, STEP(shell), "bash or sh",
	  "The shell that executes run", shells },
	{ "script", FORGE_NAMED_WORD, STEP(script), "file",
	  "A script or notebook to execute, instead of run", NULL },
	{ "args", FORGE_NAMED_LIST, STEP(args), "list of words",
	  "Arguments of the script", NULL },
	{ "params", FORGE_NAMED_LIST, STEP(params), "list of names",
	  "Parameters that the script gets as variables", NULL },
	{ "outputs", FORGE_NAMED_NODE, STEP(outputs_node), "list of patterns",
	  "Files that it must leave; {path: PATTERN, temp: true} is dropped after its "
	  "last reader",
	  NULL },
	{ "temp", FORGE_NAMED_BOOL, STEP(is_temp), "true or false",
	  "All outputs are temporary", NULL },
	{ "foreach", FORGE_NAMED_NODE, STEP(foreach_node), "map of lists",
	  "NAME: a list, a pattern with one *, or $PARAM: one task for each value",
	  NULL },
	{ "when", FORGE_NAMED_WORD, STEP(when), "condition",
	  "The step is skipped unless this holds: $a == b, $n > 3, $flag", NULL },
	{ "env", FORGE_NAMED_PAIRS, STEP(env), "map of values", "Variables of the run",
	  NULL },
	{ "network", FORGE_NAMED_ONE_OF, STEP(network), "none or host",
	  "The network it sees", networks },
	{ "limits", FORGE_NAMED_LIMITS, STEP(limits), "map of limits", "Its budget",
	  NULL },
	{ "profile", FORGE_NAMED_WORD, STEP(profile), "name", "Limits to start from",
	  NULL },
	{ "retry", FORGE_NAMED_NODE, STEP(retry_node), "map of rules",
	  "Reasons for another attempt: {memory: {times: 2, factor: 2}}", NULL },
	{ "checkpoint", FORGE_NAMED_WORD, STEP(checkpoint), "directory",
	  "A directory that a later attempt gets back", NULL },
};
const struct forge_named_map forge_step_rows = {
	.must_be = "a map with at least run or script",
	.rows = step_rows,
	.n = FORGE_ARRAY_SIZE(step_rows),
	.has_limits_hint = true,
};

/* ---- as JSON Schema ---- */

static json_t *scalar(void)
{
	return json_pack("{s:[s, s, s]}", "type", "string", "number", "boolean");
}

static json_t *list_of(json_t *item)
{
	return json_pack("{s:s, s:o}", "type", "array", "items", item);
}

static json_t *map_of(json_t *value)
{
	return json_pack("{s:s, s:o}", "type", "object", "additionalProperties", value);
}

static json_t *either(json_t *a, json_t *b)
{
	return json_pack("{s:[o, o]}", "anyOf", a, b);
}

static json_t *limits_schema(void)
{
	json_t *keys = json_object();

	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		json_t *one = scalar();
		json_object_set_new(one, "description",
				    json_string(forge_limit_rows[i].help));
		json_object_set_new(keys, forge_limit_rows[i].key, one);
	}
	return json_pack("{s:s, s:o, s:b}", "type", "object", "properties", keys,
			 "additionalProperties", 0);
}

static json_t *retry_schema(void)
{
	json_t *reasons = json_object();

	for (size_t i = 0; i < FORGE_RETRY_COUNT; i++) {
		json_t *keys = json_object();
		for (size_t k = 0; k < FORGE_RETRY_KEYS; k++)
			json_object_set_new(keys, forge_retry_keys[k], scalar());
		json_object_set_new(reasons, forge_retry_names[i],
				    json_pack("{s:s, s:o, s:[s], s:b}", "type", "object",
					      "properties", keys, "required",
					      forge_retry_keys[0], "additionalProperties",
					      0));
	}
	return json_pack("{s:s, s:o, s:b}", "type", "object", "properties", reasons,
			 "additionalProperties", 0);
}

static json_t *rows_schema(const struct forge_named_map *map);

/* The keys whose values this module reads by itself. */
static json_t *node_schema(const char *key)
{
	if (strcmp(key, "steps") == 0) {
		json_t *step = rows_schema(&forge_step_rows);
		json_object_set_new(step, "oneOf",
				    json_pack("[{s:[s]}, {s:[s]}]", "required", "run",
					      "required", "script"));
		return map_of(step);
	}
	if (strcmp(key, "outputs") == 0)
		return list_of(either(
			scalar(), json_pack("{s:s, s:{s:o, s:{s:s}}, s:[s], s:b}", "type",
					    "object", "properties", "path", scalar(),
					    "temp", "type", "boolean", "required", "path",
					    "additionalProperties", 0)));
	if (strcmp(key, "retry") == 0)
		return retry_schema();
	/* params, inputs, foreach, entries: values or lists of them */
	return map_of(either(scalar(), list_of(scalar())));
}

static json_t *words_schema(const char *const *words)
{
	json_t *a = json_array();

	for (; *words; words++)
		json_array_append_new(a, json_string(*words));
	return json_pack("{s:o}", "enum", a);
}

static json_t *row_schema(const struct forge_named_row *row)
{
	switch (row->type) {
	case FORGE_NAMED_ONE_OF:
		return words_schema(row->words);
	case FORGE_NAMED_LIST:
		return list_of(scalar());
	case FORGE_NAMED_PAIRS:
		return map_of(scalar());
	case FORGE_NAMED_LIMITS:
		return limits_schema();
	case FORGE_NAMED_BOOL:
		return json_pack("{s:s}", "type", "boolean");
	case FORGE_NAMED_NODE:
		return node_schema(row->key);
	case FORGE_NAMED_TEXT:
	case FORGE_NAMED_WORD:
	case FORGE_NAMED_SIZE:
	case FORGE_NAMED_DURATION:
	case FORGE_NAMED_COUNT:
	case FORGE_NAMED_AMOUNT:
		break;
	}
	return scalar();
}

static json_t *rows_schema(const struct forge_named_map *map)
{
	json_t *keys = json_object();

	for (size_t i = 0; i < map->n; i++) {
		json_t *one = row_schema(&map->rows[i]);
		json_object_set_new(one, "description", json_string(map->rows[i].help));
		json_object_set_new(keys, map->rows[i].key, one);
	}
	return json_pack("{s:s, s:o, s:b}", "type", "object", "properties", keys,
			 "additionalProperties", 0);
}

json_t *forge_pipeline_schema(void)
{
	json_t *s = rows_schema(&forge_pipeline_rows);

	json_object_set_new(s, "$schema",
			    json_string("https://json-schema.org/draft/2020-12/schema"));
	json_object_set_new(s, "title", json_string("A forge pipeline"));
	json_object_set_new(s, "required", json_pack("[s]", "steps"));
	return s;
}
