/* SPDX-License-Identifier: Apache-2.0 */
/* OpenMetrics, and the older format of Prometheus, which node_exporter's textfile collector reads. */
#include "server/metrics_text.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

static const char *const type_names[] = {
	[FORGE_METRIC_GAUGE] = "gauge",		[FORGE_METRIC_COUNTER] = "counter",
	[FORGE_METRIC_HISTOGRAM] = "histogram", [FORGE_METRIC_SUMMARY] = "summary",
	[FORGE_METRIC_INFO] = "info",
};

/* What OpenMetrics adds to the name of a family in its samples. */
static const char *suffix_of(enum forge_metric_type type)
{
	return type == FORGE_METRIC_COUNTER ? "_total"
	       : type == FORGE_METRIC_INFO  ? "_info"
					    : "";
}

void forge_metric_family(const struct forge_metrics_page *p, const char *name,
			 enum forge_metric_type type, const char *unit, const char *help)
{
	bool is_open = p->format == FORGE_METRICS_OPENMETRICS;
	/* The older format knows no info, and names families as their samples. */
	const char *suffix = is_open ? "" : suffix_of(type);
	const char *word =
		!is_open && type == FORGE_METRIC_INFO ? "gauge" : type_names[type];

	fprintf(p->out, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, suffix, help, name,
		suffix, word);
	if (is_open && unit)
		fprintf(p->out, "# UNIT %s %s\n", name, unit);
}

void forge_metric_sample(const struct forge_metrics_page *p, const char *name,
			 const char *suffix, const char *labels, double value)
{
	fprintf(p->out, "%s%s%s%s%s ", name, suffix, *labels ? "{" : "", labels,
		*labels ? "}" : "");
	if (isnan(value))
		fputs("NaN\n", p->out);
	else
		/* As many digits as a whole number of bytes needs. */
		fprintf(p->out, "%.16g\n", value);
}

void forge_metric_gauge(const struct forge_metrics_page *p, const char *name,
			const char *unit, const char *help, double value)
{
	forge_metric_family(p, name, FORGE_METRIC_GAUGE, unit, help);
	forge_metric_sample(p, name, "", "", value);
}

void forge_metric_label(FILE *f, bool is_first, const char *name, const char *value)
{
	/* Bytes that are not UTF-8 would make the whole page invalid. */
	forge_auto_json json_t *text = forge_json_text(value);
	const char *s = json_string_value(text);

	fprintf(f, "%s%s=\"", is_first ? "" : ",", name);
	for (; s && *s; s++) {
		if (*s == '\n')
			fputs("\\n", f);
		else if (*s == '"' || *s == '\\')
			fprintf(f, "\\%c", *s);
		else
			fputc((unsigned char)*s < ' ' ? '?' : *s, f);
	}
	fputc('"', f);
}

void forge_metrics_end(const struct forge_metrics_page *p)
{
	if (p->format == FORGE_METRICS_OPENMETRICS)
		fputs("# EOF\n", p->out);
}
