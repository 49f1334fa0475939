/* SPDX-License-Identifier: Apache-2.0 */
/* forge health: the host's checks, now and in the past, and runs in quarantine. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/health_history.h"
#include "cli/session.h"
#include "cli/table.h"
#include "health/guard.h"
#include "record/clear.h"
#include "record/deliver.h"
#include "run/health_env.h"

static bool is_json;
static const char *clear_note, *since_text;

static const struct forge_opt *health_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_FLAG(0, "json", &is_json, "Print JSON"),
		FORGE_STRING(0, "since", "AGE", &since_text,
			     "history: of the last 7d, 12h ... (default: 30d)"),
		FORGE_STRING(0, "note", "TEXT", &clear_note,
			     "clear: why the run may leave quarantine"),
		FORGE_CONFIG_ROW,
		FORGE_STORE_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

/* ---- check ---- */

static json_t *results_json(const struct forge_check_results *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->n; i++)
		json_array_append_new(list, forge_check_json(&r->v[i]));
	return list;
}

static int print_results(const struct forge_check_results *r, struct forge_error *err)
{
	enum { NAME, KIND, STATE, TIME, WHAT, COLUMNS };
	forge_auto_free struct forge_cell *cells =
		calloc((r->n + 1) * COLUMNS, sizeof(*cells));
	char(*times)[FORGE_FORMAT_MAX] = calloc(r->n + 1, sizeof(*times));
	static const char *const heads[] = { "CHECK", "KIND", "STATE", "TIME", "RESULT" };

	if (!cells || !times) {
		free(times);
		return forge_fail(err, ENOMEM, "out of memory");
	}
	for (size_t i = 0; i < COLUMNS; i++)
		cells[i] = (struct forge_cell){ heads[i], FORGE_BOLD };
	for (size_t i = 0; i < r->n; i++) {
		const struct forge_check_result *one = &r->v[i];
		struct forge_cell *row = cells + (i + 1) * COLUMNS;
		bool blocks = strcmp(one->decl->severity, "block") == 0;
		row[NAME].text = one->decl->name;
		row[KIND].text = one->decl->kind;
		row[STATE] = one->report.is_ok
				     ? (struct forge_cell){ "pass", FORGE_GREEN }
			     : blocks ? (struct forge_cell){ "fail", FORGE_RED }
				      : (struct forge_cell){ "warn", FORGE_YELLOW };
		row[TIME].text = forge_format_duration(times[i], one->duration_usec);
		row[WHAT].text = one->report.text;
	}
	forge_table_print(stdout, cells, COLUMNS, r->n + 1);
	free(times);
	return 0;
}

/* A name that is no check is an error, and not "nothing failed". */
static int find_check(const struct forge_config *cfg, const char *name,
		      struct forge_error *err)
{
	char have[256] = "";
	size_t len = 0;

	if (!name || forge_health_find(&cfg->health, name))
		return 0;
	for (size_t i = 0; i < cfg->health.n_checks && len < sizeof(have); i++)
		len += (size_t)snprintf(have + len, sizeof(have) - len, "%s%s",
					i ? ", " : "", cfg->health.checks[i].name);
	return forge_fail(err, ENOENT, "unknown check '%.64s' (have: %s)", name, have);
}

/* For the history. Without the store, they are only printed. */
static void keep_results(const char *url, const json_t *list)
{
	struct forge_error why = FORGE_ERROR_INIT;
	forge_auto_store struct forge_store *st = NULL;
	char host[256] = "";

	(void)gethostname(host, sizeof(host) - 1); /* "" will do */
	if (forge_store_open(url, &st, &why) < 0 ||
	    forge_store_put_checks(st, list, host, &why) < 0)
		forge_print_warning(&why);
}

static bool is_files(const struct forge_config *cfg, const char *name)
{
	return strcmp(forge_health_find(&cfg->health, name)->kind, "files") == 0;
}

/* How many files are guarded, and how their changes are found. */
static int print_guard(const struct forge_config *cfg, const struct forge_home *home,
		       struct forge_error *err)
{
	const struct forge_guard_spec spec = { .config = &cfg->health,
					       .home = home,
					       .run_id = "",
					       .workdirs = cfg->workdir,
					       .stop_fd = -1 };
	forge_auto_json json_t *j = NULL;
	int rc = forge_guard_describe(&spec, &j, err);

	if (rc < 0 || !j)
		return rc;
	const char *why = forge_json_string(j, "why");
	bool watches = strcmp(forge_json_string_or(j, "mode", ""), "watch") == 0;
	printf("guarded: %lld files, %s%s%s%s\n",
	       (long long)json_integer_value(json_object_get(j, "files")),
	       watches ? "watched while runs are there"
		       : "compared before and after each run",
	       why ? " (" : "", why ? why : "", why ? ")" : "");
	if (json_object_get(j, "beside_workdirs"))
		printf("         The workdirs are on the same file system: a program "
		       "that only writes "
		       "small pieces takes\n         up to 40 %% longer while it is "
		       "watched. `forge "
		       "setup --workdir-quota` avoids that.\n");
	return 0;
}

