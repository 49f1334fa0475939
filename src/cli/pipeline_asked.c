/* SPDX-License-Identifier: Apache-2.0 */
/* How a pipeline was asked for: as a command line, in the records of its steps, and from there again. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/pipeline_cli.h"
#include "cli/session.h"
#include "spec/asked.h"

/* ---- as a command line ---- */

static void print_option(FILE *f, const char *option, const char *value)
{
	if (!value)
		return;
	fprintf(f, " %s", option);
	forge_print_word(f, value);
}

static void print_list(FILE *f, const char *option, const struct forge_strv *list)
{
	for (size_t i = 0; list && i < list->n; i++)
		print_option(f, option, list->v[i]);
}

/* As it was given here. A password is not shown. */
static void print_store(FILE *f)
{
	forge_auto_free char *var =
		forge_store_wanted ? forge_asprintf("FORGE_STORE=%s", forge_store_wanted)
				   : NULL;

	if (var)
		print_option(f, "--store",
			     forge_asked_is_withheld(var) ? "URL" : forge_store_wanted);
}

char *forge_pipeline_command(const struct forge_pipeline_run *r, const char *path)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	fprintf(f, "forge pipeline %s", r->copy_to ? "outputs" : "run");
	forge_auto_free char *plain = *path == '-' ? forge_asprintf("./%s", path) : NULL;
	forge_print_word(f, plain ? plain : path);
	print_store(f);
	print_option(f, "--config", forge_session_config);
	print_list(f, "-p", r->params);
	print_option(f, "--params", r->params_file);
	if (!r->copy_to) {
		print_option(f, "--entry", r->entry);
		print_list(f, "--given", r->given);
	}
	print_list(f, "--only", r->only);
	print_list(f, "--force", r->force);
	print_option(f, "--copy", r->copy_to);
	if (fclose(f) == 0)
		return text;
	free(text);
	return NULL;
}

/* ---- in records ---- */

/* STEP=DIR, with the directory as seen from anywhere. */
static json_t *absolute_given(const struct forge_strv *given)
{
	json_t *list = json_array();

	for (size_t i = 0; given && i < given->n; i++) {
		const char *word = given->v[i], *dir = strchr(word, '=');
		forge_auto_free char *real = dir ? realpath(dir + 1, NULL) : NULL;
		forge_auto_free char *text =
			real ? forge_asprintf("%.*s=%s", (int)(dir - word), word, real)
			     : strdup(word);
		json_array_append_new(list, text ? forge_json_text(text) : NULL);
	}
	return list;
}

json_t *forge_pipeline_given_json(const struct forge_pipeline_run *r)
{
	forge_auto_free char *cwd = getcwd(NULL, 0);
	forge_auto_free char *params_file =
		r->params_file ? realpath(r->params_file, NULL) : NULL;
	json_t *o = json_pack("{s:o}", "params",
			      r->params ? forge_json_texts(r->params) : json_array());

	if (params_file)
		json_object_set_new(o, "params_file", forge_json_text(params_file));
	if (cwd)
		json_object_set_new(o, "cwd", forge_json_text(cwd));
	if (r->entry)
		json_object_set_new(o, "entry", forge_json_text(r->entry));
	if (r->given && r->given->n)
		json_object_set_new(o, "given", absolute_given(r->given));
	if (r->only && r->only->n)
		json_object_set_new(o, "only", forge_json_texts(r->only));
	return o;
}

static int take_list(const json_t *given, const char *key, struct forge_strv *ret)
{
	const json_t *text;
	size_t i;

	json_array_foreach (json_object_get(given, key), i, text)
		if (json_is_string(text) &&
		    forge_strv_add(ret, json_string_value(text)) < 0)
			return -ENOMEM;
	return 0;
}

int forge_pipeline_ask_again(const json_t *step, struct forge_pipeline_asked *lists,
			     struct forge_pipeline_run *ret, struct forge_error *err)
{
	const json_t *given = json_object_get(step, "given");

	*lists = (struct forge_pipeline_asked){ .params = { 0 } };
	if (take_list(given, "params", &lists->params) < 0 ||
	    take_list(given, "given", &lists->given) < 0 ||
	    take_list(given, "only", &lists->only) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	*ret = (struct forge_pipeline_run){
		.path = forge_json_string(step, "file"),
		.params = &lists->params,
		.params_file = forge_json_string(given, "params_file"),
		.entry = forge_json_string(given, "entry"),
		.given = &lists->given,
		.only = &lists->only,
	};
	return 0;
}

void forge_pipeline_asked_done(struct forge_pipeline_asked *lists)
{
	forge_strv_done(&lists->params);
	forge_strv_done(&lists->given);
	forge_strv_done(&lists->only);
}
