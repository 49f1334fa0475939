/* SPDX-License-Identifier: Apache-2.0 */
/* forge run: options to a request, the request through the one door, the verdict out. */
#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <poll.h>
#include <stdio_ext.h>
#include <string.h>
#include <unistd.h>

#include "cli/request.h"
#include "cli/table.h"
#include "config/config.h"

static bool is_dry_run, wants_limits, is_json, is_quiet;

static const struct forge_opt own_rows[] = {
	FORGE_FLAG(0, "stdin", &forge_request.pass_stdin,
		   "Feed our standard input to the command"),
	FORGE_FLAG(0, "dry-run", &is_dry_run, "Print the plan as JSON and run nothing"),
	FORGE_FLAG(0, "explain-limits", &wants_limits,
		   "Print each limit and where it comes from, and run nothing"),
	FORGE_FLAG(0, "json", &is_json, "Print the record as JSON instead of the output"),
	FORGE_FLAG('q', "quiet", &is_quiet, "Show neither output nor verdict"),
	FORGE_HELP_ROW,
	FORGE_OPTS_END,
};

static const struct forge_opt *run_opts(void)
{
	return forge_request_opts(own_rows);
}

static int explain(const struct forge_config *cfg, struct forge_error *err)
{
	forge_auto_json json_t *plan = NULL;
	int rc = forge_run_explain(cfg, &forge_request, &plan, err);

	if (rc < 0)
		return rc;
	forge_print_json(plan);
	return FORGE_EXIT_OK;
}

/* profile < runtime < script < command line. */
static int explain_limits(const struct forge_config *cfg, struct forge_error *err)
{
	enum { LIMIT, VALUE, FROM, NAME, COLUMNS };
	static const char *const keys[COLUMNS] = { "limit", "value", "from", "name" };
	struct forge_cell cells[(1 + FORGE_LIMIT_COUNT_ROWS) * COLUMNS] = {
		{ "LIMIT", FORGE_BOLD },
		{ "VALUE", FORGE_BOLD },
		{ "FROM", FORGE_BOLD },
		{ "NAME", FORGE_BOLD }
	};
	forge_auto_json json_t *limits = NULL;
	size_t i;
	json_t *row;
	int rc = forge_run_explain_limits(cfg, &forge_request, &limits, err);

	if (rc < 0)
		return rc;
	json_array_foreach (limits, i, row)
		for (size_t c = 0; c < COLUMNS; c++)
			cells[(i + 1) * COLUMNS + c].text =
				json_string_value(json_object_get(row, keys[c]));
	if (is_json)
		forge_print_json(limits);
	else
		forge_table_print(stdout, cells, COLUMNS, 1 + FORGE_LIMIT_COUNT_ROWS);
	return FORGE_EXIT_OK;
}

static void on_warning(void *arg, const struct forge_error *warning)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

	(void)arg;
	/* Somebody who does not read must not keep a run from its limits. */
	if (!is_quiet && poll(&p, 1, 1000) > 0)
		forge_print_warning(warning);
}

static void on_note(void *arg, const char *text)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

	(void)arg;
	if (!is_quiet && poll(&p, 1, 1000) > 0)
		fprintf(stderr, "forge: %s\n", text);
}

/* Somebody else has run it, or is running it: that is the run that was asked for. */
static int show_existing(const char *run_id)
{
	if (!is_quiet)
		fprintf(stderr,
			"forge: run %s has this idempotency key; nothing was run\n",
			run_id);
	if (is_json)
		printf("{\"run_id\": \"%s\", \"existing\": true}\n", run_id);
	return FORGE_EXIT_OK;
}

/* The status of a run whose record nobody got is of no use: it has one of its own. */
static int print_record(const json_t *record, int status)
{
	struct forge_error err = FORGE_ERROR_INIT;
	const char *log = json_string_value(
		json_object_get(json_object_get(record, "logs"), "stdout"));
	const char *slash = log ? strrchr(log, '/') : NULL;

	errno = 0;
	forge_print_json(record);
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	(void)forge_fail_errno(&err, errno ? errno : EIO,
			       "the run is over, but its record cannot be printed");
	if (slash)
		(void)forge_hint(&err, 0, "It is in %.*s/record.json", (int)(slash - log),
				 log);
	forge_print_error(&err);
	/* That is all there is to say about standard output. */
	__fpurge(stdout);
	clearerr(stdout);
	return FORGE_EXIT_NOT_TOLD;
}

/* Returns the exit status, or negative when nothing was run. */
static int run(const struct forge_config *cfg, struct forge_error *err)
{
	struct forge_run_result result = { 0 };
	bool is_live = !is_json && !is_quiet;

	forge_request.stdout_fd = is_live ? STDOUT_FILENO : -1;
	forge_request.stderr_fd = is_live ? STDERR_FILENO : -1;
	forge_request.on_warning = on_warning;
	forge_request.on_note = on_note;
	forge_reconcile_before_run();
	int rc = forge_run(cfg, &forge_request, &result, err);
	/* The run has its status: a reader that is gone, or a file at its limit, does not change it. */
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN);
	if (rc < 0 && result.record) {
		forge_print_error(err);
		json_decref(result.record);
		return FORGE_EXIT_NOT_TOLD;
	}
	if (rc < 0)
		return rc;
	if (result.existing_run[0])
		return show_existing(result.existing_run);
	forge_auto_json json_t *record = result.record;
	if (is_json)
		return print_record(record, result.exit_status);
	if (!is_quiet)
		forge_print_verdict(record);
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
	forge_request.argv = argv;
	int status = forge_request_prepare(&cfg, &err);
	if (status == 0)
		status = wants_limits ? explain_limits(cfg, &err)
			 : is_dry_run ? explain(cfg, &err)
				      : run(cfg, &err);
	if (status < 0) {
		forge_print_error(&err);
		status = FORGE_EXIT_NOT_RUN;
	}
	forge_request_done();
	return status;
}

const struct forge_cmd forge_cmd_run = {
	.name = "run",
	.synopsis = "[OPTIONS] [--] COMMAND [ARG...]",
	.help = "Run one analysis and wait for it",
	.examples =
		"  forge run fit.py                     a script; its files are kept\n"
		"  forge run -i data fit.py data/x.csv  ... which reads a directory\n"
		"  forge run --memory 4G --timeout 2h -r data-ml -C results fit.py\n",
	.about = "Runs COMMAND in a sandbox. It sees system directories, its inputs and\n"
		 "the configured read-only roots, all read-only; it can write only in\n"
		 "its workdir (its current directory), /tmp and /dev/shm; it has no\n"
		 "network unless asked for. Options go before COMMAND, its own after.\n\n"
		 "Exits with the command's own status, or 123 the record could not be\n"
		 "printed (--json), 124 out of time, 125 nothing was run, 126 not\n"
		 "executable, 127 not found, 137 over a memory, disk or output limit,\n"
		 "128+N died of signal N, 130 cancelled.",
	.first = "COMMAND",
	.stops = true,
	.bad_value = FORGE_EXIT_NOT_RUN,
	.run = cmd_run,
	.opts = run_opts,
};
