/* SPDX-License-Identifier: Apache-2.0 */
/* The tools that read, those for pipelines, and the resources. */
#include "server/mcp_state.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/parse.h"
#include "server/mcp_content.h"
#include "state/home.h"
#include "state/objects.h"

static const char *const json_only[] = { "--json", NULL };

static const char *arg(const struct forge_mcp_call *c, const char *name)
{
	return forge_json_string(c->args, name);
}

static uint64_t number(const struct forge_mcp_call *c, const char *name,
		       uint64_t fallback)
{
	const json_t *j = json_object_get(c->args, name);

	return json_is_integer(j) ? (uint64_t)json_integer_value(j) : fallback;
}

/* ---- one run ---- */

static void after_show(struct forge_mcp_call *c)
{
	char sentence[FORGE_MCP_SENTENCE_MAX];

	c->record = forge_mcp_answer_of(c);
	if (!c->record)
		return;
	json_t *result = forge_mcp_run_json(c->m->o, c->record);
	if (json_is_true(json_object_get(c->args, "full")))
		json_object_set(result, "record", c->record);
	forge_mcp_reply(c, forge_mcp_run_sentence(c->m->o, c->record, sentence), result,
			NULL);
}

void forge_mcp_show_run(struct forge_mcp_call *c)
{
	forge_mcp_ask(c, "show", json_only, arg(c, "run"), after_show);
}

/* ---- many runs ---- */

/* One JSON value a line. */
static json_t *read_lines(const char *text)
{
	json_t *list = json_array();

	for (const char *line = text; line && *line;) {
		size_t len = strcspn(line, "\n");
		json_t *row = len ? json_loadb(line, len, 0, NULL) : NULL;
		if (row)
			json_array_append_new(list, row);
		line += len + (line[len] == '\n');
	}
	return list;
}

/* True: forge failed, and the call is answered. */
static bool has_failed(struct forge_mcp_call *c)
{
	if (c->child->status == 0)
		return false;
	forge_auto_free char *problem = forge_mcp_child_problem(c->child);
	forge_mcp_refuse_text(c, problem ? problem : "out of memory");
	return true;
}

static void after_ps(struct forge_mcp_call *c)
{
	char text[64];

	if (has_failed(c))
		return;
	json_t *runs = read_lines(c->child->text);
	size_t n = json_array_size(runs);
	forge_mcp_reword(c->m->o, runs, "completion_notes");
	const char *last =
		forge_json_string(json_array_get(runs, n ? n - 1 : 0), "run_id");
	bool is_full = n > 0 && n == number(c, "limit", 20);
	(void)snprintf(text, sizeof(text), "%zu run%s%s.", n, n == 1 ? "" : "s",
		       is_full ? ", and there may be more" : "");
	json_t *next = is_full && last ? json_string(last) : json_null();
	forge_mcp_reply(c, text, json_pack("{s:o, s:o}", "runs", runs, "next", next),
			NULL);
}

void forge_mcp_list_runs(struct forge_mcp_call *c)
{
	static const char *const filters[] = { "status", "analysis", "runtime", "since",
					       "after" };
	const struct forge_mcp_range whole = FORGE_MCP_WHOLE;
	forge_auto_strv struct forge_strv argv = { 0 };
	int rc = forge_mcp_argv(c->m, &argv, "ps", json_only);

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(filters); i++)
		if (rc == 0 && arg(c, filters[i]))
			rc = forge_strv_addf(&argv, "--%s=%s", filters[i],
					     arg(c, filters[i]));
	if (rc == 0 && json_is_true(json_object_get(c->args, "open")))
		rc = forge_strv_add(&argv, "--running");
	if (rc == 0)
		rc = forge_strv_addf(&argv, "--limit=%u",
				     (unsigned)number(c, "limit", 20));
	if (rc < 0)
		forge_mcp_refuse_text(c, "out of memory");
	else
		forge_mcp_step(c, &argv, &whole, after_ps);
}

/* ---- logs ---- */

#define LOG_BYTES 32768u

/* The first byte of what was kept. */
static uint64_t first_byte(const struct forge_mcp_call *c)
{
	const struct forge_mcp_child *log = c->child;

	return log->range.from_end ? log->total - log->len : log->range.offset;
}