/* 0: nothing that blocks runs failed. */
static int check(const char *name, struct forge_error *err)
{
	forge_auto_config struct forge_config *cfg = NULL;
	forge_auto_home struct forge_home home = FORGE_HOME_INIT;
	forge_auto_check_results struct forge_check_results r = { 0 };
	forge_auto_free char *store = NULL;
	int rc = forge_config_load(forge_session_config, &cfg, err);

	if (rc == 0)
		rc = find_check(cfg, name, err);
	if (rc == 0)
		rc = forge_home_open(true, &home, err);
	if (rc == 0)
		rc = forge_store_choose(forge_store_wanted, cfg, &store, err);
	if (rc < 0)
		return rc;
	const struct forge_check_env env = forge_health_env(cfg, &home, store);
	rc = forge_checks_run(&env, FORGE_PHASE_DEMAND, name, -1, &r, err);
	if (rc < 0)
		return rc;
	forge_auto_json json_t *list = results_json(&r);
	if (is_json)
		forge_print_json(list);
	else
		rc = print_results(&r, err);
	if (rc == 0 && !is_json && (!name || is_files(cfg, name)))
		rc = print_guard(cfg, &home, err);
	keep_results(store, list);
	return rc < 0 ? rc : forge_checks_failed(&r, "block") != NULL;
}

static int run_check(const char *name)
{
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = check(name, &err);

	return rc < 0 ? forge_session_fail(&err) : rc;
}

/* ---- history and clear ---- */

static int history(const char *name, struct forge_error *err)
{
	forge_auto_session struct forge_session s = FORGE_SESSION_INIT;
	uint64_t age = 30ull * 24 * 3600 * 1000000;
	int rc = since_text ? forge_parse_duration(since_text, &age, err) : 0;

	if (rc < 0)
		return forge_wrap(err, rc, "--since");
	forge_session_rule = FORGE_SESSION_LOOKS;
	rc = forge_session_open(&s, true, err);
	if (rc < 0)
		return rc;
	time_t since = age == FORGE_UNLIMITED ? 0 : time(NULL) - (time_t)(age / 1000000);
	rc = forge_health_history(s.store, name, since, is_json, err);
	/* A check that is not configured any more has a history, and another word has none. */
	if (rc == 0)
		rc = find_check(s.cfg, name, err);
	if (rc == 0 && !is_json)
		puts("no check was carried out in this time");
	return rc;
}

static int run_history(const char *name)
{
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = history(name, &err);

	return rc < 0 ? forge_session_fail(&err) : FORGE_EXIT_OK;
}

static int clear(const char *word, struct forge_error *err)
{
	forge_auto_session struct forge_session s = FORGE_SESSION_INIT;
	forge_auto_json json_t *record = NULL;
	char name[FORGE_RUN_NAME_MAX];
	int rc = clear_note && *clear_note
			 ? forge_session_open(&s, true, err)
			 : forge_fail(err, EINVAL,
				      "clear: say with --note why the run is cleared");

	if (rc < 0)
		return rc;
	struct forge_error why = FORGE_ERROR_INIT;
	rc = forge_session_record(&s, word, &record, &why);
	/* Of a run that died early there may be nothing but the mark. */
	bool is_id = strlen(word) == FORGE_RUN_ID_MAX - 1 && forge_run_id_is_valid(word);
	if (rc < 0 && !(rc == -ENOENT && is_id)) {
		*err = why;
		return rc;
	}
	const char *id = record ? forge_json_string(record, "run_id") : word;
	rc = forge_clear_run(&s.home, s.store, id, record, clear_note, err);
	if (rc == 0)
		printf("cleared: %s\n", record ? forge_record_name(record, name) : word);
	return rc;
}

static int run_clear(const char *word)
{
	struct forge_error err = FORGE_ERROR_INIT;

	return clear(word, &err) < 0 ? forge_session_fail(&err) : FORGE_EXIT_OK;
}

static const struct forge_verb verbs[] = {
	{ "check", "[NAME]", "carries out the checks of this host now", run_check },
	{ "history", "[NAME]", "shows how often each check passed, and what failed last",
	  run_history },
	{ "clear", "RUN", "ends the quarantine of a run that changed guarded files",
	  run_clear },
	{ .name = NULL },
};

const struct forge_cmd forge_cmd_health = {
	.name = "health",
	.help = "The health of this host: check it, see its history",
	.about = "Checks are named in forge.yaml, sections health and guard; disk and "
		 "memory are\n"
		 "always there. They are carried out before and after each run. check "
		 "exits 0 when\n"
		 "nothing failed that keeps runs from starting.",
	.verbs = verbs,
	.bad_value = FORGE_EXIT_FAILED,
	.opts = health_opts,
};
