/* SPDX-License-Identifier: Apache-2.0 */
/* Sums up the results of checks, and draws them as a small chart. */
#include "cli/health_history.h"

#include <errno.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/session.h"
#include "cli/table.h"
#include "record/health_sums.h"

/* A mark for each part of the time: the more passed, the higher; nothing was checked: a dot. */
static void draw(const struct forge_health_sum *s, bool is_utf8, char *buf, size_t size)
{
	static const char *const blocks[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	static const char *const plain[] = { "_", "_", "_", "-", "-", "-", "^", "^" };
	size_t len = 0;

	buf[0] = '\0';
	for (int i = 0; i < FORGE_HEALTH_PARTS && len + 4 < size; i++) {
		int64_t passed = s->parts[i] - s->failed_parts[i];
		int level = s->parts[i] ? (int)(passed * 7 / s->parts[i]) : -1;
		len += (size_t)snprintf(buf + len, size - len, "%s",
					level < 0 ? (is_utf8 ? "·" : ".")
					: is_utf8 ? blocks[level]
						  : plain[level]);
	}
}

enum { CHECK, KIND, RATE, MEAN, SLOWEST, CHART, FAILED, COLUMNS };
#define TEXT_MAX 320

static void fill_row(const struct forge_health_sum *s, bool is_utf8,
		     char (*text)[TEXT_MAX], struct forge_cell *row)
{
	char time[FORGE_FORMAT_MAX];

	(void)snprintf(text[RATE], TEXT_MAX, "%lld of %lld (%.1f %%)",
		       (long long)(s->n - s->n_failed), (long long)s->n,
		       100.0 * (double)(s->n - s->n_failed) / (double)s->n);
	(void)snprintf(text[MEAN], TEXT_MAX, "%s",
		       forge_format_duration(time, (uint64_t)(s->total_usec / s->n)));
	(void)snprintf(text[SLOWEST], TEXT_MAX, "%s",
		       forge_format_duration(time, (uint64_t)s->slowest_usec));
	draw(s, is_utf8, text[CHART], TEXT_MAX);
	(void)snprintf(text[FAILED], TEXT_MAX, "%s%s%s", s->last_failed,
		       s->n_failed ? " " : "", s->problem);
	row[CHECK].text = s->name;
	row[KIND].text = s->kind;
	for (int i = RATE; i < COLUMNS; i++)
		row[i].text = text[i];
	row[RATE].colour = s->n_failed == 0	? FORGE_GREEN
			   : s->n_failed < s->n ? FORGE_YELLOW
						: FORGE_RED;
}

static int print_sums(const struct forge_health_sums *s, struct forge_error *err)
{
	static const char *const heads[] = { "CHECK",	"KIND",	 "PASSED",	"MEAN",
					     "SLOWEST", "CHART", "LAST FAILURE" };
	bool is_utf8 =
		setlocale(LC_CTYPE, "") && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	forge_auto_free struct forge_cell *cells =
		calloc((s->n + 1) * COLUMNS, sizeof(*cells));
	forge_auto_free char(*text)[COLUMNS][TEXT_MAX] = calloc(s->n + 1, sizeof(*text));

	if (!cells || !text)
		return forge_fail(err, ENOMEM, "out of memory");
	for (size_t i = 0; i < COLUMNS; i++)
		cells[i] = (struct forge_cell){ heads[i], FORGE_BOLD };
	for (size_t i = 0; i < s->n; i++)
		fill_row(&s->v[i], is_utf8, text[i], cells + (i + 1) * COLUMNS);
	forge_table_print(stdout, cells, COLUMNS, s->n + 1);
	return 0;
}

int forge_health_history(struct forge_store *st, const char *name, time_t since,
			 bool is_json, struct forge_error *err)
{
	struct forge_health_sums s;
	int rc = forge_health_sum_up(st, name, since, &s, err);

	if (rc < 0)
		return rc;
	if (is_json) {
		forge_auto_json json_t *list = forge_health_sums_json(&s);
		forge_print_json(list);
	} else if (s.n > 0) {
		rc = print_sums(&s, err);
	}
	int n = s.n > INT_MAX ? INT_MAX : (int)s.n;
	forge_health_sums_done(&s);
	return rc < 0 ? rc : n;
}
