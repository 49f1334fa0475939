/* SPDX-License-Identifier: Apache-2.0 */
/* The table of states. */
#include "store/state.h"

#include <stddef.h>
#include <string.h>

static const char *const names[FORGE_STATUS_COUNT] = {
	[FORGE_STATUS_NONE] = "",
	[FORGE_STATUS_QUEUED] = "queued",
	[FORGE_STATUS_PREPARING] = "preparing",
	[FORGE_STATUS_RUNNING] = "running",
	[FORGE_STATUS_COLLECTING] = "collecting",
	[FORGE_STATUS_SUCCEEDED] = "succeeded",
	[FORGE_STATUS_FAILED] = "failed",
	[FORGE_STATUS_KILLED] = "killed",
	[FORGE_STATUS_CANCELLED] = "cancelled",
	[FORGE_STATUS_CORRUPTED] = "corrupted",
	[FORGE_STATUS_LOST] = "lost",
	[FORGE_STATUS_REJECTED] = "rejected",
};

#define BIT(s) (1u << FORGE_STATUS_##s)
/* How a run that has started can end before its outputs are collected. */
#define BROKEN (BIT(FAILED) | BIT(KILLED) | BIT(CANCELLED) | BIT(CORRUPTED) | BIT(LOST))

/*
 * Success comes only after collecting: outputs are safe before any reader sees that the run
 * succeeded.
 */
static const unsigned next[FORGE_STATUS_COUNT] = {
	[FORGE_STATUS_NONE] = BIT(QUEUED) | BIT(PREPARING) | BIT(REJECTED),
	[FORGE_STATUS_QUEUED] =
		BIT(PREPARING) | BIT(CANCELLED) | BIT(REJECTED) | BIT(LOST),
	[FORGE_STATUS_PREPARING] = BIT(RUNNING) | BIT(REJECTED) | BROKEN,
	[FORGE_STATUS_RUNNING] = BIT(COLLECTING) | BROKEN,
	[FORGE_STATUS_COLLECTING] = BIT(SUCCEEDED) | BROKEN,
};

const char *forge_status_name(enum forge_status s)
{
	return names[s];
}

enum forge_status forge_status_of(const char *name)
{
	for (enum forge_status s = FORGE_STATUS_QUEUED; name && s < FORGE_STATUS_COUNT;
	     s++)
		if (strcmp(names[s], name) == 0)
			return s;
	return FORGE_STATUS_NONE;
}

bool forge_status_may_follow(enum forge_status from, enum forge_status to)
{
	return to > FORGE_STATUS_NONE && to < FORGE_STATUS_COUNT &&
	       (next[from] & (1u << to));
}
