/* SPDX-License-Identifier: Apache-2.0 */
/* Sums up the results of checks. */
#include "record/health_sums.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "record/view.h"

static struct forge_health_sum *sum_of(struct forge_health_sums *s,
				       const struct forge_check_row *row)
{
	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->v[i].name, row->name) == 0)
			return &s->v[i];
	struct forge_health_sum *grown = reallocarray(s->v, s->n + 1, sizeof(*grown));
	if (!grown)
		return NULL;
	s->v = grown;
	grown[s->n] = (struct forge_health_sum){ .name = strdup(row->name),
						 .kind = strdup(row->kind) };
	return grown[s->n].name && grown[s->n].kind ? &grown[s->n++] : NULL;
}

static int add(const struct forge_check_row *row, void *arg)
{
	struct forge_health_sums *s = arg;
	struct forge_health_sum *one = sum_of(s, row);
	time_t at = forge_record_time(row->time);

	if (!one)
		return -ENOMEM;
	/* The first result decides where the chart begins. */
	if (s->since == 0)
		s->since = at < s->until ? at : s->until;
	/* Another host may have another clock. */
	at = at < s->since ? s->since : at > s->until ? s->until : at;
	int64_t span = s->until > s->since ? s->until - s->since : 1;
	int64_t part = at > s->since ? (at - s->since) * FORGE_HEALTH_PARTS / span : 0;
	int64_t took = row->duration_usec > 0 ? row->duration_usec : 0;
	part = part < FORGE_HEALTH_PARTS ? part : FORGE_HEALTH_PARTS - 1;
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

static json_t *sum_json(const struct forge_health_sum *s)
{
	json_t *parts = json_array();

	for (int i = 0; i < FORGE_HEALTH_PARTS; i++)
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

json_t *forge_health_sums_json(const struct forge_health_sums *s)
{
	json_t *list = json_array();

	for (size_t i = 0; i < s->n; i++)
		(void)json_array_append_new(list, sum_json(&s->v[i]));
	return list;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct forge_health_sum *)a)->name,
		      ((const struct forge_health_sum *)b)->name);
}

int forge_health_sum_up(struct forge_store *st, const char *name, time_t since,
			struct forge_health_sums *ret, struct forge_error *err)
{
	struct forge_health_sums s = { .until = time(NULL) };
	char from[FORGE_TIME_MAX];
	int rc = forge_store_checks(st, name, forge_format_time(from, since), add, &s,
				    err);

	if (rc < 0) {
		forge_health_sums_done(&s);
		return rc == -ENOMEM ? forge_fail(err, ENOMEM, "out of memory") : rc;
	}
	if (s.n)
		qsort(s.v, s.n, sizeof(*s.v), by_name);
	*ret = s;
	return 0;
}

void forge_health_sums_done(struct forge_health_sums *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->v[i].name);
		free(s->v[i].kind);
	}
	free(s->v);
	*s = (struct forge_health_sums){ 0 };
}
