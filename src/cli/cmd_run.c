/* SPDX-License-Identifier: Apache-2.0 */
/* forge run: options to a request, the request through the one door, the verdict out. */
#include "cli/cli.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"
#include "config/config.h"
#include "run/run.h"

static struct {
	const char *limits[FORGE_LIMIT_COUNT_ROWS]; /* as typed, in the table's order */
	struct forge_run_request req;
	const char *config;
	bool is_dry_run, is_json, is_quiet;
} o;

FORGE_DEFINE_AUTO(json, json_t *, json_decref)
#define forge_auto_json FORGE_CLEANUP(forge_auto_json_)

static const struct forge_opt fixed_rows[] = {
	FORGE_GROUP("Options"),
	FORGE_STRV('i', "input", "PATH", &o.req.inputs,
		   "Let the command read this file or directory"),
	FORGE_STRING(0, "profile", "NAME", &o.req.profile,
		     "Start from the limits of this profile"),
	FORGE_WORD(0, "network", "none|host", &o.req.network,
		   "Network it sees: only its own loopback, or the host's"),
	FORGE_STRV(0, "env", "NAME[=VALUE]", &o.req.env,
		   "Set a variable, or pass ours on"),
	FORGE_STRING(0, "env-file", "FILE", &o.req.env_file,
		     "Read such variables from a file"),
	FORGE_STRING(0, "id", "ANALYSIS_ID", &o.req.analysis_id, "Name the analysis"),
	FORGE_FLAG(0, "keep", &o.req.keep, "Keep the workdir after the run"),
	FORGE_FLAG(0, "stdin", &o.req.pass_stdin,
		   "Feed our standard input to the command"),
	FORGE_STRING(0, "config", "FILE", &o.config, "Read this configuration"),
	FORGE_FLAG(0, "dry-run", &o.is_dry_run, "Print the plan as JSON and run nothing"),
	FORGE_FLAG(0, "json", &o.is_json,
		   "Print the record as JSON instead of the output"),
	FORGE_FLAG('q', "quiet", &o.is_quiet, "Show neither output nor verdict"),
	FORGE_HELP_ROW,
	FORGE_OPTS_END,
};

/* A limit becomes an option by being a row of the limits table. */
static const struct forge_opt *run_opts(void)
{
	static struct forge_opt
		rows[1 + FORGE_LIMIT_COUNT_ROWS + FORGE_ARRAY_SIZE(fixed_rows)];
	struct forge_opt *row = rows;

	*row++ = (struct forge_opt)FORGE_GROUP("Limits");
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *limit = &forge_limit_rows[i];

		*row++ = (struct forge_opt)FORGE_STRING(0, limit->name, limit->metavar,
							&o.limits[i], limit->help);
		row[-1].builtin = limit->builtin;
	}
	memcpy(row, fixed_rows, sizeof(fixed_rows));
	return rows;
}

static int check_limits(struct forge_error *err)
{
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *row = &forge_limit_rows[i];

		if (!o.limits[i])
			continue;
		int rc = forge_limit_set(&o.req.limits, row, o.limits[i], err);
		if (rc < 0)
			return forge_wrap(err, rc, "--%s", row->name);
	}
	return 0;
}

static int check_names(struct forge_error *err)
{
	if (o.req.analysis_id) {
		int rc = forge_parse_id(o.req.analysis_id, err);
		if (rc < 0)
			return forge_wrap(err, rc, "--id");
	}
	forge_strv_foreach (var, &o.req.env) {
		int rc = forge_parse_env_name(var, strcspn(var, "="), err);
		if (rc < 0)
			return forge_wrap(err, rc, "--env");
	}
	return 0;
}

static int prepare(struct forge_config **ret_cfg, struct forge_error *err)
{
	const struct forge_profile *profile;
	int rc = check_limits(err);

	if (rc == 0)
		rc = check_names(err);
	if (rc < 0)
		return rc;
	rc = forge_config_load(o.config, ret_cfg, err);
	if (rc < 0)
		return rc;
	rc = forge_config_profile(*ret_cfg, o.req.profile, &profile, err);
	return rc < 0 ? forge_wrap(err, rc, "--profile") : 0;
}

static void print_verdict(const json_t *record)
{
	const char *notes =
		json_string_value(json_object_get(record, "completion_notes"));
	const char *run_id = json_string_value(json_object_get(record, "run_id"));
	bool has_colour = forge_has_colour(stderr);
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

	/* The run is over and recorded; somebody who does not read must not keep us here. */
	if (poll(&p, 1, 1000) <= 0)
		return;
	fputs("forge: ", stderr);
	if (notes)
		forge_print_clean(stderr, notes, strlen(notes));
	if (run_id)
		fprintf(stderr, "%s (run %s)%s",
			has_colour ? forge_colour_code(FORGE_DIM) : "", run_id,
			has_colour ? forge_colour_code(FORGE_PLAIN) : "");
	putc('\n', stderr);
	if (json_is_true(json_object_get(record, "workdir_kept")))
		fprintf(stderr, "forge: workdir kept in %s\n",
			json_string_value(json_object_get(record, "workdir")));
}

static int explain(const struct forge_config *cfg, struct forge_error *err)
{
	forge_auto_json json_t *plan = NULL;
	int rc = forge_run_explain(cfg, &o.req, &plan, err);

	if (rc < 0)
		return rc;
	forge_print_json(plan);
	return FORGE_EXIT_OK;
}

/* Returns the exit status, or negative when nothing was run. */
static int run(const struct forge_config *cfg, struct forge_error *err)
{
	struct forge_run_result result = { 0 };
	bool is_live = !o.is_json && !o.is_quiet;

	o.req.stdout_fd = is_live ? STDOUT_FILENO : -1;
	o.req.stderr_fd = is_live ? STDERR_FILENO : -1;
	forge_reconcile_first();
	int rc = forge_run(cfg, &o.req, &result, err);
	if (rc < 0)
		return rc;
	forge_auto_json json_t *record = result.record;
	if (o.is_json)
		forge_print_json(record);
	else if (!o.is_quiet)
		print_verdict(record);
	return result.exit_status;
}

static int cmd_run(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_config struct forge_config *cfg = NULL;

	if (argc == 0) {
		(void)forge_fail(&err, EINVAL, "run: no command given");
		return forge_print_usage(&forge_cmd_run, &err);
	}
	o.req.argv = argv;
	int status = prepare(&cfg, &err);
	if (status == 0)
		status = o.is_dry_run ? explain(cfg, &err) : run(cfg, &err);
	if (status < 0) {
		forge_print_error(&err);
		status = FORGE_EXIT_NOT_RUN;
	}
	forge_strv_done(&o.req.inputs);
	forge_strv_done(&o.req.env);
	return status;
}

const struct forge_cmd forge_cmd_run = {
	.name = "run",
	.synopsis = "[OPTIONS] [--] COMMAND [ARG...]",
	.help = "Run one analysis and wait for it",
	.about =
		"Runs COMMAND in a sandbox. It sees system directories, its inputs and\n"
		"the configured read-only roots, all read-only; it can write only in\n"
		"its workdir (its current directory), /tmp and /dev/shm; it has no\n"
		"network unless asked for. Options go before COMMAND, its own after.\n\n"
		"Exits with the command's own status, or 124 out of time, 125 nothing\n"
		"was run, 126 not executable, 127 not found, 137 over a memory, disk or\n"
		"output limit, 128+N died of signal N, 130 cancelled.",
	.first = "COMMAND",
	.stops = true,
	.bad_value = FORGE_EXIT_NOT_RUN,
	.run = cmd_run,
	.opts = run_opts,
};
