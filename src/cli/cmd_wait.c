/* SPDX-License-Identifier: Apache-2.0 */
/* forge wait: waits until runs are over, and exits with their status. */
#include "cli/cli.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/parse.h"
#include "cli/request.h"
#include "cli/session.h"
#include "record/reconcile.h"
#include "record/record.h"
#include "state/supervisor.h"

/* Interval at which forge wait starts a watcher or supervisor again that was killed. */
#define REPAIR_USEC 2000000ull

static bool is_json, is_quiet;
static const char *timeout;

static const struct forge_opt *wait_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_STRING(0, "timeout", "DURATION", &timeout,
			     "Give up after this long (exit 124); the run goes on"),
		FORGE_FLAG(0, "json", &is_json,
			   "Print the records as JSON, one after the other"),
		FORGE_FLAG('q', "quiet", &is_quiet, "Do not show the verdict"),
		FORGE_STORE_ROW,
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

static int left_msec(uint64_t deadline, int most)
{
	uint64_t now = forge_now_usec();

	if (deadline == FORGE_UNLIMITED)
		return most;
	uint64_t left = deadline > now ? (deadline - now) / 1000 + 1 : 0;
	return most >= 0 && left > (uint64_t)most ? most : (int)left;
}

static void sleep_msec(int msec)
{
	struct timespec ts = { .tv_sec = msec / 1000,
			       .tv_nsec = (msec % 1000) * 1000000L };

	(void)nanosleep(&ts, NULL); /* waking early does no harm */
}

/*
 * 0: over. 1: not before the deadline. A verdict that is only in the run's directory may
 * be lost in a power cut until its supervisor has made it durable and exited.
 */
static int wait_for(struct forge_session *s, json_t **record, uint64_t deadline,
		    struct forge_error *err)
{
	uint64_t repair_at = forge_now_usec() + REPAIR_USEC;
	int pause = 5;

	while (!forge_record_is_over(*record) || s->is_unconfirmed) {
		struct forge_supervisor_ref live = FORGE_SUPERVISOR_REF_INIT;
		if (deadline != FORGE_UNLIMITED && forge_now_usec() >= deadline)
			return 1;
		if (forge_supervisor_find(&s->home, forge_json_string(*record, "run_id"),
					  &live, NULL) == 0) {
			(void)forge_supervisor_wait(&live, left_msec(deadline, -1));
			forge_supervisor_close(&live);
		} else if (forge_record_is_over(*record)) {
			return 0;
		} else {
			/*
			 * The run is on another host: only polling the store shows its
			 * end. Or its supervisor is dead and cannot be repaired, for
			 * example on a full disk. Or it is on a cluster, and a watcher attends it.
			 */
			pause = pause < 500 && forge_record_is_here(*record) ? 2 * pause
									     : 1000;
			sleep_msec(left_msec(deadline, pause));
			/* The watcher of a cluster may have been killed. */
			if (forge_now_usec() >= repair_at) {
				(void)!forge_reconcile_cheaply(NULL);
				repair_at = forge_now_usec() + REPAIR_USEC;
			}
		}
		int rc = forge_session_reload(s, record, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* The same for the run and the attempts after it: *record becomes the last one. */
static int wait_for_last(struct forge_session *s, json_t **record, uint64_t deadline,
			 struct forge_error *err)
{
	int rc;

	do {
		rc = wait_for(s, record, deadline, err);
		if (rc != 0)
			return rc;
		rc = forge_session_next(s, record, err);
		if (rc != -EAGAIN)
			continue;
		/* It is about to start, or has to be started again: the reload does that. */
		if (deadline != FORGE_UNLIMITED && forge_now_usec() >= deadline)
			return 1;
		sleep_msec(left_msec(deadline, 20));
		rc = forge_session_reload(s, record, err);
		rc = rc < 0 ? rc : 1;
	} while (rc == 1);
	return rc;
}

static int wait_one(struct forge_session *s, const char *word, uint64_t deadline,
		    struct forge_error *err)
{
	forge_auto_json json_t *record = NULL;
	int rc = forge_session_record(s, word, &record, err);

	if (rc == 0)
		rc = wait_for_last(s, &record, deadline, err);
	if (rc < 0)
		return rc;
	if (rc == 1) {
		char name[FORGE_RUN_NAME_MAX];
		if (!is_quiet)
			fprintf(stderr, "forge: run %s is still %s\n",
				forge_record_name(record, name),
				!forge_record_is_over(record)
					? forge_json_string(record, "status")
				: forge_json_string(record, "retried_by")
					? "being retried"
					: "being recorded");
		return 124;
	}
	if (is_json)
		forge_print_json(record);
	else if (!is_quiet)
		forge_print_verdict(record);
	return forge_record_exit_status(record);
}

static int cmd_wait(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_session struct forge_session s = FORGE_SESSION_INIT;
	uint64_t usec = FORGE_UNLIMITED, deadline;

	forge_auto_strv struct forge_strv ids = { 0 };
	int rc = timeout ? forge_parse_duration(timeout, &usec, &err) : 0;
	if (rc < 0)
		(void)forge_wrap(&err, rc, "--timeout");
	deadline = usec == FORGE_UNLIMITED ? usec : forge_now_usec() + usec;
	forge_session_rule = FORGE_SESSION_LOOKS;
	if (rc == 0)
		rc = forge_session_runs(&s, &forge_cmd_wait, argc, argv, false, &ids,
					&err);
	if (rc > 0)
		return rc;
	int status = FORGE_EXIT_OK;
	for (size_t i = 0; i < ids.n && rc >= 0; i++) {
		rc = wait_one(&s, ids.v[i], deadline, &err);
		status = rc > 0 ? rc : status;
	}
	return rc < 0 ? forge_session_fail(&err) : status;
}

const struct forge_cmd forge_cmd_wait = {
	.name = "wait",
	.synopsis = "[OPTIONS] RUN...",
	.help = "Wait until runs are over",
	.about = "Exits with the status `forge run` would have had; of several runs, "
		 "with the\n"
		 "last one that is not 0. RUN is an id or the beginning of one. A run "
		 "that is\n"
		 "tried again is over when its last attempt is.",
	.first = "RUN",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_wait,
	.opts = wait_opts,
};
