/* SPDX-License-Identifier: Apache-2.0 */
/* forge doctor: shows what this host can enforce, and how to fix the rest. */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>

#include "cli/doctor_print.h"
#include "doctor/doctor.h"

static const char *config_path;
static bool is_json;

static const struct forge_opt *doctor_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_STRING(0, "config", "FILE", &config_path,
			     "Read this configuration"),
		FORGE_FLAG(0, "json", &is_json, "Print the report as JSON"),
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

static int examine(struct forge_doctor_report *report, struct forge_error *err)
{
	forge_auto_config struct forge_config *cfg = NULL;
	int rc = forge_config_load(config_path, &cfg, err);

	return rc < 0 ? rc : forge_doctor(cfg, NULL, report, err);
}

static int cmd_doctor(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_doctor_report report FORGE_CLEANUP(forge_doctor_report_done) = { 0 };
	int rc = forge_refuse_words(&forge_cmd_doctor, argc, argv, 0);

	if (rc)
		return rc;
	forge_reconcile_first();
	rc = examine(&report, &err);
	if (rc >= 0)
		rc = forge_doctor_print(&report, is_json, &err);
	if (rc < 0) {
		forge_print_error(&err);
		return FORGE_EXIT_FAILED;
	}
	return strcmp(report.level, "full") == 0 ? FORGE_EXIT_OK : FORGE_EXIT_FAILED;
}

const struct forge_cmd forge_cmd_doctor = {
	.name = "doctor",
	.synopsis = "[OPTIONS]",
	.help = "Show what this host can enforce, proven by attack",
	.about = "Attacks each promise of the sandbox in a throw-away one and shows\n"
		 "which held, by which mechanism, and how to fix what this host cannot\n"
		 "enforce. Exits 0 only when the isolation is full.",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_doctor,
	.opts = doctor_opts,
};
