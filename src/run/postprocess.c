/* SPDX-License-Identifier: Apache-2.0 */
/* Stages the outputs, carries out the command as a run, and checks its output. */
#include "run/postprocess.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "run/carry_out.h"
#include "run/runtime_activation.h"
#include "run/runtime_ready.h"
#include "run/stage.h"

#define ROWS_MAX 100000
/* In all rows: two bytes of text can take forty of memory, here and in the courier. */
#define VALUES_MAX 2000000
#define TEXT_MAX   (64u << 20)

/* An upper bound of the number of values; text need not be JSON. */
static size_t count_values(const char *text, size_t len)
{
	bool is_string = false;
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\n')
			is_string = false; /* a string ends with its line */
		else if (is_string && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			is_string = !is_string;
		else if (!is_string)
			n += text[i] == ',' || text[i] == '[' || text[i] == '{';
	}
	return n;
}

int forge_post_parse(const char *text, size_t len, json_t **ret_rows,
		     struct forge_error *err)
{
	if (count_values(text, len) > VALUES_MAX)
		return forge_fail(err, E2BIG, "more than %d values", VALUES_MAX);
	json_t *rows = json_array();
	size_t line = 0;

	for (size_t at = 0; at < len;) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end ? (size_t)(end - text) - at : len - at;
		json_error_t why;
		json_t *row;

		line++;
		size_t blank = 0;
		while (blank < n && strchr(" \t\r", text[at + blank]) && text[at + blank])
			blank++;
		if (blank == n) {
			at += n + 1;
			continue;
		}
		row = json_loadb(text + at, n, JSON_REJECT_DUPLICATES, &why);
		if (!json_is_object(row) || json_array_size(rows) == ROWS_MAX) {
			bool is_full = json_is_object(row);
			json_decref(row);
			json_decref(rows);
			return is_full ? forge_fail(err, E2BIG, "more than %d records",
						    ROWS_MAX)
				       : forge_fail(err, EINVAL,
						    "line %zu of its output is no JSON "
						    "object%s%s",
						    line, row ? "" : ": ",
						    row ? "" : why.text);
		}
		json_array_append_new(rows, row);
		at += n + 1;
	}
	*ret_rows = rows;
	return 0;
}

static int stage_outputs(const struct forge_post_spec *spec, struct forge_stage *ret,
			 struct forge_error *err)
{
	char name[64];
	size_t i;
	const json_t *output;

	(void)snprintf(name, sizeof(name), "%.26s.%ld",
		       forge_json_string(spec->record, "run_id"), (long)getpid());
	int rc = forge_stage_make(spec->home, name, ret, err);
	if (rc < 0)
		return rc;
	json_array_foreach (json_object_get(spec->record, "outputs"), i, output) {
		const char *path = forge_json_string(output, "path");
		rc = forge_stage_object(ret, spec->home, path,
					forge_json_string(output, "sha256"), false);
		if (rc == -EUCLEAN)
			return forge_fail(err, EUCLEAN,
					  "output %s is damaged: its digest is another",
					  path);
		if (rc < 0)
			return forge_fail_errno(err, -rc, "stage output %s",
						path ? path : "without a path");
	}
	return 0;
}

/* The standard output of the command, its only result. */
static char *read_stdout(const struct forge_home *home, const json_t *record,
			 size_t *ret_len)
{
	const char *run_id = forge_json_string(record, "run_id");
	forge_auto_close int dir = forge_home_open_run(home, run_id);
	char *text = NULL;

	return dir >= 0 && forge_read_file(dir, "stdout", TEXT_MAX, &text, ret_len) == 0
		       ? text
		       : NULL;
}

static json_t *new_result(const struct forge_post_spec *spec)
{
	return json_pack("{s:s, s:n, s:o, s:i, s:s}", "status", "failed", "run_id",
			 "command", forge_json_texts(spec->argv), "records", 0,
			 "completion_notes", "");
}

static void set_notes(json_t *result, const char *notes)
{
	json_object_set_new(result, "completion_notes", forge_json_text(notes));
}

