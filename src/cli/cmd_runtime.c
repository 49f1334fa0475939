/* SPDX-License-Identifier: Apache-2.0 */
/* forge runtime: lists, checks and describes runtimes. */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/session.h"
#include "cli/table.h"
#include "record/deliver.h"
#include "run/runtime_probe.h"
#include "runtime/lockfile.h"

static bool is_json;
static const char *lock_path;

static const struct forge_opt *runtime_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_STRING(0, "lock", "FILE", &lock_path,
			     "check: also say what differs from this lock"),
		FORGE_FLAG(0, "json", &is_json, "Print JSON"),
		FORGE_STORE_ROW,
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

/* Has no open store: a probe forks, and SQLite does not survive that. */
struct place {
	struct forge_config *cfg;
	struct forge_home home;
	struct forge_catalog catalog;
	char *store;
};

static int open_place(struct place *p, struct forge_error *err)
{
	*p = (struct place){ .home = FORGE_HOME_INIT };
	int rc = forge_config_load(forge_session_config, &p->cfg, err);
	if (rc < 0)
		return rc;
	forge_reconcile_first();
	rc = forge_home_open(true, &p->home, err);
	if (rc == 0)
		rc = forge_store_choose(forge_store_wanted, p->cfg, &p->store, err);
	return rc < 0 ? rc : forge_catalog_open(p->cfg, &p->catalog, err);
}

static void close_place(struct place *p)
{
	forge_catalog_close(&p->catalog);
	forge_home_close(&p->home);
	forge_config_free(p->cfg);
	free(p->store);
}
#define forge_auto_place FORGE_CLEANUP(close_place)

static const char *health_word(enum forge_health health)
{
	return health == FORGE_HEALTHY	? "healthy"
	       : health == FORGE_BROKEN ? "broken"
					: "unchecked";
}

static enum forge_colour health_colour(enum forge_health health)
{
	return health == FORGE_HEALTHY	? FORGE_GREEN
	       : health == FORGE_BROKEN ? FORGE_RED
					: FORGE_YELLOW;
}

static void list_words(const struct forge_strv *list, char *buf, size_t size)
{
	size_t len = strlen(buf);

	forge_strv_foreach (s, list)
		if (len < size)
			len += (size_t)snprintf(buf + len, size - len, "%s%s",
						len ? " " : "", s);
}

/* The host lacks its packages: this is not an error of the runtime. */
#define NOT_INSTALLED "not installed"

/* Describes the current state of a runtime; a failure to open it is a state too. */
static json_t *describe(struct place *p, const struct forge_runtime_decl *d,
			const char *word)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_runtime rt = { .kind = NULL };
	struct forge_runtime_state state = { .health = FORGE_UNCHECKED };
	char has[4096] = "";

	int rc = forge_runtime_open(&p->catalog, word, &rt, &err);
	if (rc == 0)
		rc = forge_runtime_state(&p->home, &rt, &state, &err);
	bool is_missing = rc == -ENOPKG;
	if (rc < 0) {
		const char *why = is_missing ? strstr(err.msg, NOT_INSTALLED ": ") : NULL;
		state.health = FORGE_BROKEN;
		(void)snprintf(state.problem, sizeof(state.problem), "%.300s",
			       why ? why + strlen(NOT_INSTALLED ": ") : err.msg);
	}
	list_words(&d->commands, has, sizeof(has));
	list_words(&d->python, has, sizeof(has));
	list_words(&d->r, has, sizeof(has));
	const char *prefix = rt.prefix ? rt.prefix : d->prefix;
	json_t *j = json_pack(
		"{s:s, s:s, s:s?, s:o?, s:o, s:s, s:o, s:s?, s:s, s:s, s:o, s:i, s:O?}",
		"name", d->name, "kind", d->kind, "description", d->description, "prefix",
		prefix ? forge_json_name(prefix) : NULL, "has", forge_json_text(has),
		"health", is_missing ? NOT_INSTALLED : health_word(state.health),
		"problem", forge_json_text(state.problem), "clamped", d->clamped,
		"checked_at", state.checked_at, "digest", state.digest, "declared_in",
		forge_json_name(d->file), "line", (int)d->line, "versions",
		state.versions);
	forge_runtime_state_done(&state);
	forge_runtime_close(&rt);
	return j;
}

/* ---- list ---- */

struct listing {
	struct place *place;
	json_t *all;
};

static void add_one(const struct forge_runtime_decl *d, void *arg)
{
	struct listing *l = arg;

	json_array_append_new(l->all, describe(l->place, d, d->name));
}

#define HAS_SHOWN 72 /* bytes in a row; --json and show print all */

enum { NAME, KIND, HEALTH, SINCE, DIGEST, HAS, COLUMNS };

