/* SPDX-License-Identifier: Apache-2.0 */
/* Options to a request. */
#include "cli/request.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"
#include "config/config.h"

struct forge_run_request forge_request;
const char *forge_request_config;
static const char *limits[FORGE_LIMIT_COUNT_ROWS]; /* as typed, in the table's order */
static const char *priority;

static const struct forge_opt fixed_rows[] = {
	FORGE_GROUP("Options"),
	FORGE_STRING('r', "runtime", "NAME|PATH", &forge_request.runtime,
		     "Run it in this runtime, or in the environment in this directory"),
	FORGE_STRV('i', "input", "PATH", &forge_request.inputs,
		   "Let the command read this file or directory"),
	FORGE_STRV('o', "output", "GLOB", &forge_request.outputs,
		   "Collect these files of the workdir; each must match one"),
	FORGE_STRV('p', "param", "NAME=VALUE", &forge_request.parameters,
		   "Set a parameter of a notebook"),
	FORGE_STRING(0, "profile", "NAME", &forge_request.profile,
		     "Start from the limits of this profile"),
	FORGE_WORD(0, "network", "none|host", &forge_request.network,
		   "Network it sees: only its own loopback, or the host's"),
	FORGE_STRV(0, "env", "NAME[=VALUE]", &forge_request.env,
		   "Set a variable, or pass ours on"),
	FORGE_STRING(0, "env-file", "FILE", &forge_request.env_file,
		     "Read such variables from a file"),
	FORGE_STRING(0, "id", "ANALYSIS_ID", &forge_request.analysis_id,
		     "Name the analysis"),
	FORGE_STRING(0, "priority", "N", &priority,
		     "Go before queued runs with a lower number (-1000 to 1000)"),
	FORGE_STRING(0, "idempotency-key", "KEY", &forge_request.idempotency_key,
		     "Run once for this key, however often it is asked"),
	FORGE_STRING(0, "post-process", "COMMAND", &forge_request.post_process,
		     "Run this line on the outputs, keep the JSON lines it prints"),
	FORGE_FLAG(0, "keep", &forge_request.keep, "Keep the workdir after the run"),
	FORGE_STORE_ROW,
	FORGE_STRING(0, "config", "FILE", &forge_request_config,
		     "Read this configuration"),
};

#define OWN_MAX 16

/* A limit becomes an option by being a row of the limits table. */
const struct forge_opt *forge_request_opts(const struct forge_opt *own)
{
	static struct forge_opt
		rows[1 + FORGE_LIMIT_COUNT_ROWS + FORGE_ARRAY_SIZE(fixed_rows) + OWN_MAX];
	struct forge_opt *row = rows;

	*row++ = (struct forge_opt)FORGE_GROUP("Limits");
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *limit = &forge_limit_rows[i];

		*row++ = (struct forge_opt)FORGE_STRING(0, limit->name, limit->metavar,
							&limits[i], limit->help);
		row[-1].builtin = limit->builtin;
	}
	memcpy(row, fixed_rows, sizeof(fixed_rows));
	row += FORGE_ARRAY_SIZE(fixed_rows);
	for (size_t i = 0; i < OWN_MAX; i++) {
		*row++ = own[i];
		if (own[i].type == FORGE_OPT_END)
			break;
	}
	return rows;
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
		if (rc < 0)
			return forge_wrap(err, rc, "--id");
	}
	forge_strv_foreach (var, &forge_request.env) {
		int rc = forge_parse_env_name(var, strcspn(var, "="), err);
		if (rc < 0)
			return forge_wrap(err, rc, "--env");
	}
	return 0;
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
	rc = forge_config_load(forge_request_config, ret_cfg, err);
	if (rc < 0)
		return rc;
	rc = forge_config_profile(*ret_cfg, forge_request.profile, &profile, err);
	return rc < 0 ? forge_wrap(err, rc, "--profile") : 0;
}

void forge_request_done(void)
{
	forge_strv_done(&forge_request.inputs);
	forge_strv_done(&forge_request.outputs);
	forge_strv_done(&forge_request.parameters);
	forge_strv_done(&forge_request.env);
}

void forge_print_verdict(const json_t *record)
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
	const char *left = json_string_value(json_object_get(record, "cleanup_error"));
	if (left) {
		fputs("forge: warning: ", stderr);
		forge_print_clean(stderr, left, strlen(left));
		putc('\n', stderr);
	}
	if (json_is_true(json_object_get(record, "workdir_kept")))
		fprintf(stderr, "forge: workdir kept in %s\n",
			json_string_value(json_object_get(record, "workdir")));
}
