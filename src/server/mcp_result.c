/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent is told of a run. */
#include "server/mcp_state.h"

#include <string.h>

#include "base/parse.h"

/* More files make a result that nobody can read. */
#define FILES_MAX 200

bool forge_mcp_run_is_over(const json_t *record)
{
	static const char *const open[] = { "queued", "preparing", "running",
					    "collecting" };
	const char *status = forge_json_string_or(record, "status", "");

	for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++)
		if (strcmp(open[i], status) == 0)
			return false;
	return true;
}

/* NULL for a step: no tool runs it again with other limits. */
static const struct forge_mcp_options *changeable(const struct forge_mcp_options *o,
						  const json_t *record)
{
	return json_object_get(record, "step") ? NULL : o;
}

const char *forge_mcp_run_sentence(const struct forge_mcp_options *o,
				   const json_t *record, char buf[FORGE_MCP_SENTENCE_MAX])
{
	const char *notes = forge_json_string(record, "completion_notes");
	const char *status = forge_json_string_or(record, "status", "unknown");
	const json_t *now = json_object_get(record, "now");
	const json_t *used = json_object_get(now, "memory_bytes");
	const json_t *limit =
		json_object_get(json_object_get(record, "limits"), "memory_bytes");
	char have[FORGE_FORMAT_MAX], most[FORGE_FORMAT_MAX];
	int n = 0;

	if (notes)
		return forge_mcp_notes(changeable(o, record), notes, buf);
	n = snprintf(buf, FORGE_MCP_SENTENCE_MAX, "The run is %s", status);
	if (forge_json_string(now, "waits"))
		n += snprintf(buf + n, FORGE_MCP_SENTENCE_MAX - (size_t)n, ": it %.300s",
			      forge_json_string(now, "waits"));
	if (json_is_integer(used) && json_is_integer(limit))
		n += snprintf(
			buf + n, FORGE_MCP_SENTENCE_MAX - (size_t)n, ", memory %s of %s",
			forge_format_size(have, (uint64_t)json_integer_value(used)),
			forge_format_size(most, (uint64_t)json_integer_value(limit)));
	(void)snprintf(buf + n, FORGE_MCP_SENTENCE_MAX - (size_t)n, ".");
	return buf;
}

static void copy(json_t *to, const json_t *from, const char *key)
{
	json_t *value = json_object_get(from, key);

	if (value)
		json_object_set(to, key, value);
}

/* The first files, and how many there are. */
static void add_files(json_t *to, const json_t *record, const char *key,
		      const char *count)
{
	const json_t *files = json_object_get(record, key);
	json_t *list = json_array(), *file;
	size_t i;

	json_array_foreach (files, i, file) {
		if (i == FILES_MAX)
			break;
		json_t *one = json_object();
		copy(one, file, "path");
		copy(one, file, "size");
		copy(one, file, "sha256");
		copy(one, file, "damaged");
		json_array_append_new(list, one);
	}
	json_object_set_new(to, key, list);
	json_object_set_new(to, count, json_integer((json_int_t)json_array_size(files)));
}

json_t *forge_mcp_run_json(const struct forge_mcp_options *o, const json_t *record)
{
	char text[FORGE_MCP_NOTES_MAX];
	static const char *const keys[] = {
		"run_id",	"analysis_id", "status",       "reason",
		"exit_code",	"signal",      "exit_status",  "command",
		"executor",	"host",	       "created_at",   "started_at",
		"ended_at",	"limits",      "usage",	       "now",
		"network",	"rerun_of",    "parent_run",   "attempt",
		"retried_by",	"quarantine",  "post_process", "cleanup_error",
		"logs_removed",
	};
	const json_t *runtime = json_object_get(record, "runtime");
	const char *notes = forge_json_string(record, "completion_notes");
	json_t *j = json_object();

	json_object_set_new(j, "completion_notes",
			    notes ? json_string(forge_mcp_notes(changeable(o, record), notes,
							text))
				  : json_null());
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		copy(j, record, keys[i]);
	if (forge_json_string(runtime, "name"))
		json_object_set_new(
			j, "runtime",
			json_pack("{s:s, s:s}", "name",
				  forge_json_string(runtime, "name"), "digest",
				  forge_json_string_or(runtime, "digest", "")));
	add_files(j, record, "inputs", "input_count");
	add_files(j, record, "outputs", "output_count");
	return j;
}