static void print_list(const json_t *all)
{
	static const char *const heading[COLUMNS] = { "NAME",  "KIND",	 "HEALTH",
						      "SINCE", "DIGEST", "HAS" };
	size_t n = json_array_size(all), i;
	struct forge_cell *cells = calloc((n + 1) * COLUMNS, sizeof(*cells));
	char(*text)[3][512] = calloc(n + 1, sizeof(*text));
	const json_t *r;

	for (size_t c = 0; cells && text && c < COLUMNS; c++)
		cells[c] = (struct forge_cell){ heading[c], FORGE_BOLD };
	json_array_foreach (all, i, r) {
		if (!cells || !text)
			break;
		struct forge_cell *row = &cells[(i + 1) * COLUMNS];
		const char *health = forge_json_string(r, "health"),
			   *problem = forge_json_string(r, "problem"),
			   *clamped = forge_json_string(r, "clamped"),
			   *digest = forge_json_string(r, "digest");
		(void)snprintf(text[i][0], sizeof(text[i][0]), "%s%s%s%s%s", health,
			       *problem ? ": " : "", problem, clamped ? "; " : "",
			       clamped ? clamped : "");
		(void)snprintf(text[i][1], sizeof(text[i][1]), "%.12s",
			       *digest ? digest + strlen("sha256:") : "");
		row[NAME].text = forge_json_string(r, "name");
		row[KIND].text = forge_json_string(r, "kind");
		row[HEALTH] = (struct forge_cell){
			text[i][0], health_colour(*health == 'h'   ? FORGE_HEALTHY
						  : *health == 'b' ? FORGE_BROKEN
								   : FORGE_UNCHECKED)
		};
		row[SINCE].text = forge_json_string(r, "checked_at");
		row[DIGEST].text = text[i][1];
		const char *has = forge_json_string(r, "has");
		(void)snprintf(text[i][2], sizeof(text[i][2]), "%.*s%s", HAS_SHOWN, has,
			       strlen(has) > HAS_SHOWN ? "..." : "");
		row[HAS].text = text[i][2];
	}
	if (cells && text)
		forge_table_print(stdout, cells, COLUMNS, n + 1);
	free(cells);
	free(text);
}

static int list(struct place *p, const char *name, struct forge_error *err)
{
	struct listing l = { .place = p, .all = json_array() };

	(void)name; /* it lists all runtimes */
	(void)err;  /* problems are in the rows */
	forge_catalog_each(&p->catalog, add_one, &l);
	if (is_json)
		forge_print_json(l.all);
	else if (json_array_size(l.all) == 0)
		fputs("forge: no runtimes are declared, installed or found\n"
		      "  hint: declare one in ~/.config/forge/runtimes.d/NAME.yaml (see "
		      "forge.yaml(5)), or name a directory: forge run -r PATH\n",
		      stderr);
	else
		print_list(l.all);
	json_decref(l.all);
	return FORGE_EXIT_OK;
}

/* ---- check ---- */

/* Text from a runtime is untrusted: it must not move the cursor. */
static void print_text(const char *text)
{
	forge_print_clean(stdout, text, strlen(text));
}

static void print_health(const char *name, const char *health, const char *problem)
{
	printf("%s: %s%s", name, health, *problem ? ": " : "");
	print_text(problem);
	putchar('\n');
}

static int print_drift(const struct forge_runtime *rt, struct forge_error *err)
{
	forge_auto_json json_t *drift = NULL;
	size_t i;
	const json_t *d;
	int rc = forge_lock_compare(rt, lock_path, &drift, err);

	if (rc < 0)
		return rc;
	json_array_foreach (drift, i, d) {
		const char *was = forge_json_string(d, "was"),
			   *is = forge_json_string(d, "is");
		printf("  %s ", forge_json_string(d, "change"));
		print_text(forge_json_string(d, "name"));
		putchar(' ');
		print_text(was);
		fputs(*was && *is ? " -> " : "", stdout);
		print_text(is);
		putchar('\n');
	}
	if (json_array_size(drift) == 0)
		printf("  as in %s\n", lock_path);
	return json_array_size(drift) > 0;
}

static void on_wait(void *arg, const struct forge_error *warning)
{
	(void)arg;
	forge_print_warning(warning);
}

/* Prints the warnings that a run would get from the activation; runs nothing. */
static void print_warnings(const struct forge_runtime *rt)
{
	forge_auto_strv struct forge_strv env = { 0 }, scripts = { 0 }, warnings = { 0 };

	if (forge_runtime_activate(rt, &env, &scripts, &warnings, NULL) < 0)
		return; /* the probe reported it */
	forge_strv_foreach (text, &warnings) {
		struct forge_error e = FORGE_ERROR_INIT;
		(void)forge_fail(&e, EINVAL, "runtime %s: %s", rt->decl->name, text);
		forge_print_warning(&e);
	}
}

