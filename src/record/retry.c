/* SPDX-License-Identifier: Apache-2.0 */
/* Decides on retries. */
#include "record/retry.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "record/record.h"
#include "spec/again.h"
#include "state/retry_file.h"

/* ---- the decision ---- */

FORGE_PRINTF(2, 3)
static void refuse(struct forge_retry_choice *ret, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(ret->why_not, sizeof(ret->why_not), fmt, ap);
	va_end(ap);
}

static uint64_t multiply(uint64_t value, unsigned milli)
{
	/* Limits that overflow are far above every host. */
	return value > UINT64_MAX / 2 / milli ? UINT64_MAX / 2
					      : (value * milli + 999) / 1000;
}

static uint64_t least_of(uint64_t a, uint64_t b)
{
	return a && a < b ? a : b;
}

/* The inodes of a workdir are a limit of their own, which a rule for "disk" raises by its factor. */
static const struct forge_limit_row *row_of(const struct forge_retry_case *c,
					    enum forge_retry_reason reason)
{
	for (size_t i = 0; c->is_inodes && i < FORGE_LIMIT_COUNT_ROWS; i++)
		if (strcmp(forge_limit_rows[i].key, "inodes") == 0)
			return &forge_limit_rows[i];
	return forge_retry_limit(reason);
}

/* False: the limit cannot be raised any more. */
static bool raise_limit(const struct forge_retry_case *c, struct forge_retry_choice *ret)
{
	const struct forge_retry_rule *rule = &c->chain->policy.rules[ret->reason];
	const struct forge_limit_row *row = row_of(c, ret->reason);
	unsigned factor = rule->factor_milli ? rule->factor_milli : FORGE_RETRY_FACTOR;
	uint64_t had = row ? forge_limit_value(c->limits, row) : FORGE_UNLIMITED;
	char text[FORGE_FORMAT_MAX];

	if (had == FORGE_UNLIMITED || c->is_host_full || factor == 1000)
		return true;
	uint64_t host = forge_limit_value(c->most, row);
	uint64_t own = c->is_inodes ? 0 : rule->max;
	uint64_t next = least_of(host, least_of(own, multiply(had, factor)));
	/* Records have milliseconds: an attempt that repair starts has the same limit. */
	if (row->type == FORGE_LIMIT_DURATION)
		next = next / 1000 * 1000;
	if (next <= had) {
		bool is_own = own && (!host || own <= host);
		refuse(ret, "%s cannot be raised above %s, %s", row->name,
		       forge_limit_format(text, row, least_of(host, own ? own : host)),
		       is_own ? "the max of its rule" : "the most that this host allows");
		return false;
	}
	*forge_limit_slot(&ret->limits, row) = next;
	ret->raised = row;
	return true;
}

void forge_retry_choose(const struct forge_retry_case *c, struct forge_retry_choice *ret)
{
	int reason = forge_retry_find(c->reason);

	*ret = (struct forge_retry_choice){ .limits = *c->limits };
	if (reason < 0 || strcmp(c->status, "succeeded") == 0 ||
	    strcmp(c->status, "cancelled") == 0)
		return;
	ret->reason = (enum forge_retry_reason)reason;
	unsigned times = c->chain->policy.rules[reason].times;
	if (times == 0)
		return;
	if (c->chain->used[reason] >= times) {
		refuse(ret, "%s had its %u %s", forge_retry_names[reason], times,
		       times == 1 ? "retry" : "retries");
		return;
	}
	if (c->is_hopeless) {
		refuse(ret, "more of the limit would not help");
		return;
	}
	ret->is_retried = raise_limit(c, ret);
}

unsigned forge_retry_attempts_max(const struct forge_retry_policy *p)
{
	unsigned n = 1;

	for (int i = 0; i < FORGE_RETRY_COUNT; i++)
		n += p->rules[i].times;
	return n;
}

const char *forge_retry_describe(char buf[FORGE_RETRY_WITH_MAX],
				 const struct forge_limit_row *raised,
				 const struct forge_limits *limits)
{
	char text[FORGE_FORMAT_MAX] = "";
	uint64_t value = raised ? forge_limit_value(limits, raised) : 0;

	if (raised && raised->type == FORGE_LIMIT_SIZE)
		(void)forge_format_size_arg(text, value);
	else if (raised && raised->type == FORGE_LIMIT_DURATION)
		(void)forge_format_duration_arg(text, value);
	else if (raised)
		(void)forge_limit_format(text, raised, value);
	(void)snprintf(buf, FORGE_RETRY_WITH_MAX, "%s%s%s%s", raised ? "--" : "",
		       raised ? raised->name : "", raised ? " " : "", text);
	return buf;
}

/* ---- the decision in the record ---- */

/* In the units of "limits". */
static json_t *value_json(const struct forge_limit_row *row, uint64_t value)
{
	return row->type == FORGE_LIMIT_DURATION ? forge_json_seconds(value)
						 : forge_json_number(value);
}

void forge_retry_note(json_t *record, const char *next,
		      const struct forge_retry_choice *choice)
{
	json_object_set_new(record, "retried_by", json_string(next));
	if (choice->raised)
		json_object_set_new(
			record, "retried_with",
			json_pack("{s:o}", choice->raised->json,
				  value_json(choice->raised,
					     forge_limit_value(&choice->limits,
							       choice->raised))));
}

/* Only the store has a record: the file has to know the id before the store does. */
static int write_next(const struct forge_home *home, const char *run_id, json_t *content,
		      const char *next)
{
	struct forge_retry_file f = FORGE_RETRY_FILE_INIT;

	json_object_set_new(content, "next", json_string(next));
	int rc = forge_retry_file_make(home, run_id, json_incref(content), &f, NULL);
	forge_retry_file_release(&f);
	return rc;
}

void forge_retry_after_loss(const struct forge_home *home, const char *run_id,
			    bool has_record, json_t *record)
{
	static const struct forge_limits no_bound;
	struct forge_retry_chain chain;
	struct forge_limits limits;
	struct forge_retry_choice choice;
	json_t *content = NULL;
	char text[320] = "", next[FORGE_RUN_ID_MAX];

	if (forge_retry_file_read(home, run_id, &content) < 0 ||
	    forge_make_run_id(next) < 0) {
		json_decref(content);
		return;
	}
	forge_again_restore_chain(content, &chain, &limits);
	const struct forge_retry_case c = { .status = "lost",
					    .reason = "host_lost",
					    .chain = &chain,
					    .limits = &limits,
					    .most = &no_bound };
	const char *secret = forge_again_withheld(content);
	forge_retry_choose(&c, &choice);
	if (choice.is_retried && secret) {
		(void)snprintf(text, sizeof(text),
			       "Not retried: the value of %.64s was not kept.", secret);
	} else if (choice.is_retried &&
		   (has_record || write_next(home, run_id, content, next) == 0)) {
		forge_retry_note(record, next, &choice);
		(void)snprintf(text, sizeof(text), "Retried as run %s.", next);
	} else if (*choice.why_not) {
		(void)snprintf(text, sizeof(text), "Not retried: %s.", choice.why_not);
	}
	if (*text)
		forge_record_add_notes(record, text);
	json_decref(content);
}
