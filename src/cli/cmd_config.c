/* SPDX-License-Identifier: Apache-2.0 */
/* forge config: checks a file, lists the keys; `show` is in config_show.c. */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>

#include "cli/config_show.h"
#include "cli/table.h"
#include "config/config.h"

static const char *config_path;
static bool is_json, wants_origin;

static const struct forge_opt *config_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_STRING(0, "config", "FILE", &config_path,
			     "Read this configuration"),
		FORGE_FLAG(0, "origin", &wants_origin,
			   "show: every key with where its value is from"),
		FORGE_FLAG(0, "json", &is_json, "Print JSON"),
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

static void print_check_json(const char *path, const struct forge_error *err)
{
	json_t *report = json_pack("{s:b, s:s?}", "ok", err == NULL, "path", path);

	if (report && err) {
		/* A member that cannot be added is left out; "ok" is enough. */
		(void)json_object_set_new(report, "file", json_string(err->file));
		(void)json_object_set_new(report, "line", json_integer(err->line));
		(void)json_object_set_new(report, "column", json_integer(err->column));
		(void)json_object_set_new(report, "message", json_string(err->msg));
		(void)json_object_set_new(report, "hint", json_string(err->hint));
	}
	if (report)
		forge_print_json(report);
	json_decref(report);
}

static int config_check(const char *path)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_config struct forge_config *cfg = NULL;
	int rc = forge_config_load(path, &cfg, &err);

	if (is_json)
		print_check_json(rc < 0 ? path : cfg->path, rc < 0 ? &err : NULL);
	else if (rc < 0)
		forge_print_error(&err);
	else
		printf("ok: %s\n", cfg->path ? cfg->path : "no file, built-in defaults");
	return rc < 0 ? FORGE_EXIT_FAILED : FORGE_EXIT_OK;
}

static int config_show(void)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_config struct forge_config *cfg = NULL;
	int rc = forge_config_load(config_path, &cfg, &err);

	if (rc >= 0)
		rc = wants_origin ? forge_config_show_origin(cfg, is_json, &err)
		     : is_json	  ? forge_config_show_json(cfg, &err)
				  : forge_config_show(cfg, &err);
	if (rc < 0)
		forge_print_error(&err);
	return rc < 0 ? FORGE_EXIT_FAILED : FORGE_EXIT_OK;
}

enum { KEY, TYPE, DEFAULT, HELP, COLUMNS };

struct key_table {
	struct forge_cell *cells;
	size_t rows;
};

static void count_key(const struct forge_config_key *key, void *arg)
{
	(void)key;
	++*(size_t *)arg;
}

static void add_key(const struct forge_config_key *key, void *arg)
{
	struct key_table *table = arg;
	struct forge_cell *row = table->cells + table->rows++ * COLUMNS;

	row[KEY].text = key->path;
	row[TYPE].text = key->type;
	row[DEFAULT].text = key->builtin;
	row[HELP].text = key->help;
}

static void add_key_json(const struct forge_config_key *key, void *arg)
{
	/* The schema is valid UTF-8: packing fails only when out of memory. */
	(void)json_array_append_new(
		arg, json_pack("{s:s, s:s, s:s?, s:s}", "key", key->path, "type",
			       key->type, "default", key->builtin, "help", key->help));
}

static int config_keys(void)
{
	size_t n = 0;

	if (is_json) {
		json_t *keys = json_array();

		forge_config_each_key(add_key_json, keys);
		forge_print_json(keys);
		json_decref(keys);
		return FORGE_EXIT_OK;
	}
	forge_config_each_key(count_key, &n);
	forge_auto_free struct forge_cell *cells =
		calloc((n + 1) * COLUMNS, sizeof(*cells));
	if (!cells) {
		forge_print_error(&(struct forge_error){ .code = ENOMEM });
		return FORGE_EXIT_FAILED;
	}
	struct key_table table = { .cells = cells, .rows = 1 };
	cells[KEY] = (struct forge_cell){ "KEY", FORGE_BOLD };
	cells[TYPE] = (struct forge_cell){ "TYPE", FORGE_BOLD };
	cells[DEFAULT] = (struct forge_cell){ "DEFAULT", FORGE_BOLD };
	cells[HELP] = (struct forge_cell){ "MEANING", FORGE_BOLD };
	forge_config_each_key(add_key, &table);
	forge_table_print(stdout, cells, COLUMNS, table.rows);
	return FORGE_EXIT_OK;
}

static int run_check(const char *file)
{
	struct forge_error err = FORGE_ERROR_INIT;

	if (!file || !config_path)
		return config_check(file ? file : config_path);
	(void)forge_fail(&err, EINVAL, "config check: '%s' and --config are two files",
			 file);
	return forge_print_usage(&forge_cmd_config, &err);
}

static int run_show(const char *word)
{
	(void)word; /* not used */
	return config_show();
}

static int run_keys(const char *word)
{
	(void)word; /* not used */
	return config_keys();
}

static const struct forge_verb verbs[] = {
	{ "check", "[FILE]", "reads the file and reports the first mistake", run_check },
	{ "show", NULL, "prints what is in force: profiles, caps, roots", run_show },
	{ "keys", NULL, "lists every key that forge.yaml may have", run_keys },
	{ .name = NULL },
};

const struct forge_cmd forge_cmd_config = {
	.name = "config",
	.help = "Check and show the configuration",
	.verbs = verbs,
	.bad_value = FORGE_EXIT_FAILED,
	.opts = config_opts,
};
