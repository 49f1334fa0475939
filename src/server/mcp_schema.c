/* SPDX-License-Identifier: Apache-2.0 */
/* JSON Schemas of the tools, and arguments checked against them. */
#include "server/mcp_state.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/near.h"
#include "base/parse.h"

/* One entry of a list of words, "a|b". */
static json_t *words_json(const char *words)
{
	json_t *list = json_array();

	while (*words) {
		size_t len = strcspn(words, "|");
		json_array_append_new(list, json_stringn(words, len));
		words += len + (words[len] == '|');
	}
	return list;
}

static json_t *arg_json(const struct forge_mcp_arg *a)
{
	json_t *j = NULL;

	switch (a->type) {
	case FORGE_MCP_STRING:
	case FORGE_MCP_RUN:
		j = json_pack("{s:s}", "type", "string");
		break;
	case FORGE_MCP_WORD:
		j = json_pack("{s:s, s:o}", "type", "string", "enum",
			      words_json(a->words));
		break;
	case FORGE_MCP_AMOUNT:
		j = json_pack("{s:[s, s]}", "type", "string", "number");
		break;
	case FORGE_MCP_INTEGER:
		j = json_pack("{s:s, s:I, s:I}", "type", "integer", "minimum",
			      (json_int_t)a->low, "maximum", (json_int_t)a->high);
		break;
	case FORGE_MCP_BOOLEAN:
		j = json_pack("{s:s}", "type", "boolean");
		break;
	case FORGE_MCP_STRINGS:
		j = json_pack("{s:s, s:{s:s}}", "type", "array", "items", "type",
			      "string");
		break;
	case FORGE_MCP_MAP:
		j = json_pack("{s:s, s:{s:s}}", "type", "object", "additionalProperties",
			      "type", "string");
		break;
	case FORGE_MCP_PARAMS:
		j = json_pack("{s:s, s:{s:[s, s, s]}}", "type", "object",
			      "additionalProperties", "type", "string", "number",
			      "boolean");
		break;
	case FORGE_MCP_END:
		break;
	}
	if (j)
		json_object_set_new(j, "description", json_string(a->about));
	return j;
}

static json_t *input_schema(const struct forge_mcp_tool *t)
{
	json_t *properties = json_object(), *required = json_array();

	for (const struct forge_mcp_arg *a = t->args; a && a->type; a++) {
		json_object_set_new(properties, a->name, arg_json(a));
		if (a->is_required)
			json_array_append_new(required, json_string(a->name));
	}
	json_t *j = json_pack("{s:s, s:o, s:b}", "type", "object", "properties",
			      properties, "additionalProperties", 0);
	if (json_array_size(required))
		json_object_set(j, "required", required);
	json_decref(required);
	return j;
}

/* "runs:array next:string?": what every result of the tool has. */
static json_t *output_schema(const char *results)
{
	json_t *properties =
		json_pack("{s:{s:s, s:s}}", "summary", "type", "string", "description",
			  "One sentence about the result; of a run, its verdict");
	json_t *required = json_pack("[s]", "summary");

	while (*results) {
		size_t name = strcspn(results, ":"), len = strcspn(results, " ");
		size_t type = len - name - 1;
		bool may_be_null = results[len - 1] == '?';
		json_t *key = json_stringn(results, name);
		json_t *word = json_stringn(results + name + 1, type - may_be_null);
		json_object_set_new(
			properties, json_string_value(key),
			may_be_null ? json_pack("{s:[o, s]}", "type", word, "null")
				    : json_pack("{s:o}", "type", word));
		json_array_append_new(required, key);
		results += len + (results[len] == ' ');
	}
	return json_pack("{s:s, s:o, s:o}", "type", "object", "properties", properties,
			 "required", required);
}

json_t *forge_mcp_tool_json(const struct forge_mcp_tool *t)
{
	bool changes = t->flags & (FORGE_MCP_STARTS | FORGE_MCP_ENDS);

	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:{s:s, s:b, s:b, s:b, s:b}}", "name",
			 t->name, "title", t->title, "description", t->about,
			 "inputSchema", input_schema(t), "outputSchema",
			 output_schema(t->results), "annotations", "title", t->title,
			 "readOnlyHint", !changes, "destructiveHint",
			 (t->flags & FORGE_MCP_ENDS) != 0, "idempotentHint",
			 !(t->flags & FORGE_MCP_STARTS), "openWorldHint", 0);
}

/* ---- checking ---- */

static const struct forge_mcp_arg *find_arg(const struct forge_mcp_tool *t,
					    const char *name)
{
	for (const struct forge_mcp_arg *a = t->args; a && a->type; a++)
		if (strcmp(a->name, name) == 0)
			return a;
	return NULL;
}

static int unknown(const struct forge_mcp_tool *t, const char *name,
		   struct forge_error *err)
{
	const char *names[32] = { NULL }, *near;
	char list[300] = "";
	size_t n = 0, len = 0;

