/* SPDX-License-Identifier: Apache-2.0 */
/* The host's health before, during and after a run. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "health/check.h"
#include "health/guard.h"
#include "record/attendant.h"
#include "record/guarded.h"
#include "record/writer.h"
#include "run/input_socket.h"
#include "run/run_state.h"
#include "run/signals.h"
#include "state/quarantine.h"

/* Runs that forge makes for its own purposes check nothing: they may be the check. A cluster checks its nodes. */
static bool is_checked(const struct run *r)
{
	return r->ready->check_env && !(r->executor->caps & FORGE_EXECUTOR_REMOTE);
}

static json_t *health_of(struct run *r)
{
	json_t *health = json_object_get(r->record.json, "health");

	if (!health) {
		health = json_object();
		json_object_set_new(r->record.json, "health", health);
	}
	return health;
}

static json_t *note_results(struct run *r, const char *phase,
			    const struct forge_check_results *results)
{
	json_t *j = forge_checks_json(results);

	json_object_set_new(health_of(r), phase, j);
	return j;
}

/* when: " after the run", or "" */
static void warn_of(struct run *r, const char *when, const char *name, const char *text)
{
	struct forge_error e = FORGE_ERROR_INIT;

	(void)forge_fail(&e, EIO, "health%s: %s: %s", when, name, text);
	forge_run_warn(r, &e);
	forge_record_event(&r->record, "health_warning", e.msg);
}

/* ---- before ---- */

static int check_once(struct run *r, struct forge_check_results *ret,
		      struct forge_error *err)
{
	const struct forge_check_env env = r->ready->check_env(r->cfg, r->home, r->store);
	forge_auto_close int signals = forge_signals_fd();

	return forge_checks_run(&env, FORGE_PHASE_PRE, NULL, signals, ret, err);
}

/* What keeps a run from starting. */
struct obstacle {
	char text[480];
	bool waits; /* the run waits; else it is rejected */
};

/* Why the run cannot start now: a failed check, or a run in quarantine. 0: it can. 1: why is set. */
static int find_obstacle(struct run *r, struct obstacle *ret, struct forge_error *err)
{
	forge_auto_check_results struct forge_check_results results = { 0 };
	char held[FORGE_RUN_ID_MAX];
	int rc = r->cfg->health.holds ? forge_quarantine_first(r->home, held, err) : 0;

	if (rc == 1) {
		(void)snprintf(ret->text, sizeof(ret->text),
			       "run %s has changed guarded files (forge health clear %s)",
			       held, held);
		ret->waits = true;
	}
	/* A cluster checks its nodes. */
	if (rc != 0 || !is_checked(r))
		return rc;
	rc = check_once(r, &results, err);
	if (rc < 0)
		return rc;
	(void)note_results(r, "pre", &results);
	const struct forge_check_result *failed = forge_checks_failed(&results, "block");
	for (size_t i = 0; i < results.n && !r->has_warned_of_health; i++)
		if (!results.v[i].report.is_ok &&
		    strcmp(results.v[i].decl->severity, "warn") == 0)
			warn_of(r, "", results.v[i].decl->name, results.v[i].report.text);
	r->has_warned_of_health |= forge_checks_failed(&results, "warn") != NULL;
	if (!failed)
		return 0;
	(void)snprintf(ret->text, sizeof(ret->text), "%.64s: %s", failed->decl->name,
		       failed->report.text);
	ret->waits = strcmp(failed->decl->if_failed, "wait") == 0;
	return 1;
}

/* How often a run looks whether the host is healthy again. */
#define HEALTH_MSEC 2000

/*
 * Records the run as queued for this reason, and waits until it is worth to look again. 0: look again.
 * -ECANCELED: a signal; -ETIMEDOUT: the time to wait is over.
 */
static int wait_for_health(struct run *r, const struct obstacle *why,
			   struct forge_error *err)
{
	forge_auto_close int signals = forge_signals_fd();
	struct pollfd p = { .fd = signals, .events = POLLIN };
	char text[FORGE_WHY_MAX];
	int rc = 0;