/* 0: healthy (and as locked), 1: not. */
static int check_one(struct place *p, const char *name, struct forge_error *err)
{
	struct forge_runtime rt = { .kind = NULL };
	struct forge_runtime_state state = { .health = FORGE_UNCHECKED };
	int rc = forge_runtime_open(&p->catalog, name, &rt, err);

	if (rc == 0)
		rc = forge_runtime_probe(
			p->cfg, &p->home, p->store, &rt,
			&(struct forge_probe_listener){ .call = on_wait }, &state, err);
	if (rc == 0 && is_json) {
		forge_auto_json json_t *j = describe(p, rt.decl, forge_runtime_word(&rt));
		forge_print_json(j);
	} else if (rc == 0) {
		const char *what;
		json_t *version;
		print_health(rt.decl->name, health_word(state.health), state.problem);
		json_object_foreach(state.versions, what, version)
		{
			printf("  %s: ", what);
			print_text(json_string_value(version));
			putchar('\n');
		}
	}
	if (rc == 0)
		print_warnings(&rt);
	int status = state.health != FORGE_HEALTHY;
	if (rc == 0 && lock_path) {
		rc = print_drift(&rt, err);
		status = rc > 0 ? 1 : status;
	}
	forge_runtime_state_done(&state);
	forge_runtime_close(&rt);
	return rc < 0 ? rc : status;
}

struct checking {
	struct place *place;
	int status;
};

static void check_each(const struct forge_runtime_decl *d, void *arg)
{
	struct checking *c = arg;
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = check_one(c->place, d->name, &err);
	const char *why = rc == -ENOPKG ? strstr(err.msg, NOT_INSTALLED ": ") : NULL;

	if (why)
		print_health(d->name, NOT_INSTALLED, why + strlen(NOT_INSTALLED ": "));
	else if (rc < 0)
		print_health(d->name, "broken", err.msg);
	/* Runtimes that come with forge need not be installed. */
	if (rc != 0 && !(why && d->is_shipped))
		c->status = FORGE_EXIT_FAILED;
}

static int check(struct place *p, const char *name, struct forge_error *err)
{
	struct checking c = { .place = p };

	if (name)
		return check_one(p, name, err);
	forge_catalog_each(&p->catalog, check_each, &c);
	return c.status;
}

/* ---- show, lock, history ---- */

static json_t *describe_package(const struct forge_package *p)
{
	return json_pack("{s:s, s:o, s:o, s:o, s:o}", "source", p->source, "name",
			 forge_json_name(p->name), "version", forge_json_text(p->version),
			 "build", forge_json_text(p->build), "hash",
			 forge_json_text(p->hash));
}

static int show(struct place *p, const char *name, struct forge_error *err)
{
	static const char *const keys[] = { "name",	  "kind",   "description",
					    "prefix",	  "health", "problem",
					    "checked_at", "digest", "has",
					    "declared_in" };
	struct forge_runtime rt = { .kind = NULL };
	struct forge_packages packages = { .v = NULL };
	int rc = forge_runtime_open(&p->catalog, name, &rt, err);

	if (rc == 0)
		rc = forge_runtime_identify(&rt, &packages, err);
	if (rc == 0) {
		forge_auto_json json_t *j = describe(p, rt.decl, forge_runtime_word(&rt));
		forge_packages_sort(&packages);
		json_t *list_of = json_array();
		for (size_t i = 0; i < packages.n; i++)
			json_array_append_new(list_of, describe_package(&packages.v[i]));
		json_object_set_new(j, "packages", list_of);
		if (is_json)
			forge_print_json(j);
		for (size_t i = 0; !is_json && i < FORGE_ARRAY_SIZE(keys); i++) {
			const char *text = forge_json_string(j, keys[i]);
			if (!text || !*text)
				continue;
			printf("%-12s", keys[i]);
			print_text(text);
			putchar('\n');
		}
		if (!is_json)
			printf("%-12s%zu\n", "packages", packages.n);
	}
	forge_packages_done(&packages);
	forge_runtime_close(&rt);
	return rc;
}

static int lock(struct place *p, const char *name, struct forge_error *err)
{
	struct forge_runtime rt = { .kind = NULL };
	int rc = forge_runtime_open(&p->catalog, name, &rt, err);

	if (rc == 0)
		rc = forge_runtime_lock(&rt, stdout, err);
	forge_runtime_close(&rt);
	return rc;
}

/* Collects all rows first: each needs another query. */
static int add_use(const struct forge_runtime_use *use, void *arg)
{
	json_t *j = json_pack("{s:s, s:s, s:s, s:I, s:[]}", "digest", use->digest,
			      "first", use->first, "last", use->last, "runs",
			      (json_int_t)use->runs, "checks");

	return json_array_append_new(arg, j) < 0 ? -ENOMEM : 0;
}

