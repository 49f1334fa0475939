/* SPDX-License-Identifier: Apache-2.0 */
/* The host's health before, during and after a run. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/entries.h"
#include "base/json.h"
#include "health/check.h"
#include "health/guard.h"
#include "record/attendant.h"
#include "run/health_wait.h"
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

/* {ok, host, checks} into the record. */
static json_t *note_results(struct run *r, const char *phase,
			    const struct forge_check_results *results)
{
	json_t *checks = json_array();
	char host[256] = "";

	(void)gethostname(host, sizeof(host) - 1); /* "" will do */
	for (size_t i = 0; i < results->n; i++)
		json_array_append_new(checks, forge_check_json(&results->v[i]));
	json_t *j =
		json_pack("{s:b, s:o, s:o}", "ok", !forge_checks_failed(results, "block"),
			  "host", forge_json_text(host), "checks", checks);
	json_object_set_new(health_of(r), phase, j);
	return j;
}

static void warn_of(struct run *r, const struct forge_check_result *failed)
{
	struct forge_error e = FORGE_ERROR_INIT;

	(void)forge_fail(&e, EIO, "health: %s: %s", failed->decl->name,
			 failed->report.text);
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

/* Why the run cannot start now: a failed check, or a run in quarantine. 0: it can. 1: why is set. */
static int find_obstacle(struct run *r, struct forge_obstacle *ret,
			 struct forge_error *err)
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
	if (rc != 0)
		return rc;
	rc = check_once(r, &results, err);
	if (rc < 0)
		return rc;
	(void)note_results(r, "pre", &results);
	const struct forge_check_result *warning = forge_checks_failed(&results, "warn"),
					*failed = forge_checks_failed(&results, "block");
	if (warning && !r->has_warned_of_health)
		warn_of(r, warning);
	r->has_warned_of_health |= warning != NULL;
	if (!failed)
		return 0;
	(void)snprintf(ret->text, sizeof(ret->text), "%.64s: %s", failed->decl->name,
		       failed->report.text);
	ret->waits = strcmp(failed->decl->if_failed, "wait") == 0;
	return 1;
}

int forge_run_check_before(struct run *r, struct forge_verdict *ret_verdict,
			   struct forge_error *err)
{
	uint64_t deadline = forge_now_usec() + r->cfg->queue_usec;
	struct forge_obstacle why = { .waits = false };
	int rc = is_checked(r) ? find_obstacle(r, &why, err) : 0;

	while (rc == 1 && why.waits) {
		rc = forge_run_wait_for_health(r, &why, deadline, err);
		if (rc == -ECANCELED || rc == -ETIMEDOUT) {
			forge_judge_not_admitted(rc, err, ret_verdict);
			if (rc == -ETIMEDOUT)
				forge_judge_unhealthy(why.text, ret_verdict);
			return 0;
		}
		if (rc == 0)
			rc = find_obstacle(r, &why, err);
	}
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

/* Processes of a run that can outlive us have other ancestors, and groups that are not known yet. */
static struct forge_guard_spec guard_spec(const struct run *r, int stop_fd)
{
	bool is_ours = !(r->executor->caps & FORGE_EXECUTOR_OUTLIVES);

