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
#include "state/objects.h"
#include "state/slot.h"

/* A store that could not be opened is asked again after so long. */
#define STORE_RETRY_USEC 1000000
/* A warning about tokens comes once in this time. */
#define WARN_USEC 60000000

/* ---- tokens ---- */

/* That tokens cannot be read is not that this one is wrong. */
int forge_server_check(struct forge_server *sv, const char *token, enum forge_access *ret,
		       struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	char digest[FORGE_DIGEST_MAX];
	bool warns = false;

	*ret = FORGE_ACCESS_NONE;
	if (strlen(token) >= FORGE_TOKEN_MAX)
		return 0;
	forge_token_digest(token, digest);
	if (*sv->link_digest && forge_token_equal(sv->link_digest, digest)) {
		*ret = FORGE_ACCESS_OPERATOR;
		return 0;
	}
	pthread_mutex_lock(&sv->tokens_lock);
	*ret = forge_tokens_check(&sv->tokens, &sv->home, token, &why);
	if (why.code) {
		warns = forge_now_usec() - sv->warned_usec > WARN_USEC;
		sv->warned_usec = warns ? forge_now_usec() : sv->warned_usec;
	}
	pthread_mutex_unlock(&sv->tokens_lock);
	if (!why.code)
		return 0;
	if (warns && sv->options->on_warning)
		sv->options->on_warning(&why);
	*err = why;
	return -why.code;
}

/* ---- the store ---- */

/* An open store that no request uses; NULL: there is none. The lock is held. */
static struct forge_store *take_open(struct forge_server *sv)
{
	while (sv->n_stores) {
		struct forge_store *st = sv->stores[--sv->n_stores];
		if (!forge_store_has_moved(st))
			return st;
		forge_store_close(st);
	}
	return NULL;
}

int forge_server_take(struct forge_server *sv, struct forge_store **ret,
		      struct forge_error *err)
{
	int rc = 0;

	pthread_mutex_lock(&sv->stores_lock);
	struct forge_store *st = take_open(sv);
	if (!st && sv->store_failed_usec &&
	    (sv->is_opening || forge_now_usec() - sv->store_failed_usec <
				       STORE_RETRY_USEC + 10 * sv->store_tried_usec))
		rc = forge_fail(err, ENOTCONN, "%s", sv->store_problem);
	else if (!st)
		sv->is_opening = true;
	pthread_mutex_unlock(&sv->stores_lock);
	if (st || rc < 0) {
		*ret = st;
		return rc;
	}
	struct forge_error why = FORGE_ERROR_INIT;
	uint64_t began = forge_now_usec();
	rc = forge_store_open(sv->url, &st, &why);
	pthread_mutex_lock(&sv->stores_lock);
	sv->is_opening = false;
	sv->store_failed_usec = rc < 0 ? forge_now_usec() : 0;
	sv->store_tried_usec = forge_now_usec() - began;
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

/* ---- stored files ---- */

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
	       a->st_size == b->st_size && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
	       a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

int forge_server_open_object(struct forge_server *sv, const struct forge_home *home,
			     const char *digest)
{
	struct stat before, after;
	bool was_checked = false;
	forge_auto_close int known = forge_objects_open_unchecked(home, digest, &before);

	if (known < 0)
		return known;
	pthread_mutex_lock(&sv->checked_lock);
	for (size_t i = 0; i < FORGE_CHECKED_MAX; i++)
		was_checked =
			was_checked || (strcmp(sv->checked[i].digest, digest) == 0 &&
					is_same(&sv->checked[i].st, &before));
	pthread_mutex_unlock(&sv->checked_lock);
	if (was_checked)
		return forge_take_fd(known);
	forge_auto_close int fd = forge_objects_get(home, digest);
	if (fd < 0)
		return fd;
	/* What changed while it was read was not checked. */
	if (fstat(fd, &after) < 0 || !is_same(&before, &after))
		return forge_take_fd(fd);
	pthread_mutex_lock(&sv->checked_lock);
	(void)snprintf(sv->checked[sv->next_checked].digest, FORGE_DIGEST_MAX, "%s",
		       digest);
	sv->checked[sv->next_checked].st = after;
	sv->next_checked = (sv->next_checked + 1) % FORGE_CHECKED_MAX;
	pthread_mutex_unlock(&sv->checked_lock);
	return forge_take_fd(fd);
}
