/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens, connections to the store, records and logs, for all requests. */
#include "server/shared.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "executor/executor.h"
#include "record/foreign.h"
#include "record/log.h"
#include "record/view.h"
#include "state/slot.h"

/* A store that could not be opened is asked again after so long. */
#define STORE_RETRY_USEC 1000000

/* ---- tokens ---- */

enum forge_access forge_server_check(struct forge_server *sv, const char *token)
{
	struct forge_error err = FORGE_ERROR_INIT;
	char digest[FORGE_DIGEST_MAX];

	if (strlen(token) >= FORGE_TOKEN_MAX)
		return FORGE_ACCESS_NONE;
	forge_token_digest(token, digest);
	if (*sv->link_digest && forge_token_equal(sv->link_digest, digest))
		return FORGE_ACCESS_OPERATOR;
	pthread_mutex_lock(&sv->tokens_lock);
	enum forge_access access =
		forge_tokens_check(&sv->tokens, &sv->home, token, &err);
	pthread_mutex_unlock(&sv->tokens_lock);
	if (err.code && sv->options->on_warning)
		sv->options->on_warning(&err);
	return access;
}

/* ---- the store ---- */

int forge_server_take(struct forge_server *sv, struct forge_store **ret,
		      struct forge_error *err)
{
	struct forge_store *st = NULL;
	int rc = 0;

	pthread_mutex_lock(&sv->stores_lock);
	if (sv->n_stores)
		st = sv->stores[--sv->n_stores];
	else if (sv->store_failed_usec &&
		 forge_now_usec() - sv->store_failed_usec < STORE_RETRY_USEC)
		rc = forge_fail(err, ENOTCONN, "%s", sv->store_problem);
	pthread_mutex_unlock(&sv->stores_lock);
	if (st || rc < 0) {
		*ret = st;
		return rc;
	}
	struct forge_error why = FORGE_ERROR_INIT;
	rc = forge_store_open(sv->url, &st, &why);
	pthread_mutex_lock(&sv->stores_lock);
	sv->store_failed_usec = rc < 0 ? forge_now_usec() : 0;
	if (rc < 0)
		(void)snprintf(sv->store_problem, sizeof(sv->store_problem), "%s",
			       why.msg);
	pthread_mutex_unlock(&sv->stores_lock);
	if (rc < 0)
		return forge_fail(err, ENOTCONN, "%s", why.msg);
	*ret = st;
	return 0;
}

void forge_server_give(struct forge_server *sv, struct forge_store *st, int rc)
{
	bool is_broken = rc < 0 && rc != -ENOENT && rc != -ENOTUNIQ && rc != -EINVAL;

	if (!st)
		return;
	pthread_mutex_lock(&sv->stores_lock);
	if (!is_broken && sv->n_stores < FORGE_STORES_MAX) {
		sv->stores[sv->n_stores++] = st;
		st = NULL;
	}
	pthread_mutex_unlock(&sv->stores_lock);
	forge_store_close(st);
}

/* ---- runs ---- */

int forge_server_record(struct forge_server *sv, const char *run_id, json_t **ret,
			struct forge_error *err)
{
	struct forge_store *st = NULL;
	struct forge_error away = FORGE_ERROR_INIT;
	bool is_unconfirmed;
	int taken = forge_server_take(sv, &st, &away);
	int rc = forge_record_find(&sv->home, st, run_id, ret, &is_unconfirmed, err);

	forge_server_give(sv, st, rc);
	/* Without the store nobody knows whether there is such a run. */
	if (rc == -ENOENT && taken < 0) {
		*err = away;
		return taken;
	}
	return rc;
}

int forge_server_open_log(struct forge_server *sv, const json_t *record,
			  const char *stream, struct forge_error *err)
{
	forge_auto_home struct forge_home other = FORGE_HOME_INIT;
	const struct forge_home *theirs =
		forge_foreign_is(&sv->home, record) ? &other : NULL;
	json_t *slot = NULL;
	int rc = theirs ? forge_foreign_open(record, "logs", &other, err) : 0;

	if (rc < 0)
		return rc;
	if (!theirs &&
	    forge_slot_find(&sv->home, forge_json_string(record, "run_id"), &slot) == 0 &&
	    slot) {
		int fd = forge_log_open_remote(slot, stream);
		json_decref(slot);
		if (fd >= 0)
			return fd;
	}
	return forge_log_open(&sv->home, theirs, record, stream, err);
}
