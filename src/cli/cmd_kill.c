/* SPDX-License-Identifier: Apache-2.0 */
/* forge kill: ends runs and waits until all their processes are gone. */
#include "cli/cli.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/session.h"
#include "executor/executor.h"
#include "record/attendant.h"
#include "record/reconcile.h"
#include "record/record.h"
#include "record/retry_due.h"
#include "state/slot.h"
#include "state/supervisor.h"

static bool is_now, is_json, is_sure;

static const struct forge_opt *kill_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_FLAG(0, "now", &is_now, "Kill at once, without the grace period"),
		FORGE_FLAG('f', "force", &is_sure, "Do not ask"),
		FORGE_FLAG(0, "json", &is_json,
			   "Print the records as JSON, one after the other"),
		FORGE_STORE_ROW,
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

/* With --now, a supervisor that still collects outputs is signalled again after this. */
#define COLLECT_MSEC 3000
/* So many supervisors of one run are signalled one after the other. */
#define SUPERVISORS_MAX 5
/* How long an attempt may take from the lock on its file to its slot. */
#define START_USEC (60 * 1000000ull)

static int end_it(const struct forge_supervisor_ref *live, struct forge_error *err)
{
	int rc = forge_supervisor_stop(live, is_now, err);

	while (rc == 0 && forge_supervisor_wait(live, is_now ? COLLECT_MSEC : -1) != 0)
		rc = forge_supervisor_stop(live, is_now, err);
	return rc;
}

/* A run on a cluster has no supervisor while it goes on: it gets one, which ends it and waits for that. */
static int attend(struct forge_session *s, const char *run_id, struct forge_error *err)
{
	struct forge_supervisor_ref live = FORGE_SUPERVISOR_REF_INIT;
	forge_auto_json json_t *slot_of_run = NULL;
	char name[16];

	(void)!forge_slot_find(&s->home, run_id,
			       &slot_of_run); /* NULL: it has just ended */
	if (!forge_slot_is_remote(slot_of_run))
		return 0;
	int rc = forge_supervisor_find(&s->home, run_id, &live, NULL);
	forge_supervisor_close(&live);
	int slot = rc < 0 ? forge_slot_number(&s->home, run_id) : -1;
	if (slot < 0)
		return 0; /* it has one, or has just ended */
	(void)snprintf(name, sizeof(name), "%d", slot);
	return forge_attendant_start(&s->home, name, err);
}

/* Its slot is there: the run is on a cluster, and not over. */
static bool is_attended(struct forge_session *s, const char *run_id)
{
	forge_auto_json json_t *slot = NULL;

	(void)!forge_slot_find(&s->home, run_id, &slot); /* NULL: it has just ended */
	return forge_slot_is_remote(slot);
}

/* What it left on the cluster cannot be reached. With --now the run is closed all the same, as lost. */
static int give_up(struct forge_session *s, json_t **record, struct forge_error *err)
{
	const char *run_id = forge_json_string(*record, "run_id");
	struct forge_slot slot = FORGE_SLOT_INIT;
	forge_auto_json json_t *content = NULL;
	int number = forge_slot_number(&s->home, run_id);
	int rc = number < 0 ? number
			    : forge_slot_take_over(&s->home, (unsigned)number, &slot,
						   &content, NULL);

	if (rc == 0 && is_now) /* and is not tried again */
		forge_retry_file_forbid(&s->home, run_id);
	if (rc == 0 && is_now)
		rc = forge_slot_add(&slot, json_pack("{s:b}", "is_gone", 1), NULL);
	forge_slot_release(&slot);
	if (rc == 0 && is_now) {
		(void)!forge_reconcile_slot((unsigned)number,
					    NULL); /* what cannot be removed is left */
		return forge_session_reload(s, record, err);
	}
	return forge_hint(err,
			  forge_fail(err, EAGAIN, "run %s cannot be reached now: %.250s",
				     run_id,
				     forge_json_string_or(content, "attach_error",
							  "another process has it")),
			  "forge kill --now closes it as lost, whatever it does there");
}

/*
 * Makes *record the attempt that runs or is over: one that is about to start is prevented or waited for.
 */
static int find_attempt(struct forge_session *s, json_t **record, struct forge_error *err)
{
	uint64_t deadline = forge_now_usec() + START_USEC;
	bool is_pending = true;
	int rc = forge_session_last(s, record, &is_pending, err);

	while (rc == 0 && is_pending && forge_now_usec() < deadline) {
		const char *run_id = forge_json_string(*record, "run_id");
		rc = forge_retry_cancel(&s->home, run_id, err);
		if (rc == -EWOULDBLOCK || rc == -ENOENT) {
			(void)poll(NULL, 0, 10);
			rc = 0;
		}
		if (rc == 0)
			rc = forge_session_reload(s, record, err);
		if (rc == 0)
			rc = forge_session_last(s, record, &is_pending, err);
	}
	if (rc == 0 && is_pending)
		rc = forge_hint(err,
				forge_fail(err, EBUSY,
					   "the next attempt of run %s is being prepared",
					   forge_json_string(*record, "run_id")),
				"Try again in a moment");
	return rc;
}