	for (const struct forge_mcp_arg *a = t->args; a && a->type; a++) {
		if (len < sizeof(list))
			len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s",
						n ? ", " : "", a->name);
		if (n < FORGE_ARRAY_SIZE(names))
			names[n++] = a->name;
	}
	near = forge_near_miss(name, names, n);
	return forge_hint(err,
			  forge_fail(err, EINVAL, "%s has no argument '%.64s'%s%s%s",
				     t->name, name, near ? " (did you mean " : "",
				     near ? near : "", near ? "?)" : ""),
			  "It has %s", n ? list : "none");
}

/* A string that can be an argument of a program: no NUL is in it. */
static bool is_plain(const json_t *j)
{
	return json_is_string(j) && strlen(json_string_value(j)) == json_string_length(j);
}

static bool is_scalar(const json_t *j)
{
	return json_is_number(j) || json_is_boolean(j);
}

static int check_list(const struct forge_mcp_arg *a, const json_t *value,
		      struct forge_error *err)
{
	size_t i;
	const json_t *word;

	if (!json_is_array(value))
		return forge_fail(err, EINVAL, "%s is not a list of strings", a->name);
	json_array_foreach (value, i, word)
		if (!is_plain(word))
			return forge_fail(err, EINVAL, "%s[%zu] is not a string", a->name,
					  i);
	return 0;
}

static int check_map(const struct forge_mcp_arg *a, const json_t *value,
		     struct forge_error *err)
{
	const char *name;
	json_t *word;

	if (!json_is_object(value))
		return forge_fail(err, EINVAL, "%s is not an object with %s", a->name,
				  a->type == FORGE_MCP_MAP ? "strings" : "values");
	/* The cast is for jansson: nothing is changed. */
	json_object_foreach((json_t *)value, name, word) /* NOLINT */
		if (!is_plain(word) &&
		    (a->type == FORGE_MCP_MAP ||
		     !is_scalar(word))) return forge_fail(err, EINVAL,
							  "%s: '%.64s' is not a string%s",
							  a->name, name,
							  a->type == FORGE_MCP_MAP
								  ? ""
								  : ", a number, true or "
								    "false");
	return 0;
}

static bool is_word(const char *words, const char *text)
{
	size_t n = strlen(text);

	while (*words) {
		size_t len = strcspn(words, "|");
		if (len == n && strncmp(words, text, n) == 0)
			return true;
		words += len + (words[len] == '|');
	}
	return false;
}

static int check_value(const struct forge_mcp_arg *a, const json_t *value,
		       struct forge_error *err)
{
	const char *text = json_string_value(value);
	json_int_t n = json_integer_value(value);

	switch (a->type) {
	case FORGE_MCP_STRING:
		return is_plain(value)
			       ? 0
			       : forge_fail(err, EINVAL, "%s is not a string%s", a->name,
					    text ? " without a NUL" : "");
	case FORGE_MCP_RUN:
		if (is_plain(value) &&
		    (forge_run_id_is_valid(text) || forge_parse_id(text, NULL) == 0))
			return 0;
		return forge_hint(err,
				  forge_fail(err, EINVAL, "%s: '%.64s' names no run",
					     a->name, text ? text : "(no string)"),
				  "list_runs lists them; the first letters of an id are "
				  "enough, and 'last' is the newest");
	case FORGE_MCP_WORD:
		return text && is_word(a->words, text)
			       ? 0
			       : forge_fail(err, EINVAL, "%s is not one of %s", a->name,
					    a->words);
	case FORGE_MCP_AMOUNT:
		return is_plain(value) || json_is_number(value)
			       ? 0
			       : forge_fail(err, EINVAL,
					    "%s is neither a string nor a number",
					    a->name);
	case FORGE_MCP_INTEGER:
		return json_is_integer(value) && n >= a->low && n <= a->high
			       ? 0
			       : forge_fail(err, EINVAL,
					    "%s is not a whole number from %lld to %lld",
					    a->name, a->low, a->high);
	case FORGE_MCP_BOOLEAN:
		return json_is_boolean(value)
			       ? 0
			       : forge_fail(err, EINVAL, "%s is not true or false",
					    a->name);
	case FORGE_MCP_STRINGS:
		return check_list(a, value, err);
	case FORGE_MCP_MAP:
	case FORGE_MCP_PARAMS:
		return check_map(a, value, err);
	case FORGE_MCP_END:
		break;
	}
	return forge_fail(err, EINVAL, "%s has no type", a->name);
}

int forge_mcp_check_args(const struct forge_mcp_tool *t, const json_t *args,
			 struct forge_error *err)
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)args, name, value)
	{ /* NOLINT: not changed */
		const struct forge_mcp_arg *a = find_arg(t, name);
		int rc = !a ? unknown(t, name, err) : check_value(a, value, err);
		if (rc < 0)
			return rc;
	}
	for (const struct forge_mcp_arg *a = t->args; a && a->type; a++)
		if (a->is_required && !json_object_get(args, a->name))
			return forge_fail(err, EINVAL, "%s needs %s: %s", t->name,
					  a->name, a->about);
	return 0;
}
