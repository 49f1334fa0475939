/* SPDX-License-Identifier: Apache-2.0 */
/* forge verify: checks stored outputs against their digests. */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/parse.h"
#include "cli/session.h"
#include "record/verify.h"

static bool is_json, is_quiet;

static const struct forge_opt *verify_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_FLAG(0, "json", &is_json, "Print JSON"),
		FORGE_FLAG('q', "quiet", &is_quiet, "Print only what is wrong"),
		FORGE_STORE_ROW,
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

static void show_progress(const struct forge_check_progress *p)
{
	char done[FORGE_FORMAT_MAX], of[FORGE_FORMAT_MAX];

	fprintf(stderr, "\r%zu of %zu objects, %s of %s\033[K", p->done, p->of,
		forge_format_size(done, p->bytes), forge_format_size(of, p->bytes_of));
	(void)fflush(stderr);
}

static size_t count(const json_t *result, const char *key)
{
	return json_array_size(json_object_get(result, key));
}

/* "fit (01m7...)  out.csv": a run that points to the object above. */
static void print_run(const json_t *run)
{
	char name[FORGE_RUN_NAME_MAX];
	const char *path = forge_json_string_or(run, "path", "?");

	printf("%13s%s  ", "", forge_record_name(run, name));
	forge_print_clean(stdout, path, strlen(path));
	puts(json_is_true(json_object_get(run, "script")) ? "  (its script)" : "");
}

static void print_list(const json_t *result, const char *key, const char *word,
		       enum forge_colour colour)
{
	static const char *const names[] = { "sha256", "run_id", "directory" };
	bool has_colour = forge_has_colour(stdout);
	const json_t *j, *run;
	size_t i, k;

	json_array_foreach (json_object_get(result, key), i, j) {
		const char *problem = forge_json_string_or(j, "problem", "");
		const char *unmarked = forge_json_string(j, "not_marked");
		const char *name = NULL;
		for (size_t n = 0; n < FORGE_ARRAY_SIZE(names) && !name; n++)
			name = forge_json_string(j, names[n]);
		printf("%s%-13s%s%s: ", has_colour ? forge_colour_code(colour) : "", word,
		       has_colour ? forge_colour_code(FORGE_PLAIN) : "", name);
		forge_print_clean(stdout, problem, strlen(problem));
		if (unmarked)
			printf(" (it could not be marked: %s)", unmarked);
		putchar('\n');
		json_array_foreach (json_object_get(j, "runs"), k, run)
			print_run(run);
	}
}

static void print_result(const json_t *result)
{
	size_t n = (size_t)json_integer_value(json_object_get(result, "checked"));
	size_t unknown = count(result, "not_checked");
	char size[FORGE_FORMAT_MAX];

	if (!is_quiet) {
		printf("%zu object%s, %s: %zu damaged, %zu missing", n, n == 1 ? "" : "s",
		       forge_format_size(size, (uint64_t)json_integer_value(
						       json_object_get(result, "bytes"))),
		       count(result, "damaged"), count(result, "missing"));
		if (unknown)
			printf(", %zu not checked", unknown);
		if (count(result, "good_again"))
			printf(", %zu good again", count(result, "good_again"));
		putchar('\n');
	}
	print_list(result, "damaged", "damaged", FORGE_RED);
	print_list(result, "missing", "missing", FORGE_RED);
	print_list(result, "not_checked", "not checked", FORGE_YELLOW);
}

static int load_records(struct forge_session *s, const struct forge_strv *ids,
			json_t **ret, struct forge_error *err)
{
	forge_auto_json json_t *records = json_array();
	int rc = records ? 0 : forge_fail(err, ENOMEM, "out of memory");

	for (size_t i = 0; i < ids->n && rc == 0; i++) {
		json_t *record = NULL;
		rc = forge_session_record(s, ids->v[i], &record, err);
		if (rc == 0 && json_array_append_new(records, record) < 0)
			rc = forge_fail(err, ENOMEM, "out of memory");
	}
	if (rc == 0)
		*ret = forge_take_ptr(records);
	return rc;
}

static int cmd_verify(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_session struct forge_session s = FORGE_SESSION_INIT;
	forge_auto_strv struct forge_strv ids = { 0 };
	forge_auto_json json_t *records = NULL, *result = NULL;
	bool shows = !is_quiet && isatty(STDERR_FILENO);
	int rc = argc == 0 ? forge_session_open(&s, false, &err)
			   : forge_session_runs(&s, &forge_cmd_verify, argc, argv, false,
						&ids, &err);

	if (rc == 0 && argc > 0)
		rc = load_records(&s, &ids, &records, &err);
	const struct forge_verify how = { .home = &s.home,
					  .url = s.store ? s.url : NULL,
					  .records = records,
					  .progress = shows ? show_progress : NULL };
	if (rc == 0)
		rc = forge_verify(&how, &result, &err);
	if (shows)
		fputs("\r\033[K", stderr);
	if (rc < 0)
		return forge_session_fail(&err);
	if (is_json)
		forge_print_json(result);
	else
		print_result(result);
	return count(result, "damaged") + count(result, "missing") +
			       count(result, "not_checked")
		       ? FORGE_EXIT_FAILED
		       : FORGE_EXIT_OK;
}

const struct forge_cmd forge_cmd_verify = {
	.name = "verify",
	.synopsis = "[OPTIONS] [RUN...]",
	.help = "Check stored outputs against their digests",
	.about = "Reads every object in FORGE_HOME from the disk again, or those of the "
		 "given\n"
		 "runs, and reports those that are damaged or missing, with the runs "
		 "that\n"
		 "point to them. A damaged object is marked: outputs and show say so, "
		 "and\n"
		 "--copy refuses it. A run that makes the same file repairs it.",
	.first = "RUN",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_verify,
	.opts = verify_opts,
};
