/* SPDX-License-Identifier: Apache-2.0 */
/*
 * $FORGE_HOME/pipelines/<name>-<digits>/: which process is the head of a pipeline file, and what it has reported.
 *
 *	lock          held by the head
 *	events.jsonl  the events of the last head, one a line; the last one of a head that was not killed is "end"
 *
 * A second head on the same file follows the first: it shows these events. When the first is killed, the second takes
 * its place.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "pipeline/pipeline.h"
#include "state/home.h"

struct forge_journal {
	int dir_fd, lock_fd, events_fd; /* -1: none */
};
#define FORGE_JOURNAL_INIT ((struct forge_journal){ -1, -1, -1 })

/* 0: this process is the head now. 1: another one is. */
FORGE_MUST_CHECK int forge_journal_open(const struct forge_home *home,
					const struct forge_pipeline *p,
					struct forge_journal *ret,
					struct forge_error *err);
/* Adds an event. That it cannot be written is no reason to stop. */
void forge_journal_add(struct forge_journal *j, const json_t *event);
/*
 * Calls visit for each event of the head, from its first one, as they come, until it ends. 0: it has ended, and
 * *ret_status is the exit status that it reported; 1: it was killed; -ECANCELED: stop_fd became readable. tick is called
 * in between, some times a second; it may be NULL.
 */
FORGE_MUST_CHECK int forge_journal_follow(struct forge_journal *j, int stop_fd,
					  void (*visit)(void *arg, const json_t *event),
					  void (*tick)(void *arg), void *arg,
					  int *ret_status, struct forge_error *err);
void forge_journal_close(struct forge_journal *j);
#define forge_auto_journal FORGE_CLEANUP(forge_journal_close)