	return (struct forge_guard_spec){ .config = &r->cfg->health,
					  .home = r->home,
					  .run_id = r->spec->run_id,
					  .workdir = r->spec->workdir,
					  .workdirs = r->cfg->workdir,
					  .start_watcher =
						  is_ours ? forge_attendant_guard : NULL,
					  .stop_fd = stop_fd };
}

int forge_run_guard(struct run *r, struct forge_error *err)
{
	forge_auto_close int signals = forge_signals_fd();
	const struct forge_guard_spec spec = guard_spec(r, signals);

	if (r->req->is_probe || r->executor->caps & FORGE_EXECUTOR_REMOTE)
		return 0;
	return forge_guard_begin(&spec, &r->guard, err);
}

/* Has this run, which began earlier, ended since then? Not known counts as yes. */
static bool has_ended_since(const struct run *r, const char *run_id)
{
	forge_auto_close int dir = forge_home_open_run(r->home, run_id);
	char ended[FORGE_RUN_ID_MAX];
	struct stat st;

	if (dir < 0 || fstatat(dir, "record.json", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return dir != -ENOENT && errno != ENOENT;
	/* An id begins with its time. */
	uint64_t msec = (uint64_t)st.st_mtim.tv_sec * 1000 +
			(uint64_t)st.st_mtim.tv_nsec / 1000000;
	(void)forge_run_id_at(ended, msec);
	return strncmp(ended, r->spec->run_id, strlen(ended)) >= 0;
}

/* Was another run of this FORGE_HOME there while this one was? Not known counts as yes. */
static bool was_alone(const struct run *r)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	forge_auto_json json_t *slots = forge_slot_ids(r->home);
	const char *own = r->spec->run_id;

	if (!slots || json_object_size(slots) > 1)
		return false;
	(void)forge_entries_open(&d, r->home->runs_fd, "."); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));) {
		if (!forge_run_id_is_valid(name) || strcmp(name, own) == 0)
			continue;
		/* Ids sort by time. */
		if (strcmp(name, own) > 0 || has_ended_since(r, name))
			return false;
	}
	return d.error == 0;
}

/* The first change by this author that counts, or NULL. */
static const json_t *first_change(const json_t *report, const char *by)
{
	size_t i;
	const json_t *one;

	json_array_foreach (json_object_get(report, "files"), i, one)
		if (strcmp(forge_json_string_or(one, "by", ""), by) == 0 &&
		    !json_is_true(json_object_get(one, "warns")))
			return one;
	return NULL;
}

/* The first change, not by others, that does not count, or NULL. */
static const json_t *first_warning(const json_t *report)
{
	size_t i;
	const json_t *one;

	json_array_foreach (json_object_get(report, "files"), i, one)
		if (strcmp(forge_json_string_or(one, "by", ""), "other") != 0)
			return one;
	return NULL;
}

static unsigned long long count(const json_t *report, const char *key)
{
	return (unsigned long long)json_integer_value(json_object_get(report, key));
}

static bool blames_unattributed(const struct run *r)
{
	return r->cfg->health.unattributed == FORGE_UNATTRIBUTED_CORRUPTED ||
	       (r->cfg->health.unattributed == FORGE_UNATTRIBUTED_AUTO && was_alone(r));
}

/* What the verdict rests on, when nothing was found. */
static void tell_of_loss(const json_t *report, struct forge_verdict *v)
{
	if (strcmp(forge_json_string_or(report, "mode", ""), "times") == 0)
		forge_judge_add(v,
				"Health: %s; by their times no guarded file was changed.",
				forge_json_string_or(report, "note", ""));
}

static void judge_guard(struct run *r, const json_t *report, struct forge_verdict *v)
{
	const json_t *shown = first_change(report, "run");
	const char *note = forge_json_string(report, "note");
	char text[640];

	if (!shown)
		shown = first_change(report, "unknown");
	if (!shown)
		shown = first_warning(report);
	if (!shown) {
		tell_of_loss(report, v);
		return;
	}
	bool is_own = strcmp(forge_json_string_or(shown, "by", ""), "run") == 0;
	bool warns = json_is_true(json_object_get(shown, "warns"));
	unsigned long long n = count(report, is_own ? "by_run" : "unattributed");
	(void)snprintf(text, sizeof(text),
		       "%llu guarded file%s %s changed %s, e.g. %.200s (%s)%s%s%s", n,
		       n == 1 ? "" : "s", n == 1 ? "was" : "were",
		       is_own ? "by this run" : "while it ran, and by whom is not known",
		       forge_json_string_or(shown, "path", ""),
		       forge_json_string_or(shown, "what", ""), note ? " [" : "",
		       note ? note : "", note ? "]" : "");
	if (!warns && (is_own || blames_unattributed(r)))
		forge_judge_corrupted(text, v);
	else
		forge_judge_add(v, "Health: %s.", text);
}

