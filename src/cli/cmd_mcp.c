/* SPDX-License-Identifier: Apache-2.0 */
/* forge mcp: speaks the Model Context Protocol on standard input and output. */
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/parse.h"
#include "cli/session.h"
#include "config/config.h"
#include "executor/executor.h"
#include "pipeline/graph.h"
#include "pipeline/pipeline.h"
#include "run/admit.h"
#include "runtime/runtime.h"
#include "server/mcp.h"

static struct forge_mcp_options o;
static struct forge_strv inputs, pipelines;
static const char *memory, *cpus, *wall, *disk;
#define NOT_GIVEN UINT_MAX
static unsigned max_runs = NOT_GIVEN;

static const struct forge_opt *mcp_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_GROUP("What an agent may have"),
		FORGE_STRING(0, "max-memory", "SIZE", &memory,
			     "Memory of a run, at most"),
		FORGE_STRING(0, "max-cpus", "N", &cpus, "CPUs of a run, at most"),
		FORGE_STRING(0, "max-time", "TIME", &wall, "Wall time of a run, at most"),
		FORGE_STRING(0, "max-disk", "SIZE", &disk,
			     "What a run may write in its workdir, at most"),
		FORGE_UINT(0, "max-runs", "N", &max_runs,
			   "Runs of this server at once, at most; from 1"),
		FORGE_STRV(0, "allow-input", "DIR", &inputs,
			   "Inputs may be in this directory; without it there are none"),
		FORGE_STRV('r', "runtime", "NAME", &o.runtimes,
			   "Only this runtime; without it, every one"),
		FORGE_STRV(0, "pipeline", "FILE", &pipelines,
			   "This pipeline may be run, with the limits of its file"),
		FORGE_FLAG(0, "allow-network", &o.allow_network,
			   "Runs may ask for the host's network"),
		FORGE_FLAG(0, "read-only", &o.read_only,
			   "No tool that starts or ends anything"),
		FORGE_GROUP("Options"),
		FORGE_STRING(0, "executor", "NAME", &o.executor,
			     "Where all runs are carried out"),
		FORGE_STORE_ROW,
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

static const struct {
	const char *limit, *option, **text;
} caps[] = { { "memory", "max-memory", &memory },
	     { "cpus", "max-cpus", &cpus },
	     { "timeout", "max-time", &wall },
	     { "disk", "max-disk", &disk } };

static int read_caps(struct forge_error *err)
{
	if (max_runs == 0)
		return forge_hint(
			err,
			forge_fail(err, EINVAL, "--max-runs: 0 is not a number from 1"),
			"Without it there is no bound; --read-only allows no "
			"run at all");
	o.max_runs = max_runs == NOT_GIVEN ? 0 : max_runs;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(caps); i++)
		for (size_t k = 0; k < FORGE_LIMIT_COUNT_ROWS; k++) {
			const struct forge_limit_row *row = &forge_limit_rows[k];
			if (strcmp(row->name, caps[i].limit) != 0 || !*caps[i].text)
				continue;
			int rc = forge_limit_set(&o.caps, row, *caps[i].text, err);
			if (rc < 0)
				return forge_wrap(err, rc, "--%s", caps[i].option);
			/* "unlimited" is no cap. */
			if (forge_limit_value(&o.caps, row) == FORGE_UNLIMITED)
				*forge_limit_slot(&o.caps, row) = 0;
		}
	return 0;
}

/* Resolved once: a link that changes later does not move what is allowed. */
static int read_inputs(struct forge_error *err)
{
	forge_strv_foreach (path, &inputs) {
		struct stat st;
		char *real = realpath(path, NULL);
		if (!real || stat(real, &st) < 0)
			return forge_fail_errno(err, errno, "--allow-input %s", path);
		if (forge_strv_take(&o.inputs, real) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
		if (!S_ISDIR(st.st_mode))
			return forge_fail(err, ENOTDIR,
					  "--allow-input %s: it is not a directory",
					  path);
	}
	return 0;
}

/* Whether a run may get to a cluster, which can have more than this host. */
static bool may_be_elsewhere(const struct forge_config *cfg)
{
	const char *name = o.executor ? o.executor : cfg->executor;
	size_t n = o.executor ? 0 : cfg->n_runtimes;

	for (size_t i = 0; i <= n; i++) {
		const struct forge_executor_decl *decl;
		const struct forge_executor_ops *ops = NULL;
		name = i ? cfg->runtimes[i - 1].executor : name;
		if (name && forge_config_executor(cfg, name, &decl, NULL) == 0)
			ops = forge_executor_find(decl->kind);
		if (ops && ops->caps & FORGE_EXECUTOR_REMOTE)
			return true;
	}
	return false;
}

/* A cap that no run on this host can reach is a mistake: most often another unit was meant. */
static int check_cap(const struct forge_config *cfg, const char *option,
		     const struct forge_limit_row *row, struct forge_error *err)
{
	uint64_t value = forge_limit_value(&o.caps, row);
	uint64_t most = forge_limit_value(&cfg->caps, row);
	struct forge_need need = { .memory_bytes = 0 };
	char have[FORGE_FORMAT_MAX], can[FORGE_FORMAT_MAX];

	if (value && most && value > most)
		return forge_hint(err,
				  forge_fail(err, ERANGE,
					     "--%s: %s is more than this host allows: %s "
					     "(host.max.%s)",
					     option, forge_limit_format(have, row, value),
					     forge_limit_format(can, row, most),
					     row->key),
				  "Give at most %s", can);
	if (may_be_elsewhere(cfg))
		return 0;
	if (strcmp(option, "max-memory") == 0)
		need.memory_bytes = value;
	else if (strcmp(option, "max-cpus") == 0)
		need.cpus_milli = value;
	int rc = forge_admit_check(cfg, &need, err);
	return rc < 0 ? forge_wrap(err, rc, "--%s", option) : 0;
}

static int check_caps(const struct forge_config *cfg, struct forge_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(caps); i++)
		for (size_t k = 0; k < FORGE_LIMIT_COUNT_ROWS && rc == 0; k++)
			if (strcmp(forge_limit_rows[k].name, caps[i].limit) == 0)
				rc = check_cap(cfg, caps[i].option, &forge_limit_rows[k],
					       err);
	return rc;
}

