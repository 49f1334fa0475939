/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a request from the options, and runs it. */
#include "cli/request.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/parse.h"
#include "cli/session.h"
#include "cli/table.h"
#include "config/config.h"
#include "run/submit.h"
#include "spec/spec.h"

struct forge_run_request forge_request;
const char *forge_request_config;
bool forge_request_wants_limits, forge_request_until_closed;
static const char *limits[FORGE_LIMIT_COUNT_ROWS]; /* as typed, in the table's order */
static const char *priority;

/* The options that users need first. */
static const struct forge_opt first_rows[] = {
	FORGE_GROUP("Options"),
	FORGE_STRING('r', "runtime", "NAME|PATH", &forge_request.runtime,
		     "Run it in this runtime, or in the environment in this directory"),
	FORGE_STRV('i', "input", "PATH", &forge_request.inputs,
		   "Let the command read this file or directory"),
	FORGE_STRV('o', "output", "GLOB", &forge_request.outputs,
		   "Collect only these files; each must match one, 'none' is none"),
	FORGE_STRING('C', "copy", "DIR", &forge_request.copy_to,
		     "When it succeeds, copy its outputs into this directory"),
	FORGE_FLAG(0, "force", &forge_request.copy_replaces,
		   "Let --copy replace files that are there"),
	FORGE_STRV('p', "param", "NAME=VALUE", &forge_request.parameters,
		   "Set a parameter of a notebook"),
	FORGE_WORD(0, "network", "none|host", &forge_request.network,
		   "Network it sees: only its own loopback, or the host's"),
	FORGE_STRV(0, "env", "NAME[=VALUE]", &forge_request.env,
		   "Set a variable, or pass ours on"),
	FORGE_STRING(0, "id", "ANALYSIS_ID", &forge_request.analysis_id,
		     "Name the analysis"),
};

static const struct forge_opt more_rows[] = {
	FORGE_GROUP("More"),
	FORGE_STRING(0, "executor", "NAME", &forge_request.executor,
		     "Where to run it: local, docker, podman, or one that is configured"),
	FORGE_STRING(0, "profile", "NAME", &forge_request.profile,
		     "Start from the limits of this profile"),
	FORGE_STRV(0, "input-below", "DIR", &forge_request.input_roots,
		   "Refuse an input that is not below this directory, 'none': all"),
	FORGE_STRING(0, "env-file", "FILE", &forge_request.env_file,
		     "Read variables from a file"),
	FORGE_STRING(0, "priority", "N", &priority,
		     "Go before queued runs with a lower number (-1000 to 1000)"),
	FORGE_STRING(0, "idempotency-key", "KEY", &forge_request.idempotency_key,
		     "Run once for this key, however often it is asked"),
	FORGE_STRV(0, "retry", "REASON=N[,factor=F][,max=V]", &forge_request.retry,
		   "Try again at most N times if it ends for this reason; or 'none'"),
	FORGE_STRING(0, "post-process", "COMMAND", &forge_request.post_process,
		     "Run this line on the outputs, keep the JSON lines it prints"),
	FORGE_FLAG(0, "keep", &forge_request.keep, "Keep the workdir after the run"),
	FORGE_STORE_ROW,
	FORGE_STRING(0, "config", "FILE", &forge_request_config,
		     "Read this configuration"),
};

#define OWN_MAX	 16
#define LATE_MAX 64 /* words of the command that are checked */

static struct forge_opt all_rows[FORGE_ARRAY_SIZE(first_rows) + 1 +
				 FORGE_LIMIT_COUNT_ROWS + FORGE_ARRAY_SIZE(more_rows) +
				 OWN_MAX];

/* A limit becomes an option by being a row of the limits table. */
const struct forge_opt *forge_request_opts(const struct forge_opt *own)
{
	struct forge_opt *row = all_rows;

	memcpy(row, first_rows, sizeof(first_rows));
	row += FORGE_ARRAY_SIZE(first_rows);
	*row++ = (struct forge_opt)FORGE_GROUP("Limits");
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *limit = &forge_limit_rows[i];

		*row++ = (struct forge_opt)FORGE_STRING(0, limit->name, limit->metavar,
							&limits[i], limit->help);
		row[-1].builtin = limit->builtin;
	}
	memcpy(row, more_rows, sizeof(more_rows));
	row += FORGE_ARRAY_SIZE(more_rows);
	for (size_t i = 0; i < OWN_MAX; i++) {
		*row++ = own[i];
		if (own[i].type == FORGE_OPT_END)
			break;
	}
	return all_rows;
}

