/* SPDX-License-Identifier: Apache-2.0 */
/* forge serve: the HTTP interface and the dashboard. */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>

#include "base/strv.h"
#include "cli/session.h"
#include "config-build.h"
#include "server/server.h"

static const char *address = "127.0.0.1:" FORGE_SERVER_PORT;
static struct forge_strv names;
static bool is_json, is_quiet;

static const struct forge_opt *serve_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_STRING('l', "listen", "HOST:PORT", &address,
			     "Listen there (127.0.0.1:" FORGE_SERVER_PORT
			     "); port 0: any free one"),
		FORGE_STRV(0, "name", "NAME", &names,
			   "Clients reach it by this name, too: behind a proxy"),
		FORGE_FLAG(0, "json", &is_json, "Print address and token as JSON"),
		FORGE_FLAG('q', "quiet", &is_quiet, "Print neither address nor token"),
		FORGE_STORE_ROW,
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

#if HAVE_SERVER
static void on_ready(const char *url, const char *token, bool is_loopback)
{
	if (is_json) {
		json_t *j = json_pack("{s:s, s:s?}", "url", url, "token",
				      *token ? token : NULL);
		(void)json_dumpf(j, stdout, JSON_COMPACT);
		putchar('\n');
		json_decref(j);
	} else if (!is_quiet && *token) {
		printf("%s/#token=%s\n", url, token);
	} else if (!is_quiet) {
		puts(url);
	}
	(void)fflush(stdout);
	if (is_quiet || is_json)
		return;
	if (*token)
		fputs("forge: the link lets its reader see, start and end runs, until "
		      "this "
		      "server ends\n",
		      stderr);
	if (!is_loopback)
		fputs("forge: warning: others can reach this address, and what they send "
		      "is not "
		      "encrypted: put a proxy with TLS in front of it\n",
		      stderr);
}

static int serve(struct forge_error *err)
{
	forge_auto_config struct forge_config *cfg = NULL;
	const struct forge_server_options options = {
		.listen = address,
		.names = &names,
		.config = forge_session_config,
		.store = forge_store_wanted,
		.on_ready = on_ready,
		.on_warning = forge_print_warning,
	};
	int rc = forge_config_load(forge_session_config, &cfg, err);

	if (rc < 0)
		return rc;
	forge_reconcile_first();
	return forge_server_run(cfg, &options, err);
}
#else
static int serve(struct forge_error *err)
{
	return forge_hint(err,
			  forge_fail(err, EOPNOTSUPP, "this build has no HTTP server"),
			  "Build it with libmicrohttpd (Debian: libmicrohttpd-dev)");
}
#endif

static int cmd_serve(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = forge_refuse_words(&forge_cmd_serve, argc, argv, 0);

	if (rc)
		return rc;
	rc = serve(&err);
	forge_strv_done(&names);
	return rc < 0 ? forge_session_fail(&err) : FORGE_EXIT_OK;
}

const struct forge_cmd forge_cmd_serve = {
	.name = "serve",
	.synopsis = "[OPTIONS]",
	.help = "Serve the dashboard, the HTTP interface and metrics",
	.examples = "  forge serve\n"
		    "  forge serve --listen 127.0.0.1:9000\n",
	.about = "Prints a link with a token, and serves this FORGE_HOME and its store "
		 "until it is "
		 "ended.\n"
		 "It is a view and a door: ending it touches no run. On loopback by "
		 "default; another "
		 "address\n"
		 "needs a token of `forge token new`, and a proxy with TLS in front of "
		 "it.",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_serve,
	.opts = serve_opts,
};