	if (forge_run_status(r) == FORGE_STATUS_NONE)
		forge_run_set_status(r, "queued", NULL);
	if (!r->is_announced)
		rc = forge_run_record_durably(r, err);
	/* Others need not wait for the same thing. */
	if (r->share.fd >= 0) {
		forge_admit_release(&r->share);
		r->gave_share_back = true;
	}
	(void)snprintf(text, sizeof(text), "waits for health: %s", why->text);
	if (rc == 0 && strcmp(text, r->pending) != 0) {
		forge_run_note_pending(r, text);
		(void)snprintf(r->pending, sizeof(r->pending), "%s", text);
	}
	if (rc < 0)
		return rc;
	uint64_t now = forge_now_usec();
	if (now >= r->health_deadline)
		return -ETIMEDOUT;
	uint64_t left = (r->health_deadline - now) / 1000 + 1;
	int n = poll(&p, 1, left < HEALTH_MSEC ? (int)left : HEALTH_MSEC);
	return n > 0 ? -ECANCELED : 0;
}

int forge_run_check_before(struct run *r, struct forge_verdict *ret_verdict,
			   struct forge_error *err)
{
	struct obstacle why = { .waits = false };
	int rc = r->ready->check_env ? find_obstacle(r, &why, err) : 0;

	if (!r->health_deadline)
		r->health_deadline = forge_now_usec() + r->cfg->queue_usec;

	while (rc == 1 && why.waits) {
		rc = wait_for_health(r, &why, err);
		if (rc == -ECANCELED || rc == -ETIMEDOUT) {
			forge_judge_not_admitted(rc, err, ret_verdict);
			if (rc == -ETIMEDOUT)
				forge_judge_unhealthy(why.text, ret_verdict);
			return 0;
		}
		if (rc == 0)
			rc = find_obstacle(r, &why, err);
	}
	/* From now on it may wait for something else. */
	if (rc == 0 && r->pending[0])
		(void)!forge_slot_add(&r->slot, json_pack("{s:n}", "pending"), NULL);
	if (rc == 1) {
		forge_record_event(&r->record, "health_failed", why.text);
		forge_judge_unhealthy(why.text, ret_verdict);
		rc = 0;
	}
	if (rc == -ECANCELED) {
		forge_judge_not_admitted(rc, err, ret_verdict);
		rc = 0;
	}
	return rc;
}

/* ---- guarded files ---- */

/* A dead file server must not hold the verdict of a run for ever. */
#define LOOK_BACK_USEC (600 * 1000000ull)

static struct forge_guard_spec guard_spec(const struct run *r, int stop_fd)
{
	return (struct forge_guard_spec){ .config = &r->cfg->health,
					  .home = r->home,
					  .run_id = r->spec->run_id,
					  .workdir = r->spec->workdir,
					  .workdirs = r->cfg->workdir,
					  .start_watcher = forge_attendant_guard,
					  .stop_fd = stop_fd };
}

static bool has_guard(const struct run *r)
{
	const struct forge_health_config *h = &r->cfg->health;

	if (r->req->is_probe || h->mode == FORGE_GUARD_OFF)
		return false;
	for (size_t i = 0; i < h->n_checks; i++)
		if (strcmp(h->checks[i].kind, "files") == 0)
			return true;
	return false;
}

void forge_run_note_guard(struct run *r)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	if (has_guard(r) && !(r->executor->caps & FORGE_EXECUTOR_REMOTE))
		json_object_set_new(r->record.json, "guarded_since",
				    json_pack("[I, I]", (json_int_t)now.tv_sec,
					      (json_int_t)now.tv_nsec));
}

int forge_run_guard(struct run *r, struct forge_error *err)
{
	forge_auto_close int signals = forge_signals_fd();
	const struct forge_guard_spec spec = guard_spec(r, signals);

	bool is_here = !r->req->is_probe && !(r->executor->caps & FORGE_EXECUTOR_REMOTE);
	int rc = is_here ? forge_guard_begin(&spec, &r->guard, err) : 0;

	if (rc == 0 && !r->guard)
		json_object_del(r->record.json, "guarded_since");
	/* A run that outlives this supervisor is judged by another one, as it was configured now. */
	if (rc < 0 || (!r->guard && !(r->executor->caps & FORGE_EXECUTOR_OUTLIVES)))
		return rc;
	json_t *files = r->guard ? forge_guard_saved(r->guard) : NULL;
	return forge_slot_add(&r->slot,
			      json_pack("{s:o}", "guard",
					forge_guard_slot_json(r->unattributed, files)),
			      err);
}

