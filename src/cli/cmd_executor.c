/* SPDX-License-Identifier: Apache-2.0 */
/* forge executor: where runs can happen, whether that can be reached, and what it enforces. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/doctor_print.h"
#include "cli/session.h"
#include "cli/table.h"
#include "executor/executor.h"

static bool is_json;

static const struct forge_opt *executor_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_FLAG(0, "json", &is_json, "Print JSON"),
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

/* {name, kind, reachable, what, cannot, hint} */
static json_t *describe(const struct forge_executor_decl *d)
{
	const struct forge_executor_ops *ops = forge_executor_find(d->kind);
	struct forge_error why = FORGE_ERROR_INIT;
	char what[128] = "";
	int rc = ops ? ops->probe(d, what, sizeof(what), &why)
		     : forge_fail(&why, EOPNOTSUPP,
				  "this forge was built without kind %s", d->kind);

	return json_pack("{s:s, s:s, s:b, s:o, s:s, s:o}", "name", d->name, "kind",
			 d->kind, "reachable", rc == 0, "what",
			 forge_json_text(rc < 0 ? why.msg : what), "cannot",
			 ops ? ops->cannot : "", "hint", forge_json_text(why.hint));
}

static int print_list(const json_t *list, struct forge_error *err)
{
	enum { NAME, KIND, STATE, WHAT, CANNOT, COLUMNS };
	size_t n = json_array_size(list), i;
	const json_t *e;
	forge_auto_free struct forge_cell *cells =
		calloc((n + 1) * COLUMNS, sizeof(*cells));

	if (!cells)
		return forge_fail(err, ENOMEM, "out of memory");
	cells[NAME] = (struct forge_cell){ "NAME", FORGE_BOLD };
	cells[KIND] = (struct forge_cell){ "KIND", FORGE_BOLD };
	cells[STATE] = (struct forge_cell){ "STATE", FORGE_BOLD };
	cells[WHAT] = (struct forge_cell){ "WHAT", FORGE_BOLD };
	cells[CANNOT] = (struct forge_cell){ "CANNOT ENFORCE", FORGE_BOLD };
	json_array_foreach (list, i, e) {
		struct forge_cell *row = cells + (i + 1) * COLUMNS;
		bool is_there = json_is_true(json_object_get(e, "reachable"));
		row[NAME].text = forge_json_string(e, "name");
		row[KIND].text = forge_json_string(e, "kind");
		row[STATE] =
			is_there ? (struct forge_cell){ "ready", FORGE_GREEN }
				 : (struct forge_cell){ "not reachable", FORGE_YELLOW };
		row[WHAT].text = forge_json_string(e, "what");
		row[CANNOT].text = forge_json_string(e, "cannot");
	}
	forge_table_print(stdout, cells, COLUMNS, n + 1);
	return 0;
}

static int run_list(const char *word)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_config struct forge_config *cfg = NULL;
	forge_auto_json json_t *list = json_array();
	int rc = forge_config_load(forge_session_config, &cfg, &err);

	(void)word; /* there is none */
	for (size_t i = 0; rc == 0 && i < cfg->n_executors; i++)
		json_array_append_new(list, describe(&cfg->executors[i]));
	if (rc == 0 && is_json)
		forge_print_json(list);
	else if (rc == 0)
		rc = print_list(list, &err);
	return rc < 0 ? forge_session_fail(&err) : FORGE_EXIT_OK;
}

/* 0: everything that it promises holds. */
static int check(const struct forge_config *cfg, const char *name,
		 struct forge_error *err)
{
	struct forge_doctor_report report FORGE_CLEANUP(forge_doctor_report_done) = { 0 };
	const struct forge_executor_decl *d;
	int rc = forge_config_executor(cfg, name, &d, err);

	if (rc == 0)
		rc = forge_doctor(cfg, strcmp(d->kind, "local") == 0 ? NULL : name,
				  &report, err);
	if (rc == 0)
		rc = forge_doctor_print(&report, is_json, err);
	return rc < 0 ? rc : strcmp(report.level, "partial") == 0;
}

static int run_check(const char *name)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_config struct forge_config *cfg = NULL;
	int rc = forge_config_load(forge_session_config, &cfg, &err);

	if (rc == 0) {
		forge_reconcile_first();
		rc = check(cfg, name, &err);
	}
	return rc < 0 ? forge_session_fail(&err) : rc;
}

static const struct forge_verb verbs[] = {
	{ "list", NULL, "shows where runs can happen, and what is not enforced there",
	  run_list },
	{ "check", "NAME",
	  "attacks each promise with real runs there, as doctor does here", run_check },
	{ .name = NULL },
};

const struct forge_cmd forge_cmd_executor = {
	.name = "executor",
	.help = "Where runs can happen: list and check them",
	.about = "local is this machine; docker and podman are found at their usual "
		 "sockets.\n"
		 "Others are named in forge.yaml, section executors. check exits 0 when "
		 "all\n"
		 "that an executor promises holds.",
	.verbs = verbs,
	.bad_value = FORGE_EXIT_FAILED,
	.opts = executor_opts,
};
