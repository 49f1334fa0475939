/* SPDX-License-Identifier: Apache-2.0 */
/* Ends the quarantine of a run. */
#include "record/clear.h"

#include <errno.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "record/adopt.h"
#include "record/deliver.h"
#include "record/record.h"
#include "state/quarantine.h"

/* The run's own directory, if it is here. */
static int change_files(const struct forge_home *home, const char *run_id,
			const json_t *record, const char *detail, struct forge_error *err)
{
	forge_auto_close int dir = forge_home_open_run(home, run_id);
	forge_auto_json json_t *events = NULL;

	if (dir < 0)
		return dir == -ENOENT ? 0 : forge_fail_errno(err, -dir, "run %s", run_id);
	int rc = forge_load_events(home, run_id, &events, err);
	if (rc == 0)
		rc = forge_add_event(home, run_id,
				     forge_event_json(forge_next_seq(events), "health",
						      "cleared", NULL, detail),
				     err);
	return rc < 0 ? rc : forge_write_record(home, run_id, record, err);
}

int forge_clear_run(const struct forge_home *home, struct forge_store *st,
		    const json_t *given, const char *note, struct forge_error *err)
{
	const char *run_id = forge_json_string(given, "run_id");
	char user[FORGE_USER_MAX], now[FORGE_TIME_MAX], detail[600];
	forge_auto_json json_t *record = NULL;
	int rc = forge_load_record(home, run_id, &record, err);

	/* What a store says of a run of this FORGE_HOME may be another user's words. */
	if (rc < 0 && forge_is_no_record(rc)) {
		if (err)
			*err = FORGE_ERROR_INIT;
		record = json_deep_copy(given);
		rc = record ? 0 : forge_fail(err, ENOMEM, "out of memory");
	}
	if (rc < 0)
		return rc;
	if (!json_is_true(json_object_get(record, "quarantine"))) {
		/* Its supervisor may have died before it could record that. */
		rc = forge_quarantine_remove(home, run_id, err);
		return rc == 1 ? forge_fail(err, EINVAL, "run %s is in no quarantine",
					    run_id)
			       : rc;
	}
	(void)snprintf(detail, sizeof(detail), "%s: %s", forge_user_name(user), note);
	json_object_set_new(record, "quarantine", json_false());
	json_object_set_new(
		record, "cleared",
		json_pack("{s:o, s:s, s:o}", "by", forge_json_text(forge_user_name(user)),
			  "at", forge_format_now(now), "note", forge_json_text(note)));
	rc = change_files(home, run_id, record, detail, err);
	forge_auto_json json_t *event =
		forge_event_json(0, "health", "cleared", NULL, detail);
	if (rc == 0)
		rc = forge_store_replace_record(st, run_id, record, event, err);
	/* Last: until then runs wait, and this command can be repeated. */
	if (rc == 0)
		rc = forge_quarantine_remove(home, run_id, err);
	return rc < 0 ? rc : 0;
}
