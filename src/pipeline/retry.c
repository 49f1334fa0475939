/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a task that did not succeed is tried again: the rules of a run (record/retry.h), decided by the head. */
#include <string.h>

#include "base/json.h"
#include "config/budget.h"
#include "pipeline/head_state.h"
#include "record/retry.h"

/* The limits that a run had, from its record. */
static void limits_of(const json_t *record, struct forge_limits *ret)
{
	const json_t *limits = json_object_get(record, "limits");

	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *row = &forge_limit_rows[i];
		const json_t *v = json_object_get(limits, row->json);
		double scale = row->type == FORGE_LIMIT_DURATION ? 1e6
			       : row->type == FORGE_LIMIT_CPUS	 ? 1e3
								 : 1;
		if (json_is_number(v))
			*forge_limit_slot(ret, row) =
				(uint64_t)(json_number_value(v) * scale + 0.5);
		else
			*forge_limit_slot(ret, row) = FORGE_UNLIMITED;
	}
}

/* Whether the task is tried again, with which limits. */
bool forge_head_choose_retry(struct forge_head *h, unsigned task, const json_t *record)
{
	struct forge_head_task *t = &h->tasks[task];
	const struct forge_step *s = h->g->tasks[task].step;
	struct forge_retry_chain chain = { .policy = s->has_retry ? s->retry
								  : h->cfg->retry,
					   .attempt = t->attempt };
	struct forge_limits had = { 0 }, most = h->cfg->caps;
	struct forge_retry_choice choice = { 0 };
	struct forge_budget budget;

	memcpy(chain.used, t->used, sizeof(chain.used));
	limits_of(record, &had);
	forge_budget_of(h->cfg, &budget);
	if (!h->is_remote[s - h->g->p->steps] &&
	    (!most.memory_bytes || budget.memory_bytes < most.memory_bytes))
		most.memory_bytes = budget.memory_bytes;
	const struct forge_retry_case c = {
		.status = forge_json_string_or(record, "status", "lost"),
		.reason = forge_json_string_or(record, "reason", "host_lost"),
		.chain = &chain,
		.limits = &had,
		.most = &most,
	};
	forge_retry_choose(&c, &choice);
	if (!choice.is_retried || h->is_stopping)
		return false;
	t->used[choice.reason]++;
	if (choice.raised)
		*forge_limit_slot(&t->limits, choice.raised) =
			forge_limit_value(&choice.limits, choice.raised);
	char with[FORGE_RETRY_WITH_MAX];
	(void)forge_retry_describe(with, choice.raised, &choice.limits);
	forge_head_event(h, "retry", (int)task,
			 json_pack("{s:s, s:s, s:s}", "reason", c.reason, "with", with,
				   "run_id", t->run_id));
	return true;
}
