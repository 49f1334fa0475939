/* SPDX-License-Identifier: Apache-2.0 */
/* The rules for retries as text; retry_key.c reads them from a configuration file. */
#include "config/retry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/near.h"

const char *const forge_retry_names[FORGE_RETRY_COUNT] = {
	[FORGE_RETRY_HOST_LOST] = "host_lost", [FORGE_RETRY_MEMORY] = "memory",
	[FORGE_RETRY_WALL_TIME] = "wall_time", [FORGE_RETRY_CPU_TIME] = "cpu_time",
	[FORGE_RETRY_DISK] = "disk",	       [FORGE_RETRY_OUTPUT] = "output",
	[FORGE_RETRY_PIDS] = "pids",	       [FORGE_RETRY_EXIT] = "exit",
	[FORGE_RETRY_SIGNAL] = "signal",
};

/* The key of the limit that is raised. */
static const char *const limit_keys[FORGE_RETRY_COUNT] = {
	[FORGE_RETRY_MEMORY] = "memory",       [FORGE_RETRY_WALL_TIME] = "timeout",
	[FORGE_RETRY_CPU_TIME] = "cpu_time",   [FORGE_RETRY_DISK] = "disk",
	[FORGE_RETRY_OUTPUT] = "output_limit", [FORGE_RETRY_PIDS] = "pids",
};

/* The reasons of a verdict that stay the same however often the run is tried. */
static const char *const incurable[] = {
	"cancelled",	  "exec",	"sandbox",     "runtime",   "input",
	"missing_output", "health_pre", "health_post", "admission",
};

int forge_retry_find(const char *reason)
{
	for (int i = 0; reason && i < FORGE_RETRY_COUNT; i++)
		if (strcmp(forge_retry_names[i], reason) == 0)
			return i;
	return -1;
}

const struct forge_limit_row *forge_retry_limit(enum forge_retry_reason reason)
{
	for (size_t i = 0; limit_keys[reason] && i < FORGE_LIMIT_COUNT_ROWS; i++)
		if (strcmp(forge_limit_rows[i].key, limit_keys[reason]) == 0)
			return &forge_limit_rows[i];
	return NULL;
}

bool forge_retry_is_empty(const struct forge_retry_policy *p)
{
	for (size_t i = 0; i < FORGE_RETRY_COUNT; i++)
		if (p->rules[i].times)
			return false;
	return true;
}

static bool is_incurable(const char *reason)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(incurable); i++)
		if (strcmp(incurable[i], reason) == 0)
			return true;
	return false;
}

const char *forge_retry_refuse(char buf[FORGE_RETRY_REFUSAL_MAX], const char *reason)
{
	const char *near = forge_near_miss(reason, forge_retry_names, FORGE_RETRY_COUNT);
	int n = snprintf(buf, FORGE_RETRY_REFUSAL_MAX, "%s '%.64s' (have: ",
			 is_incurable(reason) ? "another attempt does not cure"
					      : "unknown reason",
			 reason);

	for (int i = 0; i < FORGE_RETRY_COUNT; i++)
		n += snprintf(buf + n, FORGE_RETRY_REFUSAL_MAX - (size_t)n, "%s%s",
			      i ? ", " : "", forge_retry_names[i]);
	(void)snprintf(buf + n, FORGE_RETRY_REFUSAL_MAX - (size_t)n, ")%s%s%s",
		       near ? "; did you mean '" : "", near ? near : "",
		       near ? "'?" : "");
	return buf;
}

/* ---- values ---- */

static int parse_times(const char *text, uint64_t *ret, struct forge_error *err)
{
	if (strcmp(text, "0") == 0) {
		*ret = 0;
		return 0;
	}
	int rc = forge_parse_count(text, ret, err);
	if (rc < 0)
		return rc;
	return *ret <= FORGE_RETRY_TIMES_MAX
		       ? 0
		       : forge_fail(err, ERANGE, "'%.32s' is more than %d", text,
				    FORGE_RETRY_TIMES_MAX);
}

/* A decimal number from 1 to 100, in thousandths. */
static int parse_factor(const char *text, uint64_t *ret, struct forge_error *err)
{
	if (forge_parse_cpus(text, ret, NULL) < 0 || *ret < 1000 || *ret > 100000)
		return forge_fail(err, EINVAL,
				  "'%.32s' is not a number from 1 to 100 (write 2 or "
				  "1.5)",
				  text);
	return 0;
}

