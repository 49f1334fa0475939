/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the command, runs it and replaces its earlier result. */
#include "run/postprocess_again.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "record/clear.h"
#include "record/adopt.h"
#include "record/deliver.h"
#include "record/foreign.h"
#include "record/record.h"
#include "store/state.h"

static int choose(const struct forge_config *cfg, const json_t *record,
		  const char *command, struct forge_strv *ret, struct forge_error *err)
{
	const json_t *before =
		json_object_get(json_object_get(record, "post_process"), "command");
	size_t i;
	const json_t *word;
	int rc = 0;

	if (command) {
		const char *const words[] = { "/bin/sh", "-c", command };
		for (i = 0; i < 3 && rc == 0; i++)
			rc = forge_strv_add(ret, words[i]);
	} else if (json_array_size(before)) {
		json_array_foreach (before, i, word)
			if (rc == 0)
				rc = forge_strv_add(ret, json_string_value(word));
	} else {
		rc = forge_strv_copy(ret, &cfg->post_process);
	}
	if (rc < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	return ret->n ? 0
		      : forge_hint(err,
				   forge_fail(err, EINVAL,
					      "there is no post-process to repeat"),
				   "Give one with --command");
}

/* Updates the copy in the run's directory; the store is authoritative by now. */
static void update_files(const struct forge_home *home, const json_t *record,
			 const json_t *result, const json_t *rows)
{
	const char *run_id = forge_json_string(record, "run_id");
	forge_auto_close int dir = forge_home_open_run(home, run_id);
	json_t *copy = json_copy((json_t *)record);

	json_object_set(copy, "post_process", (json_t *)result);
	forge_auto_free char *text =
		json_dumps(copy, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	forge_auto_free char *lines = json_dumps(rows, JSON_COMPACT);
	json_decref(copy);
	if (dir >= 0 && text)
		(void)!forge_replace_file(dir, "record.json", text, strlen(text), false);
	if (dir >= 0 && lines)
		(void)!forge_replace_file(dir, "post_process.json", lines, strlen(lines),
					  false);
}

static int post_process_again(const struct forge_config *cfg,
			      const struct forge_home *home, const char *url,
			      const json_t *record, const char *command,
			      json_t **ret_result, struct forge_error *err)
{
	forge_auto_strv struct forge_strv argv = { 0 };
	const char *run_id = forge_json_string(record, "run_id");
	json_t *result = NULL, *rows = NULL, *shown = json_copy((json_t *)record);
	int rc = choose(cfg, record, command, &argv, err);
	if (json_is_true(json_object_get(record, FORGE_RESTORED)))
		json_object_set_new(shown, "inputs", json_array());
	struct forge_post_spec spec = {
		.cfg = cfg, .home = home, .store = url, .record = shown, .argv = &argv
	};
	if (rc == 0)
		rc = forge_post_process(&spec, &result, &rows, err);
	json_decref(shown);
	if (rc < 0)
		return rc;
	const char *how = forge_json_string(result, "status");
	if (rc == 0 && strcmp(how, "succeeded") == 0) {
		forge_auto_store struct forge_store *st = NULL;
		json_t *event = forge_event_json(0, "user", "post_process", NULL, how);
		rc = forge_store_open(url, &st, err);
		if (rc == 0)
			rc = forge_store_put_post_process(st, run_id, result, rows, event,
							  err);
		json_decref(event);
		if (rc == 0)
			update_files(home, record, result, rows);
	}
	json_decref(rows);
	if (rc < 0) {
		json_decref(result);
		return rc;
	}
	*ret_result = result;
	return 0;
}

/*
 * If a power cut destroyed the directory of a run, its command and inputs are known only
 * from the store, which other users can write. Then the user must give the command, and
 * no inputs are used.
 */
static int check_trusted(const json_t *own, const char *command, struct forge_error *err)
{
	if (!json_is_true(json_object_get(own, FORGE_RESTORED)))
		return 0;
	if (command)
		return 0;
	return forge_hint(
		err,
		forge_fail(err, EPERM,
			   "the record of this run was restored from the store: "
			   "what it says was run before is not trusted"),
		"Give the command with --command");
}

/* Reports the owner and the FORGE_HOME of the run, if the record has them. */
static int fail_foreign(const struct forge_home *home, const json_t *record,
			struct forge_error *err)
{
	const char *run_id = forge_json_string(record, "run_id");
	const char *owner = forge_json_string(record, "user");
	const char *theirs = forge_foreign_home(record);
	char user[FORGE_USER_MAX];

	if (!forge_foreign_is(home, record) || !owner)
		return forge_hint(err,
				  forge_fail(err, ESRCH,
					     "run %s is not of this FORGE_HOME", run_id),
				  "Repeat it with the FORGE_HOME it was started with");
	bool is_mine = strcmp(owner, forge_user_name(user)) == 0;
	if (is_mine)
		return forge_hint(err,
				  forge_fail(err, ESRCH,
					     "run %s is not of this FORGE_HOME, but of "
					     "another of yours, %s",
					     run_id, theirs),
				  "Repeat it with FORGE_HOME=%s", theirs);
	return forge_hint(err,
			  forge_fail(err, ESRCH,
				     "run %s is %s's: kept in the owner's FORGE_HOME, %s",
				     run_id, owner, theirs),
			  "Only its owner can repeat its post-processing; `forge "
			  "outputs %s --copy DIR` copies what it left, if %s shares it",
			  run_id, owner);
}

/*
 * Uses the record in this FORGE_HOME: other users can write a team's store. If they could
 * choose the command and its inputs, they could read any file of this user.
 */
int forge_post_process_again(const struct forge_config *cfg,
			     const struct forge_home *home, const char *url,
			     const json_t *record, const char *command,
			     json_t **ret_result, struct forge_error *err)
{
	const char *run_id = forge_json_string(record, "run_id");
	json_t *own = NULL;

	if (!forge_record_is_over(record))
		return forge_fail(err, EBUSY, "run %s is still %s", run_id,
				  forge_json_string_or(record, "status", "unknown"));
	int rc = forge_load_record(home, run_id, &own, err);
	if (rc < 0 && rc != -ENOENT)
		return rc;
	if (rc < 0)
		return fail_foreign(home, record, err);
	rc = forge_check_quarantine(own, err);
	if (rc == 0)
		rc = check_trusted(own, command, err);
	if (rc == 0)
		rc = post_process_again(cfg, home, url, own, command, ret_result, err);
	json_decref(own);
	return rc;
}