static void after_log(struct forge_mcp_call *c)
{
	struct forge_mcp_child *log = c->child;
	char text[160];

	if (has_failed(c))
		return;
	uint64_t first = first_byte(c);
	size_t len = log->len;
	uint64_t most = c->tool ? number(c, "length", LOG_BYTES) : len;
	/* Of the last bytes the first of them are wanted. */
	len = len > most ? (size_t)most : len;
	/* A character that goes on after the range is for the next one. */
	if (first + len < log->total && len > 3)
		len -= forge_mcp_cut_char(log->text, len);
	json_t *shown = forge_mcp_text(log->text, len);
	if (!c->tool) {
		forge_mcp_reply_resource(c, arg(c, "uri"), "text/plain", shown);
		return;
	}
	(void)snprintf(text, sizeof(text), "Bytes %llu to %llu of %llu of %s.",
		       (unsigned long long)first, (unsigned long long)(first + len),
		       (unsigned long long)log->total,
		       forge_json_string_or(c->args, "stream", "stdout"));
	forge_mcp_reply(c, text,
			json_pack("{s:s, s:s, s:I, s:I, s:I, s:O}", "run_id",
				  arg(c, "run"), "stream",
				  forge_json_string_or(c->args, "stream", "stdout"),
				  "offset", (json_int_t)first, "next_offset",
				  (json_int_t)(first + len), "total",
				  (json_int_t)log->total, "text", shown),
			json_pack("[o]", forge_mcp_text_content(shown)));
}

static void read_log(struct forge_mcp_call *c, const char *run, const char *stream,
		     const struct forge_mcp_range *range)
{
	forge_auto_strv struct forge_strv argv = { 0 };
	int rc = forge_mcp_argv(c->m, &argv, "logs", NULL);

	if (rc == 0)
		rc = forge_strv_addf(&argv, "--%s", stream);
	if (rc == 0)
		rc = forge_strv_add(&argv, run);
	if (rc < 0)
		forge_mcp_refuse_text(c, "out of memory");
	else
		forge_mcp_step(c, &argv, range, after_log);
}

void forge_mcp_read_log(struct forge_mcp_call *c)
{
	const json_t *offset = json_object_get(c->args, "offset");
	json_int_t from = json_integer_value(offset);
	struct forge_mcp_range range = { .length = number(c, "length", LOG_BYTES) };

	/* So much is kept of the end at most. */
	if (from < 0)
		range = (struct forge_mcp_range){ .length = -from < 1048576
								    ? (uint64_t)-from
								    : 1048576,
						  .from_end = true };
	else
		range.offset = (uint64_t)from;
	read_log(c, arg(c, "run"), forge_json_string_or(c->args, "stream", "stdout"),
		 &range);
}

/* ---- outputs ---- */

/* A larger file is not read here: it is hashed as a whole before anything of it is shown. */
#define OUTPUT_MAX (64ull << 20)
#define IMAGE_MAX  (8ull << 20)
#define BLOB_MAX   (1ull << 20)
#define TEXT_BYTES 65536u

static bool is_held(struct forge_mcp_call *c)
{
	if (!json_is_true(json_object_get(c->record, "quarantine")))
		return false;
	forge_mcp_refuse_text(c, "the run is in quarantine, because guarded files of the "
				 "host changed while it ran; its outputs are not shown");
	return true;
}

static void after_outputs(struct forge_mcp_call *c)
{
	char text[160];

	c->record = forge_mcp_answer_of(c);
	if (!c->record || is_held(c))
		return;
	const json_t *outputs = json_object_get(c->record, "outputs");
	size_t n = json_array_size(outputs), first = (size_t)number(c, "offset", 0);
	size_t most = (size_t)number(c, "limit", 200);
	json_t *shown = json_array();
	for (size_t i = first; i < n && i - first < most; i++)
		json_array_append(shown, json_array_get(outputs, i));
	(void)snprintf(text, sizeof(text), "%zu output%s%s%s.", n, n == 1 ? "" : "s",
		       json_array_size(shown) < n ? ", of which some are shown" : "",
		       forge_mcp_run_is_over(c->record) ? "" : ": the run is not over");
	forge_mcp_reply(c, text,
			json_pack("{s:s, s:I, s:o}", "run_id",
				  forge_json_string_or(c->record, "run_id", ""),
				  "output_count", (json_int_t)n, "outputs", shown),
			NULL);
}