static int parse_max(enum forge_retry_reason reason, const char *text, uint64_t *ret,
		     struct forge_error *err)
{
	struct forge_limits one = { 0 };
	const struct forge_limit_row *row = forge_retry_limit(reason);
	int rc = forge_limit_set(&one, row, text, err);

	if (rc < 0)
		return rc;
	*ret = forge_limit_value(&one, row);
	return *ret == FORGE_UNLIMITED
		       ? forge_fail(err, EINVAL,
				    "'unlimited' is not possible here (leave max out)")
		       : 0;
}

const char *const forge_retry_keys[FORGE_RETRY_KEYS] = { "times", "factor", "max" };

int forge_retry_set(struct forge_retry_rule *rule, enum forge_retry_reason reason,
		    size_t key, const char *text, struct forge_error *err)
{
	uint64_t n = 0;

	if (key > 0 && !forge_retry_limit(reason))
		return forge_fail(err, EINVAL, "no limit belongs to %s",
				  forge_retry_names[reason]);
	int rc = key == 0   ? parse_times(text, &n, err)
		 : key == 1 ? parse_factor(text, &n, err)
			    : parse_max(reason, text, &n, err);
	if (rc < 0)
		return rc;
	if (key == 0)
		rule->times = (unsigned)n;
	else if (key == 1)
		rule->factor_milli = (unsigned)n;
	else
		rule->max = n;
	return 0;
}

/* ---- the command line ---- */

/* "factor=2" after the number; word is changed. */
static int parse_word(struct forge_retry_rule *rule, enum forge_retry_reason reason,
		      char *word, struct forge_error *err)
{
	char *equals = strchr(word, '=');

	if (equals)
		*equals = '\0';
	for (size_t i = 1; equals && i < FORGE_RETRY_KEYS; i++) {
		if (strcmp(forge_retry_keys[i], word) != 0)
			continue;
		int rc = forge_retry_set(rule, reason, i, equals + 1, err);
		return rc < 0 ? forge_wrap(err, rc, "%s", word) : 0;
	}
	return forge_fail(err, EINVAL, "'%.32s' is neither factor=F nor max=V", word);
}

int forge_retry_parse(const char *text, struct forge_retry_policy *p,
		      struct forge_error *err)
{
	struct forge_retry_rule rule = { 0 };
	char buf[FORGE_RETRY_REFUSAL_MAX];
	forge_auto_free char *copy = strdup(text);

	if (!copy)
		return forge_fail(err, ENOMEM, "out of memory");
	if (strcmp(text, "none") == 0) {
		*p = (struct forge_retry_policy){ 0 };
		return 0;
	}
	char *rest = copy, *first = strsep(&rest, ","), *number = strchr(first, '=');
	if (number)
		*number++ = '\0';
	int reason = forge_retry_find(first);
	if (reason < 0)
		return forge_fail(err, EINVAL, "%s", forge_retry_refuse(buf, first));
	if (!number)
		return forge_fail(err, EINVAL,
				  "'%.40s' does not say how often (write %s=2)", text,
				  first);
	int rc = forge_retry_set(&rule, (enum forge_retry_reason)reason, 0, number, err);
	while (rc == 0 && rest)
		rc = parse_word(&rule, (enum forge_retry_reason)reason,
				strsep(&rest, ","), err);
	if (rc < 0)
		return forge_wrap(err, rc, "%s", first);
	p->rules[reason] = rule;
	return 0;
}

const char *forge_retry_format(char buf[FORGE_RETRY_TEXT_MAX],
			       enum forge_retry_reason reason,
			       const struct forge_retry_rule *rule)
{
	const struct forge_limit_row *row = forge_retry_limit(reason);
	char factor[FORGE_FORMAT_MAX], max[FORGE_FORMAT_MAX] = "";
	unsigned milli = rule->factor_milli ? rule->factor_milli : FORGE_RETRY_FACTOR;

	if (rule->max && row->type == FORGE_LIMIT_SIZE)
		(void)forge_format_size_arg(max, rule->max);
	else if (rule->max && row->type == FORGE_LIMIT_DURATION)
		(void)forge_format_duration_arg(max, rule->max);
	else if (rule->max)
		(void)forge_limit_format(max, row, rule->max);
	(void)snprintf(buf, FORGE_RETRY_TEXT_MAX, "%s=%u%s%s%s%s",
		       forge_retry_names[reason], rule->times, row ? ",factor=" : "",
		       row ? forge_format_cpus(factor, milli) : "", *max ? ",max=" : "",
		       max);
	return buf;
}
