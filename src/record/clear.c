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

int forge_check_quarantine(const json_t *record, struct forge_error *err)
{
	const char *run_id = forge_json_string_or(record, "run_id", "");

	if (!json_is_true(json_object_get(record, "quarantine")))
		return 0;
	return forge_hint(
		err,
		forge_fail(err, EPERM,
			   "run %s has changed guarded files: its outputs are in "
			   "quarantine",
			   run_id),
		"forge health clear %s --note TEXT releases them", run_id);
}

/* The record of this FORGE_HOME if there is one: others may have changed the one in the store. */
static int load(const struct forge_home *home, const char *run_id, const json_t *given,
		json_t **ret, struct forge_error *err)
{
	int rc = forge_load_record(home, run_id, ret, err);

	if (rc == 0 || !forge_is_no_record(rc))
		return rc;
	if (err)
		*err = FORGE_ERROR_INIT;
	*ret = json_deep_copy(given);
	return *ret ? 0 : forge_fail(err, ENOMEM, "out of memory");
}

static void set_cleared(json_t *record, const char *note)
{
	char user[FORGE_USER_MAX], now[FORGE_TIME_MAX];

	json_object_set_new(record, "quarantine", json_false());
	json_object_set_new(
		record, "cleared",
		json_pack("{s:o, s:s, s:o}", "by", forge_json_text(forge_user_name(user)),
			  "at", forge_format_now(now), "note", forge_json_text(note)));
}

static bool is_held(const json_t *record)
{
	return json_is_true(json_object_get(record, "quarantine"));
}

/*
 * The store goes first, and the mark last: what is interrupted can be repeated, and until then runs wait. The
 * three may differ after an earlier try.
 */
int forge_clear_run(const struct forge_home *home, struct forge_store *st,
		    const char *run_id, const json_t *given, const char *note,
		    struct forge_error *err)
{
	char user[FORGE_USER_MAX], detail[600];
	forge_auto_json json_t *record = NULL;
	int rc = given ? load(home, run_id, given, &record, err) : 0;
	bool is_recorded = rc == 0 && record && (is_held(record) || is_held(given));

	(void)snprintf(detail, sizeof(detail), "%s: %s", forge_user_name(user), note);
	if (is_recorded) {
		forge_auto_json json_t *event =
			forge_event_json(0, "health", "cleared", NULL, detail);
		set_cleared(record, note);
		rc = forge_store_replace_record(st, run_id, record, event, err);
		if (rc == 0)
			rc = change_files(home, run_id, record, detail, err);
	}
	if (rc == 0)
		rc = forge_quarantine_remove(home, run_id, err);
	return rc == 1 && !is_recorded
		       ? forge_fail(err, EINVAL, "run %s is in no quarantine", run_id)
	       : rc < 0 ? rc
			: 0;
}