void forge_mcp_list_outputs(struct forge_mcp_call *c)
{
	forge_mcp_ask(c, "show", json_only, arg(c, "run"), after_outputs);
}

static const json_t *find_output(const json_t *record, const char *path)
{
	const json_t *file;
	size_t i;

	json_array_foreach (json_object_get(record, "outputs"), i, file)
		if (strcmp(forge_json_string_or(file, "path", ""), path) == 0)
			return file;
	return NULL;
}

static json_t *blob_content(const char *run_id, const char *path, const char *data,
			    size_t len)
{
	return json_pack("[{s:s, s:{s:o, s:s, s:o}}]", "type", "resource", "resource",
			 "uri", json_sprintf("forge://runs/%s/outputs/%s", run_id, path),
			 "mimeType", "application/octet-stream", "blob",
			 forge_mcp_base64((const unsigned char *)data, len));
}

/* Of a text the range that was asked for; the characters at its ends are whole. */
static void reply_text(struct forge_mcp_call *c, json_t *result, const char *data,
		       uint64_t size)
{
	uint64_t from = number(c, "offset", 0), most = number(c, "length", TEXT_BYTES);
	char sentence[200];

	from = from < size ? from : size;
	size_t len = (size_t)(size - from < most ? size - from : most);
	if (from + len < size && len > 3)
		len -= forge_mcp_cut_char(data + from, len);
	json_t *text = forge_mcp_text(data + from, len);
	(void)snprintf(sentence, sizeof(sentence), "Text: bytes %llu to %llu of %llu.",
		       (unsigned long long)from, (unsigned long long)(from + len),
		       (unsigned long long)size);
	json_object_set_new(result, "kind", json_string("text"));
	json_object_set_new(result, "offset", json_integer((json_int_t)from));
	json_object_set_new(result, "next_offset",
			    json_integer((json_int_t)(from + len)));
	json_object_set(result, "text", text);
	forge_mcp_reply(c, sentence, result,
			json_pack("[o]", forge_mcp_text_content(text)));
}

static void reply_bytes(struct forge_mcp_call *c, json_t *result, const char *data,
			uint64_t size)
{
	const unsigned char *bytes = (const unsigned char *)data;
	const char *type = forge_mcp_image_type(bytes, (size_t)size);
	bool is_text = !memchr(data, '\0', (size_t)(size < 8192 ? size : 8192));

	if (type && size <= IMAGE_MAX) {
		json_object_set_new(result, "kind", json_string("image"));
		json_object_set_new(result, "mime_type", json_string(type));
		forge_mcp_reply(c, "An image.", result,
				json_pack("[{s:s, s:o, s:s}]", "type", "image", "data",
					  forge_mcp_base64(bytes, (size_t)size),
					  "mimeType", type));
		return;
	}
	if (is_text && !type) {
		reply_text(c, result, data, size);
		return;
	}
	if (size <= BLOB_MAX) {
		json_object_set_new(result, "kind", json_string("bytes"));
		forge_mcp_reply(
			c, "Bytes that are neither text nor an image, as base64.", result,
			blob_content(forge_json_string_or(c->record, "run_id", ""),
				     arg(c, "path"), data, (size_t)size));
		return;
	}
	json_object_set_new(result, "kind", json_string("bytes"));
	forge_mcp_reply(c, "Too many bytes to be shown; stored_at has the file.", result,
			NULL);
}

/* Opens the object by its digest alone, and checks it. -errno and a sentence. */
static int open_object(const char *digest, char **ret_path, struct forge_error *err)
{
	forge_auto_home struct forge_home home = FORGE_HOME_INIT;
	char stored[FORGE_STORED_MAX];
	int rc = forge_home_open(false, &home, err);

	if (rc < 0)
		return rc;
	if (!forge_objects_is_digest(digest))
		return forge_fail(err, ENOENT, "it was not kept");
	*ret_path =
		forge_asprintf("%s/%s", home.path, forge_objects_path(stored, digest));
	int fd = forge_objects_get(&home, digest);
	if (fd == -EUCLEAN)
		return forge_fail(err, EUCLEAN, "the stored file is damaged");
	return fd < 0 ? forge_fail_errno(err, -fd, "open the stored file") : fd;
}