static int add_check(const struct forge_runtime_check *check, void *arg)
{
	json_t *versions = check->versions ? json_loads(check->versions, 0, NULL) : NULL;
	json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:o?}", "time", check->time,
			      "verdict", check->verdict, "problem", check->problem,
			      "probe_run", check->run_id, "versions", versions);

	return json_array_append_new(arg, j) < 0 ? -ENOMEM : 0;
}

static void print_use(const json_t *use)
{
	json_int_t runs = json_integer_value(json_object_get(use, "runs"));
	const json_t *check;
	size_t i;

	if (is_json) { /* one line per use */
		(void)json_dumpf(use, stdout, JSON_COMPACT);
		putchar('\n');
		return;
	}
	printf("%s  %s  %s  %lld run%s\n", forge_json_string(use, "digest"),
	       forge_json_string(use, "first"), forge_json_string(use, "last"),
	       (long long)runs, runs == 1 ? "" : "s");
	json_array_foreach (json_object_get(use, "checks"), i, check) {
		const char *problem = forge_json_string(check, "problem");
		printf("  %s  %s%s", forge_json_string(check, "time"),
		       forge_json_string(check, "verdict"), *problem ? ": " : "");
		print_text(problem);
		putchar('\n');
	}
}

/* Stores the last probe if that is missing. A removed runtime has only its history. */
static void store_check(struct place *p, const char *name, struct forge_store *st)
{
	struct forge_runtime rt = { .kind = NULL };
	struct forge_runtime_state state = { .health = FORGE_UNCHECKED };

	if (forge_runtime_open(&p->catalog, name, &rt, NULL) == 0 &&
	    forge_runtime_state(&p->home, &rt, &state, NULL) == 0 && !state.is_stored &&
	    *state.checked_at)
		(void)!forge_runtime_store(&p->home, st, &rt, &state, NULL);
	forge_runtime_state_done(&state);
	forge_runtime_close(&rt);
}

/* The name in records: of a directory its path. The runtime need not exist any more. */
static const char *recorded_name(struct place *p, const char *word, char **ret)
{
	struct forge_runtime rt = { .kind = NULL };

	if (forge_runtime_is_path(word) &&
	    forge_runtime_open(&p->catalog, word, &rt, NULL) == 0)
		*ret = strdup(rt.decl->name);
	forge_runtime_close(&rt);
	return *ret ? *ret : word;
}

static int history(struct place *p, const char *word, struct forge_error *err)
{
	forge_auto_free char *path = NULL;
	const char *name = recorded_name(p, word, &path);
	forge_auto_store struct forge_store *st = NULL;
	forge_auto_json json_t *all = json_array();
	json_t *use;
	size_t i;
	int rc = forge_store_open(p->store, &st, err);

	if (rc == 0) {
		store_check(p, word, st);
		rc = forge_store_runtime_history(st, name, add_use, all, err);
	}
	json_array_foreach (all, i, use)
		if (rc >= 0)
			rc = forge_store_runtime_checks(
				st, name, forge_json_string(use, "digest"), add_check,
				json_object_get(use, "checks"), err);
	if (rc < 0)
		return rc;
	json_array_foreach (all, i, use)
		print_use(use);
	return 0;
}

static int with_place(int (*act)(struct place *p, const char *name,
				 struct forge_error *err),
		      const char *name)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_place struct place p = { .home = FORGE_HOME_INIT };
	int rc = open_place(&p, &err);

	if (rc == 0)
		rc = act(&p, name, &err);
	return rc < 0 ? forge_session_fail(&err) : rc;
}

static int run_list(const char *name)
{
	return with_place(list, name);
}

static int run_show(const char *name)
{
	return with_place(show, name);
}

static int run_check(const char *name)
{
	return with_place(check, name);
}

static int run_lock(const char *name)
{
	return with_place(lock, name);
}

static int run_history(const char *name)
{
	return with_place(history, name);
}

static const struct forge_verb verbs[] = {
	{ "list", NULL, "shows every declared or discovered runtime with its health",
	  run_list },
	{ "check", "[NAME]", "probes one, or all, in a sandbox now", run_check },
	{ "show", "NAME", "shows what one consists of", run_show },
	{ "lock", "NAME", "writes that down, in conda's own form for conda", run_lock },
	{ "history", "NAME",
	  "shows which digests it had, how many runs used each, and what checks found",
	  run_history },
	{ .name = NULL },
};

const struct forge_cmd forge_cmd_runtime = {
	.name = "runtime",
	.help = "Named environments: list, check and lock them",
	.verbs = verbs,
	.bad_value = FORGE_EXIT_FAILED,
	.opts = runtime_opts,
};