static void end_guard(struct run *r, json_t *post, struct forge_verdict *v)
{
	forge_auto_close int signals = forge_signals_fd();
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *report = NULL;

	if (!r->guard)
		return;
	if (forge_guard_end(r->guard, signals, &report, &err) < 0) {
		forge_record_event(&r->record, "guard_failed", err.msg);
		report = json_pack("{s:s, s:o}", "mode", "none", "note",
				   forge_json_text(err.msg));
		forge_judge_add(v, "Whether it changed guarded files is not known: %s.",
				err.msg);
	} else {
		judge_guard(r, report, v);
	}
	json_object_set_new(post, "guard", report);
}

/* ---- after ---- */

static const json_t *check_before(struct run *r, const char *name)
{
	const json_t *pre = json_object_get(health_of(r), "pre"), *one;
	size_t i;

	json_array_foreach (json_object_get(pre, "checks"), i, one)
		if (strcmp(forge_json_string_or(one, "name", ""), name) == 0)
			return one;
	return NULL;
}

/* Tables whose rows are guarded: numbers before and after. */
static void compare_tables(struct run *r, const struct forge_check_result *after,
			   const char *what, struct forge_verdict *v)
{
	const json_t *was = json_object_get(
		json_object_get(check_before(r, after->decl->name), "numbers"), what);
	const json_t *is = json_object_get(after->report.numbers, what), *value;
	const char *table;

	json_object_foreach((json_t *)is, table, value)
	{
		const json_t *old = json_object_get(was, table);
		char text[400];
		if (!old || json_equal(old, value))
			continue;
		(void)snprintf(text, sizeof(text),
			       "health: %.64s: table %.64s has other %s now",
			       after->decl->name, table,
			       strcmp(what, "count") == 0 ? "numbers of rows" : "rows");
		forge_record_event(&r->record, "table_changed", text);
		if (r->spec->own_network)
			forge_judge_add(
				v, "%.1s%s; the run had no network, so it was not it.",
				"H", text + 1);
		else if (blames_unattributed(r))
			forge_judge_corrupted(text, v);
		else
			forge_judge_add(v, "%.1s%s; by whom is not known.", "H",
					text + 1);
	}
}

static void judge_results(struct run *r, const struct forge_check_results *results,
			  struct forge_verdict *v)
{
	for (size_t i = 0; i < results->n; i++) {
		const struct forge_check_result *one = &results->v[i];
		const json_t *before = check_before(r, one->decl->name);
		compare_tables(r, one, "count", v);
		compare_tables(r, one, "contents", v);
		if (one->report.is_ok)
			continue;
		warn_of(r, one);
		if (json_is_true(json_object_get(before, "ok")))
			forge_judge_add(v,
					"Health: %s, which passed before, fails: %.200s.",
					one->decl->name, one->report.text);
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

void forge_run_check_after(struct run *r, struct forge_verdict *v)
{
	forge_auto_check_results struct forge_check_results results = { 0 };
	struct forge_error err = FORGE_ERROR_INIT;

	if (!is_checked(r) && !r->guard)
		return;
	if (is_checked(r))
		check_after(r, &results);
	json_t *post = note_results(r, "post", &results);
	end_guard(r, post, v);
	judge_results(r, &results, v);
	if (strcmp(v->status, "corrupted") != 0)
		return;
	json_object_set_new(post, "ok", json_false());
	json_object_set_new(r->record.json, "quarantine", json_true());
	if (forge_quarantine_add(r->home, r->spec->run_id, &err) < 0)
		forge_run_warn(r, &err);
}
