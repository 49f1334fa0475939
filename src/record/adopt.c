/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a record from a row of the store; see adopt.h. */
#include "record/adopt.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/strv.h"
#include "state/kept.h"
#include "state/objects.h"

/* How the run ended. */
static const char *const verdict[] = {
	"status",      "reason",     "completion_notes", "exit_code", "signal",
	"exit_status", "started_at", "ended_at",	 "usage",     "isolation",
};

/* The request and its user. None of these values is opened as a file. */
static const char *const facts[] = {
	"analysis_id",	 "command",	    "executor",	       "host",
	"user",		 "created_at",	    "profile",	       "runtime",
	"limits",	 "network",	    "inputs",	       "parent_run",
	"attempt",	 "priority",	    "idempotency_key", "request",
	"post_process",	 "outputs_skipped", "undeclared",      "undeclared_count",
	"forge_version", "retry",
};

/* The step of a pipeline, without its paths. */
static const char *const step_facts[] = { "pipeline", "task", "step", "key", "parts" };

/* The identity of the supervisor, without its paths. */
static const char *const process[] = {
	"pid", "start_time", "boot_id", "machine_id", "pid_namespace", "uid",
};

static void copy(json_t *to, const json_t *from, const char *const *keys, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		json_t *value = json_object_get(from, keys[i]);
		if (value)
			json_object_set_new(to, keys[i], json_deep_copy(value));
	}
}

json_t *forge_record_logs(const struct forge_home *home, const char *run_id)
{
	static const char *const names[][2] = { { "stdout", "stdout" },
						{ "stderr", "stderr" },
						{ "events", "events.jsonl" } };
	json_t *logs = json_object();

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(names); i++) {
		forge_auto_free char *path =
			forge_asprintf("%s/runs/%s/%s", home->path, run_id, names[i][1]);
		json_object_set_new(logs, names[i][0],
				    path ? forge_json_text(path) : NULL);
	}
	return logs;
}

/* Copies names and digests. The path of an object follows from its digest. */
static json_t *adopt_outputs(const json_t *outputs)
{
	static const char *const keys[] = { "path", "size", "sha256", "partial" };
	json_t *a = json_array();
	size_t i;
	const json_t *from;

	json_array_foreach (outputs, i, from) {
		const char *digest = forge_json_string(from, "sha256");
		char stored[FORGE_STORED_MAX];
		if (!forge_objects_is_digest(digest))
			continue;
		json_t *o = json_object();
		copy(o, from, keys, FORGE_ARRAY_SIZE(keys));
		json_object_set_new(o, "stored_as",
				    json_string(forge_objects_path(stored, digest)));
		json_array_append_new(a, o);
	}
	return a;
}

/* The kept workdir comes from kept.json of this FORGE_HOME, never from the row. */
static void add_kept(const struct forge_home *home, const char *run_id, json_t *record)
{
	forge_auto_kept struct forge_kept kept = { 0 };
	forge_auto_close int dir = forge_home_open_run(home, run_id);

	if (dir < 0 || forge_kept_read(dir, &kept, NULL) != 1)
		return;
	json_object_set_new(record, "workdir", forge_json_text(kept.path));
	json_object_set_new(record, "workdir_kept", json_true());
	json_object_set_new(
		record, "workdir_identity",
		json_pack("[I, I]", (json_int_t)kept.dev, (json_int_t)kept.ino));
}

json_t *forge_record_adopt(const struct forge_home *home, const char *run_id,
			   const json_t *row, const json_t *ours)
{
	json_t *r = ours ? json_deep_copy(ours) : json_object();

	if (!r)
		return NULL;
	copy(r, row, verdict, FORGE_ARRAY_SIZE(verdict));
	/* Outputs in our record stay when the row has none. */
	json_t *outputs = adopt_outputs(json_object_get(row, "outputs"));
	if (json_array_size(outputs) || !json_object_get(r, "outputs"))
		json_object_set(r, "outputs", outputs);
	json_decref(outputs);
	json_object_set_new(r, "run_id", json_string(run_id));
	if (ours)
		return r;
	copy(r, row, facts, FORGE_ARRAY_SIZE(facts));
	if (json_object_get(row, "step") && !json_object_get(r, "step")) {
		json_t *step = json_object();
		copy(step, json_object_get(row, "step"), step_facts,
		     FORGE_ARRAY_SIZE(step_facts));
		json_object_set_new(r, "step", step);
	}
	json_t *supervisor = json_object();
	copy(supervisor, json_object_get(row, "supervisor"), process,
	     FORGE_ARRAY_SIZE(process));
	json_object_set_new(supervisor, "home", forge_json_text(home->path));
	json_object_set_new(r, "supervisor", supervisor);
	json_object_set_new(r, "logs", forge_record_logs(home, run_id));
	json_object_set_new(r, "workdir", json_null());
	json_object_set_new(r, FORGE_RESTORED, json_true());
	add_kept(home, run_id, r);
	return r;
}