static void after_output(struct forge_mcp_call *c)
{
	struct forge_error err = FORGE_ERROR_INIT;
	const char *path = arg(c, "path");
	forge_auto_free char *stored = NULL, *data = NULL;
	size_t len = 0;

	c->record = forge_mcp_answer_of(c);
	if (!c->record || is_held(c))
		return;
	const json_t *file = find_output(c->record, path);
	if (!file) {
		(void)forge_hint(&err,
				 forge_fail(&err, ENOENT, "run %s has no output '%.200s'",
					    forge_json_string_or(c->record, "run_id", ""),
					    path),
				 "list_outputs lists them");
		forge_mcp_refuse(c, &err);
		return;
	}
	const char *digest = forge_json_string_or(file, "sha256", "");
	uint64_t size = (uint64_t)json_integer_value(json_object_get(file, "size"));
	json_t *result = json_pack("{s:s, s:s, s:I, s:s}", "run_id",
				   forge_json_string_or(c->record, "run_id", ""), "path",
				   path, "size", (json_int_t)size, "sha256", digest);
	if (size > OUTPUT_MAX) {
		forge_auto_free char *home = forge_home_path();
		char below[FORGE_STORED_MAX];
		if (home && forge_objects_is_digest(digest))
			json_object_set_new(
				result, "stored_at",
				json_sprintf("%s/%s", home,
					     forge_objects_path(below, digest)));
		json_object_set_new(result, "kind", json_string("bytes"));
		forge_mcp_reply(c, "Too large to be shown; stored_at has the file.",
				result, NULL);
		return;
	}
	forge_auto_close int fd = open_object(digest, &stored, &err);
	int rc = fd < 0 ? fd : forge_read_fd(fd, OUTPUT_MAX, &data, &len);
	if (rc < 0) {
		if (!err.code)
			(void)forge_fail_errno(&err, -rc, "read the stored file");
		forge_wrap(&err, rc, "output %s", path);
		json_decref(result);
		forge_mcp_refuse(c, &err);
		return;
	}
	if (stored)
		json_object_set_new(result, "stored_at", forge_json_text(stored));
	reply_bytes(c, result, data, len);
}

void forge_mcp_read_output(struct forge_mcp_call *c)
{
	forge_mcp_ask(c, "show", json_only, arg(c, "run"), after_output);
}

/* ---- runtimes ---- */

static bool is_allowed(const struct forge_mcp_options *o, const char *name)
{
	return forge_mcp_check_runtime(o, name, NULL) == 0;
}

static void after_runtimes(struct forge_mcp_call *c)
{
	forge_auto_json json_t *all = forge_mcp_answer_of(c);
	json_t *shown = json_array(), *runtime;
	char text[64];
	size_t i;

	if (!all) {
		json_decref(shown);
		return;
	}
	json_array_foreach (all, i, runtime)
		if (is_allowed(c->m->o, forge_json_string_or(runtime, "name", "")))
			json_array_append(shown, runtime);
	(void)snprintf(text, sizeof(text), "%zu runtimes.", json_array_size(shown));
	forge_mcp_reply(c, text, json_pack("{s:o}", "runtimes", shown), NULL);
}

void forge_mcp_list_runtimes(struct forge_mcp_call *c)
{
	forge_mcp_ask(c, "runtime list", json_only, NULL, after_runtimes);
}

#define PACKAGES_MAX 300

static void after_runtime(struct forge_mcp_call *c)
{
	forge_auto_json json_t *all = forge_mcp_answer_of(c);
	const char *part = forge_json_string_or(c->args, "package", "");
	json_t *packages = json_array(), *package;
	size_t i, n = 0;
	char text[160];

	if (!all) {
		json_decref(packages);
		return;
	}
	json_array_foreach (json_object_get(all, "packages"), i, package) {
		if (!strstr(forge_json_string_or(package, "name", ""), part))
			continue;
		if (n++ < PACKAGES_MAX)
			json_array_append(packages, package);
	}
	(void)snprintf(text, sizeof(text), "%zu packages%s.", n,
		       n > PACKAGES_MAX ? "; the first 300 are shown, package selects"
					: "");
	json_object_set_new(all, "packages", packages);
	json_object_set_new(all, "package_count", json_integer((json_int_t)n));
	forge_mcp_reply(c, text, json_incref(all), NULL);
}