void forge_run_note_init(void *arg, pid_t init)
{
	const struct run *r = arg;

	if (r->guard)
		forge_guard_note_init(r->guard, init);
}

void forge_run_take_guard(struct run *r, const json_t *slot)
{
	r->guarded_files = forge_guard_slot_files(slot);
	if (json_object_get(slot, "guard") && !r->guarded_files)
		json_object_del(r->record.json, "guarded_since");
	r->unattributed = forge_guard_slot_unattributed(slot, r->unattributed);
}

/* "Corrupted", or a sentence more. */
static void add_verdict(enum forge_guard_verdict found, const char *text,
			struct forge_verdict *v)
{
	if (found == FORGE_GUARD_CORRUPTED)
		forge_judge_corrupted(text, v);
	else if (found == FORGE_GUARD_NOTED)
		forge_judge_add(v, "Health: %s.", text);
}

static void judge_guard(struct run *r, const json_t *report, struct forge_verdict *v)
{
	char text[FORGE_GUARD_TEXT];

	add_verdict(forge_guard_judge(r->home, r->spec->run_id, r->unattributed, report,
				      text),
		    text, v);
}

/* Also when the supervisor before this one observed them, and died. */
static bool is_guarded(const struct run *r)
{
	return r->guard || json_object_get(r->record.json, "guarded_since");
}

/* As they were guarded when the run began. */
static int look_back(struct run *r, json_t **ret, struct forge_error *err)
{
	if (!r->guarded_files)
		return forge_fail(err, ENODATA,
				  "the supervisor before this one has "
				  "saved nothing of them");
	return forge_guard_since(r->guarded_files, LOOK_BACK_USEC, ret, err);
}

static void end_guard(struct run *r, json_t *post, struct forge_verdict *v)
{
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *report = NULL;
	char text[FORGE_GUARD_TEXT];

	if (!is_guarded(r))
		return;
	/* Not even a signal keeps a run from being judged. */
	int rc = r->guard ? forge_guard_end(r->guard, -1, &report, &err)
			  : look_back(r, &report, &err);
	json_object_del(r->record.json, "guarded_since");
	if (rc < 0) {
		forge_record_event(&r->record, "guard_failed", err.msg);
		report = json_pack("{s:s, s:o}", "mode", "none", "note",
				   forge_json_text(err.msg));
		json_object_set_new(post, "ok", json_false());
		add_verdict(forge_guard_judge_unknown(r->unattributed, err.msg, text),
			    text, v);
	} else {
		judge_guard(r, report, v);
	}
	json_object_set_new(post, "guard", report);
}

/* ---- after ---- */

static const json_t *find_check(const json_t *phase, const char *name)
{
	const json_t *one;
	size_t i;

	json_array_foreach (json_object_get(phase, "checks"), i, one)
		if (strcmp(forge_json_string_or(one, "name", ""), name) == 0)
			return one;
	return NULL;
}

/* Rows that all clients of the database have written meanwhile. */
static long long rows_written(const json_t *before, const json_t *after)
{
	return (long long)(json_integer_value(json_object_get(after, "writes")) -
			   json_integer_value(json_object_get(before, "writes")));
}

/* What became of a table; NULL: nothing. */
static const char *table_change(const json_t *numbers, const char *what,
				const char *table, const json_t *old)
{
	const json_t *now = json_object_get(json_object_get(numbers, what), table), *gone;
	size_t i;

	json_array_foreach (json_object_get(numbers, "missing"), i, gone)
		if (strcmp(json_string_value(gone), table) == 0)
			return "is gone";
	if (!now || json_equal(old, now))
		return NULL; /* without an answer the check has failed, and that is told */
	return strcmp(what, "count") == 0 ? "has another number of rows"
					  : "has other rows";
}

static bool has_guarded_tables(const struct forge_check_decl *d)
{
	return strcmp(d->kind, "postgres") == 0 && (d->count.n || d->contents.n) &&
	       forge_check_is_due(d, FORGE_PHASE_PRE) &&
	       forge_check_is_due(d, FORGE_PHASE_POST);
}

