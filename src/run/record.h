/* SPDX-License-Identifier: Apache-2.0 */
/* record.json and events.jsonl of a run, in $FORGE_HOME/runs/<run_id>/. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "executor/executor.h"
#include "run/home.h"
#include "run/judge.h"
#include "run/spec.h"

struct forge_record {
	json_t *json;
	int dir_fd; /* the run's directory */
	int events_fd;
	int log_fd[2];
};
#define FORGE_RECORD_INIT ((struct forge_record){ NULL, -1, -1, { -1, -1 } })

/*
 * Makes the directory with its files; the record says "preparing" and is in memory only: the
 * active file carries it until there is a verdict.
 */
FORGE_MUST_CHECK int forge_record_open(const struct forge_home *home,
				       const struct forge_spec *s,
				       struct forge_record *ret, struct forge_error *err);
/* One line in events.jsonl, with the time. detail may be NULL. */
void forge_record_event(struct forge_record *r, const char *event, const char *detail);
void forge_record_set_outcome(struct forge_record *r, const struct forge_outcome *o,
			      const struct forge_verdict *v);
/* Writes record.json and waits for the disk: called once, with the verdict. */
FORGE_MUST_CHECK int forge_record_write(struct forge_record *r, struct forge_error *err);
/* Closes the files; json stays if it was taken. */
void forge_record_close(struct forge_record *r);
/* True for a status that never changes again. */
bool forge_status_is_terminal(const char *status);