/* A runtime is a name here, and never a path. */
static int check_runtimes(const struct forge_config *cfg, struct forge_error *err)
{
	struct forge_catalog catalog;
	int rc = 0;

	forge_strv_foreach (name, &o.runtimes) {
		rc = forge_parse_id(name, err);
		if (rc < 0)
			return forge_wrap(err, rc, "--runtime");
	}
	if (o.runtimes.n == 0)
		return 0;
	rc = forge_catalog_open(cfg, &catalog, err);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < o.runtimes.n && rc == 0; i++) {
		struct forge_runtime rt;
		rc = forge_runtime_open(&catalog, o.runtimes.v[i], &rt, err);
		if (rc == 0)
			forge_runtime_close(&rt);
	}
	forge_catalog_close(&catalog);
	return rc < 0 ? forge_wrap(err, rc, "--runtime") : 0;
}

/* What `forge pipeline lint` finds. */
static int check_pipeline(const char *path, struct forge_error *err)
{
	static const struct forge_pipeline_given given;
	forge_auto_pipeline struct forge_pipeline *p = NULL;
	forge_auto_graph struct forge_graph g = { 0 };

	int rc = forge_pipeline_read(path, &given, &p, err);
	/* Which tasks it has, and what they read, can be a matter of parameters, which an agent gives. */
	if (rc < 0 || p->n_params > 0)
		return rc;
	rc = forge_graph_make(p, &g, err);
	for (size_t i = 0; i < g.n && rc == 0; i++)
		if (!g.tasks[i].is_skipped)
			rc = forge_graph_check_files(&g, &g.tasks[i], err);
	return rc;
}

static int check_pipelines(struct forge_error *err)
{
	forge_strv_foreach (path, &pipelines) {
		if (access(path, R_OK) < 0)
			return forge_fail_errno(err, errno, "--pipeline %s", path);
		int rc = check_pipeline(path, err);
		if (rc < 0)
			return forge_wrap(err, rc, "--pipeline");
		if (forge_strv_add(&o.pipelines, path) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
	}
	return 0;
}

/* A mistake in the configuration is shown now, and not to an agent. */
static int check_config(struct forge_error *err)
{
	forge_auto_config struct forge_config *cfg = NULL;
	const struct forge_executor_decl *decl;
	int rc = forge_config_load(forge_session_config, &cfg, err);

	if (rc == 0 && o.executor)
		rc = forge_config_executor(cfg, o.executor, &decl, err);
	if (rc == 0)
		rc = check_caps(cfg, err);
	return rc == 0 ? check_runtimes(cfg, err) : rc;
}

/* Programs that start servers often pass no locale on: code and results are UTF-8 nevertheless. */
static int set_locale(struct forge_error *err)
{
	if (getenv("LANG") || getenv("LC_ALL") || getenv("LC_CTYPE"))
		return 0;
	return setenv("LANG", "C.UTF-8", 1) == 0
		       ? 0
		       : forge_fail(err, ENOMEM, "out of memory");
}

static int cmd_mcp(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = forge_refuse_words(&forge_cmd_mcp, argc, argv, 0);

	if (rc)
		return rc;
	rc = read_caps(&err);
	if (rc == 0)
		rc = read_inputs(&err);
	if (rc == 0)
		rc = check_config(&err);
	if (rc == 0)
		rc = check_pipelines(&err);
	if (rc == 0)
		rc = set_locale(&err);
	if (rc < 0) {
		forge_print_error(&err);
		return FORGE_EXIT_USAGE;
	}
	o.config = forge_session_config;
	o.store = forge_store_wanted;
	if (isatty(STDIN_FILENO))
		fputs("forge: this speaks the Model Context Protocol with a program on "
		      "standard input;\n  hint: see forge mcp --help\n",
		      stderr);
	rc = forge_mcp_serve(&o, STDIN_FILENO, STDOUT_FILENO, &err);
	forge_strv_done(&o.inputs);
	forge_strv_done(&o.runtimes);
	forge_strv_done(&o.pipelines);
	forge_strv_done(&inputs);
	forge_strv_done(&pipelines);
	return rc < 0 ? forge_session_fail(&err) : FORGE_EXIT_OK;
}

const struct forge_cmd forge_cmd_mcp = {
	.name = "mcp",
	.synopsis = "[OPTIONS]",
	.help = "Let an agent run analyses (Model Context Protocol)",
	.examples = "  forge mcp --max-memory 4G --max-time 30m --allow-input data\n"
		    "  forge mcp --read-only\n",
	.about = "Speaks the Model Context Protocol on standard input and output, for a "
		 "program that\n"
		 "starts it. What these options fix, no request can widen: a request for "
		 "more is\n"
		 "refused. A run that a request waits for is ended when the request is "
		 "cancelled or\n"
		 "standard input ends; submitted runs go on.",
	.bad_value = FORGE_EXIT_USAGE,
	.run = cmd_mcp,
	.opts = mcp_opts,
};