void forge_mcp_show_runtime(struct forge_mcp_call *c)
{
	struct forge_error err = FORGE_ERROR_INIT;

	if (forge_mcp_check_runtime(c->m->o, arg(c, "name"), &err) < 0)
		forge_mcp_refuse(c, &err);
	else
		forge_mcp_ask(c, "runtime show", json_only, arg(c, "name"),
			      after_runtime);
}

/* ---- pipelines ---- */

static const struct forge_mcp_head *running_head(const struct forge_mcp *m,
						 const char *pipeline)
{
	for (const struct forge_mcp_head *h = m->heads; h; h = h->other)
		if (!h->child->is_over && strcmp(h->pipeline, pipeline) == 0)
			return h;
	return NULL;
}

void forge_mcp_list_pipelines(struct forge_mcp_call *c)
{
	json_t *list = json_array();
	char text[64];

	forge_strv_foreach (pipeline, &c->m->o->pipelines)
		json_array_append_new(
			list, json_pack("{s:s, s:b}", "pipeline", pipeline, "is_running",
					running_head(c->m, pipeline) != NULL));
	(void)snprintf(text, sizeof(text), "%zu pipelines.", json_array_size(list));
	forge_mcp_reply(c, text, json_pack("{s:o}", "pipelines", list), NULL);
}

static void after_status(struct forge_mcp_call *c)
{
	json_t *tasks = forge_mcp_answer_of(c), *task;
	size_t i, done = 0;
	char text[128];

	if (!tasks)
		return;
	json_array_foreach (tasks, i, task) {
		const char *state = forge_json_string_or(task, "state", "");
		done += strcmp(state, "cached") == 0 || strcmp(state, "done") == 0 ||
			strcmp(state, "skipped") == 0;
	}
	forge_mcp_reword(NULL, tasks, "why");
	const char *pipeline = arg(c, "pipeline");
	bool is_running = running_head(c->m, pipeline) != NULL;
	(void)snprintf(text, sizeof(text), "%zu of %zu tasks are up to date%s.", done,
		       json_array_size(tasks), is_running ? "; it is running" : "");
	forge_mcp_reply(c, text,
			json_pack("{s:s, s:b, s:o}", "pipeline", pipeline, "is_running",
				  is_running, "tasks", tasks),
			NULL);
}

/* "pipeline VERB --json -p ... -- FILE" */
static int pipeline_argv(struct forge_mcp_call *c, const char *verb,
			 struct forge_strv *argv, struct forge_error *err)
{
	const char *file = forge_mcp_find_pipeline(c->m->o, arg(c, "pipeline"), err);

