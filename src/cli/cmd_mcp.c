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
#include "server/mcp.h"

static struct forge_mcp_options o;
static struct forge_strv inputs, pipelines;
static const char *memory, *cpus, *wall, *disk;

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
		FORGE_UINT(0, "max-runs", "N", &o.max_runs,
			   "Runs of this server at once, at most"),
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

static int read_caps(struct forge_error *err)
{
	static const struct {
		const char *limit, *option, **text;
	} caps[] = { { "memory", "max-memory", &memory },
		     { "cpus", "max-cpus", &cpus },
		     { "timeout", "max-time", &wall },
		     { "disk", "max-disk", &disk } };

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

static int check_names(struct forge_error *err)
{
	forge_strv_foreach (name, &o.runtimes) {
		int rc = forge_parse_id(name, err);
		if (rc < 0)
			return forge_wrap(err, rc, "--runtime");
	}
	forge_strv_foreach (path, &pipelines) {
		if (access(path, R_OK) < 0)
			return forge_fail_errno(err, errno, "--pipeline %s", path);
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
	return rc;
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
		rc = check_names(&err);
	if (rc == 0)
		rc = check_config(&err);
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
