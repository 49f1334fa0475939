/* SPDX-License-Identifier: Apache-2.0 */
/* One page of metrics. */
#include "server/metrics.h"

#include <errno.h>

#include "config-build.h"
#include "server/metrics_host.h"
#include "server/metrics_store.h"
#include "server/metrics_text.h"

const char *forge_metrics_media_type(enum forge_metrics_format format)
{
	return format == FORGE_METRICS_OPENMETRICS
		       ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
		       : "text/plain; version=0.0.4; charset=utf-8";
}

/* A page without an answer is of no use to an alert: what failed is a metric, and the rest is printed. */
static void print_errors(const struct forge_metrics_page *p, bool store, bool host)
{
	static const char name[] = "forge_scrape_errors";

	forge_metric_family(p, name, FORGE_METRIC_GAUGE, NULL,
			    "Whether a part of these metrics could not be read: 1 or 0");
	forge_metric_sample(p, name, "", "part=\"host\"", host);
	forge_metric_sample(p, name, "", "part=\"store\"", store);
}

int forge_metrics_print(struct forge_store *st, const struct forge_home *home,
			const struct forge_config *cfg, enum forge_metrics_format format,
			FILE *out, struct forge_error *err)
{
	const struct forge_metrics_page p = { .out = out, .format = format };
	struct forge_error why = FORGE_ERROR_INIT;

	forge_metric_family(&p, "forge_build", FORGE_METRIC_INFO, NULL,
			    "The forge that made these metrics");
	forge_metric_sample(&p, "forge_build", "_info", "version=\"" FORGE_VERSION "\"",
			    1);
	int store = forge_metrics_of_store(&p, st, &why);
	int host = forge_metrics_of_host(&p, home, cfg, &why);
	print_errors(&p, store < 0, host < 0);
	forge_metrics_end(&p);
	if (store == -ENOMEM || host == -ENOMEM)
		return forge_fail(err, ENOMEM, "out of memory");
	return fflush(out) != 0 || ferror(out)
		       ? forge_fail_errno(err, errno ? errno : EIO, "write the metrics")
		       : 0;
}