	if (!file)
		return -ENOENT;
	int rc = forge_mcp_argv(c->m, argv, verb, json_only);
	if (rc < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	rc = forge_mcp_add_params(c->m->o, json_object_get(c->args, "params"), argv, err);
	if (rc == 0 && (forge_strv_add(argv, "--") < 0 || forge_strv_add(argv, file) < 0))
		rc = forge_fail(err, ENOMEM, "out of memory");
	return rc;
}

void forge_mcp_pipeline_status(struct forge_mcp_call *c)
{
	struct forge_error err = FORGE_ERROR_INIT;
	const struct forge_mcp_range whole = FORGE_MCP_WHOLE;
	forge_auto_strv struct forge_strv argv = { 0 };

	if (pipeline_argv(c, "pipeline status", &argv, &err) < 0)
		forge_mcp_refuse(c, &err);
	else
		forge_mcp_step(c, &argv, &whole, after_status);
}

void forge_mcp_run_pipeline(struct forge_mcp_call *c)
{
	struct forge_error err = FORGE_ERROR_INIT;
	const struct forge_mcp_range whole = FORGE_MCP_WHOLE;
	forge_auto_strv struct forge_strv argv = { 0 };
	struct forge_mcp_head *head = NULL;
	const char *pipeline = arg(c, "pipeline");
	int rc = pipeline_argv(c, "pipeline run", &argv, &err);

	if (rc == 0 && running_head(c->m, pipeline))
		rc = forge_hint(
			&err, forge_fail(&err, EBUSY, "the pipeline is running already"),
			"pipeline_status says how far it is");
	if (rc == 0 && !forge_mcp_take_place(c))
		rc = forge_fail(&err, EBUSY,
				"this server may have %u runs at once (--max-runs)",
				c->m->o->max_runs);
	if (rc == 0)
		head = calloc(1, sizeof(*head));
	if (rc == 0 && (!head || !(head->pipeline = strdup(pipeline))))
		rc = forge_fail(&err, ENOMEM, "out of memory");
	if (rc == 0)
		rc = forge_mcp_child_start(&argv, &whole, true, &head->child, &err);
	if (rc < 0) {
		if (head)
			free(head->pipeline);
		free(head);
		forge_mcp_refuse(c, &err);
		return;
	}
	head->other = c->m->heads;
	c->m->heads = head;
	c->head = head;
	head->is_followed = true;
	/* From here on the pipeline itself has the place. */
	c->is_counted = false;
	c->m->n_starting--;
	c->wait_usec = number(c, "wait_seconds", 45) * 1000000;
}

static void reply_running(struct forge_mcp_call *c)
{
	forge_mcp_reply(c, "The pipeline is running; pipeline_status says how far it is.",
			json_pack("{s:s, s:s}", "pipeline", arg(c, "pipeline"), "state",
				  "running"),
			NULL);
}

static void reply_ended(struct forge_mcp_call *c, const struct forge_mcp_child *child)
{
	forge_auto_free char *problem = forge_mcp_child_problem(child);
	json_t *events = read_lines(child->text);
	const json_t *last = json_array_get(events, json_array_size(events) - 1);
	bool is_good = child->status == 0;

	if (strcmp(forge_json_string_or(last, "event", ""), "end") != 0) {
		json_decref(events);
		forge_mcp_refuse_text(c, problem ? problem : "out of memory");
		return;
	}
	forge_mcp_reword(NULL, events, "notes");
	forge_mcp_reply(
		c,
		is_good		       ? "Every step is up to date."
		: child->status == 130 ? "The pipeline was cancelled."
				       : "A step failed; events says which and why.",
		json_pack("{s:s, s:s, s:i, s:o}", "pipeline", arg(c, "pipeline"), "state",
			  is_good		 ? "succeeded"
			  : child->status == 130 ? "cancelled"
						 : "failed",
			  "exit_status", child->status, "events", events),
		NULL);
}

/* The steps that are done, by the events so far. */
static void tell_progress(struct forge_mcp_call *c)
{
	static const char done[] = "\"event\":\"done\"",
			  cached[] = "\"event\":\"cached\"";
	forge_auto_free char *text = calloc(1, (1u << 20) + 1);
	unsigned n = 0;
	char message[128];

	if (!text || pread(c->head->child->out, text, 1u << 20, 0) < 0)
		return;
	for (const char *at = text; (at = strstr(at, "\"event\":")); at++)
		n += strncmp(at, done, strlen(done)) == 0 ||
		     strncmp(at, cached, strlen(cached)) == 0;
	(void)snprintf(message, sizeof(message),
		       "The pipeline is running: %u tasks are done.", n);
	forge_mcp_tell(c, message);
}

void forge_mcp_follow_pipeline(struct forge_mcp_call *c)
{
	struct forge_mcp_head *head = c->head;

	if (!head || c->is_over)
		return;
	if (head->child->is_over) {
		c->head = NULL;
		head->is_followed = false;
		if (c->is_cancelled)
			c->is_over = true;
		else
			reply_ended(c, head->child);
	} else if (!c->is_cancelled && forge_now_usec() >= c->began_usec + c->wait_usec) {
		c->head = NULL;
		head->is_followed = false;
		reply_running(c);
	} else if (c->token && !c->is_cancelled && forge_now_usec() >= c->look_usec) {
		tell_progress(c);
	}
}

/* ---- the host ---- */

#define OPEN_MAX 100u

static json_t *open_row(const json_t *record)
{
	static const char *const keys[] = { "run_id",	  "analysis_id", "status",
					    "created_at", "started_at",	 "limits",
					    "now" };
	json_t *row = json_object();

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(keys); i++)
		if (json_object_get(record, keys[i]))
			json_object_set(row, keys[i], json_object_get(record, keys[i]));
	return row;
}

