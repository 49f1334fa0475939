/* SPDX-License-Identifier: Apache-2.0 */
/* forge __names: prints words for shell completion, without messages and in time. */
#include "cli/cli.h"

#include <string.h>
#include <unistd.h>

#include "base/parse.h"
#include "cli/session.h"
#include "record/deliver.h"
#include "record/record.h"
#include "runtime/runtime.h"

#define RUNS_MAX 100

/* The user waits: a store that does not answer must not block the shell. */
#define PATIENCE_SECONDS 2

/* Prints only ids: a shell reads them, and other users can write a team's store. */
static void print_name(const char *name)
{
	if (name && forge_parse_id(name, NULL) == 0)
		puts(name);
}

static int print_run(const struct forge_run_row *row, void *arg)
{
	const char *what = arg;

	if (strcmp(what, "runs") == 0)
		print_name(row->run_id);
	if (row->analysis_id && strcmp(row->analysis_id, row->run_id) != 0)
		print_name(row->analysis_id);
	return 0;
}

static void print_runs(const struct forge_config *cfg, char *what)
{
	char user[FORGE_USER_MAX];
	forge_auto_free char *url = NULL;
	forge_auto_store struct forge_store *store = NULL;
	const struct forge_run_filter mine = { .user = forge_user_name(user),
					       .limit = RUNS_MAX };

	if (forge_store_choose(forge_store_wanted, cfg, &url, NULL) < 0)
		return;
	/* Before the first run: completion must not create a store. */
	if (strncmp(url, "sqlite:", 7) == 0 && access(url + 7, R_OK) < 0)
		return;
	if (forge_store_open(url, &store, NULL) < 0)
		return;
	if (strcmp(what, "runs") == 0)
		puts("last");
	(void)!forge_store_list(store, &mine, print_run, what, NULL);
}

static void print_runtime(const struct forge_runtime_decl *decl, void *arg)
{
	(void)arg;
	print_name(decl->name);
}

static void print_runtimes(const struct forge_config *cfg)
{
	struct forge_catalog catalog;

	if (forge_catalog_open(cfg, &catalog, NULL) < 0)
		return;
	forge_catalog_each(&catalog, print_runtime, NULL);
	forge_catalog_close(&catalog);
}

static int names(int argc, char **argv)
{
	forge_auto_config struct forge_config *cfg = NULL;

	(void)alarm(PATIENCE_SECONDS);
	if (argc != 1 || forge_config_load(forge_session_config, &cfg, NULL) < 0)
		return FORGE_EXIT_FAILED;
	if (strcmp(argv[0], "runtimes") == 0)
		print_runtimes(cfg);
	else
		print_runs(cfg, argv[0]);
	return FORGE_EXIT_OK;
}

static const struct forge_opt *names_opts(void)
{
	static const struct forge_opt opts[] = { FORGE_STORE_ROW, FORGE_CONFIG_ROW,
						 FORGE_HELP_ROW, FORGE_OPTS_END };

	return opts;
}

const struct forge_cmd forge_cmd_names = {
	.name = "__names",
	.synopsis = "runs|analyses|runtimes",
	.bad_value = FORGE_EXIT_FAILED,
	.run = names,
	.opts = names_opts,
};