bool forge_run_needs_connections(const struct run *r)
{
	const struct forge_health_config *h = &r->cfg->health;

	if (!is_checked(r))
		return false;
	for (size_t i = 0; i < h->n_checks; i++)
		if (has_guarded_tables(&h->checks[i]))
			return true;
	return false;
}

void forge_run_note_connections(void *arg, json_t *connections)
{
	struct run *r = arg;
	const char *why = forge_json_string(connections, "why");

	json_decref(r->connections);
	r->connections = connections;
	if (why)
		forge_record_event(&r->record, "connections_unknown", why);
}

/*
 * Who changed a table, of a run without a network: such a run reaches a program outside only by a UNIX socket in what it can
 * read. The search is done once.
 */
static enum forge_writer writer_without_network(struct run *r,
						char text[FORGE_WRITER_TEXT])
{
	const json_t *made = json_object_get(r->connections, "sockets_unix");
	json_t *post = json_object_get(health_of(r), "post");
	char found[FORGE_INPUT_SOCKET_TEXT];

	if (json_is_integer(made) && json_integer_value(made) == 0) {
		(void)snprintf(text, FORGE_WRITER_TEXT,
			       "this run had no network, made no UNIX socket and cannot "
			       "have done it");
		return FORGE_WRITER_OTHER;
	}
	const json_t *known = json_object_get(post, "input_socket");
	bool may_have = known ? json_is_string(known)
			      : forge_find_input_socket(&r->spec->read_only, found);
	if (known)
		(void)snprintf(found, sizeof(found), "%s",
			       may_have ? json_string_value(known) : "");
	else
		(void)json_object_set_new(post, "input_socket",
					  may_have ? forge_json_text(found)
						   : json_null());
	if (may_have)
		(void)snprintf(text, FORGE_WRITER_TEXT,
			       "by whom is not known: this run had no network, but may "
			       "have used a UNIX socket (%.200s)",
			       found);
	else
		(void)snprintf(text, FORGE_WRITER_TEXT,
			       "this run had no network, and there is no socket in what "
			       "it could read");
	return may_have ? FORGE_WRITER_UNKNOWN : FORGE_WRITER_OTHER;
}

/* Says who changed a table. The reasons are told once for each check. */
static void judge_writer(struct run *r, const json_t *before, const json_t *after,
			 const char *text, bool is_first, struct forge_verdict *v)
{
	static const char *const again[] = {
		[FORGE_WRITER_OTHER] = "this run is not blamed for it",
		[FORGE_WRITER_RUN] = "this run did it",
		[FORGE_WRITER_UNKNOWN] = "by whom is not known",
	};
	bool warns = strcmp(forge_json_string_or(after, "severity", ""), "warn") == 0;
	char who[FORGE_WRITER_TEXT], all[FORGE_WRITER_TEXT + 400];
	enum forge_writer writer =
		r->spec->own_network
			? writer_without_network(r, who)
			: forge_table_writer(r->connections, before, after, who);

	(void)snprintf(all, sizeof(all), "%s; %s", text, is_first ? who : again[writer]);
	if (writer != FORGE_WRITER_OTHER && !warns &&
	    (writer == FORGE_WRITER_RUN ||
	     forge_guard_blames(r->home, r->spec->run_id, r->unattributed)))
		forge_judge_corrupted(all, v);
	else
		forge_judge_add(v, "Health: %s.", all);
}

/* Tables whose rows are guarded: numbers before and after. */
static void compare_tables(struct run *r, const json_t *before, const json_t *after,
			   const char *what, bool *is_first, struct forge_verdict *v)
{
	json_t *was = json_object_get(json_object_get(before, "numbers"), what), *old;
	const json_t *now = json_object_get(after, "numbers");
	const char *table;

	json_object_foreach(was, table, old)
	{
		const char *change = table_change(now, what, table, old);
		char text[400];
		if (!change)
			continue;
		(void)snprintf(
			text, sizeof(text),
			"%.64s: table %.64s %s now (%lld rows were written while the run "
			"was there; %zu other clients at its end)",
			forge_json_string_or(after, "name", ""), table, change,
			rows_written(json_object_get(before, "numbers"), now),
			json_array_size(json_object_get(now, "connections")));
		forge_record_event(&r->record, "table_changed", text);
		judge_writer(r, before, after, text, *is_first, v);
		*is_first = false;
	}
}

