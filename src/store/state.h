/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states of a run and the allowed transitions. No other place knows them; the store checks
 * them inside the transaction that makes the change.
 */
#pragma once

#include <stdbool.h>

enum forge_status {
	FORGE_STATUS_NONE, /* no such run yet */
	FORGE_STATUS_QUEUED,
	FORGE_STATUS_PREPARING,
	FORGE_STATUS_RUNNING,
	FORGE_STATUS_COLLECTING,
	FORGE_STATUS_SUCCEEDED, /* from here on nothing changes any more */
	FORGE_STATUS_FAILED,
	FORGE_STATUS_KILLED,
	FORGE_STATUS_CANCELLED,
	FORGE_STATUS_CORRUPTED,
	FORGE_STATUS_LOST,
	FORGE_STATUS_REJECTED,
	FORGE_STATUS_COUNT,
};

/* "queued" ...; "" for FORGE_STATUS_NONE. */
const char *forge_status_name(enum forge_status s);
/* FORGE_STATUS_NONE for NULL and for a word that is no status. */
enum forge_status forge_status_of(const char *name);
static inline bool forge_status_is_terminal(enum forge_status s)
{
	return s >= FORGE_STATUS_SUCCEEDED;
}
/* Whether a run in state from may change to state to. */
bool forge_status_may_follow(enum forge_status from, enum forge_status to);
