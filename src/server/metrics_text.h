/* SPDX-License-Identifier: Apache-2.0 */
/* The text formats of metrics: families, samples, labels. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum forge_metrics_format {
	FORGE_METRICS_OPENMETRICS, /* application/openmetrics-text; version=1.0.0; charset=utf-8 */
	FORGE_METRICS_PROMETHEUS, /* text/plain; version=0.0.4; charset=utf-8 */
};

enum forge_metric_type {
	FORGE_METRIC_GAUGE,
	FORGE_METRIC_COUNTER,
	FORGE_METRIC_HISTOGRAM,
	FORGE_METRIC_SUMMARY,
	FORGE_METRIC_INFO,
};

struct forge_metrics_page {
	FILE *out;
	enum forge_metrics_format format;
};

/* The lines before the samples of a family. unit is the end of its name, or NULL. */
void forge_metric_family(const struct forge_metrics_page *p, const char *name,
			 enum forge_metric_type type, const char *unit, const char *help);
/* One sample. labels is of forge_metric_label(), "" for none. */
void forge_metric_sample(const struct forge_metrics_page *p, const char *name,
			 const char *suffix, const char *labels, double value);
/* A family with one sample and no labels. */
void forge_metric_gauge(const struct forge_metrics_page *p, const char *name,
			const char *unit, const char *help, double value);
/* Writes name="value", with a comma before it if it is not the first one; value is escaped. */
void forge_metric_label(FILE *f, bool is_first, const char *name, const char *value);
/* After the last family. */
void forge_metrics_end(const struct forge_metrics_page *p);