/* The configuration may have changed under a run that outlived its supervisor. */
static void tell_of_missing(struct run *r, struct forge_verdict *v)
{
	const json_t *pre = json_object_get(health_of(r), "pre"), *one;
	size_t i;

	json_array_foreach (json_object_get(pre, "checks"), i, one) {
		const char *name = forge_json_string_or(one, "name", "");
		const json_t *numbers = json_object_get(one, "numbers");
		if ((json_object_size(json_object_get(numbers, "count")) ||
		     json_object_size(json_object_get(numbers, "contents"))) &&
		    !forge_health_find(&r->cfg->health, name))
			forge_judge_add(v,
					"Health: %s is not configured any more; whether "
					"its tables changed is not known.",
					name);
	}
}

/* The results after the run, beside those before it, wherever both were found. */
static void judge_results(struct run *r, const json_t *post, struct forge_verdict *v)
{
	const json_t *one;
	size_t i;

	json_array_foreach (json_object_get(post, "checks"), i, one) {
		const char *name = forge_json_string_or(one, "name", "");
		const char *text = forge_json_string_or(one, "text", "");
		const json_t *before =
			find_check(json_object_get(health_of(r), "pre"), name);
		bool is_first = true;
		compare_tables(r, before, one, "count", &is_first, v);
		compare_tables(r, before, one, "contents", &is_first, v);
		if (json_is_true(json_object_get(one, "ok")))
			continue;
		/* Of what failed before, the user has been warned. */
		if (!json_is_false(json_object_get(before, "ok")))
			warn_of(r, " after the run", name, text);
		if (json_is_true(json_object_get(before, "ok")))
			forge_judge_add(v,
					"Health: %s, which passed before, fails: %.200s.",
					name, text);
	}
}

static void check_after(struct run *r, struct forge_check_results *ret)
{
	const struct forge_check_env env = r->ready->check_env(r->cfg, r->home, r->store);
	forge_auto_close int signals = forge_signals_fd();
	struct forge_error err = FORGE_ERROR_INIT;

	if (forge_checks_run(&env, FORGE_PHASE_POST, NULL, signals, ret, &err) < 0)
		forge_record_event(&r->record, "health_failed", err.msg);
}

static void put_in_quarantine(struct run *r, json_t *post)
{
	struct forge_error err = FORGE_ERROR_INIT;

	json_object_set_new(post, "ok", json_false());
	json_object_set_new(r->record.json, "quarantine", json_true());
	if (forge_quarantine_add(r->home, r->spec->run_id, &err) < 0)
		forge_run_warn(r, &err);
}

/* Where the run was, the checks were carried out. */
static json_t *take_remote(struct run *r, struct forge_verdict *v)
{
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *health = NULL;

	if (!r->executor->health || !r->execution)
		return NULL;
	if (r->executor->health(r->execution, &health, &err) < 0) {
		forge_record_event(&r->record, "health_failed", err.msg);
		return NULL;
	}
	if (!health)
		return NULL;
	json_t *post = json_object_get(health, "post");
	json_object_set_new(r->record.json, "health", health);
	if (json_is_object(json_object_get(post, "guard")))
		judge_guard(r, json_object_get(post, "guard"), v);
	judge_results(r, post, v);
	return post;
}

void forge_run_check_after(struct run *r, struct forge_verdict *v)
{
	forge_auto_check_results struct forge_check_results results = { 0 };
	json_t *post = NULL;

	if (r->executor->caps & FORGE_EXECUTOR_REMOTE) {
		post = take_remote(r, v);
	} else if (is_checked(r) || is_guarded(r)) {
		if (is_checked(r))
			check_after(r, &results);
		post = note_results(r, "post", &results);
		if (r->connections)
			json_object_set(post, "connections", r->connections);
		else if (forge_run_needs_connections(r))
			json_object_set_new(post, "connections", json_null());
		end_guard(r, post, v);
		judge_results(r, post, v);
		tell_of_missing(r, v);
	}
	if (post && strcmp(v->status, "corrupted") == 0)
		put_in_quarantine(r, post);
}
