/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a session and finds runs. */
#include "cli/session.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/parse.h"
#include "record/deliver.h"
#include "record/foreign.h"
#include "record/reconcile.h"
#include "record/record.h"
#include "record/retry_due.h"
#include "record/verify.h"
#include "state/retry_file.h"
#include "state/slot.h"
#include "store/state.h"

const char *forge_session_config;
enum forge_session_rule forge_session_rule;

static bool is_store_given(void)
{
	const char *env = getenv("FORGE_STORE");

	return forge_store_wanted || (env && *env);
}

/* Adds to the hint of an error that the file was not used. */
static void hint_unused(const struct forge_config *cfg, struct forge_error *why)
{
	char before[sizeof(why->hint)];
	forge_auto_free char *url = NULL;

	if (forge_store_choose(forge_store_wanted, cfg, &url, NULL) < 0)
		url = NULL;
	forge_auto_free char *shown = url ? forge_store_display(url) : NULL;
	(void)snprintf(before, sizeof(before), "%s", why->hint);
	(void)forge_hint(why, 0,
			 "%s%s./forge.yaml was not used; the runs are those of %s",
			 before, *before ? ". " : "", shown ? shown : "the store");
}

/*
 * After an error in the configuration: loads it without the project's file, if the rule
 * allows that. Users give the ids shown here to commands that end runs, so they must not
 * come from another store.
 */
static int load_without(struct forge_session *s, struct forge_error *why)
{
	bool may_name_store;

	/* An untrusted or unreadable file has no line; its owner has to fix that. */
	if (!why->line && forge_session_rule == FORGE_SESSION_LOOKS)
		return -why->code;
	int rc = forge_config_load_outer(forge_session_config, &s->cfg, &may_name_store,
					 NULL);
	if (rc == 0 && may_name_store && forge_session_rule == FORGE_SESSION_LOOKS &&
	    !is_store_given()) {
		forge_config_free(forge_take_ptr(s->cfg));
		return forge_hint(why, -why->code,
				  "./forge.yaml may name the store: --store URL says "
				  "where to look until it can be read");
	}
	if (rc < 0)
		return rc;
	hint_unused(s->cfg, why);
	forge_print_warning(why);
	return 0;
}

static int load_config(struct forge_session *s, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	int rc = forge_config_load(forge_session_config, &s->cfg, &why);

	if (rc == 0)
		return 0;
	if (rc != -ENOMEM && forge_session_rule != FORGE_SESSION_STRICT) {
		if (load_without(s, &why) == 0)
			return 0;
		if (forge_session_rule == FORGE_SESSION_FORGIVES) {
			forge_print_warning(&why);
			return forge_config_parse("", 0, "built-in", NULL, &s->cfg, err);
		}
	}
	*err = why;
	return rc;
}

static int open_store(struct forge_session *s, bool need_store, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	int rc = forge_store_choose(forge_store_wanted, s->cfg, &s->url, err);

	if (rc < 0)
		return rc;
	rc = forge_store_open(s->url, &s->store, &why);
	if (rc == 0) {
		(void)forge_deliver_pending(s->store, s->url, NULL); /* a count */
		forge_retry_ask_store(&s->home, s->store);
		return 0;
	}
	if (need_store) {
		*err = why;
		return rc;
	}
	forge_print_warning(&why);
	return 0;
}

int forge_session_open(struct forge_session *s, bool need_store, struct forge_error *err)
{
	int rc = load_config(s, err);

	if (rc < 0)
		return rc;
	forge_reconcile_first();
	rc = forge_home_open(true, &s->home, err);
	return rc < 0 ? rc : open_store(s, need_store, err);
}

int forge_session_watch(struct forge_session *s, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	int rc = load_config(s, err);

	if (rc == 0)
		rc = forge_home_open(true, &s->home, err);
	if (rc == 0)
		rc = forge_store_choose(forge_store_wanted, s->cfg, &s->url, err);
	if (rc == 0 && forge_store_open(s->url, &s->store, &why) < 0)
		forge_print_warning(&why);
	return rc;
}

void forge_session_close(struct forge_session *s)
{
	forge_store_close(s->store);
	forge_home_close(&s->home);
	forge_config_free(s->cfg);
	free(s->url);
	*s = FORGE_SESSION_INIT;
}

static int load(struct forge_session *s, const char *run_id, json_t **ret,
		struct forge_error *err)
{
	return forge_record_find(&s->home, s->store, run_id, ret, &s->is_unconfirmed, err);
}

