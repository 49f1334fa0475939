/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and ends runs, by executing forge. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "record/record.h"
#include "server/body.h"
#include "server/cache.h"
#include "server/command.h"
#include "server/route.h"
#include "server/shared.h"

static void refuse(struct forge_answer *a, int rc, const struct forge_error *err)
{
	forge_answer_error(a, rc == -ENOMEM ? 503 : 400, "bad_request", err->msg,
			   err->hint);
}

/* Executes what prints the id of a run as JSON, and answers with it. */
static void start(struct forge_server *sv, const struct forge_strv *words,
		  struct forge_answer *a)
{
	json_t *printed = NULL;

	forge_cache_clear(sv->cache);
	bool is_done = forge_command_json(sv, words, false, &printed, a);
	forge_cache_clear(sv->cache);
	if (!is_done)
		return;
	bool is_existing = json_is_true(json_object_get(printed, "existing"));
	/* A step that waits for others has no run yet. */
	bool is_waiting = json_is_null(json_object_get(printed, "run_id"));
	forge_answer_json(a, is_waiting ? 202 : is_existing ? 200 : 201, printed);
}

void forge_api_submit(struct forge_server *sv, const struct forge_ask *ask,
		      struct forge_answer *a)
{
	forge_auto_strv struct forge_strv words = { 0 };
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = forge_body_submit(ask->body, &words, &err);

	if (rc < 0)
		refuse(a, rc, &err);
	else
		start(sv, &words, a);
}

/* rerun, resume: a run and limits */
static void again(struct forge_server *sv, const struct forge_ask *ask,
		  const char *command, struct forge_answer *a)
{
	forge_auto_strv struct forge_strv words = { 0 };
	struct forge_error err = FORGE_ERROR_INIT;

	/* That the store is away is not that there is no such run. */
	forge_auto_json json_t *record = forge_api_find(sv, ask, a);
	if (!record)
		return;
	int rc = forge_body_again(command, ask->params[0], ask->body, &words, &err);
	if (rc < 0)
		refuse(a, rc, &err);
	else
		start(sv, &words, a);
}

void forge_api_rerun(struct forge_server *sv, const struct forge_ask *ask,
		     struct forge_answer *a)
{
	again(sv, ask, "rerun", a);
}

void forge_api_resume(struct forge_server *sv, const struct forge_ask *ask,
		      struct forge_answer *a)
{
	again(sv, ask, "resume", a);
}

void forge_api_kill(struct forge_server *sv, const struct forge_ask *ask,
		    struct forge_answer *a)
{
	forge_auto_strv struct forge_strv words = { 0 };
	struct forge_command_result r;
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = forge_body_only(ask->body, NULL, &err);

	if (rc < 0) {
		refuse(a, rc, &err);
		return;
	}
	forge_auto_json json_t *record = forge_api_find(sv, ask, a);
	if (!record)
		return;
	if (forge_record_is_over(record)) {
		forge_answer_error(a, 409, "over", "the run is over", NULL);
		return;
	}
	rc = forge_strv_add(&words, "kill");
	if (rc == 0)
		rc = forge_strv_add(&words, ask->params[0]);
	if (rc == 0)
		rc = forge_command_run(sv, &words, 120, &r, &err);
	forge_cache_clear(sv->cache);
	if (rc < 0) {
		forge_answer_fail(a, rc, &err);
		return;
	}
	if (r.status == 0) {
		forge_answer_json(a, 202, json_object());
	} else {
		forge_command_error(&r, &err);
		forge_answer_error(a, 409, "refused", err.msg, err.hint);
	}
	forge_command_done(&r);
}
