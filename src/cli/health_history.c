/* SPDX-License-Identifier: Apache-2.0 */
/* Sums up the results of checks, and draws them as a small chart. */
#include "cli/health_history.h"

#include <errno.h>
#include <langinfo.h>
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

/* Parts of the time that a chart shows. */
#define PARTS 24

/* One check. */
struct sum {
	char *name, *kind;
	int64_t n, n_failed, total_usec, slowest_usec;
	int64_t parts[PARTS], failed_parts[PARTS];
	char last_failed[FORGE_TIME_MAX], problem[200];
	char last_run[FORGE_RUN_ID_MAX];
};

struct sums {
	struct sum *v;
	size_t n;
	time_t since, until;
};

static struct sum *sum_of(struct sums *s, const struct forge_check_row *row)
{
	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->v[i].name, row->name) == 0)
			return &s->v[i];
	struct sum *grown = reallocarray(s->v, s->n + 1, sizeof(*grown));
	if (!grown)
		return NULL;
	s->v = grown;
	grown[s->n] =
		(struct sum){ .name = strdup(row->name), .kind = strdup(row->kind) };
	return grown[s->n].name && grown[s->n].kind ? &grown[s->n++] : NULL;
}

static int add(const struct forge_check_row *row, void *arg)
{
	struct sums *s = arg;
	struct sum *one = sum_of(s, row);
	time_t at = forge_record_time(row->time);

	if (!one)
		return -ENOMEM;
	/* The first result decides where the chart begins. */
	if (s->since == 0)
		s->since = at < s->until ? at : s->until;
	/* Another host may have another clock. */
	at = at < s->since ? s->since : at > s->until ? s->until : at;
	int64_t span = s->until > s->since ? s->until - s->since : 1;
	int64_t part = at > s->since ? (at - s->since) * PARTS / span : 0;
	int64_t took = row->duration_usec > 0 ? row->duration_usec : 0;
	part = part < PARTS ? part : PARTS - 1;
	one->n++;
	one->total_usec += took;
	if (took > one->slowest_usec)
		one->slowest_usec = took;
	one->parts[part]++;
	if (row->is_ok)
		return 0;
	one->n_failed++;
	one->failed_parts[part]++;
	(void)snprintf(one->last_failed, sizeof(one->last_failed), "%s", row->time);
	(void)snprintf(one->problem, sizeof(one->problem), "%s", row->problem);
	(void)snprintf(one->last_run, sizeof(one->last_run), "%s", row->run_id);
	return 0;
}

/* A mark for each part of the time: the more passed, the higher; nothing was checked: a dot. */
static void draw(const struct sum *s, bool is_utf8, char *buf, size_t size)
{
	static const char *const blocks[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	static const char *const plain[] = { "_", "_", "_", "-", "-", "-", "^", "^" };
	size_t len = 0;

	buf[0] = '\0';
	for (int i = 0; i < PARTS && len + 4 < size; i++) {
		int64_t passed = s->parts[i] - s->failed_parts[i];
		int level = s->parts[i] ? (int)(passed * 7 / s->parts[i]) : -1;
		len += (size_t)snprintf(buf + len, size - len, "%s",
					level < 0 ? (is_utf8 ? "·" : ".")
					: is_utf8 ? blocks[level]
						  : plain[level]);
	}
}

static json_t *sum_json(const struct sum *s)
{
	json_t *parts = json_array();

	for (int i = 0; i < PARTS; i++)
		json_array_append_new(parts, json_pack("[I, I]", (json_int_t)s->parts[i],
						       (json_int_t)s->failed_parts[i]));
	return json_pack("{s:s, s:s, s:I, s:I, s:o, s:o, s:s?, s:s?, s:s?, s:o}", "name",
			 s->name, "kind", s->kind, "checks", (json_int_t)s->n, "failed",
			 (json_int_t)s->n_failed, "mean_seconds",
			 forge_json_seconds((uint64_t)(s->total_usec / s->n)),
			 "slowest_seconds", forge_json_seconds((uint64_t)s->slowest_usec),
			 "last_failed", s->n_failed ? s->last_failed : NULL, "problem",
			 s->n_failed ? s->problem : NULL, "run_id",
			 s->n_failed && *s->last_run ? s->last_run : NULL, "parts",
			 parts);
}

enum { CHECK, KIND, RATE, MEAN, SLOWEST, CHART, FAILED, COLUMNS };
#define TEXT_MAX 320

static void fill_row(const struct sum *s, bool is_utf8, char (*text)[TEXT_MAX],
		     struct forge_cell *row)
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

static int print_sums(const struct sums *s, struct forge_error *err)
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

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct sum *)a)->name, ((const struct sum *)b)->name);
}

int forge_health_history(struct forge_store *st, const char *name, time_t since,
			 bool is_json, struct forge_error *err)
{
	struct sums s = { .until = time(NULL) };
	char from[FORGE_TIME_MAX];
	int rc = forge_store_checks(st, name, forge_format_time(from, since), add, &s,
				    err);

	if (rc == -ENOMEM)
		(void)forge_fail(err, ENOMEM, "out of memory");
	if (s.n)
		qsort(s.v, s.n, sizeof(*s.v), by_name);
	if (rc >= 0 && is_json) {
		forge_auto_json json_t *list = json_array();
		for (size_t i = 0; i < s.n; i++)
			json_array_append_new(list, sum_json(&s.v[i]));
		forge_print_json(list);
	} else if (rc >= 0 && s.n == 0) {
		puts("no check was carried out in this time");
	} else if (rc >= 0) {
		rc = print_sums(&s, err);
	}
	for (size_t i = 0; i < s.n; i++) {
		free(s.v[i].name);
		free(s.v[i].kind);
	}
	free(s.v);
	return rc < 0 ? rc : 0;
}