/* Typed ids become file names. */
static int check_word(const char *word, struct forge_error *err)
{
	if (forge_run_id_is_valid(word) || forge_parse_id(word, NULL) == 0)
		return 0;
	return forge_hint(err, forge_fail(err, EINVAL, "'%.64s' names no run", word),
			  "`forge ps` lists them; the first letters of an id are enough, "
			  "and `last` is the newest");
}

int forge_session_record(struct forge_session *s, const char *word, json_t **ret,
			 struct forge_error *err)
{
	forge_auto_free char *run_id = NULL;
	char user[FORGE_USER_MAX];
	int rc = check_word(word, err);

	if (rc < 0)
		return rc;
	if (s->store)
		rc = forge_store_find(s->store, word, forge_user_name(user), &run_id,
				      err);
	if (rc == 0 && run_id)
		return load(s, run_id, ret, err);
	/* Without a row in the store, a complete id is found by its directory. */
	struct forge_error local = FORGE_ERROR_INIT;
	if (rc != -ENOTUNIQ && forge_run_id_is_valid(word) &&
	    load(s, word, ret, &local) == 0)
		return 0;
	if (rc == 0 && local.code)
		*err = local;
	else if (rc == 0)
		(void)forge_fail(err, ENOENT, "no run '%s' here", word);
	return rc < 0 ? rc : -ENOENT;
}

struct matches {
	const char *pattern;
	struct forge_strv *ids;
	unsigned n;
};

static int add_once(struct forge_strv *ids, const char *id)
{
	forge_strv_foreach (have, ids)
		if (strcmp(have, id) == 0)
			return 0;
	return forge_strv_add(ids, id);
}

static int match_row(const struct forge_run_row *row, void *arg)
{
	struct matches *m = arg;

	if (fnmatch(m->pattern, row->analysis_id, 0) != 0 ||
	    !forge_run_id_is_valid(row->run_id))
		return 0;
	m->n++;
	return add_once(m->ids, row->run_id);
}

static int find_all(struct forge_session *s, const char *pattern, bool open_only,
		    struct forge_strv *ids, struct forge_error *err)
{
	char user[FORGE_USER_MAX];
	struct matches m = { pattern, ids, 0 };
	const struct forge_run_filter mine = { .user = forge_user_name(user),
					       .open_only = open_only };

	if (!s->store)
		return forge_fail(err, ENOTCONN,
				  "'%.64s': only the store knows which runs these are",
				  pattern);
	int rc = forge_store_list(s->store, &mine, match_row, &m, err);
	if (rc >= 0 && m.n == 0)
		rc = forge_fail(err, ENOENT, "no%s run of yours is named like '%.64s'",
				open_only ? " open" : "", pattern);
	return rc < 0 ? rc : 0;
}

int forge_session_runs(struct forge_session *s, const struct forge_cmd *cmd, int argc,
		       char **argv, bool open_only, struct forge_strv *ret_ids,
		       struct forge_error *err)
{
	if (argc == 0) {
		(void)forge_fail(err, EINVAL, "%s: no run given", cmd->name);
		return forge_print_usage(cmd, err);
	}
	int rc = forge_session_open(s, false, err);
	for (int i = 0; i < argc && rc == 0; i++) {
		forge_auto_json json_t *record = NULL;
		if (strpbrk(argv[i], "*?")) {
			rc = find_all(s, argv[i], open_only, ret_ids, err);
			continue;
		}
		rc = forge_session_record(s, argv[i], &record, err);
		if (rc == 0 && add_once(ret_ids, forge_json_string(record, "run_id")) < 0)
			rc = forge_fail(err, ENOMEM, "out of memory");
	}
	return rc;
}

int forge_session_only_run(struct forge_session *s, const struct forge_cmd *cmd, int argc,
			   char **argv, bool need_store, json_t **ret,
			   struct forge_error *err)
{
	if (argc != 1) {
		(void)forge_fail(err, EINVAL, "%s: one run is needed", cmd->name);
		return forge_print_usage(cmd, err);
	}
	int rc = forge_session_open(s, need_store, err);
	return rc < 0 ? rc : forge_session_record(s, argv[0], ret, err);
}

int forge_session_reload(struct forge_session *s, json_t **record,
			 struct forge_error *err)
{
	json_t *fresh;
	forge_auto_free char *id = strdup(forge_json_string(*record, "run_id"));

	(void)!forge_reconcile(NULL, false,
			       NULL); /* failures were reported by the first repair */
	if (s->store)
		(void)forge_deliver_pending(s->store, s->url, NULL); /* a count */
	int rc = id ? load(s, id, &fresh, err) : forge_fail(err, ENOMEM, "out of memory");
	if (rc < 0)
		return rc;
	json_decref(*record);
	*record = fresh;
	return 0;
}

