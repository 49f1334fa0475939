/* SPDX-License-Identifier: Apache-2.0 */
/* Runtimes, executors, health, and what needs no run: the description of the interface, numbers, pages. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "openapi.h"
#include "record/health_sums.h"
#include "server/command.h"
#include "server/metrics.h"
#include "server/route.h"
#include "server/shared.h"

#define DAY_SECONDS 86400

/* Words that end with NULL. */
static int words_of(struct forge_strv *ret, const char *const *words)
{
	int rc = 0;

	for (; *words && rc == 0; words++)
		rc = forge_strv_add(ret, *words);
	return rc;
}

/* Executes forge; NULL: the refusal is the answer. */
static json_t *ask_forge(struct forge_server *sv, const char *const *list, bool is_lines,
			 struct forge_answer *a)
{
	forge_auto_strv struct forge_strv words = { 0 };
	json_t *printed = NULL;

	if (words_of(&words, list) < 0) {
		forge_answer_error(a, 503, "busy", "out of memory", NULL);
		return NULL;
	}
	return forge_command_json(sv, &words, is_lines, &printed, a) ? printed : NULL;
}

void forge_api_runtimes(struct forge_server *sv, const struct forge_ask *ask,
			struct forge_answer *a)
{
	static const char *const words[] = { "runtime", "list", "--json", NULL };
	json_t *list = ask_forge(sv, words, false, a);

	(void)ask;
	if (list)
		forge_answer_json(a, 200, json_pack("{s:o}", "runtimes", list));
}

/* A name is no option and no path. */
static bool is_name(const char *text)
{
	size_t n = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				"0123456789._-");

	return n > 0 && n < 65 && !text[n] && *text != '-' && *text != '.';
}

void forge_api_runtime(struct forge_server *sv, const struct forge_ask *ask,
		       struct forge_answer *a)
{
	const char *const show[] = { "runtime", "show", "--json", ask->params[0], NULL };
	const char *const history[] = { "runtime", "history", "--json", ask->params[0],
					NULL };

	if (!is_name(ask->params[0])) {
		forge_answer_error(a, 404, "not_found", "there is no such runtime", NULL);
		return;
	}
	json_t *shown = ask_forge(sv, show, false, a);
	if (!shown) {
		if (a->status == 400 && a->text && strstr(a->text, "unknown runtime"))
			a->status = 404;
		return;
	}
	json_t *past = ask_forge(sv, history, true, a);
	if (!past) {
		json_decref(shown);
		return;
	}
	forge_answer_json(a, 200,
			  json_pack("{s:o, s:o}", "runtime", shown, "history", past));
}

void forge_api_executors(struct forge_server *sv, const struct forge_ask *ask,
			 struct forge_answer *a)
{
	static const char *const words[] = { "executor", "list", "--json", NULL };
	json_t *list = ask_forge(sv, words, false, a);

	(void)ask;
	if (list)
		forge_answer_json(a, 200, json_pack("{s:o}", "executors", list));
}

json_t *forge_api_health_rows(struct forge_server *sv, struct forge_answer *a)
{
	struct forge_health_sums s = { .n = 0 };
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_store *st;
	uint64_t now = forge_now_usec();

	pthread_mutex_lock(&sv->counts_lock);
	if (sv->health && now - sv->health_usec < sv->health_for_usec) {
		json_t *kept = json_deep_copy(sv->health);
		pthread_mutex_unlock(&sv->counts_lock);
		return kept;
	}
	pthread_mutex_unlock(&sv->counts_lock);
	int rc = forge_server_take(sv, &st, &err);
	if (rc == 0) {
		rc = forge_health_sum_up(st, NULL, time(NULL) - DAY_SECONDS, &s, &err);
		forge_server_give(sv, st, rc);
	}
	if (rc < 0) {
		forge_answer_fail(a, rc, &err);
		return NULL;
	}
	json_t *rows = forge_health_sums_json(&s);
	forge_health_sums_done(&s);
	pthread_mutex_lock(&sv->counts_lock);
	json_decref(sv->health);
	sv->health = json_deep_copy(rows);
	sv->health_usec = forge_now_usec();
	/* At least a second, and one part in fifty of the time is spent on this at most. */
	sv->health_for_usec = 1000000 + 50 * (sv->health_usec - now);
	pthread_mutex_unlock(&sv->counts_lock);
	return rows;
}

void forge_api_health(struct forge_server *sv, const struct forge_ask *ask,
		      struct forge_answer *a)
{
	json_t *rows = forge_api_health_rows(sv, a);

	(void)ask;
	if (rows)
		forge_answer_json(a, 200, json_pack("{s:o}", "checks", rows));
}

void forge_api_openapi(struct forge_server *sv, const struct forge_ask *ask,
		       struct forge_answer *a)
{
	(void)sv;
	(void)ask;
	a->data = forge_openapi;
	a->len = sizeof(forge_openapi) - 1;
	a->type = "application/json";
}

void forge_api_alive(struct forge_server *sv, const struct forge_ask *ask,
		     struct forge_answer *a)
{
	(void)sv;
	(void)ask;
	a->data = "ok\n";
	a->len = 3;
	a->type = "text/plain; charset=utf-8";
}

/* On loopback without a token, as scrapers expect: there are only sums in it. */
void forge_api_metrics(struct forge_server *sv, const struct forge_ask *ask,
		       struct forge_answer *a)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_store *st = NULL;
	char *text = NULL;
	size_t len = 0;

	if ((!sv->is_loopback || sv->has_names) && ask->access < FORGE_ACCESS_READ) {
		forge_answer_error(a, 401, "unauthorized", "a token is needed",
				   "`forge token new` makes one; Prometheus sends it as "
				   "`authorization`");
		return;
	}
	FILE *out = open_memstream(&text, &len);
	/* Without the store they say that. */
	int rc = out ? forge_server_take(sv, &st, &err) : -ENOMEM;
	if (rc < 0 && out)
		st = NULL;
	if (out) {
		rc = forge_metrics_print(st, &sv->home, sv->cfg,
					 FORGE_METRICS_OPENMETRICS, out, &err);
		forge_server_give(sv, st, rc);
		if (fclose(out) != 0)
			rc = -ENOMEM;
	}
	if (rc < 0) {
		free(text);
		forge_answer_fail(a, rc, &err);
		return;
	}
	forge_answer_done(a);
	a->text = text;
	a->len = len;
	a->type = forge_metrics_media_type(FORGE_METRICS_OPENMETRICS);
}