static bool is_given(const struct forge_opt *o)
{
	switch (o->type) {
	case FORGE_OPT_FLAG:
		return *(const bool *)o->dest;
	case FORGE_OPT_UINT:
		return *(const unsigned *)o->dest != 0;
	case FORGE_OPT_STRING:
	case FORGE_OPT_WORD:
		return *(const char *const *)o->dest != NULL;
	case FORGE_OPT_STRV:
		return ((const struct forge_strv *)o->dest)->n > 0;
	case FORGE_OPT_END:
	case FORGE_OPT_GROUP:
		break;
	}
	return false;
}

const char *forge_request_beside_limits(void)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(first_rows); i++)
		if (is_given(&first_rows[i]))
			return first_rows[i].name;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(more_rows); i++)
		if (is_given(&more_rows[i]) && more_rows[i].dest != &forge_store_wanted &&
		    more_rows[i].dest != &forge_request_config)
			return more_rows[i].name;
	return NULL;
}

static int check_priority(struct forge_error *err)
{
	char *end;

	if (!priority)
		return 0;
	errno = 0;
	long n = strtol(priority, &end, 10);
	if (errno || end == priority || *end || n < -1000 || n > 1000)
		return forge_fail(
			err, EINVAL,
			"--priority: '%.32s' is not a number from -1000 to 1000",
			priority);
	forge_request.priority = (int)n;
	return 0;
}

static int check_limits(struct forge_error *err)
{
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *row = &forge_limit_rows[i];

		if (!limits[i])
			continue;
		int rc = forge_limit_set(&forge_request.limits, row, limits[i], err);
		if (rc < 0)
			return forge_wrap(err, rc, "--%s", row->name);
	}
	return 0;
}

static int check_names(struct forge_error *err)
{
	if (forge_request.analysis_id) {
		int rc = forge_parse_id(forge_request.analysis_id, err);
		if (rc == 0 && strcmp(forge_request.analysis_id, "last") == 0)
			rc = forge_fail(err, EINVAL,
					"'last' means the newest run everywhere");
		if (rc < 0)
			return forge_wrap(err, rc, "--id");
	}
	forge_strv_foreach (text, &forge_request.retry) {
		struct forge_retry_policy ignored = { 0 };
		int rc = forge_retry_parse(text, &ignored, err);
		if (rc < 0)
			return forge_wrap(err, rc, "--retry");
	}
	forge_strv_foreach (var, &forge_request.env) {
		int rc = forge_parse_env_name(var, strcspn(var, "="), err);
		if (rc < 0)
			return forge_wrap(err, rc, "--env");
	}
	return 0;
}

/*
 * Words after the command are its own options. Finds one that may have been meant for
 * forge: a failed run reports it.
 */
static void find_late_option(void)
{
	for (size_t i = 1; forge_request.argv && forge_request.argv[0] &&
			   forge_request.argv[i] && i < LATE_MAX;
	     i++) {
		const char *word = forge_request.argv[i],
			   *next = forge_request.argv[i + 1];
		const struct forge_opt *o = forge_opt_of(all_rows, word);
		if (strcmp(word, "--") == 0)
			return;
		/* Nearly every script has --help itself. */
		if (!o || o->dest == &forge_help_wanted)
			continue;
		forge_request.late_option = word;
		if (o->type != FORGE_OPT_FLAG && !strchr(word, '='))
			forge_request.late_value = next;
		return;
	}
}

int forge_request_prepare(struct forge_config **ret_cfg, struct forge_error *err)
{
	const struct forge_profile *profile;
	int rc = check_limits(err);

	if (rc == 0)
		rc = check_names(err);
	if (rc == 0)
		rc = check_priority(err);
	forge_request.store = forge_store_wanted;
	if (rc < 0)
		return rc;
	find_late_option();
	rc = forge_config_load(forge_request_config, ret_cfg, err);
	if (rc < 0)
		return rc;
	rc = forge_config_profile(*ret_cfg, forge_request.profile, &profile, err);
	return rc < 0 ? forge_wrap(err, rc, "--profile") : 0;
}

static int make_absolute(const char *cwd, char **path)
{
	if (**path == '/' || !**path)
		return 0;
	char *whole = forge_asprintf("%s/%s", cwd, *path);
	if (!whole)
		return -ENOMEM;
	free(*path);
	*path = whole;
	return 0;
}

int forge_request_absolute(struct forge_error *err)
{
	static char *copy_to, *env_file;
	forge_auto_free char *cwd = getcwd(NULL, 0);
	int rc = cwd ? 0 : -errno;

	for (size_t i = 0; i < forge_request.inputs.n && rc == 0; i++)
		rc = make_absolute(cwd, &forge_request.inputs.v[i]);
	for (size_t i = 0; i < forge_request.input_roots.n && rc == 0; i++)
		if (strcmp(forge_request.input_roots.v[i], "none") != 0)
			rc = make_absolute(cwd, &forge_request.input_roots.v[i]);
	if (rc == 0 && forge_request.copy_to && *forge_request.copy_to != '/') {
		copy_to = forge_asprintf("%s/%s", cwd, forge_request.copy_to);
		forge_request.copy_to = copy_to;
		rc = copy_to ? 0 : -ENOMEM;
	}
	if (rc == 0 && forge_request.env_file && *forge_request.env_file != '/') {
		env_file = forge_asprintf("%s/%s", cwd, forge_request.env_file);
		forge_request.env_file = env_file;
		rc = env_file ? 0 : -ENOMEM;
	}
	return rc < 0 ? forge_fail_errno(err, -rc, "the current directory") : 0;
}

