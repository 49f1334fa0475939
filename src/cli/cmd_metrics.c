/* SPDX-License-Identifier: Apache-2.0 */
/* forge metrics: prints metrics for Prometheus. */
#include "cli/cli.h"

#include "cli/session.h"
#include "server/metrics.h"

static const char *format = "openmetrics";

static const struct forge_opt *metrics_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_WORD(0, "format", "openmetrics|prometheus", &format,
			   "The format; node_exporter's textfile collector reads "
			   "prometheus"),
		FORGE_STORE_ROW,
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

static int cmd_metrics(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_session struct forge_session s = FORGE_SESSION_INIT;

	if (forge_refuse_words(&forge_cmd_metrics, argc, argv, 0))
		return FORGE_EXIT_USAGE;
	forge_session_rule = FORGE_SESSION_LOOKS;
	int rc = forge_session_watch(&s, &err);
	if (rc == 0)
		rc = forge_metrics_print(s.store, &s.home, s.cfg,
					 format[0] == 'o' ? FORGE_METRICS_OPENMETRICS
							  : FORGE_METRICS_PROMETHEUS,
					 stdout, &err);
	return rc < 0 ? forge_session_fail(&err) : FORGE_EXIT_OK;
}

const struct forge_cmd forge_cmd_metrics = {
	.name = "metrics",
	.synopsis = "[OPTIONS]",
	.help = "Print metrics for Prometheus",
	.about = "The metrics are those of this host, this FORGE_HOME and its store. A\n"
		 "store that cannot be reached is a metric, too, and no error.",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_metrics,
	.opts = metrics_opts,
};
