/* SPDX-License-Identifier: Apache-2.0 */
/* Makes JSON of runs. */
#include "server/view.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "executor/executor.h"
#include "record/record.h"
#include "record/view.h"
#include "run/admit.h"
#include "state/samples.h"
#include "state/slot.h"

static json_t *text(const char *s)
{
	return s ? forge_json_text(s) : json_null();
}

static json_t *number(int64_t n)
{
	return n < 0 ? json_null() : json_integer(n);
}

static json_t *limit(const json_t *record, const char *key)
{
	const json_t *value = json_object_get(json_object_get(record, "limits"), key);

	return json_is_number(value) ? json_incref((json_t *)value) : json_null();
}

json_t *forge_view_row(const struct forge_run_row *row, const json_t *record)
{
	forge_auto_free char *command = record ? forge_record_command(record) : NULL;
	json_t *j = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
			      "run_id", text(row->run_id), "analysis_id",
			      text(row->analysis_id), "status", text(row->status),
			      "reason", text(row->reason), "completion_notes",
			      text(row->notes), "runtime", text(row->runtime), "executor",
			      text(row->executor), "host", text(row->host), "user",
			      text(row->user), "created_at", text(row->created_at),
			      "started_at", text(row->started_at));

	if (!j)
		return NULL;
	json_object_set_new(j, "ended_at", text(row->ended_at));
	json_object_set_new(j, "wall_seconds",
			    row->wall_usec < 0 ? json_null()
					       : json_real((double)row->wall_usec / 1e6));
	json_object_set_new(j, "memory_peak_bytes", number(row->memory_peak));
	json_object_set_new(j, "parent_run", text(row->parent_run));
	json_object_set_new(j, "attempt", number(row->attempt));
	json_object_set_new(j, "command", text(command));
	json_object_set_new(j, "memory_limit_bytes", limit(record, "memory_bytes"));
	return j;
}

static json_t *usage(const char *run_id, const json_t *slots)
{
	struct forge_usage_now now;

	forge_run_usage(slots, run_id, &now);
	return json_pack("{s:o, s:o, s:n, s:n}", "memory_bytes",
			 forge_json_number(now.memory_bytes), "cpu_seconds",
			 now.cpu_usec == UINT64_MAX ? json_null()
						    : forge_json_seconds(now.cpu_usec),
			 "pids", "disk_bytes");
}

static json_t *why(const struct forge_server *sv, const char *run_id,
		   const json_t *record, const json_t *slots)
{
	char buf[FORGE_WHY_MAX];
	const struct forge_need need = {
		.memory_bytes = forge_record_limit(record, "memory_bytes", 1),
		.cpus_milli = forge_record_limit(record, "cpus", 1000),
		.run_id = run_id,
	};
	const char *pending = forge_run_pending(slots, run_id);

	return text(pending ? pending : forge_admit_why(&sv->home, sv->cfg, &need, buf));
}

json_t *forge_view_live(const struct forge_server *sv, const struct forge_run_row *row,
			const json_t *record, const json_t *slots, bool wants_why)
{
	bool is_queued = strcmp(row->status, "queued") == 0;
	json_t *j = forge_view_row(row, record);

	if (!j)
		return NULL;
	json_object_set_new(j, "live",
			    is_queued ? json_null() : usage(row->run_id, slots));
	json_object_set_new(j, "limits",
			    json_pack("{s:o, s:o, s:o, s:o, s:o}", "memory_bytes",
				      limit(record, "memory_bytes"), "cpus",
				      limit(record, "cpus"), "pids",
				      limit(record, "pids"), "wall_seconds",
				      limit(record, "wall_seconds"), "disk_bytes",
				      limit(record, "disk_bytes")));
	json_object_set_new(j, "why",
			    is_queued && wants_why && record
				    ? why(sv, row->run_id, record, slots)
				    : json_null());
	return j;
}

/* What only its supervisor measures: the last point that it took. */
static void add_measured(const struct forge_server *sv, const char *run_id, json_t *live)
{
	static const struct {
		size_t column;
		const char *key;
	} measured[] = { { 3, "pids" }, { 4, "disk_bytes" } };
	json_t *all;

	if (forge_samples_read(&sv->home, run_id, &all, NULL) < 0)
		return;
	const json_t *points = json_object_get(all, "samples");
	const json_t *last = json_array_get(points, json_array_size(points) - 1);
	for (size_t i = 0; last && i < FORGE_ARRAY_SIZE(measured); i++)
		(void)json_object_set(live, measured[i].key,
				      json_array_get(last, measured[i].column));
	json_decref(all);
}

json_t *forge_view_usage(const struct forge_server *sv, const json_t *record)
{
	const char *status = forge_json_string_or(record, "status", "");
	const char *run_id = forge_json_string_or(record, "run_id", "");

	if (forge_record_is_over(record) || strcmp(status, "queued") == 0)
		return json_null();
	forge_auto_json json_t *slots = forge_slot_all(&sv->home);
	json_t *live = usage(run_id, slots);
	if (live)
		add_measured(sv, run_id, live);
	return live;
}

json_t *forge_view_why(const struct forge_server *sv, const json_t *record)
{
	if (strcmp(forge_json_string_or(record, "status", ""), "queued") != 0)
		return json_null();
	forge_auto_json json_t *slots = forge_slot_all(&sv->home);
	return why(sv, forge_json_string_or(record, "run_id", ""), record, slots);
}