void forge_request_done(void)
{
	forge_strv_done(&forge_request.inputs);
	forge_strv_done(&forge_request.input_roots);
	forge_strv_done(&forge_request.outputs);
	forge_strv_done(&forge_request.parameters);
	forge_strv_done(&forge_request.env);
	forge_strv_done(&forge_request.retry);
}

int forge_request_explain_limits(const struct forge_config *cfg, bool is_json,
				 struct forge_error *err)
{
	enum { LIMIT, VALUE, FROM, NAME, COLUMNS };
	static const char *const keys[COLUMNS] = { "limit", "value", "from", "name" };
	struct forge_cell cells[(1 + FORGE_LIMIT_COUNT_ROWS) * COLUMNS] = {
		{ "LIMIT", FORGE_BOLD },
		{ "VALUE", FORGE_BOLD },
		{ "FROM", FORGE_BOLD },
		{ "NAME", FORGE_BOLD }
	};
	forge_auto_json json_t *list = NULL;
	size_t i;
	json_t *row;
	int rc = forge_spec_explain_limits(cfg, &forge_request, &list, err);

	if (rc < 0)
		return rc;
	json_array_foreach (list, i, row)
		for (size_t c = 0; c < COLUMNS; c++)
			cells[(i + 1) * COLUMNS + c].text =
				json_string_value(json_object_get(row, keys[c]));
	if (is_json)
		forge_print_json(list);
	else
		forge_table_print(stdout, cells, COLUMNS, 1 + FORGE_LIMIT_COUNT_ROWS);
	return FORGE_EXIT_OK;
}

/* Prints where the outputs are, and how to copy them. */
static void print_outputs(const json_t *record, const char *run_id)
{
	const json_t *outputs = json_object_get(record, "outputs"), *f;
	const char *to = forge_json_string(record, "copied_to");
	size_t n = json_array_size(outputs), i;
	char size[FORGE_FORMAT_MAX];
	uint64_t bytes = 0;

	if ((n == 0 && !to) || !run_id)
		return;
	json_array_foreach (outputs, i, f)
		bytes += (uint64_t)json_integer_value(json_object_get(f, "size"));
	fprintf(stderr, "forge: %zu output%s (%s) ", n, n == 1 ? "" : "s",
		forge_format_size(size, bytes));
	if (to) {
		fputs("copied to ", stderr);
		forge_print_clean(stderr, to, strlen(to));
		putc('\n', stderr);
	} else {
		fprintf(stderr, "kept: forge outputs %s\n", run_id);
	}
}

void forge_print_verdict(const json_t *record)
{
	const char *notes = forge_json_string(record, "completion_notes");
	const char *run_id = forge_json_string(record, "run_id");
	bool has_colour = forge_has_colour(stderr);
	char name[FORGE_RUN_NAME_MAX];
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

	/* The run is over and recorded: a stalled reader must not block forge. */
	if (poll(&p, 1, 1000) <= 0)
		return;
	fputs("forge: ", stderr);
	/* With several runs the label says which of them this is about. */
	if (forge_record_label(record))
		fprintf(stderr, "%s: ", forge_record_name(record, name));
	if (notes)
		forge_print_clean(stderr, notes, strlen(notes));
	if (run_id && !forge_record_label(record))
		fprintf(stderr, "%s (run %s)%s",
			has_colour ? forge_colour_code(FORGE_DIM) : "", run_id,
			has_colour ? forge_colour_code(FORGE_PLAIN) : "");
	putc('\n', stderr);
	const char *left = forge_json_string(record, "cleanup_error");
	if (left) {
		fputs("forge: warning: ", stderr);
		forge_print_clean(stderr, left, strlen(left));
		putc('\n', stderr);
	}
	const char *workdir = forge_json_string(record, "workdir");
	if (json_is_true(json_object_get(record, "workdir_kept")) && workdir &&
	    !(notes && strstr(notes, workdir)))
		fprintf(stderr, "forge: workdir kept in %s\n", workdir);
	print_outputs(record, run_id);
}

/* ---- running it, for forge run and forge rerun ---- */

static bool is_quiet;

static void on_warning(void *arg, const struct forge_error *warning)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

	(void)arg;
	/* A stalled reader must not keep the supervisor from enforcing limits. */
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

