/* SPDX-License-Identifier: Apache-2.0 */
/* forge doctor: shows what this host can enforce, and how to fix the rest. */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>

#include "cli/table.h"
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

static const struct forge_cell states[] = {
	[FORGE_DOCTOR_PASS] = { "pass", FORGE_GREEN },
	[FORGE_DOCTOR_CANNOT] = { "cannot", FORGE_YELLOW },
	[FORGE_DOCTOR_BROKEN] = { "broken", FORGE_RED },
};

enum { PROMISE, STATE, MECHANISM, DETAIL, COLUMNS };

static int print_checks(const struct forge_doctor_report *r, struct forge_error *err)
{
	forge_auto_free struct forge_cell *cells =
		calloc((r->n + 1) * COLUMNS, sizeof(*cells));

	if (!cells)
		return forge_fail(err, ENOMEM, "out of memory");
	cells[PROMISE] = (struct forge_cell){ "PROMISE", FORGE_BOLD };
	cells[STATE] = (struct forge_cell){ "STATE", FORGE_BOLD };
	cells[MECHANISM] = (struct forge_cell){ "MECHANISM", FORGE_BOLD };
	cells[DETAIL] = (struct forge_cell){ "DETAIL", FORGE_BOLD };
	for (size_t i = 0; i < r->n; i++) {
		struct forge_cell *row = cells + (i + 1) * COLUMNS;

		row[PROMISE].text = r->checks[i].promise;
		row[STATE] = states[r->checks[i].state];
		row[MECHANISM].text = r->checks[i].mechanism;
		row[DETAIL].text = r->checks[i].detail;
	}
	forge_table_print(stdout, cells, COLUMNS, r->n + 1);
	return 0;
}

/* Whether an earlier check has the same fix. */
static bool is_repeated(const struct forge_doctor_report *r, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (strcmp(r->checks[k].fix, r->checks[i].fix) == 0)
			return true;
	return false;
}

/* One cause often fails several checks: prints each fix once, with all its checks. */
static void print_fixes(const struct forge_doctor_report *r)
{
	unsigned n = 0;

	for (size_t i = 0; i < r->n; i++) {
		const char *fix = r->checks[i].fix;
		if (!*fix || is_repeated(r, i))
			continue;
		if (n == 0)
			puts("\nTo fix:");
		printf("  %u. %s", ++n, r->checks[i].promise);
		for (size_t k = i + 1; k < r->n; k++)
			if (strcmp(r->checks[k].fix, fix) == 0)
				printf(", %s", r->checks[k].promise);
		fputs(": ", stdout);
		forge_print_clean(stdout, fix, strlen(fix));
		putchar('\n');
	}
}

static void print_level(const struct forge_doctor_report *r)
{
	const char *separator = " (missing: ";

	printf("\nisolation: %s", r->level);
	for (size_t i = 0; i < r->n; i++) {
		if (r->checks[i].state == FORGE_DOCTOR_PASS)
			continue;
		printf("%s%s", separator, r->checks[i].promise);
		separator = ", ";
	}
	puts(separator[0] == ',' ? ")" : "");
}

static int print_report_json(const struct forge_doctor_report *r, struct forge_error *err)
{
	json_t *checks = json_array();
	json_t *report = json_pack("{s:s, s:o}", "level", r->level, "checks", checks);
	bool is_ok = report != NULL;

	for (size_t i = 0; is_ok && i < r->n; i++) {
		const struct forge_doctor_check *c = &r->checks[i];
		json_t *check = json_pack(
			"{s:s, s:s, s:s, s:s, s:s, s:s}", "promise", c->promise, "about",
			c->about, "state", states[c->state].text, "mechanism",
			c->mechanism, "detail", c->detail, "fix", c->fix);
		is_ok = json_array_append_new(checks, check) == 0;
	}
	if (is_ok)
		forge_print_json(report);
	json_decref(report);
	return is_ok ? 0
		     : forge_fail(err, ENOMEM, "report: out of memory or text not UTF-8");
}

static int examine(struct forge_doctor_report *report, struct forge_error *err)
{
	forge_auto_config struct forge_config *cfg = NULL;
	int rc = forge_config_load(config_path, &cfg, err);

	return rc < 0 ? rc : forge_doctor(cfg, report, err);
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
		rc = is_json ? print_report_json(&report, &err)
			     : print_checks(&report, &err);
	if (rc < 0) {
		forge_print_error(&err);
		return FORGE_EXIT_FAILED;
	}
	if (!is_json) {
		print_fixes(&report);
		print_level(&report);
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
