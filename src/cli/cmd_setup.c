/* SPDX-License-Identifier: Apache-2.0 */
/* forge setup: makes what doctor finds missing, once and as root, or removes it again. */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/parse.h"
#include "cli/session.h"
#include "cli/table.h"
#include "doctor/setup.h"

static bool is_dry_run, is_undo, is_json;
static const char *root, *quota, *quota_dir;
static struct forge_strv users;

static const struct forge_opt *setup_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_STRV(0, "user", "NAME", &users,
			   "An ordinary user who shall run forge (repeatable)"),
		FORGE_STRING(0, "workdir-quota", "SIZE", &quota,
			     "Make a place of this size for workdirs, with disk quotas"),
		FORGE_STRING(0, "workdir-dir", "PATH", &quota_dir,
			     "Where that is (default: /var/lib/forge-work)"),
		FORGE_FLAG(0, "dry-run", &is_dry_run,
			   "Say what would be done and do nothing"),
		FORGE_FLAG(0, "undo", &is_undo,
			   "Take back what earlier setups have made"),
		FORGE_STRING(0, "root", "PATH", &root,
			     "Write below this directory; start and change nothing"),
		FORGE_FLAG(0, "json", &is_json, "Print the report as JSON"),
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

static const enum forge_colour colours[FORGE_SETUP_STATES] = {
	[FORGE_SETUP_DONE] = FORGE_GREEN,     [FORGE_SETUP_PENDING] = FORGE_YELLOW,
	[FORGE_SETUP_MADE] = FORGE_GREEN,     [FORGE_SETUP_REMOVED] = FORGE_GREEN,
	[FORGE_SETUP_LEFT] = FORGE_YELLOW,    [FORGE_SETUP_CANNOT] = FORGE_RED,
	[FORGE_SETUP_UNNEEDED] = FORGE_PLAIN,
};

enum { ACTION, STATE, TEXT, COLUMNS };

static int print_report(const struct forge_setup_report *r, struct forge_error *err)
{
	forge_auto_free struct forge_cell *cells =
		calloc((r->n + 1) * COLUMNS, sizeof(*cells));

	if (!cells)
		return forge_fail(err, ENOMEM, "out of memory");
	cells[ACTION] = (struct forge_cell){ "ACTION", FORGE_BOLD };
	cells[STATE] = (struct forge_cell){ "STATE", FORGE_BOLD };
	cells[TEXT] = (struct forge_cell){ "WHAT", FORGE_BOLD };
	for (size_t i = 0; i < r->n; i++) {
		struct forge_cell *row = cells + (i + 1) * COLUMNS;
		const struct forge_setup_result *res = &r->results[i];

		row[ACTION].text = res->name;
		row[STATE] = (struct forge_cell){ forge_setup_state_names[res->state],
						  colours[res->state] };
		row[TEXT].text = res->text;
	}
	forge_table_print(stdout, cells, COLUMNS, r->n + 1);
	for (size_t i = 0; i < r->n; i++)
		forge_strv_foreach (file, &r->results[i].files)
			printf("  %s\n", file);
	return 0;
}

static int print_report_json(const struct forge_setup_report *r, struct forge_error *err)
{
	json_t *actions = json_array();
	forge_auto_json json_t *report =
		json_pack("{s:b, s:b, s:o}", "dry_run", is_dry_run, "complete",
			  r->is_complete, "actions", actions);
	bool is_ok = report != NULL;

	for (size_t i = 0; is_ok && i < r->n; i++) {
		const struct forge_setup_result *res = &r->results[i];
		is_ok = json_array_append_new(
				actions,
				json_pack("{s:s, s:s, s:o, s:o}", "name", res->name,
					  "state", forge_setup_state_names[res->state],
					  "text", forge_json_text(res->text), "files",
					  forge_json_texts(&res->files))) == 0;
	}
	if (is_ok)
		forge_print_json(report);
	return is_ok ? 0 : forge_fail(err, ENOMEM, "out of memory");
}

static int set_up(struct forge_setup_report *report, struct forge_error *err)
{
	forge_auto_config struct forge_config *cfg = NULL;
	struct forge_setup_request req = { .users = users,
					   .root = root,
					   .quota_dir = quota_dir,
					   .dry_run = is_dry_run };
	int rc = quota ? forge_parse_size(quota, &req.quota_bytes, err) : 0;

	if (rc < 0)
		return forge_wrap(err, rc, "--workdir-quota");
	if (is_undo)
		return forge_setup_undo(&req, report, err);
	rc = forge_config_load(forge_session_config, &cfg, err);
	return rc < 0 ? rc : forge_setup(cfg, &req, report, err);
}

static int cmd_setup(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_setup_report report FORGE_CLEANUP(forge_setup_report_done) = { 0 };
	int rc = forge_refuse_words(&forge_cmd_setup, argc, argv, 0);

	if (rc)
		return rc;
	rc = set_up(&report, &err);
	if (rc >= 0)
		rc = is_json ? print_report_json(&report, &err)
			     : print_report(&report, &err);
	forge_strv_done(&users);
	if (rc < 0)
		return forge_session_fail(&err);
	return report.is_complete || is_dry_run ? FORGE_EXIT_OK : FORGE_EXIT_FAILED;
}

const struct forge_cmd forge_cmd_setup = {
	.name = "setup",
	.synopsis = "[OPTIONS]",
	.help = "Make what doctor finds missing on this host (root, once)",
	.about = "Makes what this host lacks for root and for the named users: sysctls,\n"
		 "an AppArmor profile, cgroups, and on request a place for workdirs "
		 "whose\n"
		 "disk limits the kernel keeps. Does nothing twice. What was written "
		 "stands\n"
		 "in /etc/forge/setup.json; --undo removes what still reads as it was\n"
		 "written and says what it left.",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_setup,
	.opts = setup_opts,
};