/* Another run has this idempotency key: it is the requested run. */
static int show_existing(const char *run_id, bool is_json)
{
	if (!is_quiet)
		fprintf(stderr,
			"forge: run %s has this idempotency key; nothing was run\n",
			run_id);
	if (is_json)
		printf("{\"run_id\": \"%s\", \"existing\": true}\n", run_id);
	return FORGE_EXIT_OK;
}

/* If the record cannot be printed, the exit status says that instead. */
static int print_record(const json_t *record, int status)
{
	struct forge_error err = FORGE_ERROR_INIT;
	const char *log = forge_json_string(json_object_get(record, "logs"), "stdout");
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
	/* The error is reported: main() must not report it again. */
	__fpurge(stdout);
	clearerr(stdout);
	return FORGE_EXIT_NOT_REPORTED;
}

/*
 * A process that waits until nobody reads our standard output any more, and then ends the run as a signal would. It has to
 * be one of its own: the kernel's signals for a descriptor (F_SETSIG) come with each read as well, and belong to whoever asked last. It
 * ends with us.
 */
static pid_t reader_watch = -1;

static void watch(pid_t forge)
{
	struct pollfd p = { .fd = STDOUT_FILENO };

	/* Our own descriptors would keep other pipes open. */
	(void)close_range(STDERR_FILENO, ~0U, 0);
	while (!(p.revents & (POLLERR | POLLNVAL)))
		(void)poll(&p, 1, -1); /* POLLERR alone is waited for */
	if (getppid() == forge)
		(void)kill(forge, SIGTERM);
}

static int watch_reader(bool is_json, struct forge_error *err)
{
	struct pollfd p = { .fd = STDOUT_FILENO };
	struct stat st;
	pid_t forge = getpid();

	if (!is_json)
		return forge_fail(err, EINVAL, "--until-closed goes with --json only");
	if (fstat(STDOUT_FILENO, &st) < 0 || !S_ISFIFO(st.st_mode))
		return forge_fail(err, EINVAL,
				  "--until-closed: standard output is no pipe");
	if (poll(&p, 1, 0) > 0 && p.revents & POLLERR)
		return forge_fail(err, EPIPE,
				  "--until-closed: nobody reads our standard output");
	reader_watch = fork();
	if (reader_watch < 0)
		return forge_fail_errno(err, errno, "--until-closed");
	if (reader_watch == 0) {
		/* ^C at a terminal is for forge, which ends us. */
		(void)signal(SIGINT, SIG_IGN);
		(void)signal(SIGHUP, SIG_IGN);
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == forge)
			watch(forge);
		_exit(0);
	}
	return 0;
}

static void unwatch_reader(void)
{
	(void)kill(reader_watch, SIGKILL);
	while (waitpid(reader_watch, NULL, 0) < 0 && errno == EINTR)
		;
	reader_watch = -1;
}

int forge_request_run(const struct forge_config *cfg, bool is_json, bool quiet,
		      struct forge_error *err)
{
	struct forge_run_result result = { 0 };
	is_quiet = quiet;
	if (forge_request_until_closed) {
		int refused = watch_reader(is_json, err);
		if (refused < 0)
			return refused;
	}
	bool is_live = !is_json && !is_quiet;

	forge_request.stdout_fd = is_live ? STDOUT_FILENO : -1;
	forge_request.stderr_fd = is_live ? STDERR_FILENO : -1;
	forge_request.on_warning = on_warning;
	forge_request.on_note = on_note;
	forge_reconcile_before_run();
	int rc = forge_run(cfg, &forge_request, &result, err);
	if (reader_watch > 0)
		unwatch_reader();
	/* A closed pipe or a file at its limit must not change the exit status. */
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN);
	if (rc < 0 && result.record) {
		forge_print_error(err);
		json_decref(result.record);
		return FORGE_EXIT_NOT_REPORTED;
	}
	if (rc < 0)
		return rc;
	if (result.existing_run[0])
		return show_existing(result.existing_run, is_json);
	forge_auto_json json_t *record = result.record;
	if (is_json)
		return print_record(record, result.exit_status);
	if (!is_quiet)
		forge_print_verdict(record);
	return result.exit_status;
}

int forge_request_submit(const struct forge_config *cfg, bool is_json,
			 struct forge_error *err)
{
	struct forge_submitted done;

	forge_reconcile_before_run();
	int rc = forge_submit(cfg, &forge_request, &done, err);
	if (rc < 0)
		return rc;
	if (done.warning.code)
		forge_print_warning(&done.warning);
	if (is_json)
		printf("{\"run_id\": \"%s\", \"existing\": %s}\n", done.run_id,
		       done.is_existing ? "true" : "false");
	else
		puts(done.run_id);
	return FORGE_EXIT_OK;
}
