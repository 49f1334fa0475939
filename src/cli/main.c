/* SPDX-License-Identifier: Apache-2.0 */
/* The program: finds the command, parses its options, calls it. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/near.h"
#include "cli/cli.h"
#include "config-build.h"

/* clang-format off: one a line */
const struct forge_cmd *const forge_cmds[] = {
	&forge_cmd_run,
	&forge_cmd_submit,
	&forge_cmd_ps,
	&forge_cmd_show,
	&forge_cmd_logs,
	&forge_cmd_wait,
	&forge_cmd_top,
	&forge_cmd_kill,
	&forge_cmd_rm,
	&forge_cmd_rerun,
	&forge_cmd_resume,
	&forge_cmd_diff,
	&forge_cmd_outputs,
	&forge_cmd_post_process,
	&forge_cmd_pipeline,
	&forge_cmd_mcp,
	&forge_cmd_runtime,
	&forge_cmd_executor,
	&forge_cmd_health,
	&forge_cmd_metrics,
	&forge_cmd_doctor,
	&forge_cmd_setup,
	&forge_cmd_verify,
	&forge_cmd_gc,
	&forge_cmd_serve,
	&forge_cmd_token,
	&forge_cmd_config,
	&forge_cmd_completion,
	&forge_cmd_help,
	&forge_cmd_names,
	&forge_cmd_attend,
	&forge_cmd_watch,
	&forge_cmd_node,
	&forge_cmd_retry,
	&forge_cmd_guard,
	&forge_cmd_man_options,
	&forge_cmd_man_commands,
	&forge_cmd_man_config,
	NULL,
};
/* clang-format on */

const char *forge_store_wanted;
bool forge_help_wanted;
static bool version_wanted;

const struct forge_opt *forge_main_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_HELP_ROW,
		FORGE_STORE_ROW,
		FORGE_FLAG('V', "version", &version_wanted, "Show the version"),
		FORGE_OPTS_END,
	};

	return opts;
}

const struct forge_cmd *forge_cmd_find(const char *name)
{
	for (size_t i = 0; forge_cmds[i]; i++)
		if (strcmp(forge_cmds[i]->name, name) == 0)
			return forge_cmds[i];
	return NULL;
}

int forge_cmd_unknown(const char *name)
{
	struct forge_error err = FORGE_ERROR_INIT;
	const char *names[32], *near;
	size_t n = 0;

	for (size_t i = 0; forge_cmds[i]; i++)
		if (forge_cmds[i]->help && n < FORGE_ARRAY_SIZE(names))
			names[n++] = forge_cmds[i]->name;
	near = forge_near_miss(name, names, n);
	if (near)
		(void)forge_fail(&err, EINVAL, "unknown command '%s' (did you mean %s?)",
				 name, near);
	else
		(void)forge_fail(&err, EINVAL, "unknown command '%s'", name);
	(void)forge_hint(&err, 0,
			 "forge --help lists the commands; to run a program: "
			 "forge run PROGRAM");
	forge_print_error(&err);
	return FORGE_EXIT_USAGE;
}

/* argv[0] is the command's name. */
static int dispatch(const struct forge_cmd *cmd, int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	const struct forge_opt *opts = cmd->opts();
	int first, words;

	if (cmd->stops) {
		first = words = forge_opt_parse(opts, argc, argv, &err);
		if (first > 0 && first < argc && cmd->goes_on &&
		    strcmp(argv[first - 1], "--") != 0 && cmd->goes_on(argv[first])) {
			words = forge_opt_permute(opts, argc - first, argv + first, &err);
			argc = first + words;
		}
	} else {
		words = forge_opt_permute(opts, argc, argv, &err);
		first = 1;
		argc = words;
	}
	if (words == -EINVAL)
		return forge_print_usage(cmd, &err);
	if (words < 0) {
		forge_print_error(&err);
		return cmd->bad_value;
	}
	if (forge_help_wanted) {
		forge_help_cmd(stdout, cmd);
		return FORGE_EXIT_OK;
	}
	return cmd->verbs ? forge_verb_run(cmd, argc - first, argv + first)
			  : cmd->run(argc - first, argv + first);
}

static int forge_main(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	int first = forge_opt_parse(forge_main_opts(), argc, argv, &err);

	if (first < 0) {
		(void)forge_hint(
			&err, 0,
			"options of a command follow its name; see forge --help");
		forge_print_error(&err);
		return FORGE_EXIT_USAGE;
	}
	if (version_wanted) {
		puts("forge " FORGE_VERSION);
		return FORGE_EXIT_OK;
	}
	if (forge_help_wanted || first >= argc) {
		forge_help_print(forge_help_wanted ? stdout : stderr);
		return forge_help_wanted ? FORGE_EXIT_OK : FORGE_EXIT_USAGE;
	}
	const struct forge_cmd *cmd = forge_cmd_find(argv[first]);
	if (!cmd)
		return forge_cmd_unknown(argv[first]);
	return dispatch(cmd, argc - first, argv + first);
}

/*
 * Repairs what a careless caller may have left: a closed standard fd, whose number the
 * next file would get, and ignored signals, which exec keeps. With an ignored SIGCHLD the
 * kernel would reap child processes before their status can be read.
 */
static void clean_start(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
			_exit(FORGE_EXIT_FAILED);
	(void)signal(SIGPIPE, SIG_DFL); /* cannot fail: the number is valid */
	(void)signal(SIGCHLD, SIG_DFL);
	/*
	 * Otherwise jansson reads /dev/urandom. The kernel passes 16 bytes; libc uses the
	 * first.
	 */
	const char *random = (const char *)getauxval(AT_RANDOM); /* NOLINT: an address */
	size_t seed = 0;
	if (random)
		memcpy(&seed, random + 8, sizeof(seed));
	json_object_seed(seed);
}

int main(int argc, char **argv)
{
	clean_start();
	int status = forge_main(argc, argv);

	if (fflush(stdout) != 0 || ferror(stdout)) {
		struct forge_error err = FORGE_ERROR_INIT;

		(void)forge_fail_errno(&err, errno, "write to standard output");
		forge_print_error(&err);
		if (status == FORGE_EXIT_OK)
			status = FORGE_EXIT_FAILED;
	}
	return status;
}
