/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of attacks. */
#include "cli/doctor_print.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/table.h"

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

/* Does an earlier check have the same fix? */
static bool is_repeated(const struct forge_doctor_report *r, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (strcmp(r->checks[k].fix, r->checks[i].fix) == 0)
			return true;
	return false;
}

/* One cause often breaks several promises: each fix once, with all it would mend. */
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

int forge_doctor_print(const struct forge_doctor_report *r, bool is_json,
		       struct forge_error *err)
{
	int rc = is_json ? print_report_json(r, err) : print_checks(r, err);

	if (rc == 0 && !is_json) {
		print_fixes(r);
		print_level(r);
	}
	return rc;
}