/* Splits what forge show printed: one object after the other. */
static void add_open(struct forge_mcp_call *c, const char *text, size_t len)
{
	json_t *running = json_object_get(c->result, "running"),
	       *queued = json_object_get(c->result, "queued");

	for (size_t at = 0; text && at < len;) {
		json_error_t where;
		json_t *record =
			json_loadb(text + at, len - at, JSON_DISABLE_EOF_CHECK, &where);
		if (!record)
			break;
		at += (size_t)where.position;
		const char *status = forge_json_string_or(record, "status", "");
		if (strcmp(status, "queued") == 0)
			json_array_append_new(queued, open_row(record));
		else if (!forge_mcp_run_is_over(record))
			json_array_append_new(running, open_row(record));
		json_decref(record);
	}
}

static void reply_host(struct forge_mcp_call *c)
{
	char text[128];

	(void)snprintf(text, sizeof(text), "%zu running, %zu queued.",
		       json_array_size(json_object_get(c->result, "running")),
		       json_array_size(json_object_get(c->result, "queued")));
	forge_mcp_reply(c, text, c->result, NULL);
	c->result = NULL;
}

static void after_open_shown(struct forge_mcp_call *c)
{
	/* A run that has just been removed is no failure. */
	add_open(c, c->child->text, c->child->len);
	reply_host(c);
}

static void after_open(struct forge_mcp_call *c)
{
	const struct forge_mcp_range whole = FORGE_MCP_WHOLE;
	forge_auto_strv struct forge_strv argv = { 0 };

	if (has_failed(c))
		return;
	forge_auto_json json_t *runs = read_lines(c->child->text);
	if (!json_array_size(runs)) {
		reply_host(c);
		return;
	}
	int rc = forge_mcp_argv(c->m, &argv, "show", json_only);
	for (size_t i = 0; i < json_array_size(runs) && i < OPEN_MAX && rc == 0; i++)
		rc = forge_strv_add(&argv, forge_json_string_or(json_array_get(runs, i),
								"run_id", "none"));
	if (rc < 0)
		forge_mcp_refuse_text(c, "out of memory");
	else
		forge_mcp_step(c, &argv, &whole, after_open_shown);
}

static void after_config(struct forge_mcp_call *c)
{
	static const char *const open[] = { "--json", "--running", "--limit=100", NULL };
	forge_auto_json json_t *config = forge_mcp_answer_of(c);
	json_t *budget = json_object_get(json_object_get(config, "host"), "budget");

	if (!config)
		return;
	c->result = json_pack("{s:O, s:[], s:[]}", "budget",
			      budget ? budget : json_object(), "running", "queued");
	forge_mcp_ask(c, "ps", open, NULL, after_open);
}

void forge_mcp_host_status(struct forge_mcp_call *c)
{
	forge_mcp_ask(c, "config show", json_only, NULL, after_config);
}

/* ---- resources: forge://runs/ID/record, /stdout and /stderr ---- */

#define SCHEME "forge://runs/"

static void after_record(struct forge_mcp_call *c)
{
	json_t *record = forge_mcp_answer_of(c);

	if (!record)
		return;
	char *text = json_dumps(record, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	json_decref(record);
	forge_mcp_reply_resource(c, arg(c, "uri"), "application/json",
				 json_string(text ? text : "{}"));
	free(text);
}

bool forge_mcp_read_resource(struct forge_mcp_call *c, const char *uri)
{
	const struct forge_mcp_range range = { .length = 1048576 };
	const char *rest =
		strncmp(uri, SCHEME, strlen(SCHEME)) == 0 ? uri + strlen(SCHEME) : "";
	const char *slash = strchr(rest, '/');
	forge_auto_free char *run = slash ? strndup(rest, (size_t)(slash - rest)) : NULL;

	if (!run || (!forge_run_id_is_valid(run) && forge_parse_id(run, NULL) < 0))
		return false;
	if (strcmp(slash, "/record") == 0)
		forge_mcp_ask(c, "show", json_only, run, after_record);
	else if (strcmp(slash, "/stdout") == 0 || strcmp(slash, "/stderr") == 0)
		read_log(c, run, slash + 1, &range);
	else
		return false;
	return true;
}