static void judge(const struct forge_home *home, const json_t *record, json_t *result,
		  json_t **rows)
{
	struct forge_error err = FORGE_ERROR_INIT;
	const char *status = forge_json_string(record, "status");
	const char *notes = forge_json_string(record, "completion_notes");
	size_t len = 0;

	json_object_set(result, "run_id", json_object_get(record, "run_id"));
	if (!status || strcmp(status, "succeeded") != 0) {
		json_object_set_new(result, "status",
				    json_string(status ? status : "failed"));
		set_notes(result, notes ? notes : "it did not end");
		return;
	}
	forge_auto_free char *text = read_stdout(home, record, &len);
	json_t *parsed = NULL;
	if (!text) {
		set_notes(result, "Failed: its output cannot be read or is too long.");
	} else if (forge_post_parse(text, len, &parsed, &err) < 0) {
		char sentence[600];
		(void)snprintf(sentence, sizeof(sentence), "Failed: %s.", err.msg);
		set_notes(result, sentence);
	} else {
		json_decref(*rows);
		*rows = parsed;
		json_object_set_new(result, "status", json_string("succeeded"));
		json_object_set_new(result, "records",
				    json_integer((json_int_t)json_array_size(parsed)));
		set_notes(result, notes);
	}
}

/* Adds the inputs of the run under the same names: a script may be among them. */
static int add_inputs(const json_t *record, struct forge_run_request *req)
{
	size_t i;
	const json_t *input;
	int rc = 0;

	json_array_foreach (json_object_get(record, "inputs"), i, input) {
		const char *path = forge_json_string(input, "path");
		const char *as = forge_json_string(input, "as");
		if (rc < 0 || !path || access(path, R_OK) < 0)
			continue;
		rc = forge_strv_add(&req->inputs, path);
		if (rc == 0 && as)
			rc = forge_strv_add(&req->links, as);
		if (rc == 0 && as)
			rc = forge_strv_add(&req->links, path);
	}
	return rc;
}

static int remake_environment(const struct forge_ready_run *run, struct forge_error *err)
{
	return forge_activate(run->cfg, run->req, run->home, run->store, run->spec, err);
}

static int run_ready(const struct forge_post_spec *post,
		     const struct forge_run_request *req, struct forge_run_result *ret,
		     struct forge_error *err)
{
	forge_auto_spec struct forge_spec spec = { 0 };
	const struct forge_ready_run ready = { .cfg = post->cfg,
					       .req = req,
					       .spec = &spec,
					       .home = post->home,
					       .store = post->store,
					       .remake_environment = remake_environment };
	int rc = forge_spec_resolve(post->cfg, req, &spec, err);

	if (rc == 0)
		rc = forge_ready_runtime(post->cfg, req, post->home, post->store, &spec,
					 err);
	if (rc == 0)
		rc = remake_environment(&ready, err);
	return rc < 0 ? rc : forge_carry_out(&ready, ret, err);
}

static int run_it(const struct forge_post_spec *spec, const char *staged, json_t *result,
		  json_t **rows, struct forge_error *err)
{
	struct forge_run_request req = {
		.profile = "post_process",
		.store = spec->store,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.argv = spec->argv->v,
		.parent_run = forge_json_string(spec->record, "run_id"),
		.parent_outputs = staged,
	};
	struct forge_run_result done = { 0 };
	int rc = add_inputs(spec->record, &req) < 0
			 ? forge_fail(err, ENOMEM, "out of memory")
			 : run_ready(spec, &req, &done, err);

	forge_strv_done(&req.inputs);
	forge_strv_done(&req.links);
	if (rc == 0)
		judge(spec->home, done.record, result, rows);
	json_decref(done.record);
	return rc;
}

int forge_post_process(const struct forge_post_spec *spec, json_t **ret_result,
		       json_t **ret_rows, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	struct forge_stage stage = FORGE_STAGE_INIT;
	json_t *result = new_result(spec), *rows = json_array();

	if (!result || !rows) {
		json_decref(result);
		json_decref(rows);
		return forge_fail(err, ENOMEM, "out of memory");
	}
	int rc = stage_outputs(spec, &stage, &why);
	if (rc == 0)
		rc = run_it(spec, stage.path, result, &rows, &why);
	if (rc < 0) {
		char sentence[600];
		(void)snprintf(sentence, sizeof(sentence), "Not started: %s.", why.msg);
		set_notes(result, sentence);
	}
	forge_stage_remove(&stage);
	*ret_result = result;
	*ret_rows = rows;
	return 0;
}

int forge_post_process_of(const struct forge_ready_run *run, const json_t *record,
			  json_t **ret_result, json_t **ret_rows, struct forge_error *err)
{
	const struct forge_post_spec spec = { .cfg = run->cfg,
					      .home = run->home,
					      .store = run->store,
					      .record = record,
					      .argv = &run->spec->post_process };

	return forge_post_process(&spec, ret_result, ret_rows, err);
}