/* How long an attempt on another host, or of another FORGE_HOME, may take to appear in the store. */
#define FOREIGN_SECONDS 60

/* Whether an attempt that is not recorded is still to come. Another one was removed by forge rm. */
static bool is_to_come(const struct forge_session *s, const json_t *record)
{
	json_t *content = NULL;
	const char *run_id = forge_json_string(record, "run_id");
	forge_auto_close int here = forge_home_open_run(&s->home, run_id);
	int rc = forge_retry_file_read(&s->home, run_id, &content);

	json_decref(content);
	if (rc == 0)
		return true;
	return here < 0 &&
	       time(NULL) - forge_record_time(forge_json_string(record, "ended_at")) <
		       FOREIGN_SECONDS;
}

static json_int_t attempt_of(const json_t *record)
{
	return json_integer_value(json_object_get(record, "attempt"));
}

int forge_session_next(struct forge_session *s, json_t **record, struct forge_error *err)
{
	const char *by = forge_json_string(*record, "retried_by");
	bool was_unconfirmed = s->is_unconfirmed;
	struct forge_error why = FORGE_ERROR_INIT;
	json_t *next = NULL;

	if (!forge_record_is_over(*record) || !forge_run_id_is_valid(by))
		return 0;
	int rc = load(s, by, &next, &why);
	if (rc == -ENOENT && is_to_come(s, *record))
		rc = -EAGAIN;
	else if (rc == -ENOENT) /* it may have been recorded just now */
		rc = load(s, by, &next, &why);
	if (rc < 0) {
		s->is_unconfirmed = was_unconfirmed;
		if (rc != -ENOENT && rc != -EAGAIN)
			*err = why;
		return rc == -ENOENT ? 0 : rc;
	}
	/* A store that others write may have a circle. */
	if (attempt_of(next) <= attempt_of(*record)) {
		json_decref(next);
		return 0;
	}
	json_decref(*record);
	*record = next;
	return 1;
}

int forge_session_last(struct forge_session *s, json_t **record, bool *ret_is_pending,
		       struct forge_error *err)
{
	int rc = 1;

	while (rc == 1)
		rc = forge_session_next(s, record, err);
	*ret_is_pending = rc == -EAGAIN;
	return rc == -EAGAIN ? 0 : rc < 0 ? rc : 0;
}

void forge_session_note_damage(const struct forge_session *s, json_t *record)
{
	forge_auto_home struct forge_home theirs = FORGE_HOME_INIT;

	if (!forge_foreign_is(&s->home, record))
		forge_verify_note(&s->home, record);
	else if (forge_foreign_open(record, "outputs", &theirs, NULL) == 0)
		forge_verify_note(&theirs, record);
}

int forge_session_fail(const struct forge_error *err)
{
	forge_print_error(err);
	return FORGE_EXIT_FAILED;
}

const char *forge_record_label(const json_t *record)
{
	const char *label = forge_json_string(record, "analysis_id");
	const char *run_id = forge_json_string(record, "run_id");

	/* Other users may have written any text into the store. */
	return label && run_id && strcmp(label, run_id) != 0 &&
			       forge_parse_id(label, NULL) == 0
		       ? label
		       : NULL;
}

const char *forge_record_name(const json_t *record, char buf[FORGE_RUN_NAME_MAX])
{
	const char *label = forge_record_label(record);

	(void)snprintf(buf, FORGE_RUN_NAME_MAX, "%s%s%s%s", label ? label : "",
		       label ? " (" : "", forge_json_string(record, "run_id"),
		       label ? ")" : "");
	return buf;
}

int forge_record_exit_status(const json_t *record)
{
	const json_t *status = json_object_get(record, "exit_status");

	return json_is_integer(status) ? (int)json_integer_value(status) : 137;
}

enum forge_colour forge_status_colour(const char *status)
{
	switch (forge_status_of(status)) {
	case FORGE_STATUS_SUCCEEDED:
		return FORGE_GREEN;
	case FORGE_STATUS_FAILED:
	case FORGE_STATUS_KILLED:
	case FORGE_STATUS_CORRUPTED:
	case FORGE_STATUS_LOST:
	case FORGE_STATUS_REJECTED:
		return FORGE_RED;
	case FORGE_STATUS_QUEUED:
	case FORGE_STATUS_PREPARING:
	case FORGE_STATUS_RUNNING:
	case FORGE_STATUS_COLLECTING:
	case FORGE_STATUS_CANCELLED:
		return FORGE_YELLOW;
	case FORGE_STATUS_NONE:
	case FORGE_STATUS_COUNT:
		break;
	}
	return FORGE_PLAIN;
}
