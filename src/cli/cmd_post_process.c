/* SPDX-License-Identifier: Apache-2.0 */
/* forge post-process: repeats the post-process of a finished run. */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/session.h"
#include "record/record.h"
#include "run/postprocess.h"
#include "run/postprocess_again.h"

static bool is_json, want_records;
static const char *command;

static const struct forge_opt *post_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_STRING('c', "command", "COMMAND", &command,
			     "Run this line instead of the one used before"),
		FORGE_FLAG(0, "records", &want_records,
			   "Run nothing; print the records there are, as JSON lines"),
		FORGE_FLAG(0, "json", &is_json, "Print JSON"),
		FORGE_STORE_ROW,
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

static int print_records(struct forge_session *s, const json_t *record,
			 struct forge_error *err)
{
	forge_auto_json json_t *rows = NULL;
	size_t i;
	json_t *row;
	int rc = forge_store_post_records(s->store, forge_json_string(record, "run_id"),
					  &rows, err);

	json_array_foreach (rows, i, row) {
		forge_auto_free char *line = forge_json_line(row);
		puts(line ? line : "out of memory");
	}
	return rc;
}

/* The notes can quote output of the command, so they are cleaned. */
static void print_result(const json_t *result, const char *status)
{
	const char *notes = forge_json_string(result, "completion_notes");

	printf("%s: %lld records. ", status,
	       (long long)json_integer_value(json_object_get(result, "records")));
	forge_print_clean(stdout, notes ? notes : "", notes ? strlen(notes) : 0);
	putchar('\n');
}

/* Returns the exit status or an error. */
static int repeat(struct forge_session *s, const json_t *record, struct forge_error *err)
{
	forge_auto_json json_t *result = NULL;
	forge_store_close(forge_take_ptr(s->store)); /* before the fork that follows */
	int rc = forge_post_process_again(s->cfg, &s->home, s->url, record, command,
					  &result, err);

	if (rc < 0)
		return rc;
	const char *status = forge_json_string(result, "status");
	if (is_json)
		forge_print_json(result);
	else
		print_result(result, status);
	return strcmp(status, "succeeded") == 0 ? FORGE_EXIT_OK : FORGE_EXIT_FAILED;
}

static int cmd_post_process(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_session struct forge_session s = FORGE_SESSION_INIT;
	forge_auto_json json_t *record = NULL;

	int rc = forge_session_only_run(&s, &forge_cmd_post_process, argc, argv, true,
					&record, &err);

	if (rc > 0)
		return rc;
	if (rc == 0)
		rc = want_records ? print_records(&s, record, &err)
				  : repeat(&s, record, &err);
	return rc < 0 ? forge_session_fail(&err) : rc;
}

const struct forge_cmd forge_cmd_post_process = {
	.name = "post-process",
	.synopsis = "[OPTIONS] RUN",
	.help = "Repeat the post-processing of a run",
	.about = "Runs the command in a sandbox of its own, with the run's collected "
		 "outputs\n"
		 "and inputs, read-only, under the names they had. Each line it prints "
		 "must be a\n"
		 "JSON object. They replace the run's earlier records, all or none.",
	.first = "RUN",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_post_process,
	.opts = post_opts,
};