static int kill_one(struct forge_session *s, const char *word, struct forge_error *err)
{
	struct forge_supervisor_ref live = FORGE_SUPERVISOR_REF_INIT;
	forge_auto_json json_t *record = NULL;
	int rc = forge_session_record(s, word, &record, err);
	bool is_pending = false;

	if (rc == 0)
		rc = forge_session_last(s, &record, &is_pending, err);
	bool was_over = forge_record_is_over(record) && !is_pending;
	if (rc == 0)
		rc = find_attempt(s, &record, err);
	if (rc < 0)
		return rc;
	const char *run_id = forge_json_string(record, "run_id");
	if (!was_over && !forge_record_is_here(record) &&
	    forge_supervisor_find(&s->home, run_id, &live, NULL) < 0)
		rc = forge_hint(err,
				forge_fail(err, EREMOTE, "run %s is on host %s", run_id,
					   forge_json_string(record, "host")),
				"Kill it there");
	forge_supervisor_close(&live);
	if (rc == 0 && !was_over)
		rc = attend(s, run_id, err);
	/* A supervisor may have died of something else just now: then the run has a new one. */
	for (int tries = 0; tries < SUPERVISORS_MAX && rc == 0; tries++) {
		run_id = forge_json_string(record, "run_id");
		if (tries > 0 && !forge_record_is_over(record))
			rc = attend(s, run_id, err);
		if (rc < 0 || forge_record_is_over(record))
			break;
		if (forge_supervisor_find(&s->home, run_id, &live, NULL) < 0) {
			/* The watcher may have ended it, or had it for a moment. */
			rc = forge_session_reload(s, &record, err);
			if (rc == 0 &&
			    is_attended(s, forge_json_string(record, "run_id")))
				continue;
			break;
		}
		/* Whatever becomes of the run and of its supervisor now, it is not tried again. */
		forge_retry_file_forbid(&s->home, run_id);
		rc = end_it(&live, err);
		forge_supervisor_close(&live);
		if (rc == 0)
			rc = forge_session_reload(s, &record, err);
		/* It ended by itself just before, and the next attempt began. */
		if (rc == 0)
			rc = find_attempt(s, &record, err);
	}
	if (rc == 0)
		rc = forge_session_reload(s, &record, err);
	const char *owner = rc == 0 ? forge_json_string(record, "user") : NULL;
	char user[FORGE_USER_MAX];
	if (rc == 0 && !forge_record_is_over(record) && owner &&
	    strcmp(owner, forge_user_name(user)) != 0)
		rc = forge_fail(err, EPERM, "run %s is %s's, who alone can end it",
				forge_json_string(record, "run_id"), owner);
	else if (rc == 0 && !forge_record_is_over(record) &&
		 is_attended(s, forge_json_string(record, "run_id")))
		rc = give_up(s, &record, err);
	else if (rc == 0 && !forge_record_is_over(record))
		rc = forge_hint(err,
				forge_fail(err, ESRCH, "run %s is not of this FORGE_HOME",
					   forge_json_string(record, "run_id")),
				"Kill it with the FORGE_HOME, and as the user, it was "
				"started with");
	if (rc < 0)
		return rc;
	char name[FORGE_RUN_NAME_MAX];
	if (is_json)
		forge_print_json(record);
	else
		printf("%s: %s%s\n", forge_record_name(record, name),
		       was_over ? "already finished, " : "",
		       forge_json_string(record, "status"));
	return 0;
}

/* A word can match more runs than the user had in mind. */
static bool has_pattern(int argc, char **argv)
{
	for (int i = 0; i < argc; i++)
		if (strpbrk(argv[i], "*?"))
			return true;
	return false;
}

static int cmd_kill(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_session struct forge_session s = FORGE_SESSION_INIT;
	forge_auto_strv struct forge_strv ids = { 0 };
	forge_session_rule =
		FORGE_SESSION_FORGIVES; /* kill must work despite configuration errors */
	int rc = forge_session_runs(&s, &forge_cmd_kill, argc, argv, true, &ids, &err);

	if (rc > 0)
		return rc;
	if (rc == 0 && has_pattern(argc, argv) && !is_sure &&
	    !forge_ask("End %zu run%s?", ids.n, ids.n == 1 ? "" : "s"))
		return FORGE_EXIT_FAILED;
	for (size_t i = 0; i < ids.n && rc == 0; i++)
		rc = kill_one(&s, ids.v[i], &err);
	return rc < 0 ? forge_session_fail(&err) : FORGE_EXIT_OK;
}

const struct forge_cmd forge_cmd_kill = {
	.name = "kill",
	.synopsis = "[OPTIONS] RUN...",
	.help = "End runs",
	.about =
		"Asks the command to end (SIGTERM), kills it after the grace period, "
		"and\n"
		"returns when everything it started is gone and the verdict is "
		"recorded. A run\n"
		"that is over already is no error, and so is said. A pattern ('sweep-*') "
		"means\n"
		"all open runs of yours with such an analysis id; on a terminal it asks. "
		"A run\n"
		"that is tried again is ended with all its attempts.",
	.first = "RUN",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_kill,
	.opts = kill_opts,
};
